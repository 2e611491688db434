// What a session leaves behind is given back turn by turn, and nobody sees it half given back.
#include <gtest/gtest.h>

#include "daemon/tiering/tables/tables.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

constexpr uint64_t kPiece = kBlockSize;
constexpr uint32_t kShared = proto::kFlagShared;
constexpr uint64_t kMany = 40;

class EndTurns : public ::testing::Test {
 protected:
  EndTurns()
      : world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 256 * kMiB},
               .engine = {.work = {.submit = 12, .teardown = 12, .frees = 12}},
               .device_blocks = 256}),
        job(world.OpenJob()),
        session(world.OpenSession(job)),
        other(world.OpenSession(job)) {}

  uint64_t Charged(MetadataKind kind) const {
    return world.engine->Snapshot().metadata.of_kind[static_cast<size_t>(kind)];
  }
  // Shared tensors of two pieces, of which the session has changed one.
  void ChangeParts() {
    for (uint64_t id = 1; id <= kMany; ++id) {
      world.Put(other, id, 2 * kPiece, id, kShared);
      const Answer lease = world.Acquire(session, id, kShared | proto::kFlagWrite, 0, kPiece);
      EXPECT_EQ(world.Release(session, World::LeaseOf(lease)).code, Code::kOk);
    }
    Rest();
  }
  void Rest() {
    for (uint32_t turns = 0; world.Turn(); ++turns) ASSERT_LT(turns, 10000u) << "something is never done";
  }

  World world;
  JobId job;
  SessionId session;
  SessionId other;
};

TEST_F(EndTurns, AStepEndsManyUpdatesAtOnceAndTheirRecordsGoLater) {
  ChangeParts();
  const uint64_t charged = Charged(MetadataKind::kUpdates);
  EXPECT_GT(charged, 0u);
  world.SendArgument(session, Op::kStep, UINT64_MAX);
  EXPECT_GT(Charged(MetadataKind::kUpdates), charged / 2) << "a turn has work for some of them";
  world.EndSession(session, "killed");
  for (uint64_t id = 1; id <= kMany; ++id) {
    EXPECT_EQ(world.Acquire(other, id, kShared).code, Code::kOk) << id << ": its step has ended";
  }
  Rest();
  EXPECT_EQ(Charged(MetadataKind::kUpdates), 0u);
}

TEST_F(EndTurns, WhatIsChangedAfterAStepIsAnUpdateOfItsOwn) {
  ChangeParts();
  world.SendArgument(session, Op::kStep, UINT64_MAX);
  // Before the records of the step are gone: the other piece of the newest, and all of the one before.
  const Answer one = world.Acquire(session, kMany, kShared | proto::kFlagWrite, kPiece, kPiece);
  world.Release(session, World::LeaseOf(one));
  const Answer all = world.Acquire(session, kMany - 1, kShared | proto::kFlagWrite);
  world.Release(session, World::LeaseOf(all));
  EXPECT_GT(Charged(MetadataKind::kUpdates), 0u);
  world.EndSession(session, "killed");
  Rest();
  EXPECT_EQ(world.Acquire(other, kMany, kShared).code, Code::kTorn);
  for (uint64_t id = 1; id < kMany; ++id) EXPECT_EQ(world.Acquire(other, id, kShared).code, Code::kOk) << id;
}

TEST_F(EndTurns, NobodyReadsWhatADeadSessionHasChangedBeforeItIsTorn) {
  ChangeParts();
  world.EndSession(session, "killed");
  EXPECT_LT(world.Job(job).torn_count, kMany) << "a turn has work for some of them";
  std::vector<uint64_t> asked;
  for (uint64_t id = kMany; id >= 1; --id) asked.push_back(world.Send(other, Op::kAcquire, {{id, 0, 0, 0}}, kShared));
  for (const uint64_t sequence : asked) EXPECT_EQ(world.Wait(other, sequence).code, Code::kTorn) << sequence;
  EXPECT_EQ(world.Job(job).torn_count, kMany);
}

TEST_F(EndTurns, AStatSaysThatItIsTornBeforeItsTurnHasCome) {
  ChangeParts();
  world.EndSession(session, "killed");
  EXPECT_LT(world.Job(job).torn_count, kMany) << "a turn has work for some of them";
  for (uint64_t id = 1; id <= kMany; ++id) {
    EXPECT_EQ(world.Ask(other, Op::kStat, {{id, 0, 0, 0}}, kShared).value & proto::kTensorTorn, proto::kTensorTorn)
        << id;
  }
}

TEST_F(EndTurns, WhoLeasesAPartOfItWaitsToo) {
  ChangeParts();
  const Answer held = world.Acquire(other, 1, kShared, kPiece, kPiece);
  ASSERT_EQ(held.code, Code::kOk);
  world.EndSession(session, "killed");
  const uint64_t asked = world.Send(other, Op::kAcquire, {{1, 0, kPiece, 0}}, kShared);
  EXPECT_EQ(world.Wait(other, asked).code, Code::kTorn) << "the dead wait for nothing";
}

TEST_F(EndTurns, RequestsOfADeadSessionAreNeverAnswered) {
  world.Put(other, 1, 2 * kPiece, 1, kShared);
  const Answer writing = world.Acquire(other, 1, kShared | proto::kFlagWrite);
  std::vector<uint64_t> asked;
  for (uint64_t i = 0; i < kMany; ++i) asked.push_back(world.Send(session, Op::kAcquire, {{1, 0, 0, 0}}, kShared));
  asked.push_back(world.Send(session, Op::kFree, {{1, 0, 0, 0}}, kShared));
  world.Turns(kMany);
  ASSERT_EQ(world.engine->Snapshot().waiting_count, kMany + 1);
  world.EndSession(session, "killed");
  EXPECT_GT(world.engine->Snapshot().waiting_count, 0u) << "a turn has work for some of them";
  EXPECT_EQ(world.Release(other, World::LeaseOf(writing)).code,
            Code::kOk);  // They could be granted now.
  Rest();
  EXPECT_EQ(world.engine->Snapshot().waiting_count, 0u);
  for (const uint64_t sequence : asked) EXPECT_FALSE(world.Answered(session, sequence).has_value());
  EXPECT_EQ(world.Check(other, 1, 1, kShared), Code::kOk);
}

TEST_F(EndTurns, AJobWhoseLastSessionDiesWithManyRequestsGoesToo) {
  world.Put(other, 1, 2 * kPiece, 1, kShared);
  const Answer writing = world.Acquire(other, 1, kShared | proto::kFlagWrite);
  for (uint64_t i = 0; i < kMany; ++i) world.Send(session, Op::kAcquire, {{1, 0, 0, 0}}, kShared);
  world.Send(session, Op::kCreate, {{2, 0, 0, 512 * kMiB}},
             kShared);  // Has to wait for room.
  world.Turns(kMany);
  world.EndSession(session, "killed");
  world.EndSession(other, "killed");
  EXPECT_GT(world.engine->Snapshot().waiting_count, 0u);
  Rest();
  EXPECT_EQ(world.engine->Snapshot().waiting_count, 0u);
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
  EXPECT_EQ(world.windows.window_count(), 0u);
}

TEST_F(EndTurns, CreationsOfADeadSessionGoTurnByTurn) {
  for (uint64_t id = 1; id <= kMany; ++id) {
    const Answer part = world.Wait(session, world.Send(session, Op::kCreate, {{id, 0, 4096, 2 * kPiece}}, kShared));
    ASSERT_EQ(world.Release(session, World::LeaseOf(part)).code, Code::kOk);
  }
  world.EndSession(session, "killed");
  EXPECT_GT(world.engine->Snapshot().tensor_count, kMany / 2) << "a turn has work for some of them";
  const uint64_t early = world.Send(other, Op::kCreate, {{1, 0, 0, 4096}}, kShared);
  world.Turn();
  EXPECT_EQ(world.Answered(other, early)->code, Code::kAlreadyExists) << "the turn of the oldest has not come";
  Rest();
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
  world.Put(other, kMany, 4096, 1, kShared);
  EXPECT_EQ(world.Check(other, kMany, 1, kShared), Code::kOk);
}

TEST_F(EndTurns, AnEphemeralJobEndsAlsoWhereTheEngineHasEndedItsLastSession) {
  world.engine->EndSession(other, Code::kRevoked, "revoked", std::nullopt);
  world.engine->EndSession(session, Code::kRevoked, "revoked", std::nullopt);
  Rest();
  EXPECT_EQ(world.engine->Snapshot().jobs.size(), 1u) << "the session layer has not been told yet";
  world.engine->EndSession(session, Code::kOk, "its process ended", job);
  Rest();
  EXPECT_EQ(world.engine->Snapshot().jobs.size(), 0u);
}

TEST(EndTurnsOfAResumedJob, ASharedTensorThatIsBeingCreatedIsFreedOnceWithItsClosedJob) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 256 * kMiB},
               .engine = {.work = {.submit = 12, .teardown = 12, .frees = 12}},
               .device_blocks = 256,
               .manifests = true});
  const JobOptions named{.key = "1000/training", .named = true};
  const JobId first = world.OpenJob(named);
  const SessionId writer = world.OpenSession(first);
  for (uint64_t id = 1; id <= 20 * kMany; ++id) world.Put(writer, id, kPageSize, id);
  ASSERT_EQ(world.Ask(writer, Op::kPersist, {}).code, Code::kOk);
  world.engine->CloseJob(first, "closed", false);
  while (world.Turn()) {
  }
  const JobId job = world.OpenJob({.key = named.key, .named = true, .resume = true});
  const SessionId session = world.OpenSession(job);
  for (uint64_t id = 1; id <= kMany; ++id) ASSERT_EQ(world.Acquire(session, id).code, Code::kOk) << id;
  const std::vector<proto::RequestItem> half{{500, 0, kPiece, 2 * kPiece}};
  ASSERT_EQ(world.Ask(session, Op::kCreate, half, kShared).code, Code::kOk);
  world.engine->CloseJob(job, "closed", false);  // It has more leases than the stage has work for.
  while (world.Turn()) {
  }
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
  EXPECT_EQ(world.engine->Snapshot().jobs.size(), 0u);
}

}  // namespace
}  // namespace tier::tiering::testing
