#include "made.hh"

#include <utility>

namespace thumper {

namespace {

struct Slot {
  const XrdOucEnv *env = nullptr;
  std::string path;
  Person person;
  thumper_file *file = nullptr;

  ~Slot() { thumper_close(file, 0); }
};

thread_local Slot slot;

}  // namespace

void Made::keep(const XrdOucEnv &env, const Call &call, thumper_file *file) {
  forget();
  slot.env = &env;
  slot.path = call.path;
  slot.person = call.person;
  slot.file = file;
}

thumper_file *Made::take(const XrdOucEnv &env, const Call &call, bool wanted) {
  bool is_it = wanted && slot.env == &env && slot.path == call.path && slot.person == call.person;
  if (!is_it) forget();
  return std::exchange(slot.file, nullptr);
}

void Made::forget() { thumper_close(std::exchange(slot.file, nullptr), 0); }

}  // namespace thumper
