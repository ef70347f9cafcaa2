// Extended attributes: those of clients, and the checksums that XRootD keeps with its files.
//
// The one idea: XRootD leaves out the `user.` before a name, which the pool has as every other system does; so
// checksums are found again by whatever serves the pool next. Those of adler32 and crc32c the server makes when they are
// asked for, if it has none of the file as it is. XRootD does not say who asks: it has asked the authority before.

#pragma once

#include <string>

#include "XrdSys/XrdSysXAttr.hh"
#include "site.hh"

namespace thumper {

class Attributes final : public XrdSysXAttr {
 public:
  explicit Attributes(Site &site) : site_(site) {}

  int Del(const char *name, const char *path, int fd = -1) override;
  void Free(AList *list) override;
  int Get(const char *name, void *value, int size, const char *path, int fd = -1) override;
  int List(AList **list, const char *path, int fd = -1, int sizes = 0) override;
  int Set(const char *name, const void *value, int size, const char *path, int fd = -1, int is_new = 0) override;

 private:
  Site &site_;
};

}  // namespace thumper
