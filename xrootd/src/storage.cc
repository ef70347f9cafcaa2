#include "storage.hh"

#include <fcntl.h>

#include <cstdlib>

#include "XrdOuc/XrdOucEnv.hh"
#include "directory.hh"
#include "file.hh"
#include "made.hh"
#include "wall.hh"

namespace thumper {

XrdOssDF *Storage::newDir(const char *tident) { return new (std::nothrow) Directory(site_, tident); }

XrdOssDF *Storage::newFile(const char *tident) { return new (std::nothrow) File(site_, tident); }

// There is no descriptor to send from. Its asynchronous calls XRootD may use: they are answered at once, but their
// buffers go from client to client, where each of a thousand clients would else keep one of a mebibyte.
// Copies from other servers go through a program, which is told in a ticket what it is to write.
uint64_t Storage::Features() { return XRDOSS_HASNOSF | XRDOSS_HASRPXY; }

int Storage::Chmod(const char *path, mode_t mode, XrdOucEnv *env) {
  return walled([&]() -> int {
    if (site_.is_nobodys(env)) return -EPERM;
    Call call(site_, env, path);
    if (call.error) return answer(call.error);
    return answer(thumper_chmod(call.client, &call.who, call.path.c_str(), mode));
  });
}

// XRootD makes a file by this, and opens it by another call.
int Storage::Create(const char *, const char *path, mode_t mode, XrdOucEnv &env, int options) {
  return walled([&]() -> int {
    Call call(site_, &env, path);
    if (call.error) return answer(call.error);
    // Who says how much will come is told at once that there is no room, with that of what is emptied for it.
    if (const char *announced = env.Get("oss.asize")) {
      thumper_space space{};
      thumper_stat there{};
      auto comes = std::strtoull(announced, nullptr, 10);
      if (space_around(path, space) == 0 && comes > space.free) {
        bool empties = (options >> 8) & O_TRUNC;
        if (empties) thumper_stat_path(call.client, &call.who, call.path.c_str(), 1, &there);
        if (comes > space.free + there.allocated) return -ENOSPC;
      }
    }
    Made::forget();
    std::uint32_t how = File::to_write | THUMPER_READ | THUMPER_CREATE;
    // O_EXCL alone comes for who may make files, and change none that are there.
    if (options & XRDOSS_new || (options >> 8) & O_EXCL) how |= THUMPER_NEW;
    if (options & XRDOSS_mkpath) how |= THUMPER_PARENTS;
    if ((options >> 8) & O_TRUNC) how |= THUMPER_TRUNCATE;
    int error = 0;
    auto open = [&] { return thumper_open(call.client, &call.who, call.path.c_str(), how, mode, &error); };
    if (auto *file = open()) {
      // A copy from another server may be refused before it is opened.
      if (!(how & (THUMPER_NEW | THUMPER_TRUNCATE)) || env.Get("tpc.key")) return answer(thumper_close(file, 0));
      Made::keep(env, call, file);
      return 0;
    }
    if (error != -EACCES) return answer(error);
    // Who may write a file need not be allowed to read it, unless he would get a share in what another has open.
    for (const Person &other : site_.openings().at(call.path)) {
      if (!(other == call.person)) return answer(error);
    }
    how &= ~static_cast<std::uint32_t>(THUMPER_READ);
    auto *file = open();
    return answer(file ? thumper_close(file, 0) : error);
  });
}

int Storage::Mkdir(const char *path, mode_t mode, int parents, XrdOucEnv *env) {
  return walled([&]() -> int {
    if (site_.is_nobodys(env)) return -EPERM;
    Call call(site_, env, path);
    if (call.error) return answer(call.error);
    int status = thumper_mkdir(call.client, &call.who, call.path.c_str(), mode, parents);
    // XRootD's own storage layer is content with a directory that is there; scripts of sites have come to need it.
    thumper_stat stat{};
    if (status == -EEXIST && thumper_stat_path(call.client, &call.who, call.path.c_str(), 1, &stat) == 0 &&
        S_ISDIR(stat.mode)) {
      return 0;
    }
    return answer(status);
  });
}

int Storage::Remdir(const char *path, int, XrdOucEnv *env) {
  return walled([&]() -> int {
    if (site_.is_nobodys(env)) return -EPERM;
    Call call(site_, env, path);
    if (call.error) return answer(call.error);
    return answer(thumper_rmdir(call.client, &call.who, call.path.c_str()));
  });
}

int Storage::Rename(const char *from, const char *to, XrdOucEnv *env, XrdOucEnv *to_env) {
  return walled([&]() -> int {
    if (site_.is_nobodys(env ? env : to_env)) return -EPERM;
    Call call(site_, env ? env : to_env, from);
    if (call.error) return answer(call.error);
    Call target(site_, env ? env : to_env, to);
    if (target.error) return answer(target.error);
    auto rename = [&] { return thumper_rename(call.client, &call.who, call.path.c_str(), target.path.c_str()); };
    int status = rename();
    thumper_stat stat{};
    if (status == -ENOENT && thumper_stat_path(call.client, &call.who, call.path.c_str(), 0, &stat) == 0) {
      // As XRootD's own storage layer: directories on the way to the new name are made.
      auto parent = target.path.substr(0, target.path.rfind('/'));
      status = thumper_mkdir(call.client, &call.who, parent.c_str(), 0755, 1);
      if (status == 0) status = rename();
    }
    return answer(status);
  });
}

int Storage::Stat(const char *path, struct stat *to, int, XrdOucEnv *env) {
  return walled([&]() -> int {
    Call call(site_, env, path);
    if (call.error) return answer(call.error);
    thumper_stat stat{};
    int status = thumper_stat_path(call.client, &call.who, call.path.c_str(), 1, &stat);
    if (status == 0) fill(*to, stat);
    return answer(status);
  });
}

int Storage::Truncate(const char *path, unsigned long long size, XrdOucEnv *env) {
  return walled([&]() -> int {
    if (site_.is_nobodys(env)) return -EPERM;
    Call call(site_, env, path);
    if (call.error) return answer(call.error);
    return answer(thumper_truncate(call.client, &call.who, call.path.c_str(), size));
  });
}

// What XRootD does for itself it does for nobody, and by a path alone, which may lead to another file by now, or to one
// that its client could not even open. It takes away uploads that have come to no end, which it has marked
// (`XRDSFS_POSCPEND`, the sticky bit); what is not such a file is not there for it.
int Storage::Unlink(const char *path, int, XrdOucEnv *env) {
  return walled([&]() -> int {
    Call call(site_, env, path);
    if (call.error) return answer(call.error);
    if (is_its_own(env)) {
      thumper_stat stat{};
      int status = thumper_stat_path(call.client, &call.who, call.path.c_str(), 0, &stat);
      if (status) return answer(status);
      if (!S_ISREG(stat.mode) || !(stat.mode & S_ISVTX)) return -ENOENT;
    }
    return answer(thumper_unlink(call.client, &call.who, call.path.c_str()));
  });
}

}  // namespace thumper
