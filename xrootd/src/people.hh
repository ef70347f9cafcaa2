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
// asked who they are `host`, `https` or `http`.

#pragma once

#include <string>
#include <vector>

#include "thumper.h"

class XrdOucEnv;

namespace thumper {

struct Person {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::vector<std::uint32_t> groups;

  // For the client library; lives no longer than this.
  thumper_subject subject() const { return {uid, gid, groups.data(), groups.size()}; }
};

class People {
 public:
  // No table: everything is done as uid 0.
  People() = default;
  // Reads a table. Throws std::runtime_error, with the line that makes no sense.
  explicit People(const std::string &file);

  // Who asks. What XRootD does for itself (to make a checksum) is done as uid 0. Null: nobody that is known.
  const Person *of(const XrdOucEnv *env) const;

 private:
  struct Line {
    std::string protocol, name;
    Person person;
  };
  bool open_ = true;
  std::vector<Line> lines_;
  Person root_;
};

}  // namespace thumper
