// A budget of bytes for the SSD devices: write-behind waits for it, and nothing that somebody is owed now does.
#include "daemon/tiering/tables/write_budget.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr uint64_t kPiece = kBlockSize;
constexpr uint64_t kArena = 16 * kMiB;
constexpr uint64_t kPerDay = 24 * kGiB;  // A GiB an hour: a burst of a GiB.

base::TimePoint At(base::Duration time) { return base::TimePoint{} + time; }

TEST(WriteBudget, WithoutOneNothingWaits) {
  WriteBudget none(0);
  none.Note(uint64_t{1} << 40, At(seconds(1)));
  EXPECT_TRUE(none.TakesAhead(At(seconds(1))));
  EXPECT_EQ(none.NextLook(), std::nullopt);
  EXPECT_EQ(none.left(), 0);
}

TEST(WriteBudget, WriteBehindWaitsForWhatIsOwed) {
  WriteBudget budget(kPerDay);
  EXPECT_EQ(budget.burst(), kGiB);
  EXPECT_TRUE(budget.TakesAhead(At(seconds(0))));
  budget.Note(kGiB + kGiB / 2, At(seconds(0)));
  EXPECT_FALSE(budget.TakesAhead(At(minutes(29))));
  EXPECT_TRUE(budget.figures(At(minutes(29))).slowing);
  EXPECT_EQ(budget.figures(At(minutes(29))).delays, 1u);
  ASSERT_TRUE(budget.NextLook());
  EXPECT_GT(*budget.NextLook(), At(minutes(30)));
  EXPECT_LT(*budget.NextLook(), At(minutes(31)));
  EXPECT_FALSE(budget.TakeDue(At(minutes(30))));
  EXPECT_TRUE(budget.TakeDue(At(minutes(31))));
  EXPECT_TRUE(budget.TakesAhead(At(minutes(31))));
  EXPECT_FALSE(budget.figures(At(minutes(31))).slowing);
}

TEST(WriteBudget, ADebtIsForgivenBeyondWhatAnHourBrings) {
  WriteBudget budget(kPerDay);
  for (int i = 0; i < 100; ++i) budget.Note(kGiB, At(seconds(0)));
  EXPECT_EQ(budget.left(), -static_cast<int64_t>(kGiB));
  EXPECT_TRUE(budget.TakesAhead(At(hours(1) + seconds(1))));
}

// An alert asks for the debt: it would last for as long as nothing is written.
TEST(WriteBudget, TellsWhatIsLeftNowHoweverLongAgoTheLastWriteWas) {
  WriteBudget budget(kPerDay);
  budget.Note(2 * kGiB, At(seconds(0)));
  EXPECT_EQ(budget.figures(At(seconds(0))).left_bytes, -static_cast<int64_t>(kGiB));
  EXPECT_EQ(budget.figures(At(minutes(30))).left_bytes, -static_cast<int64_t>(kGiB / 2));
  EXPECT_EQ(budget.figures(At(hours(9))).left_bytes, static_cast<int64_t>(kGiB));
  EXPECT_EQ(WriteBudget(0).figures(At(hours(9))).left_bytes, 0);
}

TEST(WriteBudget, NoMoreIsSavedUpThanAnHourBrings) {
  WriteBudget budget(kPerDay);
  budget.Note(1, At(seconds(0)));
  budget.Note(0, At(hours(24 * 365)));
  EXPECT_EQ(budget.left(), static_cast<int64_t>(kGiB));
}

TEST(WriteBudget, AChangeKeepsWhatIsSavedUpOrOwedWithinTheNewLimits) {
  WriteBudget budget(kPerDay);
  budget.Note(kGiB + kGiB / 4, At(seconds(0)));
  EXPECT_FALSE(budget.TakesAhead(At(seconds(0))));
  budget.SetPerDay(2 * kPerDay, At(minutes(6)));  // A tenth of an hour of the old one has come.
  EXPECT_EQ(budget.figures(At(minutes(6))).bytes_per_day, 2 * kPerDay);
  EXPECT_NEAR(static_cast<double>(budget.left()), -0.15 * static_cast<double>(kGiB), 1);
  EXPECT_FALSE(budget.NextLook()) << "who waits may ask again at once";
  EXPECT_FALSE(budget.TakesAhead(At(minutes(10))));
  EXPECT_TRUE(budget.TakesAhead(At(minutes(11)))) << "it is paid back twice as fast";
  budget.SetPerDay(kBlockSize, At(hours(9)));
  budget.CheckInvariants();
  EXPECT_EQ(budget.left(), static_cast<int64_t>(WriteBudget::kBurstMin)) << "what was saved up beyond it is gone";
  for (int i = 0; i < 100; ++i) budget.Note(kGiB, At(hours(9)));
  budget.SetPerDay(kPerDay, At(hours(9)));
  budget.CheckInvariants();
  EXPECT_EQ(budget.left(), -static_cast<int64_t>(WriteBudget::kBurstMin));
}

TEST(WriteBudget, MayBeginAndEndAtAnyTime) {
  WriteBudget budget(0);
  budget.Note(uint64_t{1} << 40, At(hours(1)));
  budget.SetPerDay(kPerDay, At(hours(2)));
  EXPECT_EQ(budget.left(), static_cast<int64_t>(kGiB)) << "nothing is owed from before";
  budget.Note(2 * kGiB, At(hours(2)));
  EXPECT_FALSE(budget.TakesAhead(At(hours(2))));
  budget.SetPerDay(0, At(hours(2)));
  budget.CheckInvariants();
  EXPECT_TRUE(budget.TakesAhead(At(hours(2))));
  EXPECT_EQ(budget.left(), 0);
  EXPECT_EQ(budget.figures(At(hours(2))).delays, 1u);
  EXPECT_FALSE(budget.figures(At(hours(2))).slowing);
}

// The smallest one: 128 MiB at once, and then nearly nothing.
class TightBudget : public ::testing::Test {
 protected:
  explicit TightBudget(uint64_t arena = kArena, uint64_t window = kArena, uint32_t inflight_max = 1024)
      : world_({.windows = {.window_size = window, .arena_max_bytes = arena},
                .transfers = {.inflight_max = inflight_max},
                .engine = WithBudget()}) {
    for (uint64_t written = 0; written <= WriteBudget::kBurstMin; written += kPiece) {
      world_.PutOnSsd(session_, kSpent, kPiece, written);
      world_.Free(session_, kSpent);
    }
  }
  storage::LatencyFigures Writes(storage::Purpose purpose) {
    return world_.engine->Snapshot().devices.at(0).latency.Of(storage::Direction::kWrite, purpose);
  }
  uint64_t Ahead() { return Writes(storage::Purpose::kAhead).count(); }
  WriteBudgetFigures Budget() { return world_.engine->Snapshot().write_budget; }
  static EngineOptions WithBudget() {
    EngineOptions options;
    options.write_budget_per_day = kPiece;
    return options;
  }

  static constexpr uint64_t kSpent = 1000;
  World world_;
  // No job holds more, also where another one leaves room: what is dirty stays as large a part of it.
  const JobId job_ = world_.OpenJob({.limit_bytes = kArena});
  const SessionId session_ = world_.OpenSession(job_);
};

TEST_F(TightBudget, HoldsWriteBehindBackAndNothingElse) {
  ASSERT_LE(Budget().left_bytes, 0);
  const uint64_t before = Writes(storage::Purpose::kDemand).count();
  for (uint64_t tensor = 1; tensor <= 6; ++tensor) world_.Put(session_, tensor, kPiece, tensor);
  world_.Turns(20);
  EXPECT_EQ(Writes(storage::Purpose::kAhead).count(), 0u) << "six of eight blocks are dirty";
  EXPECT_TRUE(Budget().slowing);
  EXPECT_EQ(Budget().delays, 1u);
  EXPECT_EQ(Writes(storage::Purpose::kDemand).count(), before);
  // Twice as much as RAM holds: each create waits for a write, and is not refused.
  for (uint64_t tensor = 7; tensor <= 16; ++tensor) world_.Put(session_, tensor, kPiece, tensor);
  EXPECT_GT(Writes(storage::Purpose::kDemand).count(), before);
  EXPECT_EQ(Writes(storage::Purpose::kAhead).count(), 0u);
  EXPECT_EQ(world_.CheckEach(session_, 1, 16), Code::kOk);
}

TEST_F(TightBudget, WriteBehindGoesOnByItselfOnceTheBudgetHasRoom) {
  for (uint64_t tensor = 1; tensor <= 6; ++tensor) world_.Put(session_, tensor, kPiece, tensor);
  world_.Turns(20);
  ASSERT_EQ(Writes(storage::Purpose::kAhead).count(), 0u);
  const auto next = world_.engine->NextDeadline();
  ASSERT_TRUE(next) << "the engine wakes for it";
  world_.Advance(hours(48));
  world_.Turns(20);
  EXPECT_GT(Writes(storage::Purpose::kAhead).count(), 0u);
}

TEST_F(TightBudget, HoldsBackWhatMakesRoomForAPrefetchAndNotWhatAReadAwaits) {
  world_.PutOnSsd(session_, 50, kPiece, 50);
  for (uint64_t tensor = 1; tensor <= 8; ++tensor) world_.Put(session_, tensor, kPiece, tensor);
  const uint64_t before = world_.engine->Snapshot().devices.at(0).traffic.written_bytes;
  EXPECT_EQ(world_.Ask(session_, proto::Op::kPrefetch, {{50, 0, 0, 0}}).code, Code::kOk);
  world_.Turns(20);
  EXPECT_EQ(world_.engine->Snapshot().devices.at(0).traffic.written_bytes, before) << "RAM is full of what is dirty";
  EXPECT_EQ(world_.Check(session_, 50, 50), Code::kOk);
  EXPECT_GT(world_.engine->Snapshot().devices.at(0).traffic.written_bytes, before);
}

TEST_F(TightBudget, LetsWriteBehindGoOnAsSoonAsItIsTakenAway) {
  for (uint64_t tensor = 1; tensor <= 6; ++tensor) world_.Put(session_, tensor, kPiece, tensor);
  world_.Turns(20);
  ASSERT_EQ(Writes(storage::Purpose::kAhead).count(), 0u);
  world_.engine->SetOptions({});
  world_.Turns(20);
  EXPECT_GT(Writes(storage::Purpose::kAhead).count(), 0u);
  EXPECT_FALSE(Budget().slowing);
}

// Its turn has room for a small piece, and the next one is a large one once there are no turns any more.
TEST_F(TightBudget, MayBeTakenAwayInTheMiddleOfATurn) {
  constexpr uint64_t kSmall = 16 * kPageSize;
  world_.PutOnSsd(session_, 50, kPiece / 2);
  world_.PutEach(session_, 101, 132, kSmall);
  world_.PutEach(session_, 1, 5, kPiece);
  for (int step = 0; step < 10 && Ahead() == 0; ++step) {
    world_.Advance(hours(24));
    world_.Turns(100);
  }
  ASSERT_GT(Ahead(), 0u);
  ASSERT_LT(Ahead(), 32u) << "a part of a turn";
  for (uint64_t tensor = 101; tensor <= 132; ++tensor) world_.Send(session_, proto::Op::kFree, {{tensor, 0, 0, 0}});
  world_.engine->SetOptions({});
  world_.Turns(100);
  world_.PutEach(session_, 6, 7, kPiece);
  world_.Turns(100);
  EXPECT_EQ(world_.CheckEach(session_, 1, 7), Code::kOk);
}

// Two jobs, each with two blocks to write ahead of need; the budget has one a day, and owes one.
class TwoJobs : public TightBudget {
 protected:
  explicit TwoJobs(uint64_t other_piece = kPiece, uint32_t inflight_max = 1024)
      : TightBudget(2 * kArena, kArena / 2, inflight_max) {
    world_.PutEach(session_, 1, 6, kPiece);
    world_.PutEach(other_, 1, 6 * kPiece / other_piece, other_piece);
    world_.Turns(20);
    written_ = Written();
  }
  uint64_t Written() { return world_.Job(other_job_).swap_out_bytes; }

  const JobId other_job_ = world_.OpenJob({.limit_bytes = kArena});
  const SessionId other_ = world_.OpenSession(other_job_);
  uint64_t written_ = 0;  // By the other job, before.
};

TEST_F(TwoJobs, HaveATurnEach) {
  ASSERT_EQ(Ahead(), 0u);
  for (const int hour : {36, 30, 24, 24}) {
    const uint64_t before = Ahead();
    world_.Advance(hours(hour));
    world_.Turns(20);
    ASSERT_EQ(Ahead(), before + 1) << "that is all that this budget has";
    if (Ahead() % 2 == 0) {
      EXPECT_EQ(Written() - written_, Ahead() / 2 * kPiece);
    }
  }
}

TEST_F(TwoJobs, TheFirstThatLeavesKeepsTheOtherFromNothing) {
  world_.EndSession(session_);
  world_.Turns(20);
  for (const int hour : {36, 30}) {
    world_.Advance(hours(hour));
    world_.Turns(20);
  }
  EXPECT_EQ(Written() - written_, 2 * kPiece);
}

// It would get what it is promised hours later.
class JobsOfUnlikePieces : public TwoJobs {
 protected:
  JobsOfUnlikePieces() : TwoJobs(16 * kPageSize) {}
};

// It has one large write for 32 small ones, not for one.
TEST_F(JobsOfUnlikePieces, GetAsManyBytes) {
  const uint64_t before = world_.Job(job_).swap_out_bytes;
  const auto large = [&] { return world_.Job(job_).swap_out_bytes - before; };
  const auto small = [&] { return Written() - written_; };
  ASSERT_EQ(Ahead(), 0u);
  for (int step = 0; step < 30 && large() + small() < 4 * kPiece; ++step) {
    world_.Advance(hours(7));
    world_.Turns(100);
    ASSERT_LE(std::max(large(), small()) - std::min(large(), small()), kPiece) << "after " << 7 * (step + 1) << " h";
  }
  EXPECT_EQ(large(), 2 * kPiece);
  EXPECT_EQ(small(), 2 * kPiece);
}

class JobsAtASmallPort : public TwoJobs {
 protected:
  JobsAtASmallPort() : TwoJobs(kPiece, 1) {}
};

// A read of the other job has the port when the budget has room, and the other one asked for the port before.
TEST_F(JobsAtASmallPort, TheFirstKeepsItsTurnWhileThePortIsFull) {
  world_.PutOnSsd(other_, 50, kPageSize);
  world_.Advance(hours(24));
  world_.Turns(20);
  ASSERT_EQ(Ahead(), 0u);
  const auto room_at = world_.engine->NextDeadline();
  ASSERT_TRUE(room_at && *room_at > world_.now + seconds(2));
  world_.Advance(*room_at - world_.now - seconds(1));
  const uint64_t first = world_.Job(job_).swap_out_bytes;
  const uint64_t other = Written();
  world_.transfers.Hold();
  world_.Send(other_, proto::Op::kAcquire, {{50, 0, 0, 0}});
  world_.Turns(5);
  ASSERT_EQ(world_.transfers.inflight(), 1u);
  world_.Put(other_, 60, kPageSize);  // Its job is looked at, and finds the port full.
  world_.Advance(seconds(2));
  world_.Turns(20);
  ASSERT_EQ(Ahead(), 0u);
  EXPECT_FALSE(Budget().slowing) << "the budget has room";
  const auto next = world_.engine->NextDeadline();
  EXPECT_TRUE(!next || *next > world_.now) << "there is nothing to do until the port has room";
  world_.transfers.Release();
  world_.Turns(20);
  EXPECT_EQ(world_.Job(job_).swap_out_bytes - first, kPiece);
  EXPECT_EQ(Written(), other);
}

TEST(WriteBudgetOfAnEngine, WhatEmptiesWindowsForAnotherJobDoesNotWait) {
  EngineOptions options;
  options.write_budget_per_day = kPiece;
  World world({.windows = {.window_size = kBlockSize, .arena_max_bytes = 32 * kBlockSize}, .engine = options});
  const SessionId holder = world.Open({.uid = 1});
  for (uint64_t written = 0; written <= WriteBudget::kBurstMin; written += kPiece) {
    world.PutOnSsd(holder, 1000, kPiece, written);
    world.Free(holder, 1000);
  }
  world.PutEach(holder, 1, 28, kPiece);
  world.Turns(20);
  const auto figures = [&world] { return world.engine->Snapshot(); };
  const auto written = [&] { return figures().devices.at(0).traffic.written_bytes; };
  ASSERT_LE(figures().write_budget.left_bytes, 0);
  const uint64_t before = written();
  const SessionId other = world.Open({.uid = 2, .guarantee_bytes = 15 * kBlockSize});
  const uint64_t asked = world.Send(other, proto::Op::kCreate, {{1, 0, 0, 14 * kBlockSize}});
  world.TurnsReturning(other, asked, 1000, std::chrono::milliseconds(1));
  ASSERT_TRUE(world.Answered(other, asked));
  EXPECT_EQ(world.Answered(other, asked)->code, Code::kOk);
  EXPECT_GT(written(), before) << "what lay in the windows was nowhere else";
  EXPECT_LT(figures().write_budget.left_bytes, -static_cast<int64_t>(kPiece)) << "it counts all the same";
}

TEST(WriteBudgetOfAnEngine, WithoutABudgetTheSameIsWrittenBehind) {
  World world({.windows = {.window_size = kArena, .arena_max_bytes = kArena}});
  const SessionId session = world.Open();
  for (uint64_t tensor = 1; tensor <= 6; ++tensor) world.Put(session, tensor, kPiece, tensor);
  world.Turns(20);
  const EngineSnapshot snapshot = world.engine->Snapshot();
  EXPECT_GT(snapshot.devices.at(0).latency.Of(storage::Direction::kWrite, storage::Purpose::kAhead).count(), 0u);
  EXPECT_EQ(snapshot.write_budget.bytes_per_day, 0u);
  EXPECT_EQ(snapshot.totals.sealed_bytes, 6 * kPiece);
}

TEST(WriteBudgetOfAnEngine, APieceThatIsRewrittenIsSealedTwiceAndWrittenOnce) {
  World world({.windows = {.window_size = kArena, .arena_max_bytes = kArena}});
  const SessionId session = world.Open();
  world.Put(session, 1, kPiece + kPageSize, 1);
  EXPECT_EQ(world.Rewrite(session, 1, 2).code, Code::kOk);
  EXPECT_EQ(world.Flush(session, 1).code, Code::kOk);
  const EngineSnapshot snapshot = world.engine->Snapshot();
  EXPECT_EQ(snapshot.totals.sealed_bytes, 2 * (kPiece + kPageSize));
  EXPECT_EQ(snapshot.devices.at(0).traffic.written_bytes, kPiece + kPageSize) << "a write amplification of one half";
}

TEST(PurposeOfTransfers, ReadsOfRequestsAndPrefetchesAreToldApart) {
  World world({.windows = {.window_size = kArena, .arena_max_bytes = kArena}});
  const SessionId session = world.Open();
  for (uint64_t tensor = 1; tensor <= 2; ++tensor) world.PutOnSsd(session, tensor, kPiece, tensor);
  EXPECT_EQ(world.Check(session, 1, 1), Code::kOk);
  EXPECT_EQ(world.Ask(session, proto::Op::kPrefetch, {{2, 0, 0, 0}}).code, Code::kOk);
  world.Turns(20);
  const storage::LatencyByPurpose latency = world.engine->Snapshot().devices.at(0).latency;
  EXPECT_EQ(latency.Of(storage::Direction::kRead, storage::Purpose::kDemand).count(), 1u);
  EXPECT_EQ(latency.Of(storage::Direction::kRead, storage::Purpose::kAhead).count(), 1u);
}

}  // namespace
}  // namespace tier::tiering::testing
