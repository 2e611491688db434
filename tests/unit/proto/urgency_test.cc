#include "proto/urgency.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
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

TEST(Urgency, AThreadOfAnotherPolicyStaysAsItWas) {
  int policy = -1;
  std::thread thread([&] {
    const sched_param none{};
    ASSERT_EQ(::sched_setscheduler(0, SCHED_IDLE, &none), 0);
    SetUrgency(Urgency::kBulk);
    policy = ::sched_getscheduler(0);
  });
  thread.join();
  EXPECT_EQ(policy, SCHED_IDLE);
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
