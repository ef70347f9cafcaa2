#include "authority.hh"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "XrdSec/XrdSecEntity.hh"
#include "XrdSec/XrdSecEntityAttr.hh"
#include "wall.hh"

namespace thumper {

namespace {

struct Asked {
  std::string path;
  Person person;
};

thread_local Asked asked;

// May he write in this directory? Only files can be opened for that.
bool writes_in(const Person &who, const thumper_stat &dir) {
  if (who.uid == 0) return true;
  if (who.uid == dir.uid) return dir.mode & S_IWUSR;
  bool in_group = who.gid == dir.gid || std::count(who.groups.begin(), who.groups.end(), dir.gid) > 0;
  return dir.mode & (in_group ? S_IWGRP : S_IWOTH);
}

int ask_directory(const Call &call, Access_Operation what) {
  if (what == AOP_Read) {
    int error = 0;
    auto *dir = thumper_opendir(call.client, &call.who, call.path.c_str(), &error);
    thumper_closedir(dir);
    return dir ? 0 : error;
  }
  thumper_stat stat{};
  int status = thumper_stat_path(call.client, &call.who, call.path.c_str(), 1, &stat);
  return status ? status : writes_in(call.person, stat) ? 0 : -EACCES;
}

// Has somebody else a file open under this name? It need not be what has the name now: a file that has gone by another door
// is open still, and XRootD gives a share in it to whoever asks for the name.
bool is_held_by_others(Site &site, const Call &call) {
  auto held = site.openings().at(call.path);
  return std::any_of(held.begin(), held.end(), [&](const Person &one) { return !(one == call.person); });
}

// 0, or minus a number of errno(3).
int ask(const XrdSecEntity *entity, const char *path, Access_Operation what) {
  Site *site = Site::made();
  if (!site) return -EACCES;
  Call call(*site, entity, path);
  if (call.error) return call.error;
  if (what == AOP_Read || what == AOP_Update) {
    int error = 0;
    // XRootD's open file, in which whoever comes next has a share, can be read as well.
    std::uint32_t how = what == AOP_Read ? THUMPER_READ : THUMPER_READ | THUMPER_WRITE;
    auto *file = thumper_open(call.client, &call.who, call.path.c_str(), how, 0, &error);
    thumper_close(file, 0);
    if (file) return 0;
    if (is_held_by_others(*site, call)) return -EACCES;
    return error == -EISDIR ? ask_directory(call, what) : error;
  }
  if (what == AOP_Stat) {
    thumper_stat stat{};
    int status = thumper_stat_path(call.client, &call.who, call.path.c_str(), 1, &stat);
    asked = status == 0 && entity ? Asked{call.path, call.person} : Asked{};
    return status;
  }
  // The storage system is told who asks, and asks the server for him.
  return 0;
}

// What is not there, or is no name, has nothing to keep from anybody; the call itself says so.
bool is_nothing(int status) {
  return status == -ENOENT || status == -ENOTDIR || status == -EINVAL || status == -ENAMETOOLONG;
}

}  // namespace

XrdAccPrivs Authority::Access(const XrdSecEntity *entity, const char *path, const Access_Operation what,
                              XrdOucEnv *env) {
  // They first: it is they who find out whose token it is. Whose an earlier request's was counts no more: one connection may
  // be of many.
  if (others_ && entity && entity->eaAPI) entity->eaAPI->Add("request.name", "", true);
  XrdAccPrivs theirs = others_ ? others_->Access(entity, path, what, env) : XrdAccPriv_All;
  if (theirs == XrdAccPriv_None) return XrdAccPriv_None;
  int status = walled([&]() -> int {
    int told = ask(entity, path, what);
    // XRootD has no other word for it: its client hears that this is not permitted.
    if (Site *site = Site::made()) site->note_answer(told == -EACCES || is_nothing(told) ? 0 : told, path);
    return told;
  });
  return status == 0 || is_nothing(status) ? theirs : XrdAccPriv_None;
}

bool Authority::was_asked(const std::string &path, Person &person) {
  auto last = std::exchange(asked, {});
  person = last.person;
  return !last.path.empty() && last.path == path;
}

int Authority::Test(XrdAccPrivs privileges, Access_Operation what) {
  return others_ ? others_->Test(privileges, what) : privileges != XrdAccPriv_None;
}

}  // namespace thumper
