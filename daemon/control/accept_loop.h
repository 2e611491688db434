// The accept thread's loop. A connection that the machine has no descriptor (or memory) for stays in the backlog and
// its socket ready, so that waiting for it would return at once, for ever: then only the stop is waited for, a while.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>

namespace tier::control {

inline constexpr auto kAcceptRetry = std::chrono::milliseconds(100);

// Calls `take(i)` when listeners[i] has a connection, until `stop` is readable. False: there was no room for it, and
// nothing is taken for as long as `retry`.
void AcceptUntilStopped(std::span<const int> listeners, int stop, const std::function<bool(size_t)>& take,
                        std::chrono::milliseconds retry = kAcceptRetry);

}  // namespace tier::control
