// Windows that were taken from a job and that its processes still have: they count as held by it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "daemon/tiering/jobs/kept_windows.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using memory::KeptWindow;
using proto::Op;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
constexpr uint64_t kWindow = kBlockSize;
constexpr seconds kDeadline{10};

// 32 windows of one block. The job is guaranteed 16 of them, and has no SSD: it borrows nothing.
class KeptWindows : public ::testing::Test {
 protected:
  static WorldOptions Options(bool kills) {
    return {.windows = {.window_size = kWindow, .arena_max_bytes = 32 * kWindow},
            .transfers = {.device_count = 0},
            .engine = {.reclaim_deadline = kDeadline, .kills_keepers = kills},
            .returns_windows = true};
  }
  explicit KeptWindows(bool kills = false) : world_(Options(kills)) {
    // Of what is left the other job is promised all but a part for newcomers.
    (void)world_.OpenSession(world_.OpenJob({.key = "2/other", .uid = 2, .guarantee_bytes = 14 * kWindow}));
  }
  KeptWindow Kept(uint64_t session) const {
    return {.owner = kOwner, .sessions = {session}, .owed = true, .since = taken_at_, .bytes = kWindow};
  }
  void Look(std::vector<KeptWindow> kept) {
    world_.windows.FindKept(std::move(kept));
    world_.Turn();
  }
  // How many blocks the job can hold under leases. They stay leased.
  uint64_t Fill() {
    for (;; ++filled_) {
      waiting_ = world_.Send(session_, Op::kCreate, {{filled_ + 1, 0, 0, kWindow}});
      world_.TurnsReturning(session_, waiting_, 20, seconds(0));
      const auto answer = world_.Answered(session_, waiting_);
      if (!answer || answer->code != Code::kOk) return filled_;
    }
  }

  static constexpr memory::OwnerId kOwner{1};  // Of the first job that is opened.
  World world_;
  JobId job_ = world_.OpenJob({.key = "1/job", .uid = 1, .guarantee_bytes = 16 * kWindow});
  SessionId session_ = world_.OpenSession(job_);
  base::TimePoint taken_at_ = world_.now;
  uint64_t filled_ = 0;
  uint64_t waiting_ = 0;  // The last request of Fill.
};

TEST_F(KeptWindows, CountAsHeldByTheirJobUntilTheyAreLetGo) {
  std::vector<KeptWindow> kept(5, Kept(static_cast<uint64_t>(session_)));
  Look(kept);
  EXPECT_EQ(world_.Job(job_).kept_bytes, 5 * kWindow);
  EXPECT_EQ(world_.engine->Snapshot().kept_bytes, 5 * kWindow);
  EXPECT_EQ(world_.engine->Pool().jobs.front().figures.kept_bytes, 5 * kWindow);
  EXPECT_EQ(Fill(), 11U);
  EXPECT_FALSE(world_.Answered(session_, waiting_)) << "it waits for room";
  kept.resize(2);
  Look(kept);
  EXPECT_EQ(world_.Job(job_).kept_bytes, 2 * kWindow);
  world_.Turns(3);
  EXPECT_EQ(world_.Answered(session_, waiting_)->code, Code::kOk) << "the job may hold more again";
  Look({});
  EXPECT_EQ(world_.Job(job_).kept_bytes, 0U);
  EXPECT_EQ(world_.engine->Snapshot().kept_bytes, 0U);
}

TEST_F(KeptWindows, OfAJobThatIsGoneAreShownAndChargedToNobody) {
  KeptWindow kept = Kept(77);
  kept.owner = memory::OwnerId{99};
  Look({kept});
  EXPECT_EQ(world_.engine->Snapshot().kept_bytes, kWindow);
  EXPECT_EQ(world_.engine->Pool().kept_bytes, kWindow);
  EXPECT_EQ(world_.Job(job_).kept_bytes, 0U);
}

TEST_F(KeptWindows, AreToldOfOnceAfterTheDeadlineAndKillNobody) {
  const KeptWindow kept = Kept(static_cast<uint64_t>(session_));
  Look({kept});
  EXPECT_TRUE(world_.sink.forced.empty()) << "it may be about to unmap it";
  world_.Advance(kDeadline);
  for (int look = 0; look < 3; ++look) Look({kept});
  EXPECT_THAT(world_.sink.forced, ElementsAre(HasSubstr("processes of job 1/job have kept 2 MiB of windows")));
  EXPECT_TRUE(world_.sink.killed.empty());
}

TEST_F(KeptWindows, WhoKeepsOneTooLongIsKilledAsSoonAsTheOptionSaysSo) {
  const KeptWindow kept = Kept(42);  // Its session has ended.
  world_.Advance(kDeadline);
  Look({kept});
  EXPECT_TRUE(world_.sink.killed.empty());
  EngineOptions options = world_.options.engine;
  options.kills_keepers = true;
  world_.engine->SetOptions(options);
  Look({kept});
  EXPECT_THAT(world_.sink.killed, ElementsAre(42));
}

class KillingKeptWindows : public KeptWindows {
 protected:
  KillingKeptWindows() : KeptWindows(true) {}
};

TEST_F(KillingKeptWindows, AProcessThatKeepsOneForAnotherDeadlineIsKilledOnce) {
  const KeptWindow kept = Kept(42);  // Its session has ended.
  Look({kept});
  EXPECT_TRUE(world_.sink.killed.empty());
  world_.Advance(kDeadline - seconds(1));
  Look({kept});
  EXPECT_TRUE(world_.sink.killed.empty());
  world_.Advance(seconds(1));
  Look({kept, kept});
  Look({kept});
  EXPECT_THAT(world_.sink.killed, ElementsAre(42));
  EXPECT_EQ(world_.engine->Snapshot().forced_returns[static_cast<size_t>(ForcedReturnKind::kProcess)], 1U);
}

TEST_F(KillingKeptWindows, AProcessThatHasAnsweredSinceLives) {
  const KeptWindow kept = Kept(static_cast<uint64_t>(session_));  // It has returned all that was taken from it.
  KeptWindow of_both = kept;
  of_both.sessions.push_back(42);
  Look({of_both});
  world_.Advance(kDeadline);
  Look({kept});
  EXPECT_TRUE(world_.sink.killed.empty());
  Look({of_both});
  EXPECT_THAT(world_.sink.killed, ElementsAre(42)) << "the one that ended has not returned it";
}

// A wish, the host, or what its own job did not need: nobody was kept from anything that he is promised.
TEST_F(KillingKeptWindows, OneThatNoPromiseAskedForIsChargedAndKillsNobody) {
  KeptWindow kept = Kept(42);  // Its session has ended.
  kept.owed = false;
  world_.Advance(2 * kDeadline);
  Look({kept});
  EXPECT_EQ(world_.Job(job_).kept_bytes, kWindow);
  EXPECT_EQ(world_.sink.forced.size(), 1U) << "it is told of";
  EXPECT_TRUE(world_.sink.killed.empty());
}

// It counts for nobody, and was asked of nobody.
TEST_F(KillingKeptWindows, OneOfAJobThatIsGoneKillsOnlyWhileAJobHasBeenOwedForTheDeadline) {
  KeptWindow kept = Kept(42);
  kept.owner = memory::OwnerId{99};
  kept.owed = false;
  world_.Advance(2 * kDeadline);
  Look({kept});
  EXPECT_TRUE(world_.sink.killed.empty());
  world_.windows.SetArenaMax(4 * kWindow);  // The host has no more.
  waiting_ = world_.Send(session_, Op::kCreate, {{1, 0, 0, 8 * kWindow}});
  const auto wait = [&](base::Duration time) {
    for (const base::TimePoint end = world_.now + time; world_.now < end;) {
      world_.Turn();
      world_.Advance(std::chrono::milliseconds(50));
    }
  };
  wait(kDeadline - seconds(1));
  Look({kept});
  EXPECT_TRUE(world_.sink.killed.empty());
  wait(seconds(2));
  EXPECT_FALSE(world_.Answered(session_, waiting_));
  KeptWindow of_a_job = kept;
  of_a_job.owner = kOwner;
  of_a_job.sessions = {43};
  Look({kept, of_a_job});
  EXPECT_THAT(world_.sink.killed, ElementsAre(42)) << "and not for what counts as held by a job";
}

// All have returned it, and it is filled again and again.
TEST_F(KeptWindows, WhoReturnsAWindowAndFillsItIsEnded) {
  KeptWindow kept = Kept(0);
  kept.sessions.clear();
  kept.asked = {static_cast<uint64_t>(session_)};
  kept.refilled_bytes = kPageSize;
  kept.refills = kRefillsMax - 1;
  Look({kept});
  EXPECT_TRUE(world_.sink.ended.empty());
  kept.refills = kRefillsMax;
  Look({kept});
  ASSERT_EQ(world_.sink.ended.size(), 1U);
  EXPECT_EQ(world_.engine->Snapshot().forced_returns[static_cast<size_t>(ForcedReturnKind::kRefill)], 1U);
}

// Its windows are watched when they are taken: its process goes on.
TEST_F(KeptWindows, ASessionThatIsRevokedLeavesItsNameOnWhatItMaps) {
  EXPECT_EQ(world_.Create(session_, 1, 3 * kWindow).code, Code::kOk);
  world_.engine->CloseJob(job_, "removed", false);
  world_.Turns(3);
  EXPECT_EQ(world_.windows.unreturned().size(), 3U);
  for (const auto& [window, session] : world_.windows.unreturned()) EXPECT_EQ(SessionId{session}, session_);
}

TEST_F(KeptWindows, SoDoesOneThatTheSessionLayerRevokes) {
  EXPECT_EQ(world_.Create(session_, 1, 3 * kWindow).code, Code::kOk);
  world_.EndSession(session_, "its ring is broken", Code::kRevoked);
  EXPECT_TRUE(world_.sink.ended.empty()) << "the session layer knows of it";
  world_.Turns(5);
  ASSERT_EQ(world_.windows.retired().size(), 3U);
  for (const KeptWindow& window : world_.windows.retired()) {
    EXPECT_THAT(window.sessions, ElementsAre(static_cast<uint64_t>(session_)));
  }
}

TEST_F(KeptWindows, OneThatSaysGoodbyeLeavesNoName) {
  EXPECT_EQ(world_.Create(session_, 1, 3 * kWindow).code, Code::kOk);
  world_.EndSession(session_);
  world_.Turns(3);
  EXPECT_TRUE(world_.windows.unreturned().empty());
}

}  // namespace
}  // namespace tier::tiering::testing
