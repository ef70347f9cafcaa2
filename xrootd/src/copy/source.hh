// The file of another server that is copied.
//
// The one idea: several reads are always under way, and are taken in their order; XRootD's client checks each page that
// comes. A server that has gone is not waited for: its permission for the copy would be gone with it. There is one
// connection: of several, XRootD 5.5 loses answers if it reads asynchronously.

#pragma once

#include <XrdCl/XrdClFile.hh>

#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace thumper {

class Source {
 public:
  // Throws Failure, as all here; what is read is not waited for any more as soon as `ended` is not 0.
  Source(const std::string &url, const volatile std::sig_atomic_t &ended);
  ~Source();

  std::uint64_t size() const { return size_; }
  // The next bytes; valid until the next call. `length` 0: the end.
  const char *next(std::size_t &length);
  // The checksum of this kind that the server has or makes, in hexadecimal digits.
  std::string checksum(const std::string &kind);

 private:
  // One read that is under way.
  struct Slot;

  void ask(Slot &slot);
  // The address as people may see it: the rest of it is a key.
  std::string shown() const;

  std::string url_;
  const volatile std::sig_atomic_t &ended_;
  XrdCl::File file_;
  std::uint64_t size_ = 0, asked_ = 0, taken_ = 0;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::size_t at_ = 0;
  Slot *given_ = nullptr;
};

}  // namespace thumper
