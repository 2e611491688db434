// Lending: what idle jobs hold and SSD has as well goes to a job that could use it, and comes back when its owner asks.
#include <gtest/gtest.h>

#include "daemon/tiering/memory/lending.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr uint64_t kBlock = kBlockSize;
constexpr uint64_t kOwn = 14;      // Blocks of the owner, ids from 1 on,
constexpr uint64_t kOthers = 24;   // and of the job that could use more, ids from 100 on.
constexpr uint64_t kPromise = 15;  // Of each of them, in blocks; two are promised to nobody.
constexpr seconds kIdleAfter{60};

// 32 windows of one block. The owner has put what it has, all of which is on SSD.
class LendingTest : public ::testing::Test {
 protected:
  static WorldOptions Options(seconds idle_after, bool returns_windows) {
    return {.windows = {.window_size = kBlock, .arena_max_bytes = 32 * kBlock},
            .engine = {.idle_after = idle_after, .write_behind_start = 1.0, .evict_start = 1.0},
            .device_blocks = 256,
            .returns_windows = returns_windows};
  }
  explicit LendingTest(seconds idle_after = kIdleAfter, bool returns_windows = true)
      : world(Options(idle_after, returns_windows)) {
    world.PutEach(owner, 1, kOwn, kBlock, proto::kFlagShared);
    for (uint64_t id = 1; id <= kOwn; ++id) EXPECT_EQ(world.Flush(owner, id, proto::kFlagShared).code, Code::kOk);
    world.PutEach(user, 100, 99 + kOthers, kBlock);
    EXPECT_EQ(world.Ask(user, Op::kFlush, {}).code, Code::kOk);
  }
  // The job reads all that it has, so many times.
  void ReadInACircle(int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (uint64_t id = 100; id < 100 + kOthers; ++id) {
        EXPECT_EQ(world.Check(user, id, id), Code::kOk) << id;
        TakeTurns();
      }
    }
  }
  void OwnerReadsAll() {
    for (uint64_t id = 1; id <= kOwn; ++id) {
      EXPECT_EQ(world.Check(owner, id, id, proto::kFlagShared), Code::kOk) << id;
      TakeTurns();
    }
  }
  void TakeTurns() {
    for (int turn = 0; turn < 4; ++turn) {
      world.Turn();
      world.Advance(milliseconds(1));
    }
  }
  uint64_t HeldBy(JobId job) { return world.Job(job).held_bytes / kBlock; }
  uint64_t Lent() { return world.engine->Snapshot().hand_over.lent_bytes / kBlock; }

  World world;
  JobId owners_job = world.OpenJob({.key = "1/owner", .uid = 1, .guarantee_bytes = kPromise * kBlock, .named = true});
  SessionId owner = world.OpenSession(owners_job);
  JobId users_job = world.OpenJob({.key = "2/user", .uid = 2});
  SessionId user = world.OpenSession(users_job);
};

TEST_F(LendingTest, WhatAnIdleJobHoldsGoesToOneThatCouldUseItAndComesBack) {
  world.Advance(kIdleAfter);
  ReadInACircle(2);
  EXPECT_EQ(HeldBy(users_job), kOthers);
  EXPECT_GE(Lent(), kOthers - (32 - kOwn));
  const uint64_t lent = Lent();
  ReadInACircle(1);
  EXPECT_EQ(Lent(), lent) << "it has all that it uses";

  for (int round = 0; round < 3; ++round) OwnerReadsAll();
  EXPECT_EQ(HeldBy(owners_job), kOwn) << "it is within its promise";
  EXPECT_LE(HeldBy(users_job), 32 - kOwn);
  ReadInACircle(1);
  EXPECT_EQ(HeldBy(owners_job), kOwn) << "it asked for something a moment ago";
}

TEST_F(LendingTest, AJobIsNotIdleBefore) {
  world.Advance(kIdleAfter - seconds(1));
  ReadInACircle(2);
  EXPECT_EQ(Lent(), 0U);
  EXPECT_EQ(HeldBy(owners_job), kOwn);
}

TEST_F(LendingTest, AJobWithALeaseIsNotIdle) {
  const Answer leased = world.Acquire(owner, 1, proto::kFlagShared);
  ASSERT_EQ(leased.code, Code::kOk);
  world.Advance(2 * kIdleAfter);
  ReadInACircle(2);
  EXPECT_EQ(Lent(), 0U);
  EXPECT_EQ(world.Release(owner, World::LeaseOf(leased)).code, Code::kOk);
}

TEST_F(LendingTest, AJobWithoutASessionIsIdleAtOnce) {
  world.EndSession(owner);
  world.Advance(kLendRetryInterval);  // Nobody had anything to lend when the other job was filled.
  ReadInACircle(2);
  EXPECT_GE(Lent(), kOthers - (32 - kOwn));
  const SessionId again = world.OpenSession(owners_job);
  for (uint64_t id = 1; id <= kOwn; ++id) EXPECT_EQ(world.Check(again, id, id, proto::kFlagShared), Code::kOk) << id;
}

TEST_F(LendingTest, NothingIsWrittenForIt) {
  for (uint64_t id = 1; id <= kOwn; ++id) {
    EXPECT_EQ(world.Rewrite(owner, id, id + 1, proto::kFlagShared).code, Code::kOk);
  }
  ASSERT_EQ(world.Job(owners_job).dirty_bytes, kOwn * kBlock);
  world.Advance(kIdleAfter);
  ReadInACircle(3);
  EXPECT_EQ(Lent(), 0U);
  EXPECT_EQ(world.Job(owners_job).dirty_bytes, kOwn * kBlock);
}

// What is free in its windows goes, and what lies in them moves together.
TEST_F(LendingTest, SparseWindowsAreEmptiedByMoves) {
  for (uint64_t id = 1; id <= kOwn; ++id) EXPECT_EQ(world.Free(owner, id, proto::kFlagShared).code, Code::kOk);
  for (uint64_t id = 1; id <= kOwn; ++id) {
    world.Put(owner, id, kPageSize, id, proto::kFlagShared);
    world.Put(owner, 50 + id, kBlock - kPageSize, id, proto::kFlagShared);
  }
  for (uint64_t id = 1; id <= kOwn; ++id) EXPECT_EQ(world.Free(owner, 50 + id, proto::kFlagShared).code, Code::kOk);
  world.Advance(kIdleAfter);
  ReadInACircle(2);
  const uint64_t read = world.engine->Snapshot().devices.at(0).traffic.read_bytes;
  EXPECT_EQ(HeldBy(users_job), kOthers);
  for (uint64_t id = 1; id <= kOwn; ++id) EXPECT_EQ(world.Check(owner, id, id, proto::kFlagShared), Code::kOk) << id;
  EXPECT_EQ(world.engine->Snapshot().devices.at(0).traffic.read_bytes, read);
}

// Its owner's process is stopped, and its windows are taken without its answer.
class LendingOfAStoppedProcess : public LendingTest {
 protected:
  LendingOfAStoppedProcess() : LendingTest(kIdleAfter, false) {}
};

TEST_F(LendingOfAStoppedProcess, NobodyIsKilledForAWish) {
  world.Advance(kIdleAfter);
  ReadInACircle(1);
  ASSERT_FALSE(world.sink.returns.empty());
  EngineOptions options = world.options.engine;
  options.kills_keepers = true;
  world.engine->SetOptions(options);
  world.Advance(seconds(3));
  world.Turns(2);
  world.Advance(options.reclaim_deadline);
  world.Turns(5);
  ASSERT_FALSE(world.windows.retired().empty());
  EXPECT_EQ(world.windows.owed_count(), 0U);
  world.windows.FindKept(world.windows.retired());  // Since long ago.
  world.Turns(2);
  EXPECT_EQ(world.sink.forced.size(), 2U) << "they were taken, and are kept";
  EXPECT_TRUE(world.sink.killed.empty());
}

class NeverLendingTest : public LendingTest {
 protected:
  NeverLendingTest() : LendingTest(seconds(0)) {}
};

TEST_F(NeverLendingTest, NoJobIsEverIdle) {
  world.Advance(std::chrono::hours(1));
  world.EndSession(owner);
  ReadInACircle(2);
  EXPECT_EQ(Lent(), 0U);
}

}  // namespace
}  // namespace tier::tiering::testing
