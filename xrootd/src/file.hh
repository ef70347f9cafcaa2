// An open file.
//
// The one idea: a handle of the client library, which any number of threads may use at once; so nothing is locked here
// but the beginning of a new file.
// What is written to a file that was empty when it was opened is under way when the write returns, and done when anything else does.
// A file that could be written is on stable storage when its close has returned, if the site does not say otherwise.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "XrdOss/XrdOss.hh"
#include "beginning.hh"
#include "lending.hh"
#include "site.hh"
#include "ticket.hh"

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
  using XrdOssDF::pgWrite;
  int pgWrite(XrdSfsAio *aio, uint64_t options) override;

  int Fsync() override;
  int Fsync(XrdSfsAio *aio) override;
  int Ftruncate(unsigned long long size) override;
  int Fchmod(mode_t mode) override;
  int Fstat(struct stat *to) override;
  int Fctl(int command, int length, const char *args, char **response = nullptr) override;

  // The number by which it is found for what it lends.
  int getFD() override { return lender_ ? lender_->number() : Lending::none; }
  // These bytes where the server has them, in `room` pieces at most.
  Lease lend(off_t offset, size_t size, size_t room);
  // Is it worth asking for that? If it is large, and its beginning is there.
  bool can_lend();
  // So much of it was sent from there.
  void note_sent(size_t size);

  // Writes what is held; what becomes of it whoever asks next is told.
  void hand_over() noexcept;

 private:
  ssize_t counted_read(ssize_t got);
  // Of a file that another server's is to come into: tells the copy program.
  int leave_ticket(XrdOucEnv &env);
  // The end of an asynchronous write of which so much is done, or that has failed.
  int written(XrdSfsAio *aio, ssize_t done);
  Ticket ticket_of() const;
  // The file has just been changed, or will be soon.
  void note_change();
  // Takes away what came of this file, which was empty when it was opened, unless somebody else has written it long after us.
  // False: it may be there still.
  bool undo(const Ticket &file);
  void end_copy();
  // Writes what is held. 0, or minus a number of errno(3), which everything says from then on.
  int settle();
  // Has what is held written in a moment.
  void watch();

  Site &site_;
  thumper_file *file_ = nullptr;
  bool writable_ = false;
  // It was empty when it was opened.
  bool is_made_ = false;
  // Knows, too, why a write failed that XRootD believes to be done: the close says it.
  Beginning beginning_{site_.room()};
  // It is gone.
  std::atomic<bool> is_taken_back_{false};
  // When we changed it last, in seconds since 1970.
  std::atomic<std::int64_t> changed_{0};
  // When it was opened, until XRootD has asked what was.
  std::chrono::steady_clock::time_point fresh_;
  std::atomic<bool> is_fresh_{false};
  std::string ticket_;
  std::string path_;
  Person person_;
  // Where there is a table of people.
  std::optional<Openings::One> opening_;
  // Where something was held.
  std::optional<Lookout::One> watched_;
  // Where nobody writes through it.
  std::optional<Lending::One> lender_;
};

}  // namespace thumper
