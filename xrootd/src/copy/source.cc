#include "source.hh"

#include <XProtocol/XProtocol.hh>
#include <XrdCl/XrdClConstants.hh>
#include <XrdCl/XrdClDefaultEnv.hh>
#include <XrdCl/XrdClFileSystem.hh>
#include <XrdCl/XrdClXRootDResponses.hh>

#include <algorithm>
#include <chrono>
#include <sstream>

#include "failure.hh"

namespace thumper {

namespace {

constexpr std::size_t piece_bytes = 1 << 20;
constexpr std::size_t pieces_under_way = 8;
// How soon it is seen that nobody wants the file any more: a signal wakes nobody who waits for an answer.
constexpr auto look = std::chrono::milliseconds(200);

void check(const XrdCl::XRootDStatus &status, const std::string &what) {
  if (status.IsOK()) return;
  int number = status.code == XrdCl::errErrorResponse ? XProtocol::toErrno(status.errNo) : EIO;
  std::string said = status.ToStr();
  while (!said.empty() && (said.back() == '\n' || said.back() == ' ')) said.pop_back();
  throw Failure(number, what + ": " + said);
}

}  // namespace

struct Source::Slot : XrdCl::ResponseHandler {
  std::vector<char> bytes = std::vector<char>(piece_bytes);
  std::uint64_t offset = 0;
  std::uint32_t asked = 0, got = 0;
  bool under_way = false;
  XrdCl::XRootDStatus status;
  std::mutex lock;
  std::condition_variable came;

  // Its answer has somewhere to go, also where opening has come to no end.
  ~Slot() override { wait(); }

  void HandleResponse(XrdCl::XRootDStatus *said, XrdCl::AnyObject *response) override {
    std::unique_ptr<XrdCl::XRootDStatus> owned(said);
    std::unique_ptr<XrdCl::AnyObject> answer(response);
    std::lock_guard<std::mutex> held(lock);
    status = *said;
    XrdCl::PageInfo *page = nullptr;
    if (status.IsOK() && answer) answer->Get(page);
    got = page ? page->GetLength() : 0;
    under_way = false;
    came.notify_all();
  }

  void wait() {
    std::unique_lock<std::mutex> held(lock);
    came.wait(held, [this] { return !under_way; });
  }

  // The same; false: it has ended before.
  bool wait_until(const volatile std::sig_atomic_t &ended) {
    std::unique_lock<std::mutex> held(lock);
    while (!came.wait_for(held, look, [this] { return !under_way; })) {
      if (ended) return false;
    }
    return true;
  }
};

Source::Source(const std::string &url, const volatile std::sig_atomic_t &ended) : url_(url), ended_(ended) {
  auto *env = XrdCl::DefaultEnv::GetEnv();
  // What the environment says (XRD_..) goes before these.
  env->PutInt("ConnectionWindow", 20);
  env->PutInt("ConnectionRetry", 2);
  env->PutInt("StreamErrorWindow", 20);
  file_.SetProperty("ReadRecovery", "false");
  check(file_.Open(url_, XrdCl::OpenFlags::Read), "opening " + shown());
  XrdCl::StatInfo *found = nullptr;
  auto status = file_.Stat(false, found);
  std::unique_ptr<XrdCl::StatInfo> stat(found);
  check(status, "attributes of " + shown());
  size_ = stat->GetSize();
  for (std::size_t i = 0; i < pieces_under_way && asked_ < size_; i++) {
    slots_.push_back(std::make_unique<Slot>());
    ask(*slots_.back());
  }
}

Source::~Source() {
  for (auto &slot : slots_) slot->wait();
  if (file_.IsOpen()) (void)file_.Close().IsOK();
}

void Source::ask(Slot &slot) {
  slot.offset = asked_;
  slot.asked = static_cast<std::uint32_t>(std::min<std::uint64_t>(piece_bytes, size_ - asked_));
  slot.got = 0;
  slot.under_way = true;
  asked_ += slot.asked;
  auto status = file_.PgRead(slot.offset, slot.asked, slot.bytes.data(), &slot);
  if (!status.IsOK()) {
    slot.under_way = false;
    check(status, "reading " + shown());
  }
}

const char *Source::next(std::size_t &length) {
  if (given_ && asked_ < size_) ask(*given_);
  given_ = nullptr;
  length = 0;
  if (taken_ == size_) return nullptr;
  Slot &slot = *slots_[at_];
  at_ = (at_ + 1) % slots_.size();
  if (!slot.wait_until(ended_)) throw Failure(ECANCELED, "xrootd has ended");
  check(slot.status, "reading " + shown());
  if (slot.got != slot.asked) {
    throw Failure(EIO, shown() + " ended at " + std::to_string(slot.offset + slot.got) + " bytes, of " +
                           std::to_string(size_));
  }
  taken_ += slot.got;
  given_ = &slot;
  length = slot.got;
  return slot.bytes.data();
}

std::string Source::checksum(const std::string &kind) {
  XrdCl::URL url(url_);
  XrdCl::FileSystem server(url);
  auto params = url.GetParams();
  params["cks.type"] = kind;
  url.SetParams(params);
  XrdCl::Buffer words;
  words.FromString(url.GetPathWithParams());
  XrdCl::Buffer *found = nullptr;
  auto status = server.Query(XrdCl::QueryCode::Checksum, words, found);
  std::unique_ptr<XrdCl::Buffer> answer(found);
  check(status, "the checksum of " + shown());
  std::string said_kind, digits;
  std::istringstream(answer->ToString()) >> said_kind >> digits;
  if (said_kind != kind || digits.empty()) {
    throw Failure(EIO, "the checksum of " + shown() + ": asked for " + kind + ", told " + answer->ToString());
  }
  return digits;
}

std::string Source::shown() const { return url_.substr(0, url_.find('?')); }

}  // namespace thumper
