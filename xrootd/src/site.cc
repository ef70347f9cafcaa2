#include "site.hh"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <stdexcept>

#include "XrdOuc/XrdOucEnv.hh"
#include "paths.hh"
#include "queue.hh"

namespace thumper {

namespace {

// Is this the cluster's daemon, which loads the same library to ask what is here?
bool in_cmsd() {
  const char *program = std::getenv("XRDPROG");
  return program && std::string(program) == "cmsd";
}

std::atomic<Site *> the_site{nullptr};
std::atomic<bool> has_authority{false};

}  // namespace

bool is_its_own(const XrdOucEnv *env) { return !env || !env->secEnv(); }

Site &Site::of(const char *words, XrdSysLogger *logger) {
  static std::mutex lock;
  std::lock_guard<std::mutex> held(lock);
  std::string text = words ? words : "";
  Site *site = made();
  if (!site) {
    if (thumper_abi() != THUMPER_ABI) throw std::runtime_error("the client library has another version");
    // It stays until the process ends: threads of XRootD's may be in it to the last.
    site = new Site(text, logger);
    the_site.store(site, std::memory_order_release);
  } else if (site->words_ != text) {
    throw std::runtime_error("there is one tree in a process: '" + site->words_ + "'");
  }
  return *site;
}

Site *Site::made() { return the_site.load(std::memory_order_acquire); }

Site::Site(const std::string &words, XrdSysLogger *logger)
    : words_(words),
      options_(Options::parse(words.c_str())),
      log_(logger, "thumper_"),
      people_(options_.map, [this](const std::string &what) { log_.Emsg("Thumper", what.c_str()); }) {
  if (in_cmsd()) {
    // Whoever asks the cluster where a file is does not wait for a server that is away.
    options_.patience = 0;
  } else if (options_.backlog > 0) {
    widen_queues(static_cast<int>(options_.backlog));
  }
}

thumper_client *Site::client(int &error) {
  error = 0;
  if (auto *client = client_.load(std::memory_order_acquire)) return client;
  // The thread that connects may wait that long for a server that greets nobody yet. A thread that waits for it waits no longer
  // than it would by itself.
  std::unique_lock<std::timed_mutex> held(lock_, std::chrono::seconds(std::max(options_.patience, 1u)));
  auto *client = client_.load(std::memory_order_acquire);
  if (!client && !held) error = -ENOTCONN;
  if (!client && held) {
    client = thumper_connect(options_.socket.c_str(), options_.tree.c_str(), options_.lanes, options_.patience * 1000,
                             &error);
    client_.store(client, std::memory_order_release);
  }
  return client;
}

bool Site::holds_tickets(const std::string &path) const {
  auto slash = path.rfind('/');
  return !tickets_.empty() && slash != std::string::npos && path.compare(0, slash, tickets_) == 0;
}

void Site::guard() { has_authority.store(true, std::memory_order_release); }

bool Site::is_guarded() {
  if (!people_.have_table() || has_authority.load(std::memory_order_acquire)) return true;
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) {
    log_.Emsg("Thumper", "nobody is let in: map= needs the lines 'ofs.authorize' and 'ofs.authlib libXrdThumper.so'");
  }
  return false;
}

void Site::note_answer(int status, const char *path) {
  if (unanswered_.exchange(status) == status || status == 0) return;
  auto why = std::string("may be used, so nobody is let in: ") + thumper_message();
  log_.Emsg("Thumper", "cannot ask by whom", path, why.c_str());
}

Call::Call(Site &site, const XrdOucEnv *env, const char *raw) : Call(site, env ? env->secEnv() : nullptr, raw) {}

Call::Call(Site &site, const XrdSecEntity *entity, const char *raw) {
  error = plain(raw, path);
  if (error) return;
  if ((entity && !site.is_guarded()) || !site.people().find(entity, person)) {
    error = -EACCES;
    return;
  }
  who = person.subject();
  client = site.client(error);
}

void fill(struct stat &to, const thumper_stat &from) {
  to = {};
  to.st_dev = from.device;
  to.st_ino = from.object;
  to.st_mode = from.mode;
  to.st_nlink = from.links;
  to.st_uid = from.uid;
  to.st_gid = from.gid;
  to.st_size = static_cast<off_t>(from.size);
  to.st_blksize = 1 << 20;
  to.st_blocks = static_cast<blkcnt_t>(from.allocated / 512);
  to.st_atim = {from.atime, from.atime_nanos};
  to.st_mtim = {from.mtime, from.mtime_nanos};
  to.st_ctim = {from.ctime, from.ctime_nanos};
}

}  // namespace thumper
