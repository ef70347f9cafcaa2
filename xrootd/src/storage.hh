// The storage system that XRootD asks: names, and what is made of files and directories.
//
// The one idea: each function is one call of the client library, for the client that XRootD has at the other end.

#pragma once

#include "XrdOss/XrdOss.hh"
#include "site.hh"

namespace thumper {

class Storage final : public XrdOss {
 public:
  explicit Storage(Site &site) : site_(site) {}

  XrdOssDF *newDir(const char *tident) override;
  XrdOssDF *newFile(const char *tident) override;

  int Chmod(const char *path, mode_t mode, XrdOucEnv *env = nullptr) override;
  int Create(const char *tident, const char *path, mode_t mode, XrdOucEnv &env, int options = 0) override;
  uint64_t Features() override;
  int Init(XrdSysLogger *, const char *) override { return 0; }
  int Mkdir(const char *path, mode_t mode, int parents = 0, XrdOucEnv *env = nullptr) override;
  int Remdir(const char *path, int options = 0, XrdOucEnv *env = nullptr) override;
  int Rename(const char *from, const char *to, XrdOucEnv *from_env = nullptr, XrdOucEnv *to_env = nullptr) override;
  int Stat(const char *path, struct stat *to, int options = 0, XrdOucEnv *env = nullptr) override;
  int Truncate(const char *path, unsigned long long size, XrdOucEnv *env = nullptr) override;
  int Unlink(const char *path, int options = 0, XrdOucEnv *env = nullptr) override;

  // Of space, in `space.cc`.
  int Stats(char *text, int size) override;
  int StatFS(const char *path, char *text, int &size, XrdOucEnv *env = nullptr) override;
  int StatLS(XrdOucEnv &env, const char *path, char *text, int &size) override;
  int StatVS(XrdOssVSInfo *to, const char *name = nullptr, int update = 0) override;
  int StatXA(const char *path, char *text, int &size, XrdOucEnv *env = nullptr) override;

 private:
  // Space around a path, which need not be there yet.
  int space_around(const char *path, thumper_space &space);

  Site &site_;
};

}  // namespace thumper
