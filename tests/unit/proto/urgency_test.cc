#include "proto/urgency.h"

#include <linux/capability.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "proto/start_thread.h"

namespace tier::proto {
namespace {

// Of the calling thread.
int Nice() { return ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid))); }

int NiceOf(Urgency urgency) {
  int nice = 0;
  auto thread = StartThread("tier-test", BlockedSignals::kAll, [&] { nice = Nice(); }, urgency);
  thread->join();
  return nice;
}

TEST(Urgency, BulkIsNicerThanItsProcessAndTheOthersAreNot) {
  const int here = Nice();
  EXPECT_EQ(NiceOf(Urgency::kNormal), here);
  EXPECT_EQ(NiceOf(Urgency::kPrompt), here);
  EXPECT_EQ(NiceOf(Urgency::kWanted), here);
  EXPECT_EQ(NiceOf(Urgency::kBulk), std::min(here + kBulkNice, 19));
  EXPECT_EQ(Nice(), here) << "the starter stays as it was";
}

// Whether the calling thread may be of this niceness.
bool MayBe(int nice) {
  rlimit limit{};
  EXPECT_EQ(::getrlimit(RLIMIT_NICE, &limit), 0);
  if (20 - static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 40)) <= nice) return true;
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  EXPECT_EQ(::syscall(SYS_capget, &header, sets.data()), 0);
  return (sets[CAP_TO_INDEX(CAP_SYS_NICE)].effective & CAP_TO_MASK(CAP_SYS_NICE)) != 0;
}

TEST(Urgency, TheFirstIsLessNiceThanItsProcess) {
  const int wanted = std::max(Nice() + kFirstNice, -20);
  if (!MayBe(wanted)) GTEST_SKIP() << "a niceness below that of the process needs a right";
  EXPECT_EQ(NiceOf(Urgency::kFirst), wanted);
}

TEST(Urgency, WithoutTheRightTheFirstIsAsNiceAsItsProcess) {
  const int here = Nice();
  bool may = false;
  int nice = 0;
  std::thread thread([&] {
    constexpr uid_t kUnprivileged = 65534;
    // Of this thread alone: the function of the C library changes all threads of the process.
    (void)::syscall(SYS_setresuid, kUnprivileged, kUnprivileged, kUnprivileged);
    may = MayBe(here + kFirstNice);
    SetUrgency(Urgency::kFirst);
    nice = Nice();
  });
  thread.join();
  if (may) GTEST_SKIP() << "every process may";
  EXPECT_EQ(nice, here);
}

// How often the calling thread has slept.
long Sleeps() {
  rusage usage{};
  EXPECT_EQ(::getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_nvcsw;
}

// A moment that has passed before the thread gave its processor up shows as no sleep: on a busy machine some do.
TEST(Urgency, ABulkThreadThatRanLongSleepsForAMoment) {
  constexpr int kRuns = 20;
  const auto run_time = [] {
    timespec now{};
    EXPECT_EQ(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  GiveWay();
  const long before = Sleeps();
  for (int i = 0; i < kRuns; ++i) {
    const auto begun = run_time();
    while (run_time() - begun < kBulkRunMax) {
    }
    GiveWay();
  }
  EXPECT_GE(Sleeps() - before, kRuns / 2);
}

TEST(Urgency, OneThatSleptAMomentAgoGoesOn) {
  constexpr int kCalls = 1000;
  const long before = Sleeps();
  for (int i = 0; i < kCalls; ++i) GiveWay();
  EXPECT_LT(Sleeps() - before, kCalls / 2) << "far less than one in each";
}

}  // namespace
}  // namespace tier::proto
