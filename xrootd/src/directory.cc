#include "directory.hh"

#include <algorithm>
#include <climits>
#include <cstring>

#include "wall.hh"

namespace thumper {

int Directory::Opendir(const char *path, XrdOucEnv &env) {
  return walled([&]() -> int {
    if (dir_) return -EINVAL;
    Call call(site_, &env, path);
    if (call.error) return answer(call.error);
    int error = 0;
    dir_ = thumper_opendir(call.client, &call.who, call.path.c_str(), &error);
    return dir_ ? 0 : answer(error);
  });
}

int Directory::Readdir(char *name, int size) {
  if (!dir_) return -EBADF;
  if (size < 1) return -EINVAL;
  thumper_stat stat{};
  // XRootD has room for one byte less than the longest name, and takes an error for the end of the directory.
  char whole[NAME_MAX + 1];
  int status = thumper_readdir(dir_, whole, sizeof(whole), &stat);
  if (status < 0) return answer(status);
  if (status == 0) {
    *name = '\0';
    return 0;
  }
  auto length = std::min(std::strlen(whole), static_cast<std::size_t>(size) - 1);
  std::memcpy(name, whole, length);
  name[length] = '\0';
  if (stat_) fill(*stat_, stat);
  return 0;
}

// Where the attributes of each entry go from now on.
int Directory::StatRet(struct stat *to) {
  if (!dir_) return -EBADF;
  stat_ = to;
  return 0;
}

int Directory::Close(long long *) {
  if (!dir_) return -EBADF;
  thumper_closedir(dir_);
  dir_ = nullptr;
  return 0;
}

}  // namespace thumper
