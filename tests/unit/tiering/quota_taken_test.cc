// A quota of RAM that one job of the user had filled before the next one opened: all jobs of the user stay within it,
// and the next one gets its part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
constexpr uint64_t kQuota = 16 * kMiB;
constexpr uint64_t kPiece = kBlockSize;
constexpr base::Duration kPace = milliseconds(2);
constexpr base::Duration kReclaimDeadline = seconds(10);

class QuotaTaken : public ::testing::Test {
 protected:
  explicit QuotaTaken(uint16_t devices = 1) : world_(Options(devices)) {}
  static WorldOptions Options(uint16_t devices) {
    return {.windows = {.window_size = kPiece, .arena_max_bytes = 64 * kMiB},
            .transfers = {.device_count = devices},
            .engine = {.deadline_default = seconds(20), .reclaim_deadline = kReclaimDeadline}};
  }
  JobId OpenBound() { return bound_.emplace_back(world_.OpenJob({.uid = 7, .quota = Ram()})); }
  static UserQuota Ram() {
    return {.ram = {.most = kQuota, .origin = {.level = QuotaLevel::kUser, .at_run_time = true, .id = 7}}};
  }
  // All of the quota under leases.
  void Lease(SessionId session) {
    for (uint64_t tensor = 1; tensor <= kQuota / kPiece; ++tensor) {
      const Answer created = world_.Create(session, tensor, kPiece);
      ASSERT_EQ(created.code, Code::kOk) << created.detail;
      leases_.push_back(World::LeaseOf(created));
    }
    ASSERT_EQ(world_.Job(first_).held_bytes, kQuota);
  }
  // Turns in which clients return what they are asked for, until the request is answered. What the jobs of the user
  // hold stays within its quota in each of them.
  std::optional<Answer> Run(base::Duration longest, SessionId session, uint64_t asked) {
    for (const base::TimePoint end = world_.now + longest; world_.now < end && !world_.Answered(session, asked);) {
      world_.Turn();
      ExpectWithinQuota();
      world_.ReturnWindows();
      world_.Advance(kPace);
    }
    return world_.Answered(session, asked);
  }
  void ExpectWithinQuota() const {
    uint64_t held = 0;
    for (const JobView& view : world_.engine->Snapshot().jobs) {
      if (std::ranges::find(bound_, view.id) != bound_.end()) held += view.counters.held_bytes;
    }
    EXPECT_LE(held, kQuota);
  }
  uint64_t AskFor(SessionId session, uint64_t bytes) { return world_.Send(session, Op::kCreate, {{100, 0, 0, bytes}}); }
  bool Ended(SessionId session) const { return world_.sink.ended.contains(static_cast<uint64_t>(session)); }

  World world_;
  std::vector<JobId> bound_;
  JobId first_ = OpenBound();
  SessionId one_ = world_.OpenSession(first_);
  std::vector<uint64_t> leases_;
};

TEST_F(QuotaTaken, WhatIsNotLeasedGoesAndTheNextJobGetsItsPart) {
  world_.PutEach(one_, 1, 8, kPiece);
  ASSERT_EQ(world_.Job(first_).held_bytes, kQuota);
  const JobId second = OpenBound();
  const SessionId two = world_.OpenSession(second);
  const std::optional<Answer> answer = Run(seconds(1), two, AskFor(two, kQuota / 2));
  ASSERT_TRUE(answer.has_value()) << "the arena has 48 MiB, and the user's other job gives 8";
  EXPECT_EQ(answer->code, Code::kOk) << answer->detail;
  EXPECT_EQ(world_.Job(first_).held_bytes, kQuota / 2);
  EXPECT_EQ(world_.Job(second).held_bytes, kQuota / 2);
}

TEST_F(QuotaTaken, EightJobsHaveItTogether) {
  world_.PutEach(one_, 1, 8, kPiece);
  std::vector<SessionId> sessions;
  for (int i = 0; i < 7; ++i) sessions.push_back(world_.OpenSession(OpenBound()));
  for (const SessionId session : sessions) {
    const std::optional<Answer> answer = Run(seconds(1), session, AskFor(session, kPiece));
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->code, Code::kOk) << answer->detail;
  }
}

TEST_F(QuotaTaken, WhatIsLeasedIsWaitedForAndTakenFromNoOtherUser) {
  Lease(one_);
  const JobId other = world_.OpenJob({.uid = 8});
  const SessionId third = world_.OpenSession(other);
  world_.PutEach(third, 1, 24, kPiece);
  const uint64_t held = world_.Job(other).held_bytes;
  ASSERT_GE(held, 40 * kMiB) << "more than it is promised";
  const SessionId two = world_.OpenSession(OpenBound());
  const uint64_t asked = AskFor(two, kPiece);
  EXPECT_FALSE(Run(seconds(1), two, asked).has_value());
  EXPECT_EQ(world_.Job(other).held_bytes, held) << "the one that waits may not have it";
  EXPECT_EQ(world_.engine->Snapshot().owed_bytes, 0u);
  ASSERT_EQ(world_.Release(one_, leases_.back()).code, Code::kOk);
  const std::optional<Answer> answer = Run(seconds(1), two, asked);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code, Code::kOk) << answer->detail;
  EXPECT_EQ(world_.Job(other).held_bytes, held);
}

TEST_F(QuotaTaken, LeasesBeyondAPartEndAtTheDeadlineAndNoneOfOtherUsers) {
  Lease(one_);
  const SessionId other = world_.Open({.uid = 8});
  EXPECT_EQ(world_.Create(other, 1, 46 * kMiB).code, Code::kOk) << "more than it is promised";
  const SessionId two = world_.OpenSession(OpenBound());
  const uint64_t asked = AskFor(two, kQuota / 2);
  EXPECT_FALSE(Run(kReclaimDeadline - kPace, two, asked).has_value());
  EXPECT_TRUE(world_.sink.ended.empty());
  const std::optional<Answer> answer = Run(seconds(1), two, asked);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code, Code::kOk) << answer->detail;
  ASSERT_TRUE(Ended(one_));
  EXPECT_THAT(
      world_.sink.ended.at(static_cast<uint64_t>(one_)).second,
      AllOf(HasSubstr("has been owed 8 MiB for 10.0 s"), HasSubstr("both are of user 7, who may have 16 MiB of RAM")));
  EXPECT_FALSE(Ended(other)) << "its leases keep nothing from this job";
}

class QuotaTakenWithoutSsd : public QuotaTaken {
 protected:
  QuotaTakenWithoutSsd() : QuotaTaken(0) {}
};

TEST_F(QuotaTakenWithoutSsd, WhatCannotLeaveRamKeepsItAndTheNextJobIsTold) {
  world_.PutEach(one_, 1, 8, kPiece);
  const SessionId two = world_.OpenSession(OpenBound());
  const std::optional<Answer> answer = Run(seconds(30), two, AskFor(two, kPiece));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code, Code::kNoMemory);
  EXPECT_THAT(answer->detail, AllOf(HasSubstr("user 7 may have 16 MiB of RAM (the quota of user 7, set at run time)"),
                                    HasSubstr("they have windows of 16 MiB"),
                                    HasSubstr("release leases of the user's other jobs, or have an administrator")));
  EXPECT_FALSE(Ended(one_)) << "it leases nothing";
  EXPECT_EQ(world_.CheckEach(one_, 1, 8), Code::kOk);
}

}  // namespace
}  // namespace tier::tiering::testing
