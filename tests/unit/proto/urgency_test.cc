#include "proto/urgency.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
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

}  // namespace
}  // namespace tier::proto
