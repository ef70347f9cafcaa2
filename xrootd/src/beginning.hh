// The first bytes of a new file, held until it is seen what follows.
//
// The one idea: most small files are opened, written once and closed; so the first write of a file that was empty is put on
// stable storage while its client hears that it was taken, and asks for the close. Where the server has enough to do, or need
// not, it waits a moment for the close, and goes to the server with it in one message. Whoever wants anything else of the open
// file has it written before. If that fails it has failed for everybody: acknowledged bytes are gone.

#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "room.hh"

namespace thumper {

class Beginning {
 public:
  // Bytes that are held, at most: with more, two messages are nothing.
  static constexpr std::size_t max_bytes = 64 << 10;

  explicit Beginning(Room &room) : room_(room) {}
  ~Beginning() { let_go(); }

  // Nothing was written yet, and nothing is there.
  void expect() { state_ = State::expected; }

  // Nothing is to be held.
  void decline() {
    std::lock_guard lock(lock_);
    if (state_ == State::expected) state_ = State::none;
  }

  // Takes a write, which `begin` begins, or not. False: it is not one to be taken.
  template <class Begin>
  bool take(const void *bytes, off_t offset, size_t size, Begin begin) {
    if (state_ != State::expected) return false;
    std::lock_guard lock(lock_);
    if (state_ != State::expected) return false;
    state_ = State::none;
    if (offset != 0 || size == 0 || size > max_bytes) return false;
    if (begin()) {
      state_ = State::begun;
      return true;
    }
    if (!room_.take(size)) return false;
    taken_ = size;
    auto *from = static_cast<const char *>(bytes);
    bytes_.assign(from, from + size);
    state_ = State::held;
    return true;
  }

  // If something is held, `write` is given it, once; if it was begun `end` is called; what they return is returned, else why it
  // has failed, or 0. Who comes meanwhile waits.
  template <class Write, class End>
  int give(Write write, End end) {
    auto has_any = [&] { return state_ == State::held || state_ == State::begun; };
    if (!has_any()) return failure_;
    std::lock_guard lock(lock_);
    if (!has_any()) return failure_;
    int status = state_ == State::begun ? end() : write(bytes_.data(), bytes_.size());
    end_with(status);
    return status;
  }

  // The file has failed; minus a number of errno(3) says why. The first one counts.
  void fail(int status) {
    std::lock_guard lock(lock_);
    end_with(status);
  }

  // Is something held?
  bool holds() const { return state_ == State::held; }

  // Why it has failed, or 0.
  int failure() const { return failure_; }

 private:
  void end_with(int status) {
    let_go();
    if (status < 0 && failure_ == 0) failure_ = status;
    // Last: who sees this does not wait for the lock.
    state_ = State::none;
  }

  void let_go() {
    std::vector<char>().swap(bytes_);
    room_.give_back(std::exchange(taken_, 0));
  }

  enum class State { none, expected, held, begun };
  std::atomic<State> state_{State::none};
  std::mutex lock_;
  std::vector<char> bytes_;
  Room &room_;
  // Room that was taken for them.
  std::size_t taken_ = 0;
  std::atomic<int> failure_{0};
};

}  // namespace thumper
