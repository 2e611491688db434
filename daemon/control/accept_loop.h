// The accept thread's loop. A connection that the machine has no descriptor (or memory) for stays in the backlog and
// keeps its socket ready: waiting for the socket would return at once, again and again. Then the loop waits for the
// stop alone, a while. It does the same when the sockets cannot be waited for: no failure ends the loop, only the stop
// does.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>

namespace tier::control {

inline constexpr auto kAcceptRetry = std::chrono::milliseconds(100);

struct AcceptCalls {
  // listeners[i] has a connection. False: there was no room for it, and nothing is taken for as long as `retry`.
  std::function<bool(size_t)> take;
  // What keeps the sockets from being waited for, once until it has passed. May be empty.
  std::function<void(const std::string&)> warn;
};

// Runs until `stop` is readable.
void AcceptUntilStopped(std::span<const int> listeners, int stop, const AcceptCalls& calls,
                        std::chrono::milliseconds retry = kAcceptRetry);

}  // namespace tier::control
