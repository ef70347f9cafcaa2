// Paths as clients send them.
//
// The one idea: what reaches `thumper serve` begins with one slash and has neither `.` nor `..` in it; the server
// refuses these, too, and follows no link out of the tree.

#pragma once

#include <string>

namespace thumper {

// The path in `out`, in its plain form: 0, EINVAL for `..`, ENAMETOOLONG (both negative).
int plain(const char *path, std::string &out);

}  // namespace thumper
