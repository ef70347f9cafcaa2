// An open file.
//
// The one idea: a handle of the client library, which any number of threads may use at once; so nothing is locked here.
// A file that could be written is on stable storage when its close has returned, if the site does not say otherwise.

#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "XrdOss/XrdOss.hh"
#include "site.hh"

namespace thumper {

class File final : public XrdOssDF {
 public:
  // How the client library opens what may be written: XRootD's clients that lost their connection open a file anew and
  // write what is left.
  static constexpr std::uint32_t to_write = THUMPER_WRITE | THUMPER_DIGESTS | THUMPER_UNBROKEN;

  File(Site &site, const char *tident) : XrdOssDF(tident, DF_isFile), site_(site) {}
  ~File() override;

  int Open(const char *path, int flags, mode_t mode, XrdOucEnv &env) override;
  int Close(long long *size = nullptr) override;

  ssize_t Read(off_t offset, size_t size) override;
  ssize_t Read(void *buffer, off_t offset, size_t size) override;
  ssize_t ReadRaw(void *buffer, off_t offset, size_t size) override;
  ssize_t ReadV(XrdOucIOVec *pieces, int count) override;
  ssize_t Write(const void *buffer, off_t offset, size_t size) override;
  int Read(XrdSfsAio *aio) override;
  int Write(XrdSfsAio *aio) override;

  int Fsync() override;
  int Fsync(XrdSfsAio *aio) override;
  int Ftruncate(unsigned long long size) override;
  int Fchmod(mode_t mode) override;
  int Fstat(struct stat *to) override;
  int Fctl(int command, int length, const char *args, char **response = nullptr) override;

 private:
  ssize_t counted_read(ssize_t got);
  // Of a file that another server's is to come into: tells the copy program.
  int leave_ticket(XrdOucEnv &env);
  void written_to(std::uint64_t end);
  void end_copy();

  Site &site_;
  thumper_file *file_ = nullptr;
  bool writable_ = false;
  // When it was opened, until XRootD has asked what was.
  std::chrono::steady_clock::time_point fresh_;
  std::atomic<bool> is_fresh_{false};
  // How long it is, as far as is known here.
  std::atomic<std::uint64_t> size_{0};
  // Why a write came to nothing of which XRootD was told that it is done: minus a number of errno(3).
  std::atomic<int> failed_{0};
  std::string ticket_;
  std::string path_;
  Person person_;
};

}  // namespace thumper
