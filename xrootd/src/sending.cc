#include "sending.hh"

#include <climits>
#include <new>

#include "XrdOuc/XrdOucErrInfo.hh"
#include "XrdOuc/XrdOucSFVec.hh"
#include "XrdSfs/XrdSfsDio.hh"
#include "XrdSfs/XrdSfsFlags.hh"
#include "XrdXrootd/XrdXrootdBridge.hh"
#include "file.hh"

namespace thumper {

namespace {

// XRootD's answer for "ask by SendData".
constexpr int by_asking = static_cast<int>(SFS_SFIO_FDVAL);
static_assert(by_asking == INT_MIN, "no file has it for a number");

// Sends what is lent; as XRootD's call says it.
int send(XrdSfsDio &to, const Lease &lease) {
  // The first is XRootD's own.
  XrdOucSFVec parts[XrdOucSFVec::sfMax] = {};
  int count = 1;
  for (auto &piece : lease) {
    auto &part = parts[count++];
    part.offset = static_cast<off_t>(piece.offset);
    part.sendsz = static_cast<int>(piece.length);
    part.fdnum = lease.fd();
  }
  return to.SendFile(parts, count);
}

}  // namespace

// XRootD is asked each time: what it has taken out of use has no number of ours any more.
File *SentFile::ours() {
  XrdOucErrInfo answer;
  if (file_->fctl(SFS_FCTL_GETFD, nullptr, answer) != SFS_OK) return nullptr;
  return site_.lending().find(answer.getErrInfo());
}

// Where nothing is lent XRootD reads asynchronously: so it is not told to ask where its first question would be for nothing.
int SentFile::fctl(const int command, const char *args, XrdOucErrInfo &to) {
  int status = file_->fctl(command, args, to);
  if (command != SFS_FCTL_GETFD || status != SFS_OK) return status;
  if (auto *file = site_.lending().find(to.getErrInfo())) {
    to.setErrCode(file->can_lend() ? by_asking : Lending::none);
  } else if (only_lent_) {
    to.setErrCode(Lending::none);
  }
  return status;
}

// XRootD looks at what was sent, and not at what is returned, as long as that is SFS_OK: if nothing was it reads, and if
// that failed it ends the connection.
int SentFile::SendData(XrdSfsDio *to, XrdSfsFileOffset offset, XrdSfsXferSize size) {
  auto *file = ours();
  if (!file) return file_->SendData(to, offset, size);
  // For its web server XRootD 5.5 sends the first piece alone.
  bool is_bridged = dynamic_cast<XrdXrootd::Bridge *>(to);
  int status = 1;
  if (auto lease = file->lend(offset, size, is_bridged ? 1 : Lease::most)) status = send(*to, lease);
  if (status == 0) {
    file->note_sent(size);
  } else {
    to->SetFD(Lending::none);
  }
  return SFS_OK;
}

Sending::Sending(XrdSfsFileSystem &native, Site &site) : native_(native), site_(site) {
  // Our storage says that its files have nothing to be sent: here they do.
  only_lent_ = native_.Features() & XrdSfs::hasNOSF;
  FeatureSet = native_.Features() & ~XrdSfs::hasNOSF;
}

XrdSfsFile *Sending::sent(XrdSfsFile *file) {
  std::unique_ptr<XrdSfsFile> held(file);
  return held ? new (std::nothrow) SentFile(std::move(held), site_, only_lent_) : nullptr;
}

}  // namespace thumper
