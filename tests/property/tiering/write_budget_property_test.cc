// Random writes against what a budget of bytes promises.
#include "daemon/tiering/tables/write_budget.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

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
      } else if (budget.TakesBehind(now)) {
        RC_ASSERT(budget.left() > 0);
        budget.Note(bytes, now);
        spent.behind += bytes;
      } else {
        RC_ASSERT(budget.left() <= 0);
        RC_ASSERT(budget.figures().slowing);
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
    if (budget.TakesBehind(now)) return;
    RC_ASSERT(budget.NextLook().has_value());
    now = *budget.NextLook();
    RC_ASSERT(now.since_start <= WriteBudget::kDebtTime + hours(24));
    RC_ASSERT(budget.TakeDue(now));
    RC_ASSERT(!budget.TakeDue(now));
    RC_ASSERT(budget.TakesBehind(now));
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

}  // namespace
}  // namespace tier::tiering
