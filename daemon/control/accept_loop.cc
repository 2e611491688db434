#include "daemon/control/accept_loop.h"

#include <poll.h>

#include <cerrno>
#include <system_error>
#include <vector>

namespace tier::control {
namespace {

// Why no connection could be accepted, or "". `error`: of poll(), 0 if it succeeded.
std::string FailureOf(int error, std::span<const pollfd> listeners) {
  if (error != 0) return "poll: " + std::generic_category().message(error);
  for (const pollfd& listener : listeners) {
    if (listener.revents != 0 && (listener.revents & POLLIN) == 0) return "a listening socket is broken";
  }
  return {};
}

}  // namespace

void AcceptUntilStopped(std::span<const int> listeners, int stop, const AcceptCalls& calls,
                        std::chrono::milliseconds retry) {
  std::vector<pollfd> polled = {{.fd = stop, .events = POLLIN, .revents = 0}};
  for (const int listener : listeners) polled.push_back({.fd = listener, .events = POLLIN, .revents = 0});
  bool warned = false;
  for (;;) {
    const int error = ::poll(polled.data(), polled.size(), -1) < 0 ? errno : 0;
    if (error == EINTR) continue;
    if (error == 0 && polled[0].revents != 0) return;
    bool room = true;
    for (size_t i = 0; error == 0 && i < listeners.size(); ++i) {
      if ((polled[i + 1].revents & POLLIN) != 0) room &= calls.take(i);
    }
    const std::string failure = FailureOf(error, std::span(polled).subspan(1));
    if (!failure.empty() && !warned && calls.warn) {
      calls.warn("control connections are not taken: " + failure + "; trying again every " +
                 std::to_string(retry.count()) + " ms");
    }
    warned = !failure.empty();
    if ((!room || warned) && ::poll(polled.data(), 1, static_cast<int>(retry.count())) > 0) return;
  }
}

}  // namespace tier::control
