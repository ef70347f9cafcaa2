// Who a client is, for the pool.
//
// The one idea: whom XRootD has found out a client to be is looked up in a table, whose first line that fits gives
// owner and groups; so owners, permissions and quotas hold. Whom no line fits may do nothing.
//
//     # protocol  name  uid  gid  other groups
//     sss         alice 1001 1001 2000
//     gsi         @cms  2000 2000
//     unix        *     65534 65534
//
// `@name` is an organization, `%name` a group of the client's; `*` fits everybody. XRootD calls clients whom nobody
// asked who they are `host`, `https` or `http`; whom a token names is `token`, however he came. A table that has changed
// is read again; one that makes no sense, or ends in the middle of a line, is not taken.

#pragma once

#include <sys/stat.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "thumper.h"

class XrdSecEntity;

namespace thumper {

struct Person {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::vector<std::uint32_t> groups;

  bool operator==(const Person &other) const {
    return uid == other.uid && gid == other.gid && groups == other.groups;
  }

  // For the client library; lives no longer than this.
  thumper_subject subject() const { return {uid, gid, groups.data(), groups.size()}; }
};

// A line of the table.
struct Line {
  std::string protocol, name;
  Person person;
};
using Table = std::vector<Line>;

class People {
 public:
  // No file: everything is done as uid 0. Otherwise it is read. Throws std::runtime_error, with the line that makes
  // no sense. What is to be said later goes to `say`.
  People(const std::string &file, std::function<void(const std::string &)> say);

  // Who asks. What XRootD does for itself (to make a checksum) is done as uid 0. False: nobody that is known.
  bool find(const XrdSecEntity *entity, Person &person);

  bool have_table() const { return !file_.empty(); }

 private:
  // The table as it is now, or was a second ago.
  std::shared_ptr<const Table> table();

  std::string file_;
  std::function<void(const std::string &)> say_;
  std::mutex lock_;
  std::shared_ptr<const Table> table_;
  struct stat seen_ {};
  std::int64_t looked_ = 0;
};

}  // namespace thumper
