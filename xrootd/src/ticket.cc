#include "ticket.hh"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

namespace thumper {

namespace {

// No ticket is longer: three strings and the groups of one person.
constexpr std::size_t most_bytes = 1 << 20;

std::uint64_t number(const std::string &word) {
  std::size_t end = 0;
  std::uint64_t out = std::stoull(word, &end);
  if (end != word.size()) throw std::runtime_error("'" + word + "' is no number");
  return out;
}

// Has nobody written to the file between the two? It is older than it was where the server has died, and lost what came last:
// whoever changes it after that makes it younger.
bool is_unchanged(const thumper_stat &now, const thumper_stat &then) {
  auto changed = [](const thumper_stat &file) { return std::make_pair(file.ctime, file.ctime_nanos); };
  bool is_the_same = now.size == then.size && now.mtime == then.mtime && now.mtime_nanos == then.mtime_nanos;
  return is_the_same || changed(now) < changed(then);
}

std::string whole(const std::string &at) {
  int fd = open(at.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) throw std::runtime_error(at + ": " + std::strerror(errno));
  std::string text(most_bytes, '\0');
  ssize_t got = read(fd, text.data(), text.size());
  close(fd);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return text;
}

}  // namespace

// Fields end in NUL, which no path has in it.
int Ticket::leave(const std::string &at) const {
  std::string text;
  auto field = [&](const std::string &value) { text.append(value).push_back('\0'); };
  for (const auto *value : {&socket, &tree, &path}) field(*value);
  for (auto value : {device, object, generation}) field(std::to_string(value));
  field(stable ? "1" : "0");
  for (auto value : {person.uid, person.gid}) field(std::to_string(value));
  for (auto value : person.groups) field(std::to_string(value));
  unlink(at.c_str());
  int fd = open(at.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -errno;
  ssize_t done = write(fd, text.data(), text.size());
  int error = done < 0 ? errno : done == static_cast<ssize_t>(text.size()) ? 0 : ENOSPC;
  close(fd);
  if (error) unlink(at.c_str());
  return -error;
}

Ticket Ticket::read(const std::string &at) {
  std::string text = whole(at);
  std::vector<std::string> fields;
  for (std::size_t from = 0, end; (end = text.find('\0', from)) != std::string::npos; from = end + 1) {
    fields.push_back(text.substr(from, end - from));
  }
  if (fields.size() < 9) throw std::runtime_error(at + ": this was not left by the plug-in");
  Ticket ticket;
  ticket.socket = fields[0];
  ticket.tree = fields[1];
  ticket.path = fields[2];
  ticket.device = number(fields[3]);
  ticket.object = number(fields[4]);
  ticket.generation = number(fields[5]);
  ticket.stable = fields[6] == "1";
  ticket.person.uid = static_cast<std::uint32_t>(number(fields[7]));
  ticket.person.gid = static_cast<std::uint32_t>(number(fields[8]));
  for (std::size_t i = 9; i < fields.size(); i++) {
    ticket.person.groups.push_back(static_cast<std::uint32_t>(number(fields[i])));
  }
  return ticket;
}

bool Ticket::undo(thumper_client *client, const thumper_stat *left, std::int64_t latest) const {
  auto who = person.subject();
  thumper_stat now{}, emptied{};
  auto goes = [&] { return names(now) && (left ? is_unchanged(now, *left) : now.mtime <= latest); };
  int error = 0;
  // Emptied too: who may write a file may not always remove it. What nobody may write can be removed all the same.
  auto *file = thumper_open(client, &who, path.c_str(), THUMPER_WRITE, 0, &error);
  if (!file && error != -EACCES) return error == -ENOENT;
  if (file && thumper_stat_open(file, &now) == 0 && goes() && thumper_truncate_open(file, 0) == 0) {
    latest = INT64_MAX;
    if (left && thumper_stat_open(file, &emptied) == 0) left = &emptied;
  }
  int status = thumper_stat_path(client, &who, path.c_str(), 0, &now);
  if (status == 0 && goes()) status = thumper_unlink(client, &who, path.c_str());
  thumper_close(file, 0);
  return status == 0 || status == -ENOENT;
}

void undo_unfinished(const std::string &at, thumper_client *client) {
  if (access(at.c_str(), F_OK) != 0) return;
  try {
    Ticket::read(at).undo(client, nullptr);
  } catch (const std::exception &) {
    // Half a ticket was never told to anybody.
  }
  unlink(at.c_str());
}

}  // namespace thumper
