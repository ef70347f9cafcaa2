#include "site.hh"

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "paths.hh"
#include "queue.hh"

namespace thumper {

namespace {

// Is this the cluster's daemon, which loads the same library to ask what is here?
bool in_cmsd() {
  const char *program = std::getenv("XRDPROG");
  return program && std::string(program) == "cmsd";
}

}  // namespace

Site &Site::of(const char *words) {
  static std::mutex lock;
  static std::unique_ptr<Site> site;
  std::lock_guard<std::mutex> held(lock);
  std::string text = words ? words : "";
  if (!site) {
    if (thumper_abi() != THUMPER_ABI) throw std::runtime_error("the client library has another version");
    site.reset(new Site(text));
  } else if (site->words_ != text) {
    throw std::runtime_error("there is one tree in a process: '" + site->words_ + "'");
  }
  return *site;
}

Site::Site(const std::string &words) : words_(words), options_(Options::parse(words.c_str())) {
  if (!options_.map.empty()) people_ = People(options_.map);
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
  std::lock_guard<std::mutex> held(lock_);
  auto *client = client_.load(std::memory_order_acquire);
  if (!client) {
    client = thumper_connect(options_.socket.c_str(), options_.tree.c_str(), options_.lanes, options_.patience * 1000,
                             &error);
    client_.store(client, std::memory_order_release);
  }
  return client;
}

Call::Call(Site &site, const XrdOucEnv *env, const char *raw) {
  error = plain(raw, path);
  if (error) return;
  const Person *found = site.people().of(env);
  if (!found) {
    error = -EACCES;
    return;
  }
  person = *found;
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
