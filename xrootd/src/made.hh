// A file that was just made, on its way to be opened.
//
// The one idea: XRootD makes a file by one call and opens it by the next, on the same thread and with the same
// environment. The first opens it already; what it has waits here for the second, which need not ask the server again.

#pragma once

#include <string>

#include "thumper.h"

class XrdOucEnv;

namespace thumper {

class Made {
 public:
  // Keeps a file that was opened to be read and written; `empty`: it is new, or was emptied.
  static void keep(const XrdOucEnv &env, const std::string &path, thumper_file *file, bool empty);

  // Gives the file up, if it is what is asked for. Another one is let go of. Null: there is none.
  static thumper_file *take(const XrdOucEnv &env, const std::string &path, bool empty);
};

}  // namespace thumper
