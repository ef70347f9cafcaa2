#include "attributes.hh"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "authority.hh"
#include "wall.hh"

namespace thumper {

namespace {

const std::string prefix = "user.";

// What clients of the library get when the names change between two calls.
constexpr int attempts = 10;

// XRootD's own, which it asks for by the names of files alone.
bool is_checksum(const char *name) { return std::strncmp(name, "XrdCks.", 7) == 0; }

// A checksum tells what is in a file; that it is there is all that XRootD asks for who wants one.
bool may_have_checksum(const Call &call) {
  Person person;
  if (!Authority::was_asked(call.path, person)) return true;
  auto who = person.subject();
  int error = 0;
  auto *file = thumper_open(call.client, &who, call.path.c_str(), THUMPER_READ, 0, &error);
  thumper_close(file, 0);
  return file || error != -EACCES;
}

// Whoever has a file open under this name must be allowed `how` with what has the name now. What follows is done as one of
// them: another file may have it by then.
int ask_openers(Site &site, Call &call, std::uint32_t how) {
  for (const Person &person : site.openings().at(call.path)) {
    call.person = person;
    call.who = call.person.subject();
    int error = 0;
    auto *file = thumper_open(call.client, &call.who, call.path.c_str(), how, 0, &error);
    thumper_close(file, 0);
    if (!file) return error;
  }
  return 0;
}

// All names, each with its NUL, or minus a number of errno(3).
ssize_t names_of(const Call &call, std::vector<char> &names) {
  for (int attempt = 0; attempt < attempts; attempt++) {
    auto size = thumper_listxattr(call.client, &call.who, call.path.c_str(), nullptr, 0);
    if (size <= 0) return size;
    names.resize(static_cast<std::size_t>(size));
    size = thumper_listxattr(call.client, &call.who, call.path.c_str(), names.data(), names.size());
    if (size != -ERANGE) return size;
  }
  return -ERANGE;
}

}  // namespace

int Attributes::Get(const char *name, void *value, int size, const char *path, int) {
  return walled([&]() -> int {
    Call call(site_, nobody_named, path);
    if (call.error) return answer(call.error);
    if (size < 0) return -EINVAL;
    if (is_checksum(name) && !may_have_checksum(call)) return -EACCES;
    if (int status = is_checksum(name) ? 0 : ask_openers(site_, call, THUMPER_READ)) return answer(status);
    auto got = thumper_getxattr(call.client, &call.who, call.path.c_str(), (prefix + name).c_str(), value,
                                static_cast<std::size_t>(size));
    return answer(static_cast<int>(got));
  });
}

int Attributes::Set(const char *name, const void *value, int size, const char *path, int, int is_new) {
  return walled([&]() -> int {
    Call call(site_, nobody_named, path);
    if (call.error) return answer(call.error);
    if (size < 0 || (size > 0 && !value)) return -EINVAL;
    if (int status = is_checksum(name) ? 0 : ask_openers(site_, call, THUMPER_WRITE)) return answer(status);
    auto full = prefix + name;
    if (is_new) {
      auto found = thumper_getxattr(call.client, &call.who, call.path.c_str(), full.c_str(), nullptr, 0);
      if (found >= 0) return -EEXIST;
      if (found != -ENODATA) return answer(static_cast<int>(found));
    }
    // Null would take it away.
    const void *bytes = value ? value : "";
    return answer(thumper_setxattr(call.client, &call.who, call.path.c_str(), full.c_str(), bytes,
                                   static_cast<std::size_t>(size)));
  });
}

int Attributes::Del(const char *name, const char *path, int) {
  return walled([&]() -> int {
    Call call(site_, nobody_named, path);
    if (call.error) return answer(call.error);
    if (int status = ask_openers(site_, call, THUMPER_WRITE)) return answer(status);
    return answer(thumper_setxattr(call.client, &call.who, call.path.c_str(), (prefix + name).c_str(), nullptr, 0));
  });
}

int Attributes::List(AList **list, const char *path, int, int sizes) {
  return walled([&]() -> int {
    *list = nullptr;
    Call call(site_, nobody_named, path);
    if (call.error) return answer(call.error);
    if (int status = ask_openers(site_, call, THUMPER_READ)) return answer(status);
    std::vector<char> names;
    auto size = names_of(call, names);
    if (size < 0) return answer(static_cast<int>(size));
    int longest = 0;
    for (const char *at = names.data(), *end = at + size; at < end;) {
      std::string full(at);
      at += full.size() + 1;
      if (full.compare(0, prefix.size(), prefix) != 0) continue;
      int value = 0;
      if (sizes) {
        value = static_cast<int>(
            thumper_getxattr(call.client, &call.who, call.path.c_str(), full.c_str(), nullptr, 0));
        if (value < 0) continue;  // It went away in between.
        longest = std::max(longest, value);
      }
      std::string name = full.substr(prefix.size());
      auto *node = static_cast<AList *>(std::malloc(sizeof(AList) + name.size()));
      if (!node) {
        Free(*list);
        *list = nullptr;
        return -ENOMEM;
      }
      node->Next = *list;
      node->Vlen = value;
      node->Nlen = static_cast<int>(name.size());
      std::memcpy(node->Name, name.c_str(), name.size() + 1);
      *list = node;
    }
    return longest;
  });
}

void Attributes::Free(AList *list) {
  while (list) {
    AList *next = list->Next;
    std::free(list);
    list = next;
  }
}

}  // namespace thumper
