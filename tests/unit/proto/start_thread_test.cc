#include "proto/start_thread.h"

#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/mutex.h"
#include "tests/support/proto/thread_shortage.h"

namespace tier::proto {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(StartThread, RefusesWithASentenceWhereTheSystemGivesNoThread) {
  bool ran = false;
  {
    const tier::testing::ThreadShortage shortage;
    const auto thread = StartThread("tier-test", BlockedSignals::kAll, [&] { ran = true; });
    ASSERT_FALSE(thread);
    EXPECT_EQ(thread.error().code, Code::kNoMemory);
    EXPECT_THAT(thread.error().message, AllOf(HasSubstr("tier-test"), HasSubstr("RLIMIT_NPROC"), HasSubstr("TasksMax="),
                                              HasSubstr("RLIMIT_AS")));
  }
  EXPECT_FALSE(ran);
  auto thread = StartThread("tier-test", BlockedSignals::kAll, [&] { ran = true; });
  ASSERT_TRUE(thread) << thread.error().message;
  thread->join();
  EXPECT_TRUE(ran);
}

TEST(StartThread, StartsAsManyAsTheSystemGives) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "needs a process without TSan: it has a thread of its own, which counts";
#endif
  const tier::testing::ThreadShortage shortage(2);
  // None ends before all were asked for: an ended one would leave room for another.
  Mutex mutex;
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex);
    for (int i = 0; i < 3; ++i) {
      auto thread = StartThread("tier-test", BlockedSignals::kAll, [&] { const MutexLock held(mutex); });
      if (thread) threads.push_back(std::move(*thread));
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(threads.size(), 2u);
}

}  // namespace
}  // namespace tier::proto
