// Closures for an engine whose mailbox is full.
#include "daemon/session/engine_posts.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::session {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(EnginePosts, AllOfThemRunInTheirOrderOnceThereIsRoom) {
  boost::asio::io_context io;
  base::Mailbox mailbox(1);
  EnginePosts posts(io, mailbox);
  std::vector<int> ran;
  ASSERT_TRUE(mailbox.TryPost([] {}));
  for (int i = 1; i <= 3; ++i) posts.Post([&ran, i] { ran.push_back(i); });
  EXPECT_THAT(ran, IsEmpty());
  for (int round = 0; round < 5; ++round) {
    (void)mailbox.Drain();
    (void)io.run_one();
    io.restart();
  }
  EXPECT_THAT(ran, ElementsAre(1, 2, 3));
  posts.Post([&ran] { ran.push_back(4); });
  (void)mailbox.Drain();
  EXPECT_THAT(ran, ElementsAre(1, 2, 3, 4));
}

}  // namespace
}  // namespace tier::session
