// A tier that is full, or holds less than it did: what was accepted is exchanged through the last block, whatever else
// wants room on SSD, and what would leave no room for that is refused before anything changes.
#include <cerrno>

#include <gmock/gmock.h>

#include "tests/unit/tiering/manifest_move_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::seconds;
using ::testing::HasSubstr;

WorldOptions Node(uint64_t arena, uint32_t blocks) {
  return {.windows = {.window_size = 2 * kMiB, .arena_max_bytes = arena, .windows_max = 64},
          .device_blocks = blocks,
          .manifests = true,
          .returns_windows = true};
}

// A device that holds less than RAM adds nothing to what a job may have: all of that fits its own part of RAM.
TEST(Exchange, ADeviceSmallerThanRamIsReadToTheLastPiece) {
  World world(Node(64 * kMiB, 4));
  (void)world.Open({.uid = 7});  // Idle; it has half of RAM.
  const SessionId session = world.Open();
  Answer refused;
  const base::TimePoint before = world.now;
  const uint64_t accepted = PutUntilRefused(world, session, 1, &refused);
  EXPECT_EQ(refused.code, Code::kNoSpace);
  EXPECT_LT(world.now - before, seconds(2)) << "it is refused at once";
  EXPECT_GE(accepted, 14u);
  for (int round = 0; round < 2; ++round) EXPECT_EQ(world.CheckEach(session, 1, accepted), Code::kOk);
}

// A newcomer's part of RAM is taken only as far as what lies there has another place.
TEST(Exchange, ANewcomerLeavesWhatWasAcceptedReadable) {
  World world(Node(32 * kMiB, 4));
  const SessionId first = world.Open();
  Answer refused;
  const uint64_t accepted = PutUntilRefused(world, first, 1, &refused);
  const SessionId second = world.Open({.uid = 7});
  Answer of_second;
  const uint64_t more = PutUntilRefused(world, second, 1, &of_second);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(world.CheckEach(first, 1, accepted), Code::kOk) << "round " << round;
    EXPECT_TRUE(more == 0 || world.CheckEach(second, 1, more) == Code::kOk);
  }
}

// Copies on SSD of what is in RAM too are room for what must leave it.
TEST(Exchange, LeasedPiecesDoNotKeepTheLastBlock) {
  World world(Node(16 * kMiB, 3));
  const SessionId session = world.Open();
  Answer refused;
  const uint64_t accepted = PutUntilRefused(world, session, 1, &refused);
  (void)world.Open({.uid = 7});
  world.Turns(20);
  std::vector<uint64_t> leases;
  for (uint64_t tensor = 1; tensor <= 3; ++tensor) {
    const Answer lease = world.Acquire(session, tensor);
    ASSERT_EQ(lease.code, Code::kOk) << tensor << ": " << lease.detail;
    leases.push_back(World::LeaseOf(lease));
  }
  for (uint64_t tensor = 4; tensor <= accepted; ++tensor) {
    EXPECT_EQ(world.Check(session, tensor, tensor), Code::kOk) << tensor;
  }
  for (const uint64_t lease : leases) world.Release(session, lease);
  EXPECT_EQ(world.CheckEach(session, 1, accepted), Code::kOk);
}

TEST(Exchange, AFlushLeavesTheLastBlock) {
  World world(Node(32 * kMiB, 4));
  const SessionId session = world.Open();
  world.PutEach(session, 1, 4, kPiece);
  const Answer flushed = world.Ask(session, Op::kFlush, {});
  EXPECT_EQ(flushed.code, Code::kNoSpace);
  EXPECT_THAT(flushed.detail, HasSubstr("the last 2 MiB are kept"));
  EXPECT_EQ(world.extents.total().free, kPiece);
}

// What is freed under a lease stays where it is, so it stays its job's.
TEST(Exchange, WhatIsFreedUnderALeaseIsCountedUntilTheLeaseEnds) {
  World world(Node(8 * kMiB, 16));
  const JobId job = world.OpenJob({.ssd_limit_bytes = 8 * kMiB});
  const SessionId session = world.OpenSession(job);
  world.PutOnSsd(session, 1, 3 * kPiece);
  const Answer kept = world.Acquire(session, 1, 0, 0, 1);
  const Answer freed = world.Acquire(session, 1, 0, 0, 1);
  ASSERT_EQ(freed.code, Code::kOk);
  ASSERT_EQ(world.Release(session, World::LeaseOf(freed), proto::kFlagFreeAfter).code, Code::kOk);
  EXPECT_EQ(world.Job(job).logical_bytes, 3 * kPiece);
  EXPECT_EQ(world.Create(session, 2, 2 * kPiece).code, Code::kNoSpace);
  EXPECT_EQ(world.Release(session, World::LeaseOf(kept)).code, Code::kOk);
  EXPECT_EQ(world.Job(job).logical_bytes, 0u);
  world.Put(session, 2, 2 * kPiece);
}

// What is persisted stays on SSD beside what is written again, as far as there is room for both.
TEST(Exchange, WritingAgainWhatIsPersistedIsRefusedBeforeItCannotBeRead) {
  World world(Node(8 * kMiB, 16));
  const SessionId session = world.OpenSession(world.OpenJob(kNamed));
  constexpr uint64_t kCount = 10;
  for (uint64_t tensor = 1; tensor <= kCount; ++tensor) world.Put(session, tensor, kPiece, tensor, kShared);
  ASSERT_EQ(world.Ask(session, Op::kPersist, {}).code, Code::kOk);
  uint64_t rewritten = 0;
  Answer answer;
  while (rewritten < kCount) {
    answer = world.Rewrite(session, rewritten + 1, 100 + rewritten + 1, kShared);
    if (answer.code != Code::kOk) break;
    ++rewritten;
  }
  EXPECT_EQ(answer.code, Code::kNoSpace);
  EXPECT_THAT(answer.detail, HasSubstr("what the job persisted last stays there"));
  EXPECT_GE(rewritten, 4u);
  for (int round = 0; round < 2; ++round) {
    for (uint64_t tensor = 1; tensor <= kCount; ++tensor) {
      const uint64_t seed = tensor <= rewritten ? 100 + tensor : tensor;
      EXPECT_EQ(world.Check(session, tensor, seed, kShared), Code::kOk) << tensor;
    }
  }
  const Answer again = world.Ask(session, Op::kPersist, {});
  EXPECT_EQ(again.code, Code::kOk) << again.detail;
  world.Turns(20);
  EXPECT_EQ(world.Rewrite(session, rewritten + 1, 5, kShared).code, Code::kOk) << "the old ones are gone";
}

// A replacement of the same size keeps the place of what it replaces also where devices hold less than they did.
TEST(Exchange, AReplacementIsTakenWhileADeviceDrains) {
  World world(Node(8 * kMiB, 16));
  const SessionId session = world.Open();
  world.PutEach(session, 1, 12, kPiece);
  ASSERT_TRUE(world.engine->SetDeviceDraining(0, true).has_value());
  EXPECT_EQ(world.Create(session, 99, kPiece).code, Code::kNoSpace);
  const Answer replaced = world.Create(session, 1, kPiece, proto::kFlagReplace);
  EXPECT_EQ(replaced.code, Code::kOk) << replaced.detail;
}

// A job that frees as much as it creates goes on while a device is offline for a while.
TEST(Exchange, ADeviceThatIsOfflineCountsForItComesBack) {
  WorldOptions options = Node(16 * kMiB, 16);
  options.transfers.device_count = 2;
  World world(options);
  const SessionId session = world.Open();
  world.PutEach(session, 1, 12, kPiece);
  ASSERT_EQ(world.Ask(session, Op::kFlush, {}).code, Code::kOk);
  world.transfers.FailDevice(0, EIO);
  world.PutEach(session, 13, 16, kPiece);
  world.Ask(session, Op::kFlush, {});
  for (int i = 0; i < 20'000 && world.engine->Snapshot().devices[0].state != storage::DeviceState::kOffline; ++i) {
    world.Turn();
    world.Advance(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(world.engine->Snapshot().devices[0].state, storage::DeviceState::kOffline);
  ASSERT_EQ(world.Free(session, 13).code, Code::kOk);
  const Answer created = world.Create(session, 20, kPiece);
  EXPECT_EQ(created.code, Code::kOk) << created.detail;
}

// What closed jobs have persisted is their user's, so N jobs of a user leave something for the next user.
TEST(Exchange, WhatClosedJobsPersistedCountsAsTheirUsers) {
  WorldOptions options = Node(8 * kMiB, 64);
  options.engine.quota.ssd.most = 40 * kMiB;
  World world(options);
  const JobId job = world.OpenJob({.key = "7/one", .uid = 7, .named = true});
  const SessionId first = world.OpenSession(job);
  for (uint64_t tensor = 1; tensor <= 15; ++tensor) world.Put(first, tensor, kPiece, tensor, kShared);
  ASSERT_EQ(world.Ask(first, Op::kPersist, {}).code, Code::kOk);
  world.engine->CloseJob(job, "done", false);
  world.Turns(20);
  const SessionId second = world.Open({.uid = 7});
  Answer refused;
  EXPECT_EQ(PutUntilRefused(world, second, 1, &refused), 5u);
  EXPECT_THAT(refused.detail, HasSubstr("jobs.max_ssd_per_uid"));
}

class MoveBesideOpenJobs : public ManifestMoveTest {
 protected:
  static WorldOptions Returning() {
    WorldOptions options = TwoDevices();
    options.returns_windows = true;
    return options;
  }
  MoveBesideOpenJobs() : ManifestMoveTest(Returning()) {}
};

// A drain moves what closed jobs persisted as far as the tensors of open jobs leave room.
TEST_F(MoveBesideOpenJobs, RoomThatTheyWillNeedIsLeft) {
  const SessionId session = world_->Open();
  Drain(0);
  world_->PutEach(session, 1, 22, kPiece);
  Drain(0, false);
  Leave();
  Drain(0);
  Within(seconds(5), [] { return false; });
  EXPECT_THAT(world_->engine->Snapshot().devices[0].drain_note, HasSubstr("other devices have no room"));
  for (int round = 0; round < 2; ++round) EXPECT_EQ(world_->CheckEach(session, 1, 22), Code::kOk);
}

}  // namespace
}  // namespace tier::tiering::testing
