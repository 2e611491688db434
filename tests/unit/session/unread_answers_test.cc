// Answers that clients do not read: the engine is told what they take, at whose cost they are kept.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/session/engine_thread_parts.h"

namespace tier::session {
namespace {

using testing::RingClient;
using testing::ScriptedReply;
using testing::SubmittedRequest;

constexpr uint64_t kAnswer = 256 * kKiB;  // Of these answers; the ring has room for two.

class UnreadAnswers : public testing::EngineThreadParts {
 protected:
  UnreadAnswers() {
    engine_.keep_submitted = false;
    engine_.answer = [](const SubmittedRequest&) {
      return ScriptedReply{.spans = std::vector<proto::SpanRecord>(proto::kSpansPerCompletionMax)};
    };
  }
  void Pass() {
    clock_.now = clock_.now + kBellInterval;
    loop_.RunOnce();
  }
  std::unique_ptr<RingClient> AttachAndAsk(int requests) {
    auto client = Attach(1, "train");
    for (int i = 0; i < requests; ++i) EXPECT_TRUE(SendOne(*client));
    Pass();
    return client;
  }
};

TEST_F(UnreadAnswers, AreToldToTheEngineUntilTheyAreRead) {
  const auto client = AttachAndAsk(20);
  EXPECT_GE(engine_.unread[1], 18 * kAnswer);
  EXPECT_LE(engine_.unread[1], 40 * kAnswer);
  size_t read = 0;
  for (int i = 0; i < 20; ++i) {
    read += client->Receive().size();
    Pass();
  }
  EXPECT_EQ(read, 20u);
  EXPECT_EQ(engine_.unread[1], 0u) << "their memory is given back";
}

TEST_F(UnreadAnswers, OfAClientThatKeepsUpAreNotCounted) {
  const auto client = AttachAndAsk(1);
  EXPECT_EQ(client->Receive().size(), 1u);
  Pass();
  EXPECT_TRUE(engine_.unread.empty());
}

TEST_F(UnreadAnswers, OfManySessionsAreTriedSomeAtATime) {
  constexpr size_t kSessions = 2 * kBacklogsTriedPerPass - 4;
  std::vector<std::unique_ptr<RingClient>> clients;
  for (size_t i = 0; i < kSessions; ++i) {
    clients.push_back(Attach(static_cast<uint64_t>(i + 1), "train" + std::to_string(i)));
    for (int asked = 0; asked < 4; ++asked) ASSERT_TRUE(SendOne(*clients.back()));
  }
  Pass();
  for (const auto& client : clients) ASSERT_EQ(client->Receive().size(), 2u);
  const auto served = [&] {
    return static_cast<size_t>(
        std::ranges::count_if(clients, [](const auto& client) { return !client->Receive().empty(); }));
  };
  Pass();
  EXPECT_EQ(served(), kBacklogsTriedPerPass);
  Pass();
  EXPECT_EQ(served(), kSessions - kBacklogsTriedPerPass);
  Pass();
  EXPECT_FALSE(table_.backlogged());
}

TEST_F(UnreadAnswers, SessionThatTheEngineEndsForThemIsTold) {
  const auto client = AttachAndAsk(20);
  engine_.sessions.erase(1);
  engine_.EndInTurn(tiering::SessionId{1}, Code::kRevoked, "answers wait");
  Pass();
  EXPECT_EQ(notices_.ended, std::vector<uint64_t>{1});
  EXPECT_FALSE(table_.backlogged());
}

}  // namespace
}  // namespace tier::session
