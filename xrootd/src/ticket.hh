// What the copy program is told of a copy that another server's file is to come by.
//
// The one idea: XRootD starts the program with a path and no word of who asked; so the plug-in, which knows, leaves for it
// where the file is, which it is, and whose. Only the server's own user can read that. While it is there the copy is not
// done: whoever finds it when the copy has ended takes away what there is of the file, and then the ticket. The program leaves
// it to the plug-in where it could not.

#pragma once

#include <cstdint>
#include <string>

#include "people.hh"

namespace thumper {

struct Ticket {
  // Where `thumper serve` listens, and the tree and path of the file.
  std::string socket, tree, path;
  // The file that was opened there: none that has come to be at its path since.
  std::uint64_t device = 0, object = 0, generation = 0;
  Person person;
  bool stable = true;

  // Puts it there, in place of one that was left over. 0, or minus a number of errno(3).
  int leave(const std::string &at) const;
  // Reads it. Throws std::exception, with what is wrong.
  static Ticket read(const std::string &at);

  bool names(const thumper_stat &file) const {
    return file.device == device && file.object == object && file.generation == generation;
  }

  // Takes away what there is of the file; where `left` is given, only if it still is as it was left, and not if it was written
  // after `latest`, in seconds since 1970: whoever has emptied it since, and written it anew, has the same file. False: it may
  // be there still.
  bool undo(thumper_client *client, const thumper_stat *left, std::int64_t latest = INT64_MAX) const;
};

// Undoes the copy whose ticket is still there, if it is; the ticket goes.
void undo_unfinished(const std::string &at, thumper_client *client);

}  // namespace thumper
