// Random writes against what a budget of bytes, and turns among those that wait for it, promise.
#include "daemon/tiering/tables/write_budget.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "daemon/tiering/tables/budget_turns.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;

struct Spent {
  uint64_t behind = 0;
  uint64_t demand = 0;
};

base::Duration AnyPause() {
  const auto scale = *rc::gen::element<int64_t>(1'000, 1'000'000, 1'000'000'000, 600'000'000'000);
  return nanoseconds(scale * *rc::gen::inRange<int64_t>(0, 20));
}

TEST(WriteBudgetProperty, WriteBehindStaysWithinTheBudgetAndABurst) {
  const bool holds = rc::check("budget", [] {
    const auto per_day = *rc::gen::element<uint64_t>(1, kPageSize, kGiB, 1'000'000'000'000, uint64_t{1} << 50);
    WriteBudget budget(per_day);
    base::TimePoint now;
    Spent spent;
    const auto steps = *rc::gen::inRange(1, 300);
    for (int i = 0; i < steps; ++i) {
      now = now + AnyPause();
      const uint64_t bytes = kPageSize * *rc::gen::inRange<uint64_t>(1, kPagesPerBlock + 1);
      const bool demand = *rc::gen::weightedElement<bool>({{1, true}, {4, false}});
      if (demand) {
        budget.Note(bytes, now);  // It is never refused.
        spent.demand += bytes;
      } else if (budget.TakesAhead(now)) {
        RC_ASSERT(budget.left() > 0);
        budget.Note(bytes, now);
        spent.behind += bytes;
      } else {
        RC_ASSERT(budget.left() <= 0);
        RC_ASSERT(budget.figures(now).slowing);
      }
      budget.CheckInvariants();
      const double days = std::chrono::duration<double>(now.since_start) / std::chrono::duration<double>(hours(24));
      const double most = static_cast<double>(budget.burst() + kBlockSize) + static_cast<double>(per_day) * days;
      RC_ASSERT(static_cast<double>(spent.behind) <= most + 1);
    }
  });
  EXPECT_TRUE(holds) << "RapidCheck printed the seed: replay with RC_PARAMS=\"reproduce=…\"";
}

TEST(WriteBudgetProperty, WhatWaitsMayGoOnWhenItIsTriedAgain) {
  const bool holds = rc::check("wake-up", [] {
    const auto per_day = *rc::gen::element<uint64_t>(uint64_t{10} * kGiB, 1'000'000'000'000, uint64_t{1} << 50);
    WriteBudget budget(per_day);
    base::TimePoint now;
    const auto writes = *rc::gen::inRange<uint64_t>(0, 2'000'000);
    for (uint64_t i = 0; i < std::min<uint64_t>(writes, 500); ++i) budget.Note(writes * kPageSize, now);
    if (budget.TakesAhead(now)) return;
    RC_ASSERT(budget.NextLook().has_value());
    now = *budget.NextLook();
    RC_ASSERT(now.since_start <= WriteBudget::kDebtTime + hours(24));
    RC_ASSERT(budget.TakeDue(now));
    RC_ASSERT(!budget.TakeDue(now));
    RC_ASSERT(budget.TakesAhead(now));
  });
  EXPECT_TRUE(holds) << "RapidCheck printed the seed: replay with RC_PARAMS=\"reproduce=…\"";
}

TEST(WriteBudgetProperty, KeepsItsLimitsThroughEveryChange) {
  const bool holds = rc::check("changes", [] {
    WriteBudget budget(0);
    base::TimePoint now;
    const auto steps = *rc::gen::inRange(1, 200);
    for (int i = 0; i < steps; ++i) {
      now = now + AnyPause();
      const auto per_day = *rc::gen::element<uint64_t>(0, 1, kPageSize, kGiB, 1'000'000'000'000, uint64_t{1} << 62);
      const int what = *rc::gen::inRange(0, 3);
      if (what == 0) budget.SetPerDay(per_day, now);
      if (what == 1) budget.Note(kPageSize * *rc::gen::inRange<uint64_t>(1, 1'000'000), now);
      if (what == 2) {
        const bool takes = budget.TakesAhead(now);
        RC_ASSERT(takes == (!budget.limits() || budget.left() > 0));
      }
      RC_ASSERT(budget.limits() || (budget.left() == 0 && !budget.NextLook()));
      budget.CheckInvariants();
    }
  });
  EXPECT_TRUE(holds) << "RapidCheck printed the seed: replay with RC_PARAMS=\"reproduce=…\"";
}

TEST(WriteBudgetProperty, TheSameTimeInManyStepsBringsTheSame) {
  const bool holds = rc::check("steps", [] {
    const auto per_day = *rc::gen::inRange<uint64_t>(1, uint64_t{1} << 50);
    WriteBudget one(per_day);
    WriteBudget many(per_day);
    const uint64_t bytes = one.burst();
    base::TimePoint now;
    for (WriteBudget* each : {&one, &many}) each->Note(bytes, now);
    const auto steps = *rc::gen::inRange(1, 200);
    for (int i = 0; i < steps; ++i) {
      now = now + nanoseconds(*rc::gen::inRange<int64_t>(0, 1'000'000));
      many.Note(0, now);
    }
    one.Note(0, now);
    RC_ASSERT(one.left() == many.left());
  });
  EXPECT_TRUE(holds) << "RapidCheck printed the seed: replay with RC_PARAMS=\"reproduce=…\"";
}

// Of a job that waits: its writes are this large at most, and the next one is known before its turn comes.
struct Writer {
  uint64_t largest = 0;
  uint64_t next = 0;
  uint64_t written = 0;
};

TEST(BudgetTurnsProperty, JobsThatAlwaysWaitWriteTheSameWhateverTheirWritesAre) {
  const bool holds = rc::check("turns", [] {
    BudgetTurns turns;
    const auto count = *rc::gen::inRange<uint32_t>(2, 6);
    std::array<Writer, 6> writers{};  // The first `count`, and one that comes and goes.
    const auto draw = [](uint64_t largest) { return kPageSize * *rc::gen::inRange<uint64_t>(1, largest + 1); };
    for (uint32_t i = 0; i <= count; ++i) {
      writers[i].largest = *rc::gen::element<uint64_t>(1, 16, kPagesPerBlock / 2 + 1, kPagesPerBlock);
      writers[i].next = draw(writers[i].largest);
      turns.Join(JobIndex{i});
    }
    const JobIndex guest{count};
    const auto steps = *rc::gen::inRange(1, 400);
    for (int i = 0; i < steps; ++i) {
      if (*rc::gen::weightedElement<bool>({{9, false}, {1, true}})) {
        if (turns.Has(guest)) {
          turns.Leave(guest);
        } else {
          turns.Join(guest);
        }
      }
      const JobIndex first = turns.first();
      Writer& writer = writers.at(Value(first));
      if (turns.Allows(first, writer.next)) {
        turns.Spend(first, writer.next);
        writer.written += writer.next;
        writer.next = draw(writer.largest);
      } else {
        RC_ASSERT(turns.first() != first);
      }
      turns.CheckInvariants();
      const auto [least, most] = std::minmax_element(writers.begin(), writers.begin() + count,
                                                     [](auto& a, auto& b) { return a.written < b.written; });
      RC_ASSERT(most->written - least->written < 2 * BudgetTurns::kTurnBytes);
    }
  });
  EXPECT_TRUE(holds) << "RapidCheck printed the seed: replay with RC_PARAMS=\"reproduce=…\"";
}

struct CrowdShape {
  storage::testing::FakeTransferOptions port{};
  std::array<uint64_t, 3> pieces = {kBlockSize, kBlockSize, kBlockSize};  // Of each job.
  uint32_t turns = 20;                                                    // Of each Wait.
};

// Jobs with more to write than the budget has, which do this and that meanwhile, or nothing.
class Crowd {
 public:
  static constexpr size_t kJobs = 3;
  // So many blocks of each are to be written ahead of need: those beyond a half of its part.
  static constexpr uint64_t kPart = 8, kDirty = 7, kWanted = kDirty - kPart / 2;

  explicit Crowd(const CrowdShape& shape = {}) : turns_(shape.turns), world_(Options(shape)) {
    for (size_t i = 0; i < kJobs; ++i) {
      // No job holds more, also where another one leaves room: each has as much to write all the time.
      jobs_.push_back(world_.OpenJob({.limit_bytes = kPart * kBlockSize}));
      sessions_.push_back(world_.OpenSession(jobs_.back()));
    }
    for (uint64_t spent = 0; spent <= WriteBudget::kBurstMin; spent += kBlockSize) {
      const testing::Answer created = world_.Create(sessions_[0], kSpare, kBlockSize);
      world_.Release(sessions_[0], testing::World::LeaseOf(created));
      world_.Flush(sessions_[0], kSpare);
      world_.Free(sessions_[0], kSpare);
    }
    for (size_t i = 0; i < kJobs; ++i) {
      world_.PutEach(sessions_[i], kSpare + 1, kSpare + kDirty * kBlockSize / shape.pieces[i], shape.pieces[i]);
    }
    world_.Turns(20);
    for (const JobId job : jobs_) before_.push_back(world_.Job(job).swap_out_bytes);
  }
  void BeBusy(size_t job) {
    world_.Put(sessions_[job], kSpare, kPageSize);
    world_.Free(sessions_[job], kSpare);
  }
  void Wait(base::Duration time) {
    world_.Advance(time);
    world_.Turns(turns_);
  }
  uint64_t Written(size_t job) { return (world_.Job(jobs_[job]).swap_out_bytes - before_[job]) / kBlockSize; }
  uint64_t WrittenBytes(size_t job) { return world_.Job(jobs_[job]).swap_out_bytes - before_[job]; }

 private:
  static constexpr uint64_t kSpare = 1000;
  static testing::WorldOptions Options(const CrowdShape& shape) {
    testing::WorldOptions options = testing::WithArena(kJobs * kPart * kBlockSize);
    options.transfers = shape.port;
    options.engine.write_budget_per_day = 24 * kBlockSize;
    return options;
  }
  const uint32_t turns_;
  testing::World world_;
  std::vector<JobId> jobs_;
  std::vector<SessionId> sessions_;
  std::vector<uint64_t> before_;  // Of each job, in bytes.
};

// One job may be busy meanwhile. Returns the least and the most that any job has written by then.
template <typename WrittenBy>
std::pair<uint64_t, uint64_t> LetTimePass(Crowd& crowd, std::mt19937_64& random, const WrittenBy& written) {
  const size_t busy = random() % (Crowd::kJobs + 1);
  if (busy < Crowd::kJobs) crowd.BeBusy(busy);
  crowd.Wait(std::chrono::minutes(10 + random() % 90));
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  for (size_t job = 0; job < Crowd::kJobs; ++job) {
    least = std::min(least, written(job));
    most = std::max(most, written(job));
  }
  return {least, most};
}

TEST(WriteBudgetProperty, JobsThatWaitHaveATurnEachWhateverTheyDo) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 random(seed);
    Crowd crowd;
    uint64_t least = 0;
    for (int step = 0; step < 100 && least < Crowd::kWanted; ++step) {
      const auto [fewest, most] = LetTimePass(crowd, random, [&](size_t job) { return crowd.Written(job); });
      least = fewest;
      ASSERT_LE(most, least + 1) << "seed " << seed << ", step " << step;
      if (step == 0) {
        ASSERT_LE(most, 1u) << "the budget is used up";
      }
    }
    EXPECT_GE(least, Crowd::kWanted) << "seed " << seed;
  }
}

// Ports that are full most of the time: who waits for them keeps its turn, and nobody waits without end.
TEST(WriteBudgetProperty, JobsOfUnlikePiecesAtASmallPortWriteTheSame) {
  constexpr uint64_t kSizes[] = {kBlockSize, kBlockSize / 8, 48 * kPageSize, 16 * kPageSize};
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    std::mt19937_64 random(seed);
    CrowdShape shape{.turns = 600};
    shape.port = {.seed = seed, .inflight_max = 1 + static_cast<uint32_t>(random() % 4), .delay_turns_max = 3};
    for (uint64_t& piece : shape.pieces) piece = kSizes[random() % std::size(kSizes)];
    Crowd crowd(shape);
    uint64_t least = 0;
    for (int step = 0; step < 100 && least < Crowd::kWanted * kBlockSize; ++step) {
      const auto [fewest, most] = LetTimePass(crowd, random, [&](size_t job) { return crowd.WrittenBytes(job); });
      least = fewest;
      ASSERT_LT(most, least + 2 * BudgetTurns::kTurnBytes) << "seed " << seed << ", step " << step;
    }
    EXPECT_GE(least, Crowd::kWanted * kBlockSize) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tier::tiering
