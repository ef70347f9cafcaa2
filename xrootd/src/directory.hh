// An open directory.
//
// The one idea: an entry comes with its attributes, so that a long listing asks nothing for each file.

#pragma once

#include "XrdOss/XrdOss.hh"
#include "site.hh"

namespace thumper {

class Directory final : public XrdOssDF {
 public:
  Directory(Site &site, const char *tident) : XrdOssDF(tident, DF_isDir), site_(site) {}
  ~Directory() override { thumper_closedir(dir_); }

  int Opendir(const char *path, XrdOucEnv &env) override;
  int Readdir(char *name, int size) override;
  int StatRet(struct stat *to) override;
  int Close(long long *size = nullptr) override;

 private:
  Site &site_;
  thumper_dir *dir_ = nullptr;
  struct stat *stat_ = nullptr;
};

}  // namespace thumper
