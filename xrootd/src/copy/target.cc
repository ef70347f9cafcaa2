#include "target.hh"

#include <unistd.h>

#include <array>
#include <utility>

#include "failure.hh"

namespace thumper {

namespace {

// How long a call waits for a server that is started anew, in milliseconds.
constexpr std::uint32_t patience = 30000;

[[noreturn]] void give_up(long long status, const std::string &what) {
  throw Failure(static_cast<int>(-status), what + ": " + thumper_message());
}

}  // namespace

Target::Target(const std::string &at) : at_(at), ticket_(Ticket::read(at)), who_(ticket_.person.subject()) {
  int error = 0;
  client_ = thumper_connect(ticket_.socket.c_str(), ticket_.tree.c_str(), 2, patience, &error);
  if (!client_) give_up(error, ticket_.socket);
  file_ = thumper_open(client_, &who_, ticket_.path.c_str(), THUMPER_WRITE | THUMPER_DIGESTS, 0, &error);
  thumper_stat stat{};
  int status = file_ ? thumper_stat_open(file_, &stat) : error;
  if (status == 0 && ticket_.names(stat)) {
    left_ = stat;
    return;
  }
  std::string why = status ? thumper_message() : "another file has come to be there";
  thumper_close(file_, 0);
  thumper_disconnect(client_);
  throw Failure(status ? -status : ESTALE, ticket_.path + ": " + why);
}

Target::~Target() {
  thumper_close(file_, 0);
  if (kept_ || ticket_.undo(client_, &left_)) unlink(at_.c_str());
  thumper_disconnect(client_);
}

void Target::write(const char *bytes, std::size_t length) {
  auto done = thumper_write(file_, bytes, length, written_);
  if (done < 0) fail(done, written_ + length);
  written_ += length;
  note(written_, false);
}

void Target::finish() {
  int status = thumper_close(std::exchange(file_, nullptr), ticket_.stable);
  if (status < 0) fail(status, written_);
}

void Target::note(std::uint64_t most, bool failed) {
  thumper_stat now{};
  int status = file_ ? thumper_stat_open(file_, &now)
                     : thumper_stat_path(client_, &who_, ticket_.path.c_str(), 0, &now);
  if (status == 0 && (failed ? now.size <= most : now.size == most)) left_ = now;
}

void Target::fail(long long status, std::uint64_t most) {
  std::string why = thumper_message();
  note(most, true);
  throw Failure(static_cast<int>(-status), "writing " + ticket_.path + ": " + why);
}

// The record in the attribute is XRootD's: a name of 16 bytes, times, at 31 the length, and from 32 on the digest.
std::string Target::digest(const std::string &kind) {
  std::array<unsigned char, 96> record{};
  auto name = "user.XrdCks." + kind;
  auto got = thumper_getxattr(client_, &who_, ticket_.path.c_str(), name.c_str(), record.data(), record.size());
  if (got < 0) give_up(got, ticket_.path + " has no " + kind + " (adler32 and crc32c are made)");
  if (got != static_cast<long long>(record.size()) || record[31] > 64) {
    throw Failure(EIO, ticket_.path + ": " + name + " is no record of a checksum");
  }
  std::string digits;
  for (std::size_t i = 0; i < record[31]; i++) {
    for (unsigned half : {record[32 + i] >> 4, record[32 + i] & 15}) digits.push_back("0123456789abcdef"[half]);
  }
  return digits;
}

}  // namespace thumper
