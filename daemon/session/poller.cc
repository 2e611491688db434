#include "daemon/session/poller.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::session {
namespace {

// With nanoseconds where the kernel has it (5.11), else rounded up to milliseconds.
int WaitForEvents(int epoll, epoll_event* events, int count, std::optional<base::Duration> timeout) {
  timespec limit{};
  if (timeout) {
    const auto wait = std::max(*timeout, base::Duration{0});
    limit.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(wait).count();
    limit.tv_nsec = (wait % std::chrono::seconds(1)).count();
  }
  const int ready = ::epoll_pwait2(epoll, events, count, timeout ? &limit : nullptr, nullptr);
  if (ready >= 0 || errno != ENOSYS) return ready;
  constexpr int64_t kLongestMs = 3'600'000;
  const int64_t ms = timeout ? std::chrono::ceil<std::chrono::milliseconds>(*timeout).count() : -1;
  return ::epoll_wait(epoll, events, count, static_cast<int>(std::clamp<int64_t>(ms, -1, kLongestMs)));
}

}  // namespace

Poller::Poller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) { TIER_CHECK(epoll_, "errno {}", errno); }

Status Poller::Add(int fd, uint32_t events, std::function<void()>* on_ready) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = on_ready;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return Fail(Code::kIoError, fmt::format("cannot watch descriptor {}: {}", fd, std::strerror(errno)));
}

Status Poller::AddDoorbell(int fd) { return Add(fd, EPOLLIN | EPOLLET, nullptr); }
Status Poller::AddSource(int fd, std::function<void()>* on_ready) {
  TIER_CHECK(on_ready != nullptr && *on_ready, "fd {} without a callback", fd);
  return Add(fd, EPOLLIN, on_ready);
}

void Poller::Remove(int fd) {
  const int removed = ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  TIER_CHECK(removed == 0, "fd {} errno {}", fd, errno);
}

uint32_t Poller::Wait(std::optional<base::Duration> timeout) {
  std::array<epoll_event, kEventsPerWait> events;
  const int ready = WaitForEvents(epoll_.get(), events.data(), events.size(), timeout);
  if (ready < 0) {
    TIER_CHECK(errno == EINTR, "epoll_wait errno {}", errno);
    return 0;
  }
  TIER_CHECK(static_cast<uint32_t>(ready) <= kEventsPerWait, "ready {}", ready);
  for (int i = 0; i < ready; ++i) {
    auto* on_ready = static_cast<std::function<void()>*>(events[static_cast<size_t>(i)].data.ptr);
    if (on_ready != nullptr) (*on_ready)();
  }
  return static_cast<uint32_t>(ready);
}

}  // namespace tier::session
