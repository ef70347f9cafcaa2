// The file of ours that a copy goes into.
//
// The one idea: it is written for the person who asked for the copy, through `thumper serve`, and is all there, on stable
// storage, or gone.

#pragma once

#include <string>

#include "../ticket.hh"

namespace thumper {

class Target {
 public:
  // The file that the ticket at this path names. Throws Failure, as all here.
  explicit Target(const std::string &at);
  // What was not kept is taken away, unless somebody else has written the file since, and the ticket, unless the server is away.
  ~Target();

  void write(const char *bytes, std::size_t length);
  // It is on stable storage now, if the site wants that.
  void finish();
  // Its digest of this kind, in hexadecimal digits, as made while it was written.
  std::string digest(const std::string &kind);
  // The copy is right.
  void keep() { kept_ = true; }

 private:
  // Notes how we have left the file, unless somebody else has changed it by then: it has `most` bytes, or, where something
  // `failed` and some of it may be there or not, at most so many.
  void note(std::uint64_t most, bool failed);
  // What we did failed.
  [[noreturn]] void fail(long long status, std::uint64_t most);

  std::string at_;
  Ticket ticket_;
  thumper_subject who_;
  thumper_client *client_ = nullptr;
  thumper_file *file_ = nullptr;
  std::uint64_t written_ = 0;
  // The file as we have left it.
  thumper_stat left_{};
  bool kept_ = false;
};

}  // namespace thumper
