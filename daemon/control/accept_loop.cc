#include "daemon/control/accept_loop.h"

#include <poll.h>

#include <cerrno>
#include <vector>

namespace tier::control {

void AcceptUntilStopped(std::span<const int> listeners, int stop, const std::function<bool(size_t)>& take,
                        std::chrono::milliseconds retry) {
  std::vector<pollfd> polled = {{.fd = stop, .events = POLLIN, .revents = 0}};
  for (const int listener : listeners) polled.push_back({.fd = listener, .events = POLLIN, .revents = 0});
  for (;;) {
    if (::poll(polled.data(), polled.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (polled[0].revents != 0) return;
    bool room = true;
    for (size_t i = 0; i < listeners.size(); ++i) {
      if ((polled[i + 1].revents & POLLIN) != 0) room &= take(i);
    }
    if (!room) (void)::poll(polled.data(), 1, static_cast<int>(retry.count()));  // A stop shows again above.
  }
}

}  // namespace tier::control
