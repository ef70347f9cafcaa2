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

#include "XrdSys/XrdSysError.hh"
#include "lending.hh"
#include "lookout.hh"
#include "openings.hh"
#include "options.hh"
#include "people.hh"
#include "room.hh"
#include "thumper.h"

class XrdOucEnv;
class XrdSecEntity;
class XrdSysLogger;

namespace thumper {

// What was done so far, for XRootD's reports.
struct Counters {
  std::atomic<std::uint64_t> opens{0}, reads{0}, read_bytes{0}, writes{0}, written_bytes{0}, errors{0};
};

// XRootD asks for itself, and not for a client.
bool is_its_own(const XrdOucEnv *env);

class Site {
 public:
  // The one of this process. Throws std::runtime_error if the words make no sense, or are others than before.
  static Site &of(const char *words, XrdSysLogger *logger);
  // The one that was made, or null.
  static Site *made();

  const Options &options() const { return options_; }
  People &people() { return people_; }
  Openings &openings() { return openings_; }
  Room &room() { return room_; }
  Lookout &lookout() { return lookout_; }
  Lending &lending() { return lending_; }
  Counters &counters() { return counters_; }

  // The client library's handle, connected when it is first needed. Null: the server is away, and `error` has minus
  // a number of errno(3).
  thumper_client *client(int &error);

  // Is this change nobody's, where there is a table that says who is who? A cluster's manager lets its clients change names
  // on all servers (`ofs.forward`), and does not say who they are. What XRootD does for itself goes by a path alone, which
  // can lead to another's file by then: it puts back what a client has changed that kept a checkpoint, when it starts anew.
  bool is_nobodys(const XrdOucEnv *env) const { return is_its_own(env) && people_.have_table(); }

  // The directory that XRootD has for tickets, and whether a path is one of a file right in it.
  void keep_tickets_in(const char *dir) { tickets_ = dir ? dir : ""; }
  bool holds_tickets(const std::string &path) const;

  // The authority is there, and asked.
  static void guard();
  // Is it, where it must be? With a table of people and without the authority nobody is let in: XRootD would hand
  // files that are open for one to others.
  bool is_guarded();

  // Says why permission for this path could not be asked for, where it is minus a number of errno(3); once, until it is
  // another one, or 0.
  void note_answer(int status, const char *path);

 private:
  Site(const std::string &words, XrdSysLogger *logger);

  std::string words_;
  Options options_;
  std::string tickets_;
  XrdSysError log_;
  People people_;
  Openings openings_;
  Room room_;
  Lookout lookout_;
  Lending lending_;
  Counters counters_;
  std::timed_mutex lock_;
  std::atomic<thumper_client *> client_{nullptr};
  std::atomic<int> unanswered_{0};
};

// For whom the attributes are that XRootD asks for: it does not say.
constexpr const XrdSecEntity *nobody_named = nullptr;

// One call: for whom, on which path. Check `error` before anything else.
struct Call {
  Call(Site &site, const XrdSecEntity *entity, const char *raw);
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
