// What another thread sees while the engine thread sleeps, and that it never looks while that works.
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "daemon/base/mailbox.h"
#include "daemon/session/engine_calls.h"
#include "daemon/session/engine_rest.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using testing::SessionWorld;

TEST(EngineRest, NobodyLooksBeforeTheFirstSleepAndBetweenTwo) {
  EngineRest rest;
  int looks = 0;
  const auto look = [&] { ++looks; };
  EXPECT_FALSE(rest.TryLook(look));
  rest.Begin();
  EXPECT_TRUE(rest.TryLook(look));
  EXPECT_TRUE(rest.TryLook(look));
  rest.End();
  EXPECT_FALSE(rest.TryLook(look));
  EXPECT_EQ(looks, 2);
}

TEST(EngineRest, TwoDoNotLookAtOnce) {
  EngineRest rest;
  rest.Begin();
  EXPECT_TRUE(rest.TryLook([&] { EXPECT_FALSE(rest.TryLook([] { ADD_FAILURE(); })); }));
  rest.End();
}

TEST(EngineRest, ALookThatThrowsIsOver) {
  EngineRest rest;
  rest.Begin();
  EXPECT_THROW(rest.TryLook([] { throw std::runtime_error("no memory"); }), std::runtime_error);
  EXPECT_TRUE(rest.TryLook([] {}));
  rest.End();
}

// The two numbers differ only in the middle of the engine thread's work. A sanitizer of threads sees what is unordered.
TEST(EngineRest, ALookSeesWhatASleepLeftAndEndsBeforeTheNextWork) {
  constexpr uint64_t kSleeps = 20'000;
  EngineRest rest;
  uint64_t first = 0;
  uint64_t second = 0;
  std::atomic<bool> ended{false};
  uint64_t looks = 0;
  std::thread looking([&] {
    while (!ended.load(std::memory_order_relaxed)) {
      rest.TryLook([&] {
        ++looks;
        EXPECT_EQ(first, second);
      });
    }
  });
  for (uint64_t i = 0; i < kSleeps || i < 1'000'000; ++i) {
    ++first;
    ++second;
    rest.Begin();
    if (i % 64 == 0) std::this_thread::yield();
    rest.End();
    if (i >= kSleeps && looks > 0) break;  // Read while nobody looks.
  }
  ended.store(true, std::memory_order_relaxed);
  looking.join();
  EXPECT_GT(looks, 0u);
}

TEST(EngineRest, ALookThatKeepsTheEngineThreadFromWakingCounts) {
  EngineRest rest;
  for (int tries = 0; tries < 1'000 && rest.spent().count() == 0; ++tries) {  // In each, it may come just too late.
    rest.Begin();
    std::atomic<bool> looking{false};
    std::atomic<bool> waking{false};
    std::thread other([&] {
      rest.TryLook([&] {
        looking.store(true);
        while (!waking.load()) std::this_thread::yield();
        for (int i = 0; i < 100; ++i) std::this_thread::yield();
      });
    });
    while (!looking.load()) std::this_thread::yield();
    waking.store(true);
    rest.End();
    other.join();
  }
  EXPECT_GT(rest.spent().count(), 0);
}

TEST(EngineRest, AnEngineThreadThatIsAskedCountsWhatItTook) {
  base::Mailbox mailbox(4);
  EngineRest rest;  // Awake, and so it stays.
  EngineCalls calls(mailbox, &rest);
  std::atomic<bool> asked{false};
  std::thread engine([&] {
    while (!asked.load()) {
      mailbox.Drain();
      std::this_thread::yield();
    }
  });
  const auto seen = calls.Look<int>([&]() -> Result<int> { return 7; });
  asked.store(true);
  engine.join();
  ASSERT_TRUE(seen);
  EXPECT_EQ(*seen, 7);
  EXPECT_GT(rest.spent().count(), 0);
}

TEST(EngineRest, AScrapeDoesNotWakeAnEngineThatSleeps) {
  SessionWorld world;
  bool slept = false;
  for (int tries = 0; tries < 1'000 && !slept; ++tries) {
    const uint64_t before = world.loop().passes();
    ASSERT_TRUE(world.control().Observe());
    slept = world.loop().passes() == before;
  }
  EXPECT_TRUE(slept);
}

}  // namespace
}  // namespace tier::session
