// What is lent of files, to be sent from where the server has it, and the numbers by which these files are found.
//
// The one idea: all that XRootD's layers between its clients and the storage system tell each other of an open file is its
// descriptor, and a negative one they hand on and make nothing of. So a file that can lend has a negative number of its own
// there, and who comes in above these layers finds it by that.

#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "XrdOuc/XrdOucSFVec.hh"
#include "thumper.h"

namespace thumper {

class File;

// Bytes of a file where the server has them, as long as it lives; false if they are to be read.
class Lease {
 public:
  // So many pieces XRootD sends at once, behind what it says itself.
  static constexpr std::size_t most = XrdOucSFVec::sfMax - 1;

  // Nothing.
  Lease() = default;
  // All of these bytes, in `room` pieces at most, or nothing.
  Lease(thumper_file *file, std::uint64_t offset, std::size_t size, std::size_t room);
  ~Lease() { give_back(); }
  Lease(const Lease &) = delete;
  Lease &operator=(const Lease &) = delete;

  explicit operator bool() const { return lease_; }
  int fd() const { return fd_; }
  const thumper_piece *begin() const { return pieces_.data(); }
  const thumper_piece *end() const { return pieces_.data() + count_; }

 private:
  void give_back();

  thumper_lease *lease_ = nullptr;
  std::size_t count_ = 0;
  int fd_ = -1;
  std::array<thumper_piece, most> pieces_;
};

// The files that can lend.
class Lending {
 public:
  // The number of those that cannot.
  static constexpr int none = -1;

  // One that can, as long as it lives.
  class One {
   public:
    // Throws if there is no memory for it.
    One(Lending &of, File &file);
    ~One();
    One(const One &) = delete;
    One &operator=(const One &) = delete;

    int number() const { return number_; }

   private:
    Lending &of_;
    int number_;
  };

  // The file with this number, or null. XRootD closes none that it does anything with.
  File *find(int number);

 private:
  static constexpr int first = none - 1;
  // By the smallest of all XRootD says that it is to ask for what it sends.
  static constexpr int last = INT_MIN + 1;

  std::mutex lock_;
  std::unordered_map<int, File *> all_;
  int next_ = first;
};

}  // namespace thumper
