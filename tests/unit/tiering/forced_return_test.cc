// Forced return: when a session is ended because its job leases what others are promised, and which one.
#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "tests/unit/tiering/forced_return_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

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

TEST_F(ForcedReturn, EndsTheSessionWhoseLeasesKeepAnotherJobFromLeasesWithinItsPromise) {
  (void)world_.Open({.key = "1/idle", .uid = 1, .guarantee_bytes = 16 * kMiB});
  const SessionId hog = world_.Open({.key = "2/hog", .uid = 2});
  Lease(hog, 1, 16 * kMiB);  // All that no job is guaranteed.
  const SessionId late = world_.Open({.key = "3/late", .uid = 3});
  const uint64_t asked = Ask(late, kPageSize);
  Run(kReclaimDeadline - milliseconds(100), late, asked);
  EXPECT_FALSE(Ended(hog) || world_.Answered(late, asked));
  Run(seconds(1), late, asked);
  ASSERT_TRUE(Ended(hog));
  const auto& [code, reason] = world_.sink.ended.at(static_cast<uint64_t>(hog));
  EXPECT_EQ(code, Code::kRevoked);
  EXPECT_THAT(reason, HasSubstr("is promised 7 MiB and leases 0 bytes; job 2/hog leases 16 MiB and is promised 7 MiB"));
  ASSERT_TRUE(world_.Answered(late, asked).has_value());
  EXPECT_EQ(world_.Answered(late, asked)->code, Code::kOk);
}

TEST_F(ForcedReturn, ALeaseThatOthersReleaseInTimeEndsNoSession) {
  (void)world_.Open({.key = "1/idle", .uid = 1, .guarantee_bytes = 16 * kMiB});
  const JobId job = world_.OpenJob({.key = "2/hog", .uid = 2});
  const SessionId hog = world_.OpenSession(job);
  const Answer held = world_.Create(hog, 1, 16 * kMiB);
  ASSERT_EQ(held.code, Code::kOk);
  EXPECT_EQ(world_.Job(job).share_bytes, 16 * kMiB) << "it may hold what it may lease";
  const SessionId late = world_.Open({.key = "3/late", .uid = 3});
  const uint64_t asked = Ask(late, kPageSize);
  Run(kReclaimDeadline / 2, late, asked);
  EXPECT_FALSE(world_.Answered(late, asked));
  world_.Release(hog, held.spans.front().lease);
  Run(3 * kReclaimDeadline, late, asked);
  EXPECT_TRUE(world_.Answered(late, asked));
  EXPECT_TRUE(world_.sink.ended.empty());
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

// The job that has been owed for longest waits for its own user's other job, which leases nothing that could be ended.
class ForcedReturnBesideAQuota : public ForcedReturn {
 protected:
  static WorldOptions WithoutSsd() {
    WorldOptions options = Options(std::chrono::seconds(300));
    options.transfers.device_count = 0;
    options.windows.arena_max_bytes = 64 * kMiB;
    return options;
  }
  ForcedReturnBesideAQuota() : ForcedReturn(WithoutSsd()) {}
  JobId OpenBound() {
    const UserQuota quota{
        .ram = {.most = 8 * kMiB, .origin = {.level = QuotaLevel::kUser, .at_run_time = true, .id = 7}}};
    return world_.OpenJob({.uid = 7, .quota = quota});
  }
};

TEST_F(ForcedReturnBesideAQuota, WhoCannotBeServedKeepsNobodyFromIt) {
  const JobId owning = world_.OpenJob({.key = "2/owner", .uid = 2, .guarantee_bytes = 32 * kMiB, .named = true});
  const SessionId borrower = world_.Open({.uid = 1});
  for (uint64_t tensor = 1; tensor <= 13; ++tensor) {
    Lease(borrower, tensor, kPageSize);
    world_.Put(borrower, 100 + tensor, kWindow - kPageSize);
  }
  const SessionId full = world_.OpenSession(OpenBound());
  world_.PutEach(full, 1, 4, kWindow);  // The quota.
  for (uint64_t tensor = 1; tensor <= 13; ++tensor) ASSERT_EQ(world_.Free(borrower, 100 + tensor).code, Code::kOk);
  const SessionId waiting = world_.OpenSession(OpenBound());
  const uint64_t never = Ask(waiting, kWindow);
  Run(std::chrono::seconds(1));
  ASSERT_FALSE(world_.Answered(waiting, never).has_value()) << world_.Answered(waiting, never)->detail;
  const SessionId owner = world_.OpenSession(owning);
  const uint64_t asked = Ask(owner, 32 * kMiB);
  Run(kReclaimDeadline + std::chrono::seconds(2), owner, asked);
  EXPECT_TRUE(Ended(borrower));
  ASSERT_TRUE(world_.Answered(owner, asked).has_value());
  EXPECT_EQ(world_.Answered(owner, asked)->code, Code::kOk);
  EXPECT_EQ(ForcedSessions(), 1U);
}

}  // namespace
}  // namespace tier::tiering::testing
