#include "directory.hh"

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
  int status = thumper_readdir(dir_, name, static_cast<std::size_t>(size), &stat);
  if (status < 0) return answer(status);
  if (status == 0) {
    *name = '\0';
  } else if (stat_) {
    fill(*stat_, stat);
  }
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
