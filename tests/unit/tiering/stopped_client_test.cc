// Windows that a client does not return, as its process is stopped: they are taken from it, and what follows.
#include <algorithm>
#include <utility>
#include <vector>

#include "tests/unit/tiering/forced_return_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

// A client whose process is stopped: it answers nothing, and its session has borrowed all of the arena, unleased.
class StoppedClient : public ForcedReturn {
 protected:
  StoppedClient() {
    for (uint64_t tensor = 1; tensor <= kArena / kWindow; ++tensor) {
      world_.Put(stopped_, tensor, kWindow, tensor);
      EXPECT_EQ(world_.Flush(stopped_, tensor).code, Code::kOk);
    }
    EXPECT_EQ(world_.Job(stopped_job_).held_bytes, kArena - kWindow) << "one window is free";
  }
  // Turns in which all other clients return what they are asked for.
  void RunStopped(base::Duration longest, SessionId session, uint64_t asked) {
    for (const base::TimePoint end = world_.now + longest; world_.now < end && !world_.Answered(session, asked);) {
      world_.Turn();
      for (const auto& [owner, window] : std::exchange(world_.sink.returns, {})) {
        if (owner == static_cast<uint64_t>(stopped_)) {
          unanswered_.push_back(WindowIndex{window});
        } else {
          world_.engine->WindowReturned(SessionId{owner}, WindowIndex{window});
        }
      }
      world_.Advance(kPace);
    }
  }
  // Its process goes on, and answers what it was asked meanwhile.
  void Continue() {
    for (const WindowIndex window : std::exchange(unanswered_, {})) {  // As the table of sessions tells them apart.
      const auto taken = world_.sink.taken.find({static_cast<uint64_t>(stopped_), Value(window)});
      if (taken == world_.sink.taken.end()) {
        world_.engine->WindowReturned(stopped_, window);
      } else {
        world_.sink.taken.erase(taken);
        world_.engine->TakenWindowReturned(stopped_, window);
      }
    }
  }
  void SetKills() {
    EngineOptions options = world_.options.engine;
    options.kills_keepers = true;
    world_.engine->SetOptions(options);
  }
  uint64_t ForcedWindows() const {
    return world_.engine->Snapshot().forced_returns[static_cast<size_t>(ForcedReturnKind::kWindow)];
  }

  JobId stopped_job_ = world_.OpenJob({.key = "1/stopped", .uid = 1, .guarantee_bytes = 8 * kMiB});
  SessionId stopped_ = world_.OpenSession(stopped_job_);
  std::vector<WindowIndex> unanswered_;
};

TEST_F(StoppedClient, EmptyWindowsAreTakenFromItAtTheDeadlineAndItLosesNothing) {
  const SessionId late = world_.Open({.key = "2/late", .uid = 2, .guarantee_bytes = 14 * kMiB});
  const uint64_t asked = Ask(late, 8 * kMiB);
  RunStopped(kReclaimDeadline - milliseconds(100), late, asked);
  EXPECT_FALSE(world_.Answered(late, asked).has_value());
  EXPECT_EQ(ForcedWindows(), 0u);
  RunStopped(milliseconds(300), late, asked);
  ASSERT_TRUE(world_.Answered(late, asked).has_value());
  EXPECT_EQ(world_.Answered(late, asked)->code, Code::kOk);
  EXPECT_EQ(ForcedWindows(), 3u);
  EXPECT_THAT(
      world_.sink.forced,
      ::testing::ElementsAre(HasSubstr("of job 1/stopped has not answered for 10.0 s: 6 MiB in empty windows")));
  EXPECT_EQ(ForcedSessions(), 0u);
  EXPECT_FALSE(Ended(stopped_));
  Continue();
  for (uint64_t tensor = 1; tensor <= kArena / kWindow; ++tensor) {
    EXPECT_EQ(world_.Check(stopped_, tensor, tensor), Code::kOk) << tensor;
  }
}

TEST_F(StoppedClient, IsNotWaitedForAgainUntilItAnswers) {
  const JobId late_job = world_.OpenJob({.key = "2/late", .uid = 2, .guarantee_bytes = 22 * kMiB});
  const SessionId late = world_.OpenSession(late_job);
  RunStopped(kReclaimDeadline + milliseconds(300), late, Ask(late, 4 * kMiB));
  const uint64_t again = world_.Send(late, Op::kCreate, {{2, 0, 0, 8 * kMiB}});
  RunStopped(milliseconds(300), late, again);
  ASSERT_TRUE(world_.Answered(late, again).has_value()) << "it is known to be stopped";
  EXPECT_EQ(ForcedWindows(), 5u);
  Continue();
  const uint64_t third = world_.Send(late, Op::kCreate, {{3, 0, 0, 4 * kMiB}});
  RunStopped(kReclaimDeadline - milliseconds(300), late, third);
  EXPECT_FALSE(world_.Answered(late, third).has_value()) << "it has answered, so it has all of the time again";
  EXPECT_EQ(ForcedWindows(), 5u);
}

TEST_F(StoppedClient, AnswersThatItWasNotAskedForAreNone) {
  const JobId late_job = world_.OpenJob({.key = "2/late", .uid = 2, .guarantee_bytes = 22 * kMiB});
  const SessionId late = world_.OpenSession(late_job);
  RunStopped(kReclaimDeadline + milliseconds(300), late, Ask(late, 4 * kMiB));
  // It returns windows that are not its own, that are and that nobody asks for, and more taken ones than were taken.
  for (uint32_t window = 0; window < 40; ++window) world_.engine->WindowReturned(stopped_, WindowIndex{window});
  const uint64_t again = world_.Send(late, Op::kCreate, {{2, 0, 0, 8 * kMiB}});
  RunStopped(milliseconds(300), late, again);
  EXPECT_TRUE(world_.Answered(late, again).has_value()) << "it is known to be stopped";
  const SessionId other = world_.Open({.key = "3/other", .uid = 3});
  world_.engine->TakenWindowReturned(other, WindowIndex{1});  // Nothing was taken from it.
  EXPECT_FALSE(Ended(other));
}

// A process is killed for windows that it did not return: not for those that it has returned since.
TEST_F(StoppedClient, ItsAnswersStrikeItsNameFromWhatWasTakenFromIt) {
  const SessionId late = world_.Open({.key = "2/late", .uid = 2, .guarantee_bytes = 14 * kMiB});
  RunStopped(kReclaimDeadline + milliseconds(300), late, Ask(late, 8 * kMiB));
  const auto named = [&] {
    return std::ranges::count_if(world_.windows.retired(), [](const auto& window) { return !window.sessions.empty(); });
  };
  ASSERT_EQ(named(), 3);
  world_.engine->TakenWindowReturned(stopped_, WindowIndex{40});  // That was not taken from it.
  EXPECT_EQ(named(), 3);
  Continue();
  EXPECT_EQ(named(), 0);
  // It says goodbye and lives on. Another session, which has ended too, has not returned them.
  world_.EndSession(stopped_);
  SetKills();
  std::vector<memory::KeptWindow> kept = world_.windows.retired();
  for (memory::KeptWindow& window : kept) window.sessions.push_back(99);
  world_.windows.FindKept(std::move(kept));
  world_.Turns(2);
  EXPECT_THAT(world_.sink.killed, ::testing::ElementsAre(99));
}

TEST_F(StoppedClient, IsKilledForWhatAnotherJobWasOwed) {
  const SessionId late = world_.Open({.key = "2/late", .uid = 2, .guarantee_bytes = 14 * kMiB});
  RunStopped(kReclaimDeadline + milliseconds(300), late, Ask(late, 8 * kMiB));
  SetKills();
  ASSERT_EQ(world_.windows.retired().size(), 3u);
  world_.windows.FindKept(world_.windows.retired());
  world_.Turns(2);
  EXPECT_THAT(world_.sink.killed, ::testing::ElementsAre(static_cast<uint64_t>(stopped_)));
}

TEST_F(StoppedClient, IsNotKilledForWhatTheHostTook) {
  world_.windows.SetArenaMax(24 * kMiB);
  RunStopped(kReclaimDeadline + milliseconds(300), stopped_, 0);
  SetKills();
  ASSERT_GE(world_.windows.retired().size(), 3u);
  world_.windows.FindKept(world_.windows.retired());
  world_.Turns(2);
  EXPECT_TRUE(world_.sink.killed.empty());
}

// What it says of a window that has another owner by now counts for nothing.
TEST_F(StoppedClient, ItsLateAnswersChangeNothing) {
  const JobId late_job = world_.OpenJob({.key = "2/late", .uid = 2, .guarantee_bytes = 14 * kMiB});
  const SessionId late = world_.OpenSession(late_job);
  RunStopped(kReclaimDeadline + milliseconds(300), late, Ask(late, 8 * kMiB));
  const uint64_t held = world_.Job(late_job).held_bytes;
  EXPECT_EQ(held, 8 * kMiB);
  Continue();
  world_.Turns(10);
  EXPECT_EQ(world_.Job(late_job).held_bytes, held);
  EXPECT_EQ(world_.Release(late, 1).code, Code::kStale);
}

TEST_F(StoppedClient, WindowsUnderItsLeasesStayUntilItsSessionIsEnded) {
  for (uint64_t tensor = 1; tensor <= 13; ++tensor) ASSERT_EQ(world_.Acquire(stopped_, tensor).code, Code::kOk);
  const SessionId late = world_.Open({.key = "2/late", .uid = 2, .guarantee_bytes = 14 * kMiB});
  const uint64_t asked = Ask(late, 12 * kMiB);
  RunStopped(2 * kReclaimDeadline, late, asked);
  ASSERT_TRUE(world_.Answered(late, asked).has_value());
  EXPECT_EQ(world_.Answered(late, asked)->code, Code::kOk);
  EXPECT_TRUE(Ended(stopped_)) << "it leases 26 MiB, and 6 were to be had without it";
}

TEST_F(StoppedClient, OneThatFillsWindowsThatWereTakenFromItIsEnded) {
  const SessionId late = world_.Open({.key = "2/late", .uid = 2, .guarantee_bytes = 14 * kMiB});
  RunStopped(kReclaimDeadline + milliseconds(300), late, Ask(late, 8 * kMiB));
  EXPECT_EQ(world_.windows.unreturned().size(), 3u);
  for (const auto& [window, session] : world_.windows.unreturned()) EXPECT_EQ(SessionId{session}, stopped_);
  const memory::KeptWindow filled{.sessions = {99, static_cast<uint64_t>(stopped_)},  // The first one is gone.
                                  .since = world_.now,
                                  .bytes = kWindow,
                                  .refilled_bytes = kMiB,
                                  .refills = 1};
  world_.windows.FindKept({filled});
  world_.Turns(2);
  EXPECT_FALSE(Ended(stopped_)) << "it may have been stopped while it mapped the window";
  memory::KeptWindow again = filled;
  again.refills = 2;
  world_.windows.FindKept({again, again});
  world_.Turns(2);
  ASSERT_TRUE(Ended(stopped_));
  const auto& [code, reason] = world_.sink.ended.at(static_cast<uint64_t>(stopped_));
  EXPECT_EQ(code, Code::kRevoked);
  EXPECT_THAT(reason, HasSubstr("1 MiB were found in an empty window that this session was asked to return"));
  EXPECT_EQ(world_.engine->Snapshot().forced_returns[static_cast<size_t>(ForcedReturnKind::kRefill)], 1u);
}

}  // namespace
}  // namespace tier::tiering::testing
