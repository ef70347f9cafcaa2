// A file that was just made, on its way to be opened.
//
// The one idea: XRootD makes a file by one call and opens it, to be emptied, by the next, on the same thread and for the
// same client. The first opens it already; what it has waits here for the second, which need not ask the server again.
// Whatever else is asked for next lets go of it.

#pragma once

#include "site.hh"
#include "thumper.h"

class XrdOucEnv;

namespace thumper {

class Made {
 public:
  // Keeps a file that is empty and open to be read and written.
  static void keep(const XrdOucEnv &env, const Call &call, thumper_file *file);

  // Gives it up, if it is what is `wanted` now, and lets go of it otherwise. Null: there is none.
  static thumper_file *take(const XrdOucEnv &env, const Call &call, bool wanted);

  static void forget();
};

}  // namespace thumper
