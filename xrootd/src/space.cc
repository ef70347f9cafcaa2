// What XRootD, its clients and a cluster's manager ask about space, and about a file in one line.
//
// The one idea: space is that of the file system that a path is in, with its quotas and reservations: what could still
// be written there.

#include <cinttypes>
#include <cstdio>
#include <string>

#include "XrdOuc/XrdOucEnv.hh"
#include "paths.hh"
#include "storage.hh"
#include "wall.hh"

namespace thumper {

namespace {

// `size` is the room before, and the length of the text after. ENAMETOOLONG if it does not fit.
template <class... Words>
int say(char *text, int &size, const char *form, Words... words) {
  int length = std::snprintf(text, size > 0 ? static_cast<std::size_t>(size) : 0, form, words...);
  if (length < 0 || length >= size) return -ENAMETOOLONG;
  size = length;
  return 0;
}

long long quota_of(const thumper_space &space) { return space.quota ? static_cast<long long>(space.quota) : -1; }

}  // namespace

int Storage::space_around(const char *path, thumper_space &space) {
  int error = 0;
  auto *client = site_.client(error);
  if (!client) return answer(error);
  std::string at;
  if (int status = plain(path, at)) return status;
  for (;;) {
    int status = thumper_space_of(client, at.c_str(), &space);
    if (status != -ENOENT || at == "/") return answer(status);
    at.resize(at.rfind('/'));
    if (at.empty()) at = "/";
  }
}

int Storage::StatFS(const char *path, char *text, int &size, XrdOucEnv *) {
  return walled([&]() -> int {
    thumper_space space{};
    if (int status = space_around(path, space)) return status;
    auto full = space.total ? static_cast<int>(space.used * 100.0 / static_cast<double>(space.total)) : 0;
    return say(text, size, "1 %" PRIu64 " %d 0 0 0", space.free >> 20, full);
  });
}

int Storage::StatLS(XrdOucEnv &env, const char *path, char *text, int &size) {
  return walled([&]() -> int {
    thumper_space space{};
    if (int status = space_around(path, space)) return status;
    const char *group = env.Get("oss.cgroup");
    return say(text, size,
               "oss.cgroup=%s&oss.space=%" PRIu64 "&oss.free=%" PRIu64 "&oss.maxf=%" PRIu64 "&oss.used=%" PRIu64
               "&oss.quota=%lld",
               group ? group : "public", space.total, space.free, space.free, space.used, quota_of(space));
  });
}

int Storage::StatVS(XrdOssVSInfo *to, const char *, int) {
  return walled([&]() -> int {
    thumper_space space{};
    if (int status = space_around("/", space)) return status;
    to->Total = to->Large = static_cast<long long>(space.total);
    to->Free = to->LFree = static_cast<long long>(space.free);
    to->Usage = static_cast<long long>(space.used);
    to->Quota = quota_of(space);
    to->Extents = 1;
    return 0;
  });
}

int Storage::StatXA(const char *path, char *text, int &size, XrdOucEnv *env) {
  return walled([&]() -> int {
    struct stat stat;
    if (int status = Stat(path, &stat, 0, env)) return status;
    char type = S_ISREG(stat.st_mode) ? 'f' : S_ISDIR(stat.st_mode) ? 'd' : 'o';
    return say(text, size,
               "oss.cgroup=public&oss.type=%c&oss.used=%lld&oss.mt=%lld&oss.ct=%lld&oss.at=%lld"
               "&oss.u=*&oss.g=*&oss.fs=w",
               type, static_cast<long long>(stat.st_size), static_cast<long long>(stat.st_mtime),
               static_cast<long long>(stat.st_ctime), static_cast<long long>(stat.st_atime));
  });
}

// With no room: how long the text can be.
int Storage::Stats(char *text, int size) {
  static const char form[] =
      "<stats id=\"thumper\"><opens>%" PRIu64 "</opens><reads>%" PRIu64 "</reads><rbytes>%" PRIu64
      "</rbytes><writes>%" PRIu64 "</writes><wbytes>%" PRIu64 "</wbytes><errors>%" PRIu64 "</errors></stats>";
  if (!text) return static_cast<int>(sizeof(form)) + 6 * 20;
  auto &c = site_.counters();
  int status = say(text, size, form, c.opens.load(), c.reads.load(), c.read_bytes.load(), c.writes.load(),
                   c.written_bytes.load(), c.errors.load());
  return status ? 0 : size;
}

}  // namespace thumper
