// Sharded tensors: ranks that write parts of one tensor step by step, and what remains when one of them ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using ::testing::HasSubstr;

constexpr uint32_t kShared = proto::kFlagShared;
constexpr uint32_t kSharded = kShared | proto::kFlagSharded;
constexpr uint64_t kPiece = kBlockSize;
constexpr uint64_t kRanks = 3;
constexpr uint64_t kPart = kPiece + kPiece / 2;  // Two ranks write the piece where their parts meet.
constexpr uint64_t kSize = kRanks * kPart;
const JobOptions kResume{.key = "1000/training", .named = true, .resume = true};

class Sharded : public ::testing::Test {
 protected:
  Sharded() : world({.manifests = true}), job(world.OpenJob({.key = "1000/training", .named = true})) { Attach(); }
  void Attach() {
    for (SessionId& rank : ranks) rank = world.OpenSession(job);
    reader = world.OpenSession(job);
  }
  void Put(uint32_t flags = kSharded) { world.Put(reader, 1, kSize, 1, flags); }
  Answer Lease(SessionId session, uint64_t part, uint64_t seed) {
    Answer granted = world.Acquire(session, 1, kShared | proto::kFlagWrite, part * kPart, kPart);
    EXPECT_EQ(granted.code, Code::kOk) << granted.detail;
    world.Fill(granted.spans, 1, seed, part * kPart);
    return granted;
  }
  void Write(SessionId session, uint64_t part, uint64_t seed = 2) {
    EXPECT_EQ(world.Release(session, World::LeaseOf(Lease(session, part, seed))).code, Code::kOk);
  }
  void Step(SessionId session, uint64_t number = UINT64_MAX) {
    EXPECT_EQ(world.Wait(session, world.SendArgument(session, Op::kStep, number)).code, Code::kOk);
  }
  // All of these ranks write their part and end the step.
  void StepOf(const std::vector<uint64_t>& numbers, uint64_t seed = 2) {
    for (const uint64_t rank : numbers) Write(ranks[rank], rank, seed);
    for (const uint64_t rank : numbers) Step(ranks[rank]);
  }
  void End(SessionId session) {
    world.EndSession(session, "killed");
    world.engine->CheckInvariants();
  }
  bool Torn() { return (world.Ask(reader, Op::kStat, {{1, 0, 0, 0}}, kShared).value & proto::kTensorTorn) != 0; }
  Code Check(uint64_t seed) { return world.Check(reader, 1, seed, kShared); }
  Code Accept() { return world.Ask(reader, Op::kAccept, {{1, 0, 0, 0}}, kShared).code; }
  uint64_t Charged() const {
    return world.engine->Snapshot().metadata.of_kind[static_cast<size_t>(MetadataKind::kUpdates)];
  }
  void Resume() {
    world.engine->CloseJob(job, "closed", false);
    world.Turns(5);
    job = world.OpenJob(kResume);
    Attach();
  }

  World world;
  JobId job;
  std::array<SessionId, kRanks> ranks{};
  SessionId reader{};
};

TEST_F(Sharded, IsTornWhenARankDiesInAnotherStepThanTheOthers) {
  Put();
  StepOf({0, 1, 2});
  StepOf({0, 2}, 3);
  EXPECT_FALSE(Torn()) << "rank 1 may still write its part";
  End(ranks[1]);
  EXPECT_TRUE(Torn());
  const Answer refused = world.Acquire(reader, 1, kShared, 0, 1);
  EXPECT_EQ(refused.code, Code::kTorn) << refused.detail;
  EXPECT_EQ(world.engine->Snapshot().torn_count, 1u);
}

TEST_F(Sharded, IsWholeWhenARankDiesInStepWithTheOthers) {
  Put();
  StepOf({0, 1, 2});
  StepOf({0, 1, 2}, 3);
  End(ranks[1]);
  EXPECT_FALSE(Torn());
  EXPECT_EQ(Check(3), Code::kOk);
}

TEST_F(Sharded, IsComparedByTheStepsOfTheWritesAndNotByTheMarkersSince) {
  Put();
  StepOf({0, 1, 2});
  Step(ranks[0]);
  Step(ranks[0]);
  End(ranks[1]);
  EXPECT_FALSE(Torn()) << "all wrote last in the same step, and rank 0 has not written since";
}

TEST_F(Sharded, IsTornAlsoWhenARankLeavesInGoodOrder) {
  Put();
  StepOf({0, 1, 2});
  StepOf({0, 2}, 3);
  world.EndSession(ranks[1], "goodbye");
  EXPECT_TRUE(Torn());
}

TEST_F(Sharded, OnlyWhereItsCreateSaysSo) {
  Put(kShared);
  StepOf({0, 1, 2});
  StepOf({0, 2}, 3);
  End(ranks[1]);
  EXPECT_FALSE(Torn());
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(Sharded, IsTornWhenTheSecondOfTwoDiesInALaterStepThanTheFirst) {
  Put();
  StepOf({0, 1, 2});
  End(ranks[1]);
  EXPECT_FALSE(Torn());
  StepOf({0, 2}, 3);
  EXPECT_FALSE(Torn()) << "another rank may still take over the part";
  End(ranks[0]);
  EXPECT_TRUE(Torn()) << "what rank 1 left is of the step before";
}

TEST_F(Sharded, IsWholeWhenAllDieInOneStep) {
  Put();
  StepOf({0, 1, 2});
  for (const SessionId rank : ranks) End(rank);
  EXPECT_EQ(Check(2), Code::kOk);
}

TEST_F(Sharded, IsWholeWhenAnotherRankHasTakenOverThePartOfADeadOne) {
  Put();
  StepOf({0, 1, 2});
  End(ranks[1]);
  ranks[1] = world.OpenSession(job);
  StepOf({0, 1, 2}, 3);
  End(ranks[0]);
  EXPECT_EQ(Check(3), Code::kOk) << "nothing is left of the step of the dead rank";
}

TEST_F(Sharded, IsWholeAgainInAStepAfterWhichAllRanksWereReplaced) {
  Put();
  StepOf({0, 1, 2});
  for (SessionId& rank : ranks) {
    End(rank);
    rank = world.OpenSession(job);
  }
  // The part in the middle is between others that are of the step of the dead, until the next step.
  for (const uint64_t rank : {1, 0, 2}) Write(ranks[rank], rank, 3);
  for (const SessionId rank : ranks) Step(rank);
  StepOf({0, 1, 2}, 4);
  End(ranks[1]);
  EXPECT_EQ(Check(4), Code::kOk);
}

TEST_F(Sharded, CountsARankThatNeverWroteForNothing) {
  Put();
  StepOf({0});
  StepOf({0}, 3);
  End(ranks[1]);
  EXPECT_FALSE(Torn());
}

TEST_F(Sharded, CountsARankNoMoreWhosePartOthersHaveWritten) {
  Put();
  StepOf({0, 1, 2});
  Write(ranks[0], 0, 3);
  Write(ranks[2], 1, 3);
  Write(ranks[2], 2, 3);
  Step(ranks[0]);
  Step(ranks[2]);
  End(ranks[1]);
  EXPECT_EQ(Check(3), Code::kOk);
}

TEST_F(Sharded, ComparesTheNumbersThatTheRanksGiveTheirSteps) {
  Put();
  Step(ranks[0]);
  Step(ranks[0], 7);
  Step(ranks[1], 7);
  Step(ranks[2], 8);
  for (const uint64_t rank : {0, 1}) Write(ranks[rank], rank, 2);
  for (const uint64_t rank : {0, 1}) Step(ranks[rank]);
  End(ranks[0]);
  EXPECT_FALSE(Torn());
  Write(ranks[2], 2);
  Step(ranks[2]);
  End(ranks[1]);
  EXPECT_TRUE(Torn());
}

TEST_F(Sharded, OfOnePieceIsTornToo) {
  world.Put(reader, 2, 4096, 1, kSharded);
  const auto write = [&](SessionId session, uint64_t offset) {
    const Answer lease = world.Acquire(session, 2, kShared | proto::kFlagWrite, offset, 2048);
    EXPECT_EQ(world.Release(session, World::LeaseOf(lease)).code, Code::kOk);
    Step(session);
  };
  write(ranks[0], 0);
  write(ranks[1], 2048);
  write(ranks[0], 0);
  End(ranks[1]);
  EXPECT_EQ(world.Acquire(reader, 2, kShared).code, Code::kTorn);
}

TEST_F(Sharded, CountsPartsThatASwapOutWrites) {
  Put();
  const auto swap = [&](uint64_t rank) {
    const uint64_t lease = World::LeaseOf(Lease(ranks[rank], rank, 2));
    EXPECT_EQ(world.Ask(ranks[rank], Op::kRelease, {{0, rank * kPart, kPart, lease}}).code, Code::kOk);
    Step(ranks[rank]);
  };
  swap(0);
  swap(1);
  EXPECT_FALSE(Torn());
  swap(0);
  End(ranks[1]);
  EXPECT_TRUE(Torn());
}

TEST_F(Sharded, HasNoStepsAfterAnAccept) {
  Put();
  StepOf({0, 1, 2});
  StepOf({0}, 3);
  EXPECT_EQ(Accept(), Code::kOk);
  EXPECT_EQ(Charged(), 0u);
  for (const SessionId rank : ranks) End(rank);
  EXPECT_FALSE(Torn());
}

TEST_F(Sharded, HasNoStepsAfterAWholeWrite) {
  Put();
  StepOf({0, 1, 2});
  StepOf({0}, 3);
  EXPECT_EQ(world.Rewrite(ranks[2], 1, 5, kShared).code, Code::kOk);
  EXPECT_EQ(Charged(), 0u);
  for (const SessionId rank : ranks) End(rank);
  EXPECT_EQ(Check(5), Code::kOk);
}

TEST_F(Sharded, IsWhatTheCreateSaysThatReplacesIt) {
  Put();
  StepOf({0, 1, 2});
  StepOf({0}, 3);
  const Answer created = world.Ask(reader, Op::kCreate, {{1, 0, 0, kSize}}, kShared | proto::kFlagReplace);
  ASSERT_EQ(created.code, Code::kOk) << created.detail;
  EXPECT_EQ(world.Release(reader, World::LeaseOf(created)).code, Code::kOk);
  EXPECT_EQ(Charged(), 0u);
  StepOf({0, 1});
  StepOf({0});
  End(ranks[1]);
  EXPECT_FALSE(Torn());
}

TEST_F(Sharded, HasNoStepsFromBeforeATearOfAllOfIt) {
  Put();
  StepOf({0, 1, 2});
  StepOf({0}, 3);
  End(ranks[1]);
  ASSERT_TRUE(Torn());
  const auto rewrite = [&](SessionId session, uint64_t first, uint64_t count) {
    const uint32_t flags = kShared | proto::kFlagWrite | proto::kFlagDiscard;
    const uint64_t length = std::min(count * kPiece, kSize - first * kPiece);
    const Answer granted = world.Acquire(session, 1, flags, first * kPiece, length);
    ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
    world.Fill(granted.spans, 1, 6, first * kPiece);
    EXPECT_EQ(world.Release(session, World::LeaseOf(granted)).code, Code::kOk);
    Step(session);
  };
  const SessionId fourth = world.OpenSession(job);
  rewrite(ranks[0], 0, 3);
  Step(fourth, 2);
  rewrite(fourth, 3, 2);
  EXPECT_EQ(Check(6), Code::kOk);
  End(ranks[2]);
  EXPECT_FALSE(Torn()) << "what rank 2 wrote before the tear was written over";
  End(ranks[0]);
  EXPECT_FALSE(Torn());
}

TEST_F(Sharded, IsNotComparedWhenALivingRankGivesUpALease) {
  Put();
  StepOf({0, 1, 2});
  StepOf({0, 2}, 3);
  ASSERT_EQ(world.Flush(reader, 1, kShared).code, Code::kOk);
  const uint64_t lease = World::LeaseOf(Lease(ranks[1], 1, 9));
  EXPECT_EQ(world.Release(ranks[1], lease, proto::kFlagAbandon).code, Code::kOk);
  EXPECT_FALSE(Torn());
  End(ranks[1]);
  EXPECT_TRUE(Torn());
}

TEST_F(Sharded, AloneIsRefused) {
  const Answer refused = world.Ask(reader, Op::kCreate, {{7, 0, 0, kSize}}, proto::kFlagSharded);
  EXPECT_EQ(refused.code, Code::kInvalid);
  EXPECT_THAT(refused.detail, HasSubstr("create it as shared too"));
  EXPECT_EQ(refused.error.tensor, 7u);
  EXPECT_EQ(world.Acquire(reader, 7).code, Code::kNotFound);
}

TEST_F(Sharded, ChargesARecordForEachRankUntilItIsFreed) {
  Put();
  EXPECT_EQ(Charged(), 0u);
  StepOf({0});
  const uint64_t one = Charged();
  EXPECT_GT(one, 0u);
  Step(ranks[1]);
  Step(ranks[2]);
  StepOf({0, 1, 2}, 3);
  StepOf({0, 1, 2}, 4);
  EXPECT_EQ(Charged(), 3 * one);
  End(ranks[0]);
  End(ranks[1]);
  EXPECT_EQ(Charged(), 2 * one) << "what the dead have left is one record";
  EXPECT_EQ(world.Free(reader, 1, kShared).code, Code::kOk);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(Sharded, RanksInDifferentStepsAreTornInTheManifest) {
  Put();
  StepOf({0, 1, 2});
  StepOf({0}, 3);
  EXPECT_EQ(world.Ask(ranks[0], Op::kPersist, {}).code, Code::kOk);
  Resume();
  EXPECT_TRUE(Torn());
}

TEST_F(Sharded, IsResumedAsShardedAndWithoutSteps) {
  Put();
  StepOf({0, 1, 2}, 1);
  EXPECT_EQ(world.Ask(ranks[0], Op::kPersist, {}).code, Code::kOk);
  StepOf({0}, 3);
  Resume();
  EXPECT_EQ(Check(1), Code::kOk);
  StepOf({0, 1});
  End(ranks[2]);
  EXPECT_FALSE(Torn()) << "it has not written since";
  StepOf({0});
  End(ranks[1]);
  EXPECT_TRUE(Torn());
}

constexpr uint64_t kMany = 40;

class ManySharded : public ::testing::Test {
 protected:
  ManySharded()
      : world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 256 * kMiB},
               .engine = {.work = {.submit = 12, .teardown = 12, .frees = 12}},
               .device_blocks = 256}),
        job(world.OpenJob()),
        first(world.OpenSession(job)),
        second(world.OpenSession(job)) {
    for (uint64_t id = 1; id <= kMany; ++id) world.Put(second, id, 5000, id, kSharded);
    Write(first, 0);
    Write(second, 2500);
  }
  void Write(SessionId session, uint64_t offset) {
    for (uint64_t id = 1; id <= kMany; ++id) {
      const Answer lease = world.Acquire(session, id, kShared | proto::kFlagWrite, offset, 2500);
      EXPECT_EQ(world.Release(session, World::LeaseOf(lease)).code, Code::kOk);
    }
    world.SendArgument(session, Op::kStep, UINT64_MAX);
    for (uint32_t turns = 0; world.Turn(); ++turns) ASSERT_LT(turns, 10000u) << "something is never done";
  }

  World world;
  JobId job;
  SessionId first;
  SessionId second;
};

TEST_F(ManySharded, AreComparedTurnByTurnAndNobodyReadsThemBefore) {
  Write(second, 2500);
  world.EndSession(first, "killed");
  EXPECT_LT(world.Job(job).torn_count, kMany) << "a turn has work for some of them";
  std::vector<uint64_t> asked;
  for (uint64_t id = kMany; id >= 1; --id) asked.push_back(world.Send(second, Op::kAcquire, {{id, 0, 0, 0}}, kShared));
  for (const uint64_t sequence : asked) EXPECT_EQ(world.Wait(second, sequence).code, Code::kTorn) << sequence;
  EXPECT_EQ(world.Job(job).torn_count, kMany);
}

TEST_F(ManySharded, SayInAStatThatTheyAreTornBeforeTheirTurnHasCome) {
  Write(second, 2500);
  world.EndSession(first, "killed");
  EXPECT_LT(world.Job(job).torn_count, kMany) << "a turn has work for some of them";
  for (uint64_t id = kMany; id >= 1; --id) {
    EXPECT_EQ(world.Ask(second, Op::kStat, {{id, 0, 0, 0}}, kShared).value & proto::kTensorTorn, proto::kTensorTorn)
        << id;
  }
}

TEST_F(ManySharded, InStepAreReadAtOnce) {
  world.EndSession(first, "killed");
  const Answer read = world.Acquire(second, 1, kShared | proto::kFlagNoWait);
  EXPECT_EQ(read.code, Code::kOk) << read.detail;
  for (uint64_t id = 1; id <= kMany; ++id) EXPECT_EQ(world.Acquire(second, id, kShared).code, Code::kOk) << id;
}

TEST_F(ManySharded, WhichSurvivorsWriteBeforeTheirTurnAreComparedFirst) {
  Write(second, 2500);
  const Answer lease = world.Acquire(second, kMany / 2, kShared | proto::kFlagWrite, 2500, 2500);
  world.EndSession(first, "killed");
  EXPECT_EQ(world.Release(second, World::LeaseOf(lease)).code, Code::kOk);
  EXPECT_EQ(world.Acquire(second, kMany / 2, kShared).code, Code::kTorn);
}

}  // namespace
}  // namespace tier::tiering::testing
