// The layer above XRootD's own file system, by which files' bytes are sent from where the server has them.
//
// The one idea: XRootD sends a file that has a descriptor without looking at its bytes, and asks this layer, and none below
// it, for what a file without one has to be sent. So all is handed on to XRootD's own, but for these two questions, and
// whatever cannot be lent is read as ever.

#pragma once

#include <memory>
#include <utility>

#include "XrdSfs/XrdSfsInterface.hh"
#include "site.hh"

namespace thumper {

// A file of XRootD's own file system.
class SentFile final : public XrdSfsFile {
 public:
  // With `only_lent` no descriptor is to be used that is not ours.
  SentFile(std::unique_ptr<XrdSfsFile> file, Site &site, bool only_lent)
      : XrdSfsFile(*file), file_(std::move(file)), site_(site), only_lent_(only_lent) {}

  // Is it to be sent? Then XRootD asks by `SendData`.
  int fctl(const int command, const char *args, XrdOucErrInfo &to) override;
  int SendData(XrdSfsDio *to, XrdSfsFileOffset offset, XrdSfsXferSize size) override;

  int open(const char *path, XrdSfsFileOpenMode flags, mode_t mode, const XrdSecEntity *client,
           const char *opaque) override {
    return file_->open(path, flags, mode, client, opaque);
  }
  int checkpoint(cpAct act, struct iov *range, int count) override { return file_->checkpoint(act, range, count); }
  int close() override { return file_->close(); }
  int fctl(const int command, int size, const char *args, const XrdSecEntity *client) override {
    return file_->fctl(command, size, args, client);
  }
  const char *FName() override { return file_->FName(); }
  int getMmap(void **at, off_t &size) override { return file_->getMmap(at, size); }
  XrdSfsXferSize pgRead(XrdSfsFileOffset offset, char *buffer, XrdSfsXferSize size, uint32_t *sums,
                        uint64_t options) override {
    return file_->pgRead(offset, buffer, size, sums, options);
  }
  int pgRead(XrdSfsAio *aio, uint64_t options) override { return file_->pgRead(aio, options); }
  XrdSfsXferSize pgWrite(XrdSfsFileOffset offset, char *buffer, XrdSfsXferSize size, uint32_t *sums,
                         uint64_t options) override {
    return file_->pgWrite(offset, buffer, size, sums, options);
  }
  int pgWrite(XrdSfsAio *aio, uint64_t options) override { return file_->pgWrite(aio, options); }
  XrdSfsXferSize read(XrdSfsFileOffset offset, XrdSfsXferSize size) override { return file_->read(offset, size); }
  XrdSfsXferSize read(XrdSfsFileOffset offset, char *buffer, XrdSfsXferSize size) override {
    return file_->read(offset, buffer, size);
  }
  int read(XrdSfsAio *aio) override { return file_->read(aio); }
  XrdSfsXferSize readv(XrdOucIOVec *pieces, int count) override { return file_->readv(pieces, count); }
  XrdSfsXferSize write(XrdSfsFileOffset offset, const char *buffer, XrdSfsXferSize size) override {
    return file_->write(offset, buffer, size);
  }
  int write(XrdSfsAio *aio) override { return file_->write(aio); }
  XrdSfsXferSize writev(XrdOucIOVec *pieces, int count) override { return file_->writev(pieces, count); }
  int stat(struct stat *to) override { return file_->stat(to); }
  int sync() override { return file_->sync(); }
  int sync(XrdSfsAio *aio) override { return file_->sync(aio); }
  int truncate(XrdSfsFileOffset size) override { return file_->truncate(size); }
  int getCXinfo(char type[4], int &size) override { return file_->getCXinfo(type, size); }
  void setXio(XrdSfsXio *xio) override { file_->setXio(xio); }

 private:
  // What there is of ours below, or null.
  File *ours();

  std::unique_ptr<XrdSfsFile> file_;
  Site &site_;
  bool only_lent_;
};

class Sending final : public XrdSfsFileSystem {
 public:
  // `native` is configured.
  Sending(XrdSfsFileSystem &native, Site &site);

  XrdSfsFile *newFile(char *user, int monitor) override { return sent(native_.newFile(user, monitor)); }
  XrdSfsFile *newFile(XrdOucErrInfo &error) override { return sent(native_.newFile(error)); }

  XrdSfsDirectory *newDir(char *user, int monitor) override { return native_.newDir(user, monitor); }
  XrdSfsDirectory *newDir(XrdOucErrInfo &error) override { return native_.newDir(error); }
  int chksum(csFunc what, const char *name, const char *path, XrdOucErrInfo &error, const XrdSecEntity *client,
             const char *opaque) override {
    return native_.chksum(what, name, path, error, client, opaque);
  }
  int chmod(const char *path, XrdSfsMode mode, XrdOucErrInfo &error, const XrdSecEntity *client,
            const char *opaque) override {
    return native_.chmod(path, mode, error, client, opaque);
  }
  void Connect(const XrdSecEntity *client) override { native_.Connect(client); }
  void Disc(const XrdSecEntity *client) override { native_.Disc(client); }
  void EnvInfo(XrdOucEnv *env) override { native_.EnvInfo(env); }
  int exists(const char *path, XrdSfsFileExistence &what, XrdOucErrInfo &error, const XrdSecEntity *client,
             const char *opaque) override {
    return native_.exists(path, what, error, client, opaque);
  }
  int FAttr(XrdSfsFACtl *request, XrdOucErrInfo &error, const XrdSecEntity *client) override {
    return native_.FAttr(request, error, client);
  }
  int FSctl(const int command, XrdSfsFSctl &args, XrdOucErrInfo &error, const XrdSecEntity *client) override {
    return native_.FSctl(command, args, error, client);
  }
  int fsctl(const int command, const char *args, XrdOucErrInfo &error, const XrdSecEntity *client) override {
    return native_.fsctl(command, args, error, client);
  }
  int getChkPSize() override { return native_.getChkPSize(); }
  int getStats(char *text, int size) override { return native_.getStats(text, size); }
  const char *getVersion() override { return native_.getVersion(); }
  int gpFile(gpfFunc &what, XrdSfsGPFile &request, XrdOucErrInfo &error, const XrdSecEntity *client) override {
    return native_.gpFile(what, request, error, client);
  }
  int mkdir(const char *path, XrdSfsMode mode, XrdOucErrInfo &error, const XrdSecEntity *client,
            const char *opaque) override {
    return native_.mkdir(path, mode, error, client, opaque);
  }
  int prepare(XrdSfsPrep &request, XrdOucErrInfo &error, const XrdSecEntity *client) override {
    return native_.prepare(request, error, client);
  }
  int rem(const char *path, XrdOucErrInfo &error, const XrdSecEntity *client, const char *opaque) override {
    return native_.rem(path, error, client, opaque);
  }
  int remdir(const char *path, XrdOucErrInfo &error, const XrdSecEntity *client, const char *opaque) override {
    return native_.remdir(path, error, client, opaque);
  }
  int rename(const char *from, const char *to, XrdOucErrInfo &error, const XrdSecEntity *client,
             const char *from_opaque, const char *to_opaque) override {
    return native_.rename(from, to, error, client, from_opaque, to_opaque);
  }
  int stat(const char *path, struct stat *to, XrdOucErrInfo &error, const XrdSecEntity *client,
           const char *opaque) override {
    return native_.stat(path, to, error, client, opaque);
  }
  int stat(const char *path, mode_t &mode, XrdOucErrInfo &error, const XrdSecEntity *client,
           const char *opaque) override {
    return native_.stat(path, mode, error, client, opaque);
  }
  int truncate(const char *path, XrdSfsFileOffset size, XrdOucErrInfo &error, const XrdSecEntity *client,
               const char *opaque) override {
    return native_.truncate(path, size, error, client, opaque);
  }

 private:
  XrdSfsFile *sent(XrdSfsFile *file);

  XrdSfsFileSystem &native_;
  Site &site_;
  bool only_lent_;
};

}  // namespace thumper
