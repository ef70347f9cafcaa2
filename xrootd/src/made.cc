#include "made.hh"

#include <utility>

namespace thumper {

namespace {

struct Slot {
  const XrdOucEnv *env = nullptr;
  std::string path;
  thumper_file *file = nullptr;
  bool empty = false;

  ~Slot() { thumper_close(file, 0); }
};

thread_local Slot slot;

}  // namespace

void Made::keep(const XrdOucEnv &env, const std::string &path, thumper_file *file, bool empty) {
  thumper_close(std::exchange(slot.file, nullptr), 0);
  slot.env = &env;
  slot.path = path;
  slot.file = file;
  slot.empty = empty;
}

thumper_file *Made::take(const XrdOucEnv &env, const std::string &path, bool empty) {
  auto *file = std::exchange(slot.file, nullptr);
  if (file && slot.env == &env && slot.path == path && slot.empty >= empty) return file;
  thumper_close(file, 0);
  return nullptr;
}

}  // namespace thumper
