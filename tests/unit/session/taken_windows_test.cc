// Windows that were taken without their client's answer: until that comes, the client sees no other answer.
#include <gtest/gtest.h>

#include "tests/support/session/engine_thread_parts.h"

namespace tier::session {
namespace {

using testing::ScriptedReply;
using testing::SubmittedRequest;

constexpr tiering::SessionId kSession{1};

class TakenWindows : public testing::EngineThreadParts {
 protected:
  TakenWindows() {
    engine_.answer = [](const SubmittedRequest&) { return ScriptedReply{}; };
  }
  void Pass() {
    for (int i = 0; i < 4; ++i) {
      clock_.now = clock_.now + kBellInterval;
      loop_.RunOnce();
    }
  }
};

// It would take a window that an answer names for the one of the same index that it still maps.
TEST_F(TakenWindows, HoldAnswersBackUntilAllOfThemAreReturned) {
  const auto client = Attach(1, "train");
  const auto neighbour = Attach(2, "other");
  for (int i = 0; i < 2; ++i) table_.OnWindowTaken(kSession, WindowIndex{3});
  EXPECT_TRUE(SendOne(*client) && SendOne(*neighbour));
  Pass();
  EXPECT_TRUE(client->Receive().empty());
  EXPECT_EQ(neighbour->Receive().size(), 1u);
  table_.WindowReturned(kSession, WindowIndex{3});
  Pass();
  EXPECT_TRUE(client->Receive().empty()) << "one of the two is still to come";
  table_.WindowReturned(kSession, WindowIndex{3});
  Pass();
  EXPECT_EQ(client->Receive().size(), 1u);
  EXPECT_EQ(engine_.taken_returned, (std::vector<uint64_t>{1, 1}));
  EXPECT_TRUE(engine_.windows_returned.empty()) << "the engine does not wait for them";
}

TEST_F(TakenWindows, AreNotTakenForOthersThatAreReturned) {
  const auto client = Attach(1, "train");
  table_.OnWindowTaken(kSession, WindowIndex{3});
  table_.WindowReturned(kSession, WindowIndex{4});
  EXPECT_EQ(engine_.windows_returned.size(), 1u);
  table_.WindowReturned(kSession, WindowIndex{3});
  table_.WindowReturned(kSession, WindowIndex{3});
  EXPECT_EQ(engine_.windows_returned.size(), 2u) << "the second is another window with the index of the first";
  EXPECT_EQ(engine_.taken_returned.size(), 1u);
}

TEST_F(TakenWindows, EndWithTheirSession) {
  const auto client = Attach(1, "train");
  table_.OnWindowTaken(kSession, WindowIndex{3});
  table_.Detach(kSession, "gone");
  table_.OnWindowTaken(kSession, WindowIndex{4});
  table_.WindowReturned(kSession, WindowIndex{3});
  EXPECT_TRUE(engine_.taken_returned.empty() && engine_.windows_returned.empty());
}

}  // namespace
}  // namespace tier::session
