#include "people.hh"

#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "XrdSec/XrdSecEntity.hh"
#include "XrdSec/XrdSecEntityAttr.hh"

namespace thumper {

namespace {

// Is `name` one of the words of `list`?
bool among(const char *list, const std::string &name) {
  std::istringstream in(list ? list : "");
  for (std::string word; in >> word;) {
    if (word == name) return true;
  }
  return false;
}

bool fits(const std::string &name, const XrdSecEntity &entity) {
  if (name == "*") return true;
  if (name[0] == '@') return among(entity.vorg, name.substr(1));
  if (name[0] == '%') return among(entity.grps, name.substr(1));
  return entity.name && name == entity.name;
}

std::uint32_t id(const std::string &word) {
  std::uint64_t out = 0;
  for (char c : word) {
    if (c < '0' || c > '9' || word.size() > 10) throw std::runtime_error("'" + word + "' is no number");
    out = out * 10 + static_cast<std::uint64_t>(c - '0');
  }
  // The last number means "nobody" to the calls that change owners.
  if (out >= UINT32_MAX) throw std::runtime_error("'" + word + "' is too large");
  return static_cast<std::uint32_t>(out);
}

Table read(const std::string &file) {
  Table lines;
  std::ifstream in(file);
  if (!in) throw std::runtime_error(file + ": cannot be read");
  std::string text;
  for (unsigned number = 1; std::getline(in, text); number++) {
    // Somebody may be writing it: half a number is another one.
    if (in.eof()) throw std::runtime_error(file + ":" + std::to_string(number) + ": the line has no end");
    std::istringstream words(text.substr(0, text.find('#')));
    Line line;
    if (!(words >> line.protocol)) continue;
    try {
      std::string uid, gid;
      if (!(words >> line.name >> uid >> gid)) throw std::runtime_error("PROTOCOL NAME UID GID is expected");
      line.person.uid = id(uid);
      line.person.gid = id(gid);
      for (std::string group; words >> group;) line.person.groups.push_back(id(group));
    } catch (const std::runtime_error &error) {
      throw std::runtime_error(file + ":" + std::to_string(number) + ": " + error.what());
    }
    lines.push_back(std::move(line));
  }
  if (in.bad()) throw std::runtime_error(file + ": cannot be read to its end");
  return lines;
}

bool is_same(const struct stat &a, const struct stat &b) {
  return a.st_ino == b.st_ino && a.st_dev == b.st_dev && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

std::int64_t seconds_now() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace

People::People(const std::string &file, std::function<void(const std::string &)> say)
    : file_(file), say_(std::move(say)), looked_(seconds_now()) {
  if (file_.empty()) return;
  // Before it is read: what changes meanwhile is read again.
  stat(file_.c_str(), &seen_);
  table_ = std::make_shared<const Table>(read(file_));
}

std::shared_ptr<const Table> People::table() {
  std::lock_guard<std::mutex> held(lock_);
  auto now = seconds_now();
  if (now == looked_) return table_;
  looked_ = now;
  struct stat found {};
  // While it is away (somebody replaces it) the last one holds.
  if (stat(file_.c_str(), &found) != 0 || is_same(found, seen_)) return table_;
  seen_ = found;
  try {
    table_ = std::make_shared<const Table>(read(file_));
    say_(file_ + ": the table of people was read again");
  } catch (const std::runtime_error &error) {
    say_(std::string(error.what()) + "; the table stays as it was");
  }
  return table_;
}

bool People::find(const XrdSecEntity *entity, Person &person) {
  if (file_.empty() || !entity) {
    person = {};
    return true;
  }
  auto lines = table();
  std::string protocol(entity->prot, strnlen(entity->prot, sizeof(entity->prot)));
  // Whom XRootD's authorization has found a token to name is no other any more.
  std::string named;
  bool has_token = entity->eaAPI && entity->eaAPI->Get("request.name", named) && !named.empty();
  for (const Line &line : *lines) {
    bool is_his = has_token ? line.protocol == "token" && (line.name == "*" || line.name == named)
                            : (line.protocol == "*" || line.protocol == protocol) && fits(line.name, *entity);
    if (!is_his) continue;
    person = line.person;
    return true;
  }
  return false;
}

}  // namespace thumper
