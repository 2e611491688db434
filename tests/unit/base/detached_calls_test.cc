#include "daemon/base/detached_calls.h"

#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/proto/thread_shortage.h"

namespace tier::base {
namespace {

constexpr auto kLong = std::chrono::minutes(5);  // Nothing waits for so long: the answers come.
using Texts = DetachedCalls<std::string>;

TEST(DetachedCalls, AnAnswerIsTakenOnceAndItsKeyMayCallAgain) {
  Texts calls;
  EXPECT_EQ(calls.Take(0), std::nullopt);
  for (const char* text : {"first", "second"}) {
    ASSERT_TRUE(calls.Start(0, "test", [text] { return std::string(text); }));
    ASSERT_TRUE(calls.Start(1, "test", [] { return std::string("other"); }));
    calls.WaitAtMost(kLong);
    EXPECT_EQ(calls.Take(0), text);
    EXPECT_EQ(calls.Take(0), std::nullopt);
    EXPECT_EQ(calls.Take(1), "other");
  }
}

TEST(DetachedCalls, OneThatHangsHoldsUpNeitherTheOthersNorTheEnd) {
  const auto gate = std::make_shared<std::latch>(1);
  std::weak_ptr<int> late;
  {
    DetachedCalls<std::shared_ptr<int>> calls;
    auto owned = std::make_shared<int>(7);
    late = owned;
    ASSERT_TRUE(calls.Start(0, "test", [gate, owned = std::move(owned)] {
      gate->wait();
      return owned;
    }));
    ASSERT_TRUE(calls.Start(1, "test", [] { return std::make_shared<int>(8); }));
    std::optional<std::shared_ptr<int>> other;
    while (!(other = calls.Take(1))) std::this_thread::yield();
    EXPECT_EQ(**other, 8);
    calls.WaitAtMost(Duration{0});
    EXPECT_FALSE(calls.Take(0));
  }
  EXPECT_FALSE(late.expired()) << "the call owns what it uses";
  gate->count_down();
  while (!late.expired()) std::this_thread::yield();  // Its thread destroys the answer that nobody takes.
}

TEST(DetachedCalls, WithoutAThreadIsRefused) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "needs a process without TSan: it has a thread of its own, which counts";
#endif
  Texts calls;
  {
    const tier::testing::ThreadShortage shortage;
    EXPECT_EQ(calls.Start(0, "test", [] { return std::string(); }).error().code, Code::kNoMemory);
  }
  calls.WaitAtMost(kLong);  // For none.
  EXPECT_TRUE(calls.Start(0, "test", [] { return std::string(); }));
}

}  // namespace
}  // namespace tier::base
