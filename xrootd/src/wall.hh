// The wall between C++ and XRootD.
//
// The one idea: XRootD knows minus a number of errno(3), and no exceptions; so each of its calls runs behind this wall,
// and each error of the client library passes through `answer`.

#pragma once

#include <cerrno>
#include <new>

namespace thumper {

// What XRootD is told of an error of the client library. XRootD takes EBUSY and ETIMEDOUT for "wait, and ask again",
// without end; the client library has waited for the server already, so these two would only hang clients.
inline int answer(int status) noexcept {
  switch (status) {
    case -EBUSY:
    case -ETIMEDOUT:
    case -ENOTCONN:
    case -EPROTO:
      return -EIO;
    default:
      return status;
  }
}

// Runs `body`, which gives 0 or more, or minus a number of errno(3). No exception leaves it.
template <class Body>
auto walled(Body body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return -ENOMEM;
  } catch (...) {
    return -EIO;
  }
}

}  // namespace thumper
