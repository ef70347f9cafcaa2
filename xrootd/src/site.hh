// What all of the plug-in shares: its options, the table of people, and the connection to `thumper serve`.
//
// The one idea: it is made once for a process, whichever of the entry points comes first, and it does not need the
// server to be there: the order in which xrootd, cmsd and `thumper serve` start does not matter.

#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "options.hh"
#include "people.hh"
#include "thumper.h"

class XrdOucEnv;

namespace thumper {

// What was done so far, for XRootD's reports.
struct Counters {
  std::atomic<std::uint64_t> opens{0}, reads{0}, read_bytes{0}, writes{0}, written_bytes{0}, errors{0};
};

class Site {
 public:
  // The one of this process. Throws std::runtime_error if the words make no sense, or are others than before.
  static Site &of(const char *words);

  const Options &options() const { return options_; }
  const People &people() const { return people_; }
  Counters &counters() { return counters_; }

  // The client library's handle, connected when it is first needed. Null: the server is away, and `error` has minus
  // a number of errno(3).
  thumper_client *client(int &error);

 private:
  explicit Site(const std::string &words);

  std::string words_;
  Options options_;
  People people_;
  Counters counters_;
  std::mutex lock_;
  std::atomic<thumper_client *> client_{nullptr};
};

// One call: for whom, on which path. Check `error` before anything else.
struct Call {
  Call(Site &site, const XrdOucEnv *env, const char *raw);

  int error = 0;
  thumper_client *client = nullptr;
  std::string path;
  Person person;
  thumper_subject who{};
};

// Attributes as XRootD has them.
void fill(struct stat &to, const thumper_stat &from);

}  // namespace thumper
