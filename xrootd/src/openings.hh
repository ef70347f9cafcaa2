// Who has files open, by the names that they were opened under.
//
// The one idea: XRootD asks for attributes of an open file by that name, and asks nobody whether it may. What has the name
// by then can be another's file: so whoever has one open must be allowed that himself.

#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "people.hh"

namespace thumper {

class Openings {
  using All = std::multimap<std::string, Person>;

 public:
  // One of them, as long as it lives.
  class One {
   public:
    One(Openings &of, const std::string &path, const Person &person) : of_(of) {
      std::lock_guard lock(of_.lock_);
      at_ = of_.all_.emplace(path, person);
    }
    ~One() {
      std::lock_guard lock(of_.lock_);
      of_.all_.erase(at_);
    }
    One(const One &) = delete;
    One &operator=(const One &) = delete;

   private:
    Openings &of_;
    All::iterator at_;
  };

  std::vector<Person> at(const std::string &path) {
    std::lock_guard lock(lock_);
    std::vector<Person> out;
    auto [one, end] = all_.equal_range(path);
    for (; one != end; ++one) out.push_back(one->second);
    return out;
  }

 private:
  std::mutex lock_;
  All all_;
};

}  // namespace thumper
