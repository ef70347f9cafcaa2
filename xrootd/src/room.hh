// Room for the bytes that are held of files.
//
// The one idea: what one file holds is little, but who opens many is not to fill the memory of the process; so all files share
// one bound, and whoever finds no room does not hold.

#pragma once

#include <atomic>
#include <cstddef>

namespace thumper {

class Room {
 public:
  // False: there is not so much.
  bool take(std::size_t bytes) {
    if (taken_.fetch_add(bytes) + bytes <= max_bytes) return true;
    give_back(bytes);
    return false;
  }

  void give_back(std::size_t bytes) { taken_ -= bytes; }

 private:
  static constexpr std::size_t max_bytes = 16 << 20;
  std::atomic<std::size_t> taken_{0};
};

}  // namespace thumper
