// Forced return: when a session is ended because its job leases what others are promised, and which one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "daemon/tiering/jobs/forced_return.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
constexpr uint64_t kArena = 32 * kMiB;
constexpr uint64_t kWindow = 2 * kMiB;
constexpr base::Duration kReclaimDeadline = seconds(10);
constexpr base::Duration kPace = milliseconds(10);

class ForcedReturn : public ::testing::Test {
 protected:
  explicit ForcedReturn(base::Duration request_deadline = seconds(300)) : world_(Options(request_deadline)) {}
  explicit ForcedReturn(const WorldOptions& options) : world_(options) {}
  static WorldOptions Options(base::Duration request_deadline) {
    WorldOptions options{.windows = {.window_size = kWindow, .arena_max_bytes = kArena}, .device_blocks = 256};
    options.engine.deadline_default = request_deadline;
    options.engine.reclaim_deadline = kReclaimDeadline;
    return options;
  }
  // Clients return what they are asked for, until the request is answered. 0: until the time has passed.
  void Run(base::Duration longest, SessionId session = {}, uint64_t asked = 0) {
    for (const base::TimePoint end = world_.now + longest; world_.now < end;) {
      if (asked != 0 && world_.Answered(session, asked)) return;
      world_.Turn();
      world_.ReturnWindows();
      world_.Advance(kPace);
    }
  }
  // A lease on so many bytes.
  void Lease(SessionId session, uint64_t tensor, uint64_t bytes) {
    const Answer created = world_.Create(session, tensor, bytes);
    ASSERT_EQ(created.code, Code::kOk) << created.detail;
  }
  uint64_t Ask(SessionId session, uint64_t bytes) { return world_.Send(session, Op::kCreate, {{1, 0, 0, bytes}}); }
  bool Ended(SessionId session) const { return world_.sink.ended.contains(static_cast<uint64_t>(session)); }
  uint64_t ForcedSessions() const {
    return world_.engine->Snapshot().forced_returns[static_cast<size_t>(ForcedReturnKind::kSession)];
  }

  World world_;
};

TEST_F(ForcedReturn, EndsTheSessionThatLeasesWhatAnotherJobIsPromised) {
  const SessionId hog = world_.Open({.key = "1/hog", .uid = 1});
  Lease(hog, 1, 28 * kMiB);
  const SessionId late = world_.Open({.key = "2/late", .uid = 2});
  const uint64_t asked = Ask(late, 12 * kMiB);
  Run(kReclaimDeadline - kPace, late, asked);
  EXPECT_FALSE(Ended(hog)) << "it has until the deadline";
  EXPECT_EQ(world_.engine->Snapshot().owed_bytes, 8 * kMiB) << "all that it lacks";
  Run(milliseconds(200), late, asked);
  ASSERT_TRUE(Ended(hog));
  const auto& [code, reason] = world_.sink.ended.at(static_cast<uint64_t>(hog));
  EXPECT_EQ(code, Code::kRevoked);
  EXPECT_THAT(reason, HasSubstr("job 2/late has been owed 8 MiB for 10.0 s (jobs.reclaim_deadline is 10.0 s): it is "
                                "promised 15 MiB and holds 4 MiB; job 1/hog leases 28 MiB and is promised 15 MiB"));
  ASSERT_TRUE(world_.Answered(late, asked).has_value());
  EXPECT_EQ(world_.Answered(late, asked)->code, Code::kOk);
  EXPECT_EQ(ForcedSessions(), 1u);
  EXPECT_EQ(world_.engine->Snapshot().owed_bytes, 0u);
}

TEST_F(ForcedReturn, EndsNoSessionOfAJobWithinItsPromise) {
  const SessionId within = world_.Open({.key = "1/within", .uid = 1, .guarantee_bytes = 16 * kMiB});
  Lease(within, 1, 16 * kMiB);
  const SessionId late = world_.Open({.key = "2/late", .uid = 2, .guarantee_bytes = 8 * kMiB});
  world_.windows.SetArenaMax(18 * kMiB);  // The host has no more.
  const uint64_t asked = Ask(late, 8 * kMiB);
  Run(3 * kReclaimDeadline, late, asked);
  EXPECT_FALSE(world_.Answered(late, asked).has_value());
  EXPECT_TRUE(world_.sink.ended.empty());
  EXPECT_EQ(ForcedSessions(), 0u);
}

TEST_F(ForcedReturn, EndsNoSessionWhileTheHostsDebtKeepsAllFromGrowing) {
  const SessionId hog = world_.Open({.key = "1/hog", .uid = 1});
  Lease(hog, 1, 28 * kMiB);
  const SessionId late = world_.Open({.key = "2/late", .uid = 2});
  const uint64_t asked = Ask(late, 12 * kMiB);
  Run(seconds(1), late, asked);
  world_.windows.SetArenaMax(24 * kMiB);
  Run(3 * kReclaimDeadline, late, asked);
  EXPECT_FALSE(Ended(hog)) << "its memory would be the host's";
  world_.windows.SetArenaMax(kArena);
  Run(kNextReturnAfter - milliseconds(100), late, asked);
  EXPECT_FALSE(Ended(hog)) << "hand-over comes first";
  Run(milliseconds(300), late, asked);
  EXPECT_TRUE(Ended(hog) && world_.Answered(late, asked));
}

TEST_F(ForcedReturn, EndsTheSessionWithMostBeyondItsPartAndThenChecksAgain) {
  const JobId hog = world_.OpenJob({.key = "1/hog", .uid = 1, .guarantee_bytes = 8 * kMiB});
  const SessionId small = world_.OpenSession(hog);
  const SessionId large = world_.OpenSession(hog);
  const SessionId middle = world_.OpenSession(hog);
  Lease(small, 1, 6 * kMiB);
  Lease(large, 1, 12 * kMiB);
  Lease(middle, 1, 10 * kMiB);
  const SessionId late = world_.Open({.key = "2/late", .uid = 2, .guarantee_bytes = 22 * kMiB});
  const uint64_t asked = Ask(late, 20 * kMiB);
  Run(kReclaimDeadline + milliseconds(100), late, asked);
  EXPECT_TRUE(Ended(large) && !Ended(middle) && !Ended(small));
  EXPECT_FALSE(world_.Answered(late, asked).has_value()) << "16 MiB of 20 are there";
  Run(kNextReturnAfter + milliseconds(100), late, asked);
  EXPECT_TRUE(Ended(middle) && !Ended(small)) << "the job is within its guarantee now";
  ASSERT_TRUE(world_.Answered(late, asked).has_value());
  EXPECT_EQ(world_.Answered(late, asked)->code, Code::kOk);
  Run(2 * kReclaimDeadline);
  EXPECT_FALSE(Ended(small));
  EXPECT_EQ(ForcedSessions(), 2u);
}

class ForcedReturnOfRefused : public ForcedReturn {
 protected:
  static constexpr base::Duration kRequestDeadline = seconds(4);
  ForcedReturnOfRefused() : ForcedReturn(kRequestDeadline) {}
};

TEST_F(ForcedReturnOfRefused, TheTimeGoesOnWhenTheJobAsksAgain) {
  const SessionId hog = world_.Open({.key = "1/hog", .uid = 1});
  Lease(hog, 1, 28 * kMiB);
  const SessionId late = world_.Open({.key = "2/late", .uid = 2});
  for (uint32_t tries = 0; tries < 2; ++tries) {
    const uint64_t asked = Ask(late, 12 * kMiB);
    Run(kRequestDeadline + kPace, late, asked);
    ASSERT_TRUE(world_.Answered(late, asked).has_value());
    EXPECT_EQ(world_.Answered(late, asked)->code, Code::kNoMemory);
    EXPECT_THAT(world_.Answered(late, asked)->detail, HasSubstr("this job has been owed memory for "));
    Run(milliseconds(500));
  }
  EXPECT_FALSE(Ended(hog));
  const uint64_t asked = Ask(late, 12 * kMiB);
  Run(seconds(2), late, asked);
  EXPECT_TRUE(Ended(hog));
  ASSERT_TRUE(world_.Answered(late, asked).has_value());
  EXPECT_EQ(world_.Answered(late, asked)->code, Code::kOk);
}

TEST_F(ForcedReturnOfRefused, TheTimeBeginsAgainWhenTheJobHasPaused) {
  const SessionId hog = world_.Open({.key = "1/hog", .uid = 1});
  Lease(hog, 1, 28 * kMiB);
  const SessionId late = world_.Open({.key = "2/late", .uid = 2});
  for (uint32_t tries = 0; tries < 4; ++tries) {
    Run(kRequestDeadline + kPace, late, Ask(late, 12 * kMiB));
    Run(kOwedGapMax + milliseconds(200));
  }
  EXPECT_FALSE(Ended(hog));
}

TEST_F(ForcedReturn, AJobThatIsServedEachTimeIsNotOwedAllTheTime) {
  const SessionId hog = world_.Open({.key = "1/hog", .uid = 1});
  Lease(hog, 1, 16 * kMiB);
  std::vector<Answer> held;
  for (uint64_t tensor = 2; tensor <= 7; ++tensor) held.push_back(world_.Create(hog, tensor, kWindow));
  const SessionId late = world_.Open({.key = "2/late", .uid = 2});
  Lease(late, 100, 2 * kWindow);
  for (size_t i = 0; i < 5; ++i) {
    const uint64_t asked = world_.Send(late, Op::kCreate, {{i + 1, 0, 0, kWindow}});
    Run(seconds(4), late, asked);
    ASSERT_FALSE(world_.Answered(late, asked).has_value()) << i;
    ASSERT_EQ(world_.Release(hog, World::LeaseOf(held[i])).code, Code::kOk);
    Run(seconds(1), late, asked);
    ASSERT_TRUE(world_.Answered(late, asked).has_value()) << i;
  }
  EXPECT_FALSE(Ended(hog));
}

// Borrowers whose few leases lie scattered: a window goes only whole, so each leased page keeps 2 MiB from the others.
class ScatteredLeases : public ForcedReturn {
 protected:
  explicit ScatteredLeases(const WorldOptions& options = Options(seconds(300))) : ForcedReturn(options) {}
  // Fills so many windows with small tensors, all of them on SSD as well.
  void Fill(SessionId session, size_t windows) {
    std::map<uint32_t, uint64_t>& first = first_[session];
    for (uint64_t tensor = 1; tensor <= windows * kWindow / kSmall; ++tensor) {
      const Answer created = world_.Create(session, tensor, kSmall);
      ASSERT_EQ(created.code, Code::kOk) << created.detail;
      first.emplace(created.spans.front().window, tensor);
      ASSERT_EQ(world_.Release(session, World::LeaseOf(created)).code, Code::kOk);
      ASSERT_EQ(world_.Flush(session, tensor).code, Code::kOk);
    }
    ASSERT_GE(first.size(), windows);
  }
  // One tensor in each of so many of the windows that it filled.
  void LeaseOneInEach(SessionId session, size_t windows) {
    std::vector<uint64_t> tensors;
    for (const auto& [window, tensor] : first_[session]) tensors.push_back(tensor);
    std::ranges::shuffle(tensors, random_);
    ASSERT_GE(tensors.size(), windows);
    for (size_t i = 0; i < windows; ++i) ASSERT_EQ(world_.Acquire(session, tensors[i]).code, Code::kOk);
  }
  void ExpectServed(SessionId session, uint64_t asked) const {
    const auto answer = world_.Answered(session, asked);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->code, Code::kOk) << answer->detail;
  }

  static constexpr uint64_t kSmall = kWindow / 16;
  std::mt19937_64 random_{1};
  std::map<SessionId, std::map<uint32_t, uint64_t>> first_;  // By window: a tensor in it.
};

TEST_F(ScatteredLeases, DoNotKeepAGuaranteeFromItsOwnerForGood) {
  const SessionId owner = world_.Open({.key = "2/owner", .uid = 2, .guarantee_bytes = 28 * kMiB});
  const SessionId hostile = world_.Open({.key = "1/hostile", .uid = 1});
  Fill(hostile, 14);
  LeaseOneInEach(hostile, 12);
  const uint64_t asked = Ask(owner, 26 * kMiB);
  Run(kReclaimDeadline - kPace, owner, asked);
  EXPECT_FALSE(Ended(hostile) || world_.Answered(owner, asked));
  Run(seconds(1), owner, asked);
  ASSERT_TRUE(Ended(hostile));
  EXPECT_THAT(world_.sink.ended.at(static_cast<uint64_t>(hostile)).second,
              HasSubstr("job 1/hostile leases 1.5 MiB and is promised 2 MiB; what this session leases, 1.5 MiB, lies "
                        "in windows of 24 MiB, the most beyond its part"));
  ExpectServed(owner, asked);
}

TEST_F(ScatteredLeases, OfTheSessionsOfAJobTheOneThatKeepsMostWindowsEnds) {
  const SessionId owner = world_.Open({.key = "2/owner", .uid = 2, .guarantee_bytes = 20 * kMiB});
  const JobId job = world_.OpenJob({.key = "1/borrower", .uid = 1});
  const SessionId sharing = world_.OpenSession(job);
  const SessionId hostile = world_.OpenSession(job);
  Fill(sharing, 4);
  Fill(hostile, 9);
  LeaseOneInEach(sharing, 2);
  LeaseOneInEach(hostile, 9);
  const uint64_t asked = Ask(owner, 20 * kMiB);
  Run(kReclaimDeadline + kNextReturnAfter, owner, asked);
  ExpectServed(owner, asked);
  EXPECT_TRUE(Ended(hostile) && !Ended(sharing));
}

// Few units of work for each part of the count: as where sessions have millions of pieces under leases.
class ScatteredLeasesCountedInParts : public ScatteredLeases {
 protected:
  ScatteredLeasesCountedInParts() : ScatteredLeases(FewUnits()) {
    Fill(many_, 4);
    Fill(hostile_, 9);
    for (uint64_t tensor = 1; tensor <= kMany; ++tensor) {
      const Answer granted = world_.Acquire(many_, tensor);
      EXPECT_EQ(granted.code, Code::kOk) << granted.detail;
      leases_.push_back(World::LeaseOf(granted));
    }
    LeaseOneInEach(hostile_, 9);
    asked_ = Ask(owner_, 20 * kMiB);
    Run(kReclaimDeadline + milliseconds(50), owner_, asked_);
    EXPECT_TRUE(world_.sink.ended.empty()) << "the count is not over";
  }
  static WorldOptions FewUnits() {
    WorldOptions options = Options(seconds(300));
    options.engine.work.count = 4;
    return options;
  }
  void ExpectHostileEnds() {
    Run(2 * kNextReturnAfter, owner_, asked_);
    ExpectServed(owner_, asked_);
    EXPECT_TRUE(Ended(hostile_) && !Ended(many_));
    EXPECT_EQ(ForcedSessions(), 1u);
  }

  static constexpr uint64_t kMany = 2 * kWindow / kSmall;
  SessionId owner_ = world_.Open({.key = "2/owner", .uid = 2, .guarantee_bytes = 20 * kMiB});
  JobId job_ = world_.OpenJob({.key = "1/borrower", .uid = 1});
  SessionId many_ = world_.OpenSession(job_);
  SessionId hostile_ = world_.OpenSession(job_);
  std::vector<uint64_t> leases_;
  uint64_t asked_ = 0;
};

TEST_F(ScatteredLeasesCountedInParts, OneWithManyLeasesInFewWindowsIsCountedToTheEnd) { ExpectHostileEnds(); }

TEST_F(ScatteredLeasesCountedInParts, LeasesMayEndAndComeMeanwhile) {
  for (size_t i = 0; i < leases_.size(); i += 2) {
    ASSERT_EQ(world_.Release(many_, leases_[leases_.size() - 1 - i]).code, Code::kOk);
    ASSERT_EQ(world_.Acquire(many_, kMany - i).code, Code::kOk);
  }
  ExpectHostileEnds();
}

TEST_F(ScatteredLeasesCountedInParts, ASessionMayEndMeanwhile) {
  world_.EndSession(many_);
  Run(2 * kNextReturnAfter, owner_, asked_);
  ExpectServed(owner_, asked_);
  EXPECT_TRUE(Ended(hostile_));
}

// Block windows of 8 MiB, which were right when the jobs were promised more: now a part of the last one is beyond their
// promise. This is no fault of their clients.
class LargeWindows : public ForcedReturn {
 protected:
  LargeWindows() : ForcedReturn(LargeOptions()) {}
  static WorldOptions LargeOptions() {
    WorldOptions options = Options(seconds(300));
    options.windows = {.window_size = 8 * kMiB, .slot_window_size = kWindow, .arena_max_bytes = 64 * kMiB};
    return options;
  }
};

TEST_F(LargeWindows, ALastWindowThatIsLeasedInPartEndsNobody) {
  std::vector<JobId> jobs;
  for (uint32_t uid = 1; uid <= 2; ++uid) {
    jobs.push_back(world_.OpenJob({.uid = uid, .guarantee_bytes = 16 * kMiB}));
    Lease(world_.OpenSession(jobs.back()), 1, 10 * kMiB);
    ASSERT_EQ(world_.Job(jobs.back()).held_bytes, 16 * kMiB);
  }
  for (const JobId job : jobs) ASSERT_TRUE(world_.engine->SetJob(job, {.guarantee_bytes = 10 * kMiB}));
  const SessionId owner = world_.Open({.key = "3/owner", .uid = 3, .guarantee_bytes = 36 * kMiB});
  const uint64_t asked = Ask(owner, 36 * kMiB);
  Run(3 * kReclaimDeadline, owner, asked);
  EXPECT_FALSE(world_.Answered(owner, asked).has_value()) << "it lacks 4 MiB";
  EXPECT_TRUE(world_.sink.ended.empty());
}

class ScatteredLeasesFromSeeds : public ScatteredLeases, public ::testing::WithParamInterface<uint64_t> {
 protected:
  ScatteredLeasesFromSeeds() { random_.seed(GetParam()); }
};

// The owner is guaranteed 20 MiB of 32, two are for nobody: each borrower has 5 MiB, which are three windows.
TEST_P(ScatteredLeasesFromSeeds, OfTwoBorrowersTheOneBeyondItsPartEnds) {
  const SessionId owner = world_.Open({.key = "3/owner", .uid = 3, .guarantee_bytes = 20 * kMiB});
  const SessionId hostile = world_.Open({.key = "1/hostile", .uid = 1});
  const SessionId fair = world_.Open({.key = "2/fair", .uid = 2});
  Fill(hostile, 9);
  Fill(fair, 4);
  LeaseOneInEach(hostile, 6 + random_() % 4);
  LeaseOneInEach(fair, 1 + random_() % 3);
  const uint64_t asked = Ask(owner, 20 * kMiB);
  Run(kReclaimDeadline - kPace, owner, asked);
  EXPECT_TRUE(world_.sink.ended.empty()) << "they have until the deadline";
  Run(kNextReturnAfter, owner, asked);
  ExpectServed(owner, asked);
  Run(2 * kNextReturnAfter);
  EXPECT_TRUE(Ended(hostile) && !Ended(fair));
  EXPECT_EQ(ForcedSessions(), 1u);
}
INSTANTIATE_TEST_SUITE_P(Seeds, ScatteredLeasesFromSeeds, ::testing::Range<uint64_t>(1, 9));

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
