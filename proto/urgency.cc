#include "proto/urgency.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace tier::proto {
namespace {

// sched_setattr(2); glibc has it from 2.41 on.
struct Attributes {
  uint32_t size = sizeof(Attributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;  // With a policy of niceness: the slice.
  uint64_t deadline_ns = 0;
  uint64_t period_ns = 0;
};
static_assert(sizeof(Attributes) == 48);

// The least and the most that the kernel takes. Among threads that may run the one whose slice ends first runs next.
constexpr uint64_t kPromptSliceNs = 100'000;
constexpr uint64_t kBulkSliceNs = 100'000'000;
constexpr int kNiceMin = -20;
constexpr int kNiceMax = 19;

// Of the calling thread, on processors.
std::chrono::nanoseconds RunTime() {
  timespec used{};
  (void)::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);  // It cannot fail.
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

}  // namespace

void SetUrgency(Urgency urgency) {
  if (urgency == Urgency::kNormal) return;
  Attributes now;
  if (::syscall(SYS_sched_getattr, 0, &now, sizeof(now), 0) != 0) return;
  if (now.policy != SCHED_OTHER && now.policy != SCHED_BATCH) return;
  const bool bulk = urgency == Urgency::kBulk || urgency == Urgency::kWanted;
  const Attributes slice{.policy = now.policy, .nice = now.nice, .runtime_ns = bulk ? kBulkSliceNs : kPromptSliceNs};
  (void)::syscall(SYS_sched_setattr, 0, &slice, 0);  // Both are best effort: it is no less right without.
  const int nicer = urgency == Urgency::kBulk ? kBulkNice : urgency == Urgency::kFirst ? kFirstNice : 0;
  if (nicer == 0) return;
  const auto self = static_cast<id_t>(::syscall(SYS_gettid));
  const int wanted = std::clamp(now.nice + nicer, kNiceMin, kNiceMax);
  if (::setpriority(PRIO_PROCESS, self, wanted) == 0) return;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NICE, &limit) != 0) return;
  const int least = kNiceMax + 1 - static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kNiceMax + 1 - kNiceMin));
  if (least < now.nice) (void)::setpriority(PRIO_PROCESS, self, std::max(wanted, least));
}

// The timer slack makes it 50 µs. Pauses of 5 µs let no thread in, nor does sched_yield (measured
// 2026-11-26).
void GiveWay() {
  thread_local std::chrono::nanoseconds paused_at{0};
  const std::chrono::nanoseconds now = RunTime();
  if (now - paused_at < kBulkRunMax) return;
  const timespec moment{.tv_sec = 0, .tv_nsec = 1};
  (void)::nanosleep(&moment, nullptr);
  paused_at = now;
}

}  // namespace tier::proto
