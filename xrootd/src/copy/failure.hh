// Why a copy failed: what XRootD passes on to the client, as a number and in words.

#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>

namespace thumper {

class Failure : public std::runtime_error {
 public:
  // `number` is one of errno(3). XRootD takes some for "wait, and ask again": nobody would get an answer.
  Failure(int number, const std::string &what)
      : std::runtime_error(what),
        number_(number <= 0 || number > 255 || number == EBUSY || number == ETIMEDOUT || number == EINPROGRESS
                    ? EIO
                    : number) {}

  int number() const { return number_; }

 private:
  int number_;
};

}  // namespace thumper
