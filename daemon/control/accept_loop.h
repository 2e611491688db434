// The accept thread's loop. A connection that the machine has no descriptor (or memory) for stays in the backlog and
// its socket ready, so that waiting for it would return at once, for ever: then only the stop is waited for, a while.
// So it is when the sockets cannot be waited for: the loop goes on until it is stopped, whatever fails.
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
