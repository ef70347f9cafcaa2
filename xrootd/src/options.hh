// The words behind the library's name on the `ofs.osslib` line.
//
// The one idea: a word that is not known, or makes no sense, ends the start of the server; none is passed over.

#pragma once

#include <cstdint>
#include <string>

namespace thumper {

struct Options {
  // The tree that is exported: `tree=POOL[/FS]`, or `pool=POOL`.
  std::string tree;
  // Where `thumper serve` listens: `socket=PATH`.
  std::string socket = "/run/thumper/socket";
  // The table of people: `map=PATH`. None: everything is done as uid 0.
  std::string map;
  // Connections to `thumper serve`, at most: `lanes=128`.
  std::uint32_t lanes = 128;
  // How long a call waits for `thumper serve` to come back, in seconds: `patience=30`.
  std::uint32_t patience = 30;
  // Is what was written on stable storage when close returns? `stable=on|off`.
  bool stable = true;
  // The queue of connections that wait to be taken, for each port: `backlog=4096`; 0: as XRootD has it.
  std::uint32_t backlog = 4096;

  // Throws std::runtime_error, with what is wrong.
  static Options parse(const char *words);
};

}  // namespace thumper
