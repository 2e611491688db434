#include "daemon/base/workers.h"

#include <pthread.h>

#include <csignal>

#include <atomic>
#include <latch>
#include <memory>

#include <gtest/gtest.h>

#include "tests/support/proto/thread_shortage.h"

namespace tier::base {
namespace {

TEST(Workers, RunEveryTaskOnceAndJoinAfterDraining) {
  std::atomic<int> ran{0};
  {
    const auto workers = Workers::Start(3, "test").value();
    EXPECT_EQ(workers->threads(), 3U);
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(workers->TryPost([&] { ran.fetch_add(1); }));
  }
  EXPECT_EQ(ran.load(), 1000);
}

TEST(Workers, TasksPostedByTasksRunBeforeTheEndToo) {
  std::atomic<int> ran{0};
  {
    const auto workers = Workers::Start(2, "test").value();
    ASSERT_TRUE(workers->TryPost([&] {
      ran.fetch_add(1);
      ASSERT_TRUE(workers->TryPost([&] {
        ran.fetch_add(1);
        ASSERT_TRUE(workers->TryPost([&] { ran.fetch_add(1); }));
      }));
    }));
  }
  EXPECT_EQ(ran.load(), 3);
}

TEST(Workers, RefuseBeyondTheNamedMaximumAndCountIt) {
  std::latch begun(1);
  std::latch go_on(1);
  std::atomic<size_t> ran{0};
  {
    const auto workers = Workers::Start(1, "test").value();
    ASSERT_TRUE(workers->TryPost([&] {
      begun.count_down();
      go_on.wait();
    }));
    begun.wait();
    for (size_t i = 0; i < Workers::kTasksQueuedMax; ++i) ASSERT_TRUE(workers->TryPost([&] { ran.fetch_add(1); }));
    EXPECT_EQ(workers->queued(), Workers::kTasksQueuedMax);
    EXPECT_FALSE(workers->TryPost([] {}));
    EXPECT_EQ(workers->refused(), 1U);
    go_on.count_down();
  }
  EXPECT_EQ(ran.load(), Workers::kTasksQueuedMax);
}

TEST(Workers, AreRefusedWhereTheSystemGivesTooFewThreads) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "needs a process without TSan: it has a thread of its own, which counts";
#endif
  const tier::testing::ThreadShortage shortage(2);
  const auto workers = Workers::Start(3, "test");
  ASSERT_FALSE(workers);
  EXPECT_EQ(workers.error().code, Code::kNoMemory);
  EXPECT_NE(workers.error().message.find("test-2"), std::string::npos) << workers.error().message;
}

TEST(Workers, RunOneThreadsTasksInTheOrderPosted) {
  std::vector<int> order;
  {
    const auto workers = Workers::Start(1, "test").value();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(workers->TryPost([&order, i] { order.push_back(i); }));
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(Workers, TakeMoveOnlyTasksAndEndWhatTheyOwn) {
  std::weak_ptr<int> watched;
  {
    const auto workers = Workers::Start(1, "test").value();
    auto owned = std::make_shared<int>(4);
    watched = owned;
    auto holder = std::make_unique<std::shared_ptr<int>>(std::move(owned));
    ASSERT_TRUE(workers->TryPost([holder = std::move(holder)] { EXPECT_EQ(**holder, 4); }));
  }
  EXPECT_TRUE(watched.expired());
}

TEST(Workers, LeaveSignalsMeantForTheProcessToOtherThreads) {
  sigset_t mask;
  sigemptyset(&mask);
  char name[16] = {};
  {
    const auto workers = Workers::Start(1, "a-very-long-name").value();
    ASSERT_TRUE(workers->TryPost([&] {
      pthread_sigmask(SIG_SETMASK, nullptr, &mask);
      pthread_getname_np(pthread_self(), name, sizeof(name));
    }));
  }
  EXPECT_EQ(sigismember(&mask, SIGTERM), 1);
  EXPECT_EQ(sigismember(&mask, SIGINT), 1);
  EXPECT_EQ(sigismember(&mask, SIGBUS), 0);
  EXPECT_EQ(sigismember(&mask, SIGSEGV), 0);
  EXPECT_STREQ(name, "a-very-long-0");
}

}  // namespace
}  // namespace tier::base
