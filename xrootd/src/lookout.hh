// Who looks after what is held of files.
//
// The one idea: XRootD's client believes what it was told is written, and its close succeeds also where xrootd has died
// since; so nothing is held for longer than the close of a small file takes to come, about. Then a thread of this process
// has it written.

#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>

namespace thumper {

class File;

class Lookout {
  using Clock = std::chrono::steady_clock;

 public:
  // How long something is held, about, if nothing else is asked of its file.
  static constexpr auto moment = std::chrono::milliseconds(50);

  // A file that holds something: `File::hand_over` is called in a moment, once, but for one that is gone by then.
  class One {
   public:
    // Throws if there is no memory or no thread for it.
    One(Lookout &of, File &file);
    // Waits where it is called just now.
    ~One();
    One(const One &) = delete;
    One &operator=(const One &) = delete;

   private:
    Lookout &of_;
    std::pair<Clock::time_point, File *> entry_;
  };

 private:
  void run();

  std::mutex lock_;
  std::condition_variable more_, done_;
  // By the time at which it is their turn.
  std::set<std::pair<Clock::time_point, File *>> waiting_;
  File *busy_ = nullptr;
  bool is_started_ = false;
  // Nothing was there: only then is it woken, not for each file.
  bool is_idle_ = false;
};

}  // namespace thumper
