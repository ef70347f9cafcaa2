// Where XRootD comes in.
//
// The one idea: these functions do all that there is to set up, in whichever order they are called; null is the only
// word that keeps XRootD from starting.

#include <stdexcept>

#include "XrdOuc/XrdOucEnv.hh"
#include "XrdSys/XrdSysError.hh"
#include "XrdVersion.hh"
#include "attributes.hh"
#include "authority.hh"
#include "sending.hh"
#include "site.hh"
#include "storage.hh"

namespace {

using thumper::Site;

// Says what it is that is served, or why not.
Site *set_up(XrdSysError &log, const char *words) noexcept {
  try {
    Site &site = Site::of(words, log.logger());
    const auto &options = site.options();
    int error = 0;
    if (site.client(error)) {
      log.Emsg("Thumper", "serves the tree", options.tree.c_str());
    } else {
      log.Emsg("Thumper", "no server yet:", thumper_message());
    }
    return &site;
  } catch (const std::exception &error) {
    log.Emsg("Thumper", "ofs.osslib:", error.what());
    return nullptr;
  }
}

}  // namespace

#define EXPORTED __attribute__((visibility("default")))

extern "C" {

EXPORTED XrdOss *XrdOssGetStorageSystem2(XrdOss *, XrdSysLogger *logger, const char *, const char *words, XrdOucEnv *env) {
  XrdSysError log(logger, "thumper_");
  Site *site = set_up(log, words);
  if (site && env) site->keep_tickets_in(env->Get("tpc.rpdir"));
  return site ? new (std::nothrow) thumper::Storage(*site) : nullptr;
}

EXPORTED XrdOss *XrdOssGetStorageSystem(XrdOss *native, XrdSysLogger *logger, const char *config, const char *words) {
  return XrdOssGetStorageSystem2(native, logger, config, words, nullptr);
}

EXPORTED XrdSysXAttr *XrdSysGetXAttrObject(XrdSysError *log, const char *, const char *words) {
  Site *site = set_up(*log, words);
  return site ? new (std::nothrow) thumper::Attributes(*site) : nullptr;
}

EXPORTED XrdAccAuthorize *XrdAccAuthorizeObjAdd(XrdSysLogger *, const char *, const char *, XrdOucEnv *,
                                               XrdAccAuthorize *others) {
  auto *authority = new (std::nothrow) thumper::Authority(others);
  if (authority) Site::guard();
  return authority;
}

EXPORTED XrdAccAuthorize *XrdAccAuthorizeObject(XrdSysLogger *logger, const char *config, const char *words) {
  return XrdAccAuthorizeObjAdd(logger, config, words, nullptr, nullptr);
}

// XRootD's own file system has loaded its storage by now.
EXPORTED XrdSfsFileSystem *XrdSfsGetFileSystem2(XrdSfsFileSystem *native, XrdSysLogger *logger, const char *, XrdOucEnv *) {
  XrdSysError log(logger, "thumper_");
  if (!native) {
    log.Emsg("Thumper", "xrootd.fslib: there is no file system below; the line is 'xrootd.fslib ++ libXrdThumper.so'");
    return nullptr;
  }
  Site *site = Site::made();
  if (site) return new (std::nothrow) thumper::Sending(*native, *site);
  log.Emsg("Thumper", "xrootd.fslib: the storage is another's, so nothing changes");
  return native;
}

EXPORTED XrdSfsFileSystem *XrdSfsGetFileSystem(XrdSfsFileSystem *native, XrdSysLogger *logger, const char *config) {
  return XrdSfsGetFileSystem2(native, logger, config, nullptr);
}

}  // extern "C"

#pragma GCC visibility push(default)
XrdVERSIONINFO(XrdOssGetStorageSystem, Thumper);
XrdVERSIONINFO(XrdOssGetStorageSystem2, Thumper);
XrdVERSIONINFO(XrdSysGetXAttrObject, Thumper);
XrdVERSIONINFO(XrdSfsGetFileSystem, Thumper);
XrdVERSIONINFO(XrdSfsGetFileSystem2, Thumper);
XrdVERSIONINFO(XrdAccAuthorizeObject, Thumper);
XrdVERSIONINFO(XrdAccAuthorizeObjAdd, Thumper);
#pragma GCC visibility pop
