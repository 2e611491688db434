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

// What epoll gives back: the address of a callback, or the key of a doorbell behind a set lowest bit.
static_assert(alignof(std::function<void()>) > 1 && sizeof(void*) == sizeof(uint64_t));
uint64_t TagOf(uint64_t key) { return key << 1 | 1; }

}  // namespace

Poller::Poller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  TIER_CHECK(epoll_, "errno {}", errno);
  rung_.reserve(4 * kEventsPerWait);
}

Status Poller::Add(int fd, uint32_t events, uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
  return Fail(Code::kIoError, fmt::format("cannot watch descriptor {}: {}", fd, std::strerror(errno)));
}

Status Poller::AddDoorbell(int fd, uint64_t key) {
  TIER_CHECK(key < uint64_t{1} << 63, "key {}", key);
  return Add(fd, EPOLLIN | EPOLLET, TagOf(key));
}

void Poller::SetDoorbell(int fd, uint64_t key, bool heard) {
  epoll_event event{};
  event.events = heard ? EPOLLIN | EPOLLET : EPOLLET;
  event.data.u64 = TagOf(key);
  const int changed = ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  TIER_CHECK(changed == 0, "fd {} errno {}", fd, errno);
}

Status Poller::AddSource(int fd, std::function<void()>* on_ready) {
  TIER_CHECK(on_ready != nullptr && *on_ready, "fd {} without a callback", fd);
  return Add(fd, EPOLLIN, reinterpret_cast<uint64_t>(on_ready));
}

void Poller::Remove(int fd) {
  const int removed = ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  TIER_CHECK(removed == 0, "fd {} errno {}", fd, errno);
}

uint32_t Poller::Wait(std::optional<base::Duration> timeout, EngineRest* rest) {
  std::array<epoll_event, kEventsPerWait> events;
  if (rest != nullptr) rest->Begin();
  const int ready = WaitForEvents(epoll_.get(), events.data(), events.size(), timeout);
  const int error = errno;
  if (rest != nullptr) rest->End();
  if (ready < 0) {
    TIER_CHECK(error == EINTR, "epoll_wait errno {}", error);
    return 0;
  }
  TIER_CHECK(static_cast<uint32_t>(ready) <= kEventsPerWait, "ready {}", ready);
  for (int i = 0; i < ready; ++i) {
    const uint64_t tag = events[static_cast<size_t>(i)].data.u64;
    if ((tag & 1) != 0) {
      rung_.push_back(tag >> 1);
    } else {
      (*reinterpret_cast<std::function<void()>*>(tag))();
    }
  }
  return static_cast<uint32_t>(ready);
}

}  // namespace tier::session
