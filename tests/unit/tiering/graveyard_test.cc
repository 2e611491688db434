// Namespaces of dead sessions and closed jobs that hold more than one turn frees.
#include <gtest/gtest.h>

#include "daemon/tiering/core.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

class Graveyard : public ::testing::Test {
 protected:
  static constexpr uint64_t kTensors = kBurialsPerTurn + 1000;  // Each costs its piece and itself.

  // Many small tensors, without a proof of the books at each step.
  void PutMany(SessionId session, uint32_t flags) {
    constexpr uint64_t kBatch = 512;
    uint64_t sequence = 1u << 20;
    for (uint64_t first = 1; first <= kTensors; first += kBatch) {
      std::vector<proto::RequestItem> items;
      for (uint64_t id = first; id < first + kBatch && id <= kTensors; ++id) items.push_back({id, 0, 0, 1});
      world.engine->Submit(session,
                           {.sequence = ++sequence, .op = Op::kCreate, .flags = flags, .items = items, .text = {}});
      for (int turn = 0; turn < 5 && !world.Answered(session, sequence); ++turn) world.engine->Turn(world.now);
      const Answer created = *world.Answered(session, sequence);
      ASSERT_EQ(created.code, Code::kOk) << created.detail;
      for (uint32_t i = 0; i < items.size(); ++i) items[i] = {0, 0, 0, World::LeaseOf(created, i)};
      world.engine->Submit(session, {.sequence = ++sequence, .op = Op::kRelease, .items = items, .text = {}});
    }
    world.Turn();
  }
  uint64_t Tensors() { return world.engine->Snapshot().tensor_count; }

  World world{{.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 128 * kMiB}}};
};

TEST_F(Graveyard, ADeadSessionsTensorsGoTurnByTurn) {
  const JobId job = world.OpenJob();
  const SessionId dead = world.OpenSession(job);
  const SessionId alive = world.OpenSession(job);
  PutMany(dead, 0);
  ASSERT_EQ(Tensors(), kTensors);
  const uint64_t ram = world.Job(job).ram_bytes;
  world.engine->EndSession(dead, "killed");
  world.engine->CheckInvariants();
  EXPECT_GT(Tensors(), kTensors - kBurialsPerTurn) << "a turn belongs to everybody";
  EXPECT_LT(Tensors(), kTensors);
  EXPECT_TRUE(world.engine->Tensors(job, 10).empty()) << "nobody can name them";
  EXPECT_FALSE(world.engine->ReleasesCanWait());
  world.Put(alive, 1, 100);
  EXPECT_EQ(world.Check(alive, 1), Code::kOk);
  uint64_t turns = 0;
  while (world.Turn()) ASSERT_LT(++turns, 10u);
  EXPECT_EQ(Tensors(), 1u);
  EXPECT_LT(world.Job(job).ram_bytes, ram / 100);
  EXPECT_EQ(world.index.committed().size(), 1u);
}

TEST_F(Graveyard, WhoseMemoryIsFreeHasNoRecord) {
  const JobId job = world.OpenJob();
  const SessionId dead = world.OpenSession(job);
  world.OpenSession(job);
  PutMany(dead, 0);
  ASSERT_EQ(world.index.committed().size(), kTensors);
  world.engine->EndSession(dead, "killed");
  uint64_t turns = 0;
  for (; Tensors() != 0; ++turns) {
    world.Turn();
    EXPECT_EQ(world.index.committed().size(), Tensors()) << "or two records could name one run";
  }
  EXPECT_GT(turns, 1u);
}

TEST_F(Graveyard, AClosedJobStaysUntilItsLastTensorIsFreed) {
  const SessionId session = world.Open();
  PutMany(session, proto::kFlagShared);
  world.engine->EndSession(session, "done");
  EXPECT_GT(Tensors(), 0u);
  EXPECT_GT(world.windows.window_count(), 0u);
  world.Turns(5);
  EXPECT_EQ(Tensors(), 0u);
  EXPECT_EQ(world.windows.window_count(), 0u);
  EXPECT_TRUE(world.index.committed().empty());
}

TEST_F(Graveyard, WhoWaitsForRoomIsNotRefusedWhileItComes) {
  const JobId job = world.OpenJob();
  const SessionId dead = world.OpenSession(job);
  const SessionId alive = world.OpenSession(job);
  PutMany(dead, 0);
  const uint64_t written = world.transfers.traffic(0).written_bytes;
  world.engine->EndSession(dead, "killed");
  const uint64_t asked = world.Send(alive, Op::kCreate, {{1, 0, 0, 120 * kMiB}}, proto::kFlagNoWaitOwn);
  EXPECT_EQ(world.Wait(alive, asked).code, Code::kOk);
  EXPECT_EQ(world.transfers.traffic(0).written_bytes, written) << "what is about to be freed is not written";
}

TEST(GraveyardOfPieces, AFreedTensorsPiecesGoTurnByTurn) {
  constexpr uint64_t kPieces = 3 * kBurialsPerTurn + 100;
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}, .device_blocks = 2 * kPieces});
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  const SessionId other = world.OpenSession(job);
  const auto create = [&](uint64_t tensor) {
    return world.Release(session, World::LeaseOf(world.CreateRange(session, tensor, kPieces * kBlockSize, 0, 4096)));
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

TEST_F(Graveyard, CreationsOfTheDeadGoWithTheirNamespace) {
  const JobId job = world.OpenJob();
  const SessionId dead = world.OpenSession(job);
  world.CreateRange(dead, 1, 3 * kBlockSize, 0, kBlockSize);
  world.Create(dead, 2, 5000, proto::kFlagShared);
  world.engine->EndSession(dead, "killed");
  world.engine->CheckInvariants();
  EXPECT_EQ(Tensors(), 0u);
}

}  // namespace
}  // namespace tier::tiering::testing
