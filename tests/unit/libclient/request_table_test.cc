#include "libclient/client/request_table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <random>
#include <utility>
#include <vector>

namespace tier::client {
namespace {

constexpr std::array kClasses = {Credit::kCall, Credit::kRelease, Credit::kStarted};

Pending* Add(RequestTable& table, Credit credit, std::chrono::milliseconds answer_by = {}) {
  return table.Add({.credit = credit, .answer_by = answer_by});
}

TEST(RequestTable, AClassThatIsUsedUpLeavesTheOthersTheirQuotas) {
  RequestTable table;
  while (table.free(Credit::kStarted) > 0) Add(table, Credit::kStarted);
  EXPECT_EQ(table.free(Credit::kCall), QuotaOf(Credit::kCall));
  while (table.free(Credit::kCall) > 0) Add(table, Credit::kCall);
  while (table.free(Credit::kRelease) > 0) Add(table, Credit::kRelease);
  EXPECT_EQ(table.on_their_way(), proto::kRequestsOutstandingMax);
  EXPECT_TRUE(table.CheckInvariants());
}

TEST(RequestTable, AnAnswerIsTakenOnceAndFinishedOnce) {
  RequestTable table;
  Pending* const pending = Add(table, Credit::kCall);
  EXPECT_EQ(table.TakeAnswered(pending->order().sequence), pending);
  EXPECT_EQ(table.TakeAnswered(1), nullptr);
  EXPECT_EQ(table.free(Credit::kCall), QuotaOf(Credit::kCall) - 1) << "until it is finished";
  EXPECT_TRUE(table.Finish(pending));
  EXPECT_FALSE(table.Finish(pending));
  EXPECT_EQ(table.free(Credit::kCall), QuotaOf(Credit::kCall));
  EXPECT_TRUE(table.CheckInvariants());
}

TEST(RequestTable, OnlyWhatIsOnItsWayIsLate) {
  using std::chrono::milliseconds;
  RequestTable table;
  Pending* const first = Add(table, Credit::kCall, milliseconds(10));
  Add(table, Credit::kCall, milliseconds(20));
  EXPECT_EQ(table.FindLate(milliseconds(10)), nullptr);
  EXPECT_EQ(table.FindLate(milliseconds(11)), first);
  (void)table.TakeAnswered(first->order().sequence);
  EXPECT_EQ(table.FindLate(milliseconds(11)), nullptr);
}

RC_GTEST_PROP(RequestTable, CreditsAreWhatTheRequestsHold, (uint64_t seed)) {
  std::mt19937_64 random(seed);
  RequestTable table;
  std::vector<Pending*> on_their_way, answered;
  const auto take_any = [&](std::vector<Pending*>& from) {
    std::swap(from[random() % from.size()], from.back());
    Pending* const taken = from.back();
    from.pop_back();
    return taken;
  };
  for (int i = 0; i < 3000; ++i) {
    const Credit credit = kClasses[random() % kCreditClasses];
    const uint64_t what = random() % 4;
    if (what < 2 && table.free(credit) > 0) on_their_way.push_back(Add(table, credit));
    if (what == 2 && !on_their_way.empty()) {
      answered.push_back(take_any(on_their_way));
      RC_ASSERT(table.TakeAnswered(answered.back()->order().sequence) == answered.back());
    }
    if (what == 3 && !answered.empty()) RC_ASSERT(table.Finish(take_any(answered)));
  }
  uint32_t used = 0;
  for (const Credit credit : kClasses) used += QuotaOf(credit) - table.free(credit);
  RC_ASSERT(used == on_their_way.size() + answered.size());
  const Status intact = table.CheckInvariants();
  if (!intact) RC_FAIL(intact.error().message);
}

}  // namespace
}  // namespace tier::client
