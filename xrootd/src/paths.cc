#include "paths.hh"

#include <cerrno>
#include <cstring>

namespace thumper {

namespace {
constexpr std::size_t path_max = 4095;
}

int plain(const char *path, std::string &out) {
  out.clear();
  if (!path) return -EINVAL;
  if (std::strlen(path) > path_max) return -ENAMETOOLONG;
  for (const char *at = path; *at;) {
    std::size_t length = std::strcspn(at, "/");
    std::string name(at, length);
    if (name == "..") return -EINVAL;
    if (!name.empty() && name != ".") out.append("/").append(name);
    at += length + (at[length] == '/');
  }
  if (out.empty()) out = "/";
  return 0;
}

}  // namespace thumper
