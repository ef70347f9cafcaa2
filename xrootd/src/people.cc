#include "people.hh"

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "XrdOuc/XrdOucEnv.hh"
#include "XrdSec/XrdSecEntity.hh"

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

}  // namespace

People::People(const std::string &file) : open_(false) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error(file + ": cannot be read");
  std::string text;
  for (unsigned number = 1; std::getline(in, text); number++) {
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
    lines_.push_back(std::move(line));
  }
  if (in.bad()) throw std::runtime_error(file + ": cannot be read to its end");
}

const Person *People::of(const XrdOucEnv *env) const {
  const XrdSecEntity *entity = env ? env->secEnv() : nullptr;
  if (open_ || !entity) return &root_;
  std::string protocol(entity->prot, strnlen(entity->prot, sizeof(entity->prot)));
  for (const Line &line : lines_) {
    if ((line.protocol == "*" || line.protocol == protocol) && fits(line.name, *entity)) return &line.person;
  }
  return nullptr;
}

}  // namespace thumper
