// Namespaces of dead sessions and closed jobs that hold more than one turn frees.
#include <gtest/gtest.h>

#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/tables/tables.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

class DeferredFree : public ::testing::Test {
 protected:
  static constexpr uint64_t kTensors = WorkUnits{}.frees + 1000;  // Each costs its piece and itself.

  // Many small tensors, without a proof of the books at each step.
  void PutMany(SessionId session, uint32_t flags) {
    constexpr uint64_t kBatch = 512;
    uint64_t sequence = 1u << 20;
    for (uint64_t first = 1; first <= kTensors; first += kBatch) {
      std::vector<proto::RequestItem> items;
      for (uint64_t id = first; id < first + kBatch && id <= kTensors; ++id) items.push_back({id, 0, 0, 1});
      world.engine->Submit(session,
                           {.sequence = ++sequence, .op = Op::kCreate, .flags = flags, .items = items, .text = {}});
      for (int turn = 0; turn < 100 && !world.Answered(session, sequence); ++turn) world.engine->Turn(world.now);
      const Answer created = *world.Answered(session, sequence);
      ASSERT_EQ(created.code, Code::kOk) << created.detail;
      for (uint32_t i = 0; i < items.size(); ++i) items[i] = {0, 0, 0, World::LeaseOf(created, i)};
      world.engine->Submit(session, {.sequence = ++sequence, .op = Op::kRelease, .items = items, .text = {}});
    }
    world.Turn();
  }
  uint64_t Tensors() { return world.engine->Snapshot().tensor_count; }

  World world{{.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 128 * kMiB}, .device_blocks = 256}};
};

TEST_F(DeferredFree, ADeadSessionsTensorsGoTurnByTurn) {
  const JobId job = world.OpenJob();
  const SessionId dead = world.OpenSession(job);
  const SessionId alive = world.OpenSession(job);
  PutMany(dead, 0);
  ASSERT_EQ(Tensors(), kTensors);
  const uint64_t ram = world.Job(job).ram_bytes;
  world.EndSession(dead, "killed");
  world.engine->CheckInvariants();
  EXPECT_GT(Tensors(), kTensors - WorkUnits{}.frees) << "a turn belongs to everybody";
  EXPECT_LT(Tensors(), kTensors);
  EXPECT_TRUE(world.engine->Tensors(job, 0, 10).tensors.empty()) << "nobody can name them";
  EXPECT_FALSE(world.engine->ReleasesCanWait());
  world.Put(alive, 1, 100);
  EXPECT_EQ(world.Check(alive, 1), Code::kOk);
  uint64_t turns = 0;
  while (world.Turn()) ASSERT_LT(++turns, 10u);
  EXPECT_EQ(Tensors(), 1u);
  EXPECT_LT(world.Job(job).ram_bytes, ram / 100);
}

TEST_F(DeferredFree, AClosedJobStaysUntilItsLastTensorIsFreed) {
  const SessionId session = world.Open();
  PutMany(session, proto::kFlagShared);
  world.EndSession(session, "done");
  EXPECT_GT(Tensors(), 0u);
  EXPECT_GT(world.windows.window_count(), 0u);
  world.Turns(6);
  EXPECT_EQ(Tensors(), 0u);
  EXPECT_EQ(world.windows.window_count(), 0u);
}

TEST_F(DeferredFree, WhoWaitsForRoomIsNotRefusedWhileItComes) {
  const JobId job = world.OpenJob();
  const SessionId dead = world.OpenSession(job);
  const SessionId alive = world.OpenSession(job);
  PutMany(dead, 0);
  world.Turns(5);  // More than half of the arena is dirty: that is written, and done now.
  const uint64_t written = world.transfers.traffic(0).written_bytes;
  world.EndSession(dead, "killed");
  const uint64_t asked = world.Send(alive, Op::kCreate, {{1, 0, 0, 120 * kMiB}}, proto::kFlagNoWaitOwn);
  EXPECT_EQ(world.Wait(alive, asked).code, Code::kOk);
  EXPECT_EQ(world.transfers.traffic(0).written_bytes, written) << "what is about to be freed is not written";
}

TEST(DeferredFreeOfPieces, AFreedTensorsPiecesGoTurnByTurn) {
  constexpr uint32_t kPerTurn = 8;
  constexpr uint64_t kPieces = 4 * kPerTurn;
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 96 * kMiB},
               .engine = {.work = {.submit = kPerTurn * kFreeCost, .frees = kPerTurn * kFreeCost}},
               .device_blocks = 2 * kPieces});
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  const SessionId other = world.OpenSession(job);
  const auto create = [&](uint64_t tensor) {
    return world.Release(session, World::LeaseOf(world.Create(session, tensor, kPieces * kBlockSize)));
  };
  ASSERT_EQ(create(1).code, Code::kOk);
  world.Turn();
  const uint64_t freeing = world.Send(session, Op::kFree, {{1, 0, 0, 0}});
  world.Turn();
  EXPECT_EQ(world.Answered(session, freeing)->code, Code::kOk);
  EXPECT_EQ(world.Ask(session, Op::kStat, {{1, 0, 0, 0}}).code, Code::kNotFound) << "the name is free at once";
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 1u) << "its pieces are not";
  EXPECT_FALSE(world.engine->ReleasesCanWait());
  world.Put(other, 2, 5000);
  EXPECT_EQ(world.Check(other, 2), Code::kOk);
  uint64_t turns = 0;
  while (world.Turn()) ++turns;
  EXPECT_LE(turns, 4u);
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 1u);

  ASSERT_EQ(create(3).code, Code::kOk);  // Again, and its job closes meanwhile.
  world.Send(session, Op::kFree, {{3, 0, 0, 0}});
  world.engine->CloseJob(job, "closed", true);
  world.Turn();
  EXPECT_GE(world.engine->Snapshot().tensor_count, 1u);
  world.Turns(5);
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
  EXPECT_EQ(world.windows.window_count(), 0u);
}

// Some free more than a turn does, for long; a turn frees 16.
class DeferredFreeOfMany : public ::testing::Test {
 protected:
  static constexpr uint32_t kPerTurn = 16;
  static constexpr uint64_t kPieces = 100 * kPerTurn;

  // A tensor that takes many turns to free; little of it was ever written.
  void PutLarge(SessionId session, uint64_t tensor) {
    const Answer lease = world.CreateRange(session, tensor, kPieces * kBlockSize, 0, 4096);
    ASSERT_EQ(world.Release(session, World::LeaseOf(lease)).code, Code::kOk) << lease.detail;
  }

  World world{{.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 64 * kMiB},
               .engine = {.work = {.submit = kPerTurn, .teardown = kPerTurn, .frees = kPerTurn}},
               .device_blocks = 8 * kPieces}};
};

TEST(DeferredFreeOfThree, NoJobKeepsTheDeadOfAnotherFromTheirTurn) {
  constexpr uint32_t kPerTurn = 3;
  constexpr uint64_t kPieces = 20;
  World world(
      {.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 96 * kMiB},
       .engine = {
           .work = {
               .submit = kPerTurn, .teardown = kPerTurn, .frees = kPerTurn, .share = kPerTurn, .look = kPerTurn}}});
  const SessionId one = world.Open();
  const SessionId two = world.Open();
  const SessionId dying = world.Open();  // The last of its job.
  world.Put(one, 1, kPieces * kBlockSize);
  world.Put(two, 1, kPieces * kBlockSize);
  for (uint64_t id = 1; id <= 3; ++id) world.Put(dying, id, 100);
  world.Send(one, Op::kFree, {{1, 0, 0, 0}});
  world.Send(two, Op::kFree, {{1, 0, 0, 0}});
  world.EndSession(dying, "killed");
  const uint64_t windows = world.windows.window_count();
  world.Turns(9);
  EXPECT_LT(world.windows.window_count(), windows);
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 2u) << "the others' have begun";
}

TEST_F(DeferredFreeOfMany, LeasesOfTheDeadKeepNobodysMemory) {
  const JobId job = world.OpenJob();
  const SessionId reader = world.OpenSession(job);
  const SessionId dying = world.OpenSession(job);
  world.Put(reader, 1, 100);
  const std::vector<proto::RequestItem> items(500, {1, 0, 0, 0});
  ASSERT_EQ(world.Ask(reader, Op::kAcquire, items).code, Code::kOk);
  for (uint64_t id = 1; id <= 20; ++id) world.Put(dying, id, 100);
  world.EndSession(reader, "killed");
  world.EndSession(dying, "killed");
  world.Turns(20);
  EXPECT_GT(world.engine->Snapshot().lease_count, 100u) << "a turn ends some";
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 1u) << "what is leased";
}

TEST_F(DeferredFreeOfMany, WhoHeldLittleDoesNotWaitForWhoHeldMuch) {
  const JobId job = world.OpenJob();
  const SessionId much = world.OpenSession(job);
  const SessionId little = world.OpenSession(job);
  const SessionId waiting = world.OpenSession(job);
  world.Put(waiting, 1, 100, 1, proto::kFlagShared);
  world.Put(waiting, 2, 100, 2, proto::kFlagShared);
  const std::vector<proto::RequestItem> items(500, {1, 0, 0, 0});
  ASSERT_EQ(world.Ask(much, Op::kAcquire, items, proto::kFlagShared).code, Code::kOk);
  ASSERT_EQ(world.Acquire(little, 2, proto::kFlagShared).code, Code::kOk);
  world.EndSession(much, "killed");
  world.EndSession(little, "killed");
  const uint64_t writing = world.Send(waiting, Op::kAcquire, {{2, 0, 0, 0}}, proto::kFlagShared | proto::kFlagWrite);
  world.Turns(2);
  EXPECT_TRUE(world.Answered(waiting, writing).has_value());
  EXPECT_GT(world.engine->Snapshot().lease_count, 400u);
}

TEST_F(DeferredFreeOfMany, WhatWaitsToBeFreedIsBounded) {
  const SessionId session = world.Open();
  for (uint64_t round = 0; round < 20; ++round) {
    const Answer lease = world.CreateRange(session, 1, kPieces * kBlockSize, 0, 4096);
    ASSERT_EQ(world.Release(session, World::LeaseOf(lease), proto::kFlagAbandon).code, Code::kOk) << lease.detail;
  }
  EXPECT_LE(world.engine->Snapshot().tensor_count, 3u);
}

TEST_F(DeferredFree, CreationsOfTheDeadGoWithTheirNamespace) {
  const JobId job = world.OpenJob();
  const SessionId dead = world.OpenSession(job);
  world.CreateRange(dead, 1, 3 * kBlockSize, 0, kBlockSize);
  world.Create(dead, 2, 5000, proto::kFlagShared);
  world.EndSession(dead, "killed");
  world.engine->CheckInvariants();
  EXPECT_EQ(Tensors(), 0u);
}

}  // namespace
}  // namespace tier::tiering::testing
