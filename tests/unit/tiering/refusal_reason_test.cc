// Each refusal is counted under what would have to change for the request to be granted.
#include "daemon/tiering/api/refusal_reason.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

uint64_t Refused(const World& world, RefusalReason reason) {
  return world.engine->Snapshot().refusals[static_cast<size_t>(reason)];
}

TEST(RefusalReason, NamesAreUnique) {
  std::set<std::string> names;
  for (size_t i = 0; i < kRefusalReasons; ++i) {
    EXPECT_TRUE(names.insert(RefusalReasonName(static_cast<RefusalReason>(i))).second) << i;
  }
}

TEST(RefusalReason, AWrongRequestIsNoShortage) {
  World world(WithArena());
  const SessionId session = world.Open();
  EXPECT_EQ(world.Acquire(session, 77).code, Code::kNotFound);
  EXPECT_EQ(Refused(world, RefusalReason::kRequest), 1u);
}

TEST(RefusalReason, MoreThanTheLimitIsTheLimits) {
  World world(WithArena(64 * kMiB));
  const SessionId session = world.Open({.limit_bytes = 8 * kMiB});
  EXPECT_EQ(world.Create(session, 1, 12 * kMiB).code, Code::kNoMemory);
  EXPECT_EQ(Refused(world, RefusalReason::kLimit), 1u);
}

TEST(RefusalReason, EachJobHasItsOwnCounts) {
  World world(WithArena(64 * kMiB));
  const SessionId limited = world.Open({.limit_bytes = 8 * kMiB});
  const SessionId other = world.Open();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(world.Create(limited, 1, 12 * kMiB).code, Code::kNoMemory);
  EXPECT_EQ(world.Acquire(other, 77).code, Code::kNotFound);
  const EngineSnapshot snapshot = world.engine->Snapshot();
  ASSERT_EQ(snapshot.jobs.size(), 2u);
  RefusalCounts limits{}, requests{};
  limits[static_cast<size_t>(RefusalReason::kLimit)] = 2;
  requests[static_cast<size_t>(RefusalReason::kRequest)] = 1;
  EXPECT_EQ(snapshot.jobs[0].counters.refusals, limits);
  EXPECT_EQ(snapshot.jobs[1].counters.refusals, requests);
  EXPECT_EQ(snapshot.totals.refusals, snapshot.refusals);
}

TEST(RefusalReason, TheSessionsOwnLeasesAreNoShortageOfOthers) {
  World world(WithArena(16 * kMiB, 8 * kMiB));
  const SessionId session = world.Open();
  Answer last;
  for (uint64_t id = 1; id <= 9 && last.code == Code::kOk; ++id) {
    last = world.Create(session, id, kBlockSize, proto::kFlagNoWaitOwn);
  }
  EXPECT_EQ(last.code, Code::kWouldDeadlock) << last.detail;
  EXPECT_EQ(Refused(world, RefusalReason::kOwnLeases), 1u);
}

TEST(RefusalReason, WhoWaitsForALeaseAtTheTensorMeetsAConflict) {
  World world(WithArena());
  const JobId job = world.OpenJob();
  const SessionId writer = world.OpenSession(job);
  const SessionId reader = world.OpenSession(job);
  world.Put(writer, 1, kBlockSize, 1, proto::kFlagShared);
  ASSERT_EQ(world.Acquire(writer, 1, proto::kFlagShared | proto::kFlagWrite).code, Code::kOk);
  EXPECT_EQ(world.Acquire(reader, 1, proto::kFlagShared | proto::kFlagNoWait).code, Code::kTimeout);
  EXPECT_EQ(Refused(world, RefusalReason::kConflict), 1u);
}

TEST(RefusalReason, AHostWithoutMemoryIsTheHosts) {
  World world(WithArena(64 * kMiB));
  world.windows.SetArenaMax(8 * kMiB);
  const SessionId first = world.Open();
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_EQ(world.Create(first, id, kBlockSize).code, Code::kOk) << id;
  const SessionId second = world.Open();
  const Answer refused = world.Create(second, 1, kBlockSize);
  ASSERT_NE(refused.code, Code::kOk);
  EXPECT_EQ(Refused(world, RefusalReason::kHostMemory), 1u) << refused.detail;
}

}  // namespace
}  // namespace tier::tiering::testing
