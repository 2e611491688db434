#include "daemon/base/mailbox.h"

#include <poll.h>

#include <memory>
#include <thread>

#include <gtest/gtest.h>

namespace tier::base {
namespace {

bool Readable(const Mailbox& mailbox, int timeout_ms = 0) {
  pollfd waiting{mailbox.wake_fd(), POLLIN, 0};
  return ::poll(&waiting, 1, timeout_ms) == 1;
}

TEST(Mailbox, RunsClosuresInOrderAndOnlyWhenDrained) {
  Mailbox mailbox;
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(mailbox.TryPost([&order, i] { order.push_back(i); }));
  EXPECT_TRUE(order.empty());
  EXPECT_FALSE(mailbox.empty());
  EXPECT_EQ(mailbox.Drain(), 3U);
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(mailbox.empty());
  EXPECT_EQ(mailbox.Drain(), 0U);
}

TEST(Mailbox, WakesBetweenAPostAndItsDrainOnly) {
  Mailbox mailbox;
  EXPECT_FALSE(Readable(mailbox));
  ASSERT_TRUE(mailbox.TryPost([] {}));
  ASSERT_TRUE(mailbox.TryPost([] {}));
  EXPECT_TRUE(Readable(mailbox));
  mailbox.Drain();
  EXPECT_FALSE(Readable(mailbox));
}

TEST(Mailbox, WhatAClosurePostsWaitsForTheNextDrainAndWakes) {
  Mailbox mailbox;
  int ran = 0;
  ASSERT_TRUE(mailbox.TryPost([&] {
    ++ran;
    ASSERT_TRUE(mailbox.TryPost([&] { ++ran; }));
  }));
  EXPECT_EQ(mailbox.Drain(), 1U);
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(Readable(mailbox));
  EXPECT_EQ(mailbox.Drain(), 1U);
  EXPECT_EQ(ran, 2);
}

TEST(Mailbox, RefusesBeyondItsCapacityAndCountsIt) {
  Mailbox mailbox(2);
  ASSERT_TRUE(mailbox.TryPost([] {}));
  ASSERT_TRUE(mailbox.TryPost([] {}));
  EXPECT_FALSE(mailbox.TryPost([] {}));
  EXPECT_EQ(mailbox.refused(), 1U);
  EXPECT_EQ(mailbox.waiting(), 2U);
  mailbox.Drain();
  EXPECT_TRUE(mailbox.TryPost([] {}));
}

TEST(Mailbox, DestroysClosuresThatNeverRan) {
  std::weak_ptr<int> watched;
  {
    Mailbox mailbox;
    auto owned = std::make_shared<int>(1);
    watched = owned;
    ASSERT_TRUE(mailbox.TryPost([owned = std::move(owned)] {}));
  }
  EXPECT_TRUE(watched.expired());
}

TEST(Mailbox, LosesNoPostAndNoWakeUpBetweenThreads) {
  Mailbox mailbox;
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kPosts = 5000;
  uint64_t ran = 0;  // Engine thread only: the closures run here.
  std::vector<uint64_t> last(kThreads, 0);
  bool in_order = true;
  std::vector<std::thread> posters;
  for (uint64_t t = 0; t < kThreads; ++t) {
    posters.emplace_back([&, t] {
      for (uint64_t i = 1; i <= kPosts; ++i) {
        while (!mailbox.TryPost([&, t, i] {
          in_order &= last[t] + 1 == i;
          last[t] = i;
          ++ran;
        })) {
          std::this_thread::yield();
        }
      }
    });
  }
  while (ran < kThreads * kPosts) {
    ASSERT_TRUE(Readable(mailbox, 10'000)) << "a wake-up was lost after " << ran;
    mailbox.Drain();
  }
  for (std::thread& poster : posters) poster.join();
  EXPECT_TRUE(in_order);
  EXPECT_TRUE(mailbox.empty());
}

}  // namespace
}  // namespace tier::base
