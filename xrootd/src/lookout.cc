#include "lookout.hh"

#include <thread>

#include "file.hh"

namespace thumper {

Lookout::One::One(Lookout &of, File &file) : of_(of), entry_(Clock::now() + moment, &file) {
  std::lock_guard lock(of_.lock_);
  if (!of_.is_started_) {
    // Not before something is held: xrootd that forks to run behind has done so by now. It ends with the process.
    std::thread([&of] { of.run(); }).detach();
    of_.is_started_ = true;
  }
  of_.waiting_.insert(entry_);
  if (of_.is_idle_) of_.more_.notify_one();
}

Lookout::One::~One() {
  std::unique_lock lock(of_.lock_);
  of_.waiting_.erase(entry_);
  of_.done_.wait(lock, [&] { return of_.busy_ != entry_.second; });
}

void Lookout::run() {
  std::unique_lock lock(lock_);
  for (;;) {
    is_idle_ = waiting_.empty();
    if (is_idle_) {
      more_.wait(lock);
      continue;
    }
    auto first = waiting_.begin();
    if (auto due = first->first; Clock::now() < due) {
      more_.wait_until(lock, due);
      continue;
    }
    busy_ = first->second;
    waiting_.erase(first);
    // Whoever closes it meanwhile waits for its own lock alone.
    lock.unlock();
    busy_->hand_over();
    lock.lock();
    busy_ = nullptr;
    done_.notify_all();
  }
}

}  // namespace thumper
