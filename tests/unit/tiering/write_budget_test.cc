// A budget of bytes for the SSD devices: write-behind waits for it, and nothing that a request waits for does.
#include "daemon/tiering/tables/write_budget.h"

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
  EXPECT_TRUE(none.TakesBehind(At(seconds(1))));
  EXPECT_EQ(none.NextLook(), std::nullopt);
  EXPECT_EQ(none.left(), 0);
}

TEST(WriteBudget, WriteBehindWaitsForWhatIsOwed) {
  WriteBudget budget(kPerDay);
  EXPECT_EQ(budget.burst(), kGiB);
  EXPECT_TRUE(budget.TakesBehind(At(seconds(0))));
  budget.Note(kGiB + kGiB / 2, At(seconds(0)));
  EXPECT_FALSE(budget.TakesBehind(At(minutes(29))));
  EXPECT_TRUE(budget.figures().slowing);
  EXPECT_EQ(budget.figures().delays, 1u);
  ASSERT_TRUE(budget.NextLook());
  EXPECT_GT(*budget.NextLook(), At(minutes(30)));
  EXPECT_LT(*budget.NextLook(), At(minutes(31)));
  EXPECT_FALSE(budget.TakeDue(At(minutes(30))));
  EXPECT_TRUE(budget.TakeDue(At(minutes(31))));
  EXPECT_TRUE(budget.TakesBehind(At(minutes(31))));
  EXPECT_FALSE(budget.figures().slowing);
}

TEST(WriteBudget, ADebtIsForgivenBeyondWhatAnHourBrings) {
  WriteBudget budget(kPerDay);
  for (int i = 0; i < 100; ++i) budget.Note(kGiB, At(seconds(0)));
  EXPECT_EQ(budget.left(), -static_cast<int64_t>(kGiB));
  EXPECT_TRUE(budget.TakesBehind(At(hours(1) + seconds(1))));
}

TEST(WriteBudget, NoMoreIsSavedUpThanAnHourBrings) {
  WriteBudget budget(kPerDay);
  budget.Note(1, At(seconds(0)));
  budget.Note(0, At(hours(24 * 365)));
  EXPECT_EQ(budget.left(), static_cast<int64_t>(kGiB));
}

// The smallest one: 128 MiB at once, and then nearly nothing.
class TightBudget : public ::testing::Test {
 protected:
  TightBudget() {
    for (uint64_t written = 0; written <= WriteBudget::kBurstMin; written += kPiece) {
      world_.PutOnSsd(session_, kSpent, kPiece, written);
      world_.Free(session_, kSpent);
    }
  }
  storage::LatencyFigures Writes(storage::Purpose purpose) {
    return world_.engine->Snapshot().devices.at(0).latency.Of(storage::Direction::kWrite, purpose);
  }
  WriteBudgetFigures Budget() { return world_.engine->Snapshot().write_budget; }
  static EngineOptions WithBudget() {
    EngineOptions options;
    options.write_budget_per_day = kPiece;
    return options;
  }

  static constexpr uint64_t kSpent = 1000;
  World world_{{.windows = {.window_size = kArena, .arena_max_bytes = kArena}, .engine = WithBudget()}};
  const SessionId session_ = world_.Open();
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
