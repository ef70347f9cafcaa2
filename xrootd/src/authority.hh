// Who may open what, asked before XRootD opens it.
//
// The one idea: XRootD keeps one open file for all who read it, and opens it for the first of them alone; whoever
// comes later gets it from XRootD without a word to the storage system. So permission is asked where XRootD asks for
// each of its clients: by the user's own eyes, at the server that knows owners and modes. Attributes and checksums, of
// which the storage system is not told for whom they are, come this way too.

#pragma once

#include "XrdAcc/XrdAccAuthorize.hh"
#include "site.hh"

namespace thumper {

class Authority final : public XrdAccAuthorize {
 public:
  // `others`, if not null, must allow it as well.
  explicit Authority(XrdAccAuthorize *others) : others_(others) {}

  XrdAccPrivs Access(const XrdSecEntity *entity, const char *path, const Access_Operation what,
                     XrdOucEnv *env = nullptr) override;
  int Audit(int, const XrdSecEntity *, const char *, Access_Operation, XrdOucEnv * = nullptr) override { return 0; }
  int Test(XrdAccPrivs privileges, Access_Operation what) override;

  // Of whom this thread was asked last whether he may see that there is such a file; told once. False: of nobody.
  static bool was_asked(const std::string &path, Person &person);

 private:
  XrdAccAuthorize *others_;
};

}  // namespace thumper
