// Sessions that die with more leases than a turn ends.
#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;

TEST(DeathOverTurns, ACreationWhoseLeaseEndsBeforeItIsFreedHoldsNoRoom) {
  World world{{.engine = {.write_behind_start = 0.0, .work = {.submit = 1, .teardown = 1, .frees = 1}}}};
  const JobId job = world.OpenJob();
  const SessionId dying = world.OpenSession(job);
  world.OpenSession(job);
  const Answer half = world.CreateRange(dying, 1, 2 * kPiece, 0, kPiece);
  ASSERT_EQ(world.Release(dying, World::LeaseOf(half)).code, Code::kOk);
  world.Turns(20);
  ASSERT_EQ(world.Ask(dying, Op::kStat, {{1, 0, 0, 0}}).tensor.ssd_bytes, kPiece) << "written ahead";
  ASSERT_EQ(world.Acquire(dying, 1, proto::kFlagWrite, 0, kPiece).code, Code::kOk);
  world.PutEach(dying, 2, 30, 100);
  world.EndSession(dying, "killed");
  while (world.engine->Snapshot().lease_count != 0) world.Turn();
  EXPECT_GT(world.engine->Snapshot().tensor_count, 10u) << "its turn has not come";
  EXPECT_LT(world.Job(job).ram_bytes, kPiece);
  while (world.Turn()) {
  }
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
}

class ManyLeases : public ::testing::Test {
 protected:
  static constexpr uint64_t kLeases = 200;
  static constexpr uint32_t kPerTurn = 16;

  // Acquires each of the tensors 1 ... kLeases, or the first of them as often.
  void AcquireAll(SessionId session, uint32_t flags, bool same) {
    std::vector<proto::RequestItem> items;
    for (uint64_t id = 1; id <= kLeases; ++id) items.push_back({same ? 1 : id, 0, 0, 0});
    ASSERT_EQ(world.Ask(session, Op::kAcquire, items, proto::kFlagShared | flags).code, Code::kOk);
  }
  void PutAll() {
    for (uint64_t id = 1; id <= kLeases; ++id) world.Put(other, id, 100, id, proto::kFlagShared);
  }
  // Read leases on another tensor: they end first.
  void AcquireAllBesides() {
    world.Put(other, 1000, 100, 1, proto::kFlagShared);
    const std::vector<proto::RequestItem> items(kLeases, {1000, 0, 0, 0});
    ASSERT_EQ(world.Ask(dying, Op::kAcquire, items, proto::kFlagShared).code, Code::kOk);
  }
  uint64_t Leases() { return world.engine->Snapshot().lease_count; }
  // Turns until that many leases are left; each ends at most so many.
  uint64_t TurnsUntil(uint64_t rest) {
    uint64_t turns = 0;
    for (uint64_t left = Leases(); left > rest && turns < 10 * kLeases; ++turns) {
      EXPECT_TRUE(world.Turn()) << "the next turn follows at once";
      EXPECT_LE(left - std::min(left, Leases()), kPerTurn);
      left = Leases();
    }
    return turns;
  }

  World world{{.engine = {.work = {.submit = kPerTurn, .teardown = kPerTurn, .frees = kPerTurn}}}};
  const JobId job = world.OpenJob();
  const SessionId dying = world.OpenSession(job);
  const SessionId other = world.OpenSession(job);
};

TEST_F(ManyLeases, OfAReaderEndTurnByTurn) {
  PutAll();
  AcquireAll(dying, 0, true);
  const uint64_t writing = world.Send(other, Op::kAcquire, {{1, 0, 0, 0}}, proto::kFlagShared | proto::kFlagWrite);
  world.Turn();
  world.EndSession(dying, "killed");
  EXPECT_GE(Leases(), kLeases - kPerTurn);
  EXPECT_EQ(world.engine->Snapshot().session_count, 1u);
  EXPECT_FALSE(world.engine->ReleasesCanWait());
  EXPECT_EQ(world.Check(other, 2, 2, proto::kFlagShared), Code::kOk) << "others are served meanwhile";
  EXPECT_GE(Leases(), kLeases / 2);
  EXPECT_EQ(world.Wait(other, writing).code, Code::kOk) << "when the last of them has ended";
}

TEST_F(ManyLeases, OfAWriterRevertOrTearTurnByTurnAndNothingIsReadBeforeItIsChecked) {
  PutAll();
  for (uint64_t id = 1; id <= kLeases; id += 2) {
    ASSERT_EQ(world.Flush(other, id, proto::kFlagShared).code, Code::kOk);
  }
  AcquireAll(dying, proto::kFlagWrite, false);
  world.EndSession(dying, "killed");
  const uint64_t reading = world.Send(other, Op::kAcquire, {{kLeases - 1, 0, 0, 0}}, proto::kFlagShared);
  world.Turn();
  EXPECT_FALSE(world.Answered(other, reading).has_value()) << "it is not judged yet";
  EXPECT_GE(TurnsUntil(1), kLeases / kPerTurn) << "the reader's own is left";
  EXPECT_TRUE(world.Matches(world.Wait(other, reading).spans, kLeases - 1, kLeases - 1));
  for (uint64_t id = 1; id <= kLeases; ++id) {
    EXPECT_EQ(world.Check(other, id, id, proto::kFlagShared), id % 2 == 1 ? Code::kOk : Code::kTorn) << id;
  }
}

TEST_F(ManyLeases, OfATensorWithAnUnfinishedUpdateAreTornBeforeOneOfThemEnds) {
  world.Put(other, 1, 3 * kBlockSize, 1, proto::kFlagShared);
  ASSERT_EQ(world.Flush(other, 1, proto::kFlagShared).code, Code::kOk);
  const uint32_t write = proto::kFlagShared | proto::kFlagWrite;
  world.Release(dying, World::LeaseOf(world.Acquire(dying, 1, write, 0, kBlockSize)));  // Sealed: this stays.
  ASSERT_EQ(world.Acquire(dying, 1, write, kBlockSize, kBlockSize).code, Code::kOk);
  ASSERT_EQ(world.Acquire(dying, 1, write, 2 * kBlockSize, kBlockSize).code, Code::kOk);
  AcquireAllBesides();
  world.EndSession(dying, "killed");
  while (Leases() > 0) {
    const uint64_t reading =
        world.Send(other, Op::kAcquire, {{1, kBlockSize, kBlockSize, 0}}, proto::kFlagShared | proto::kFlagNoWait);
    world.Turn();
    ASSERT_EQ(world.Answered(other, reading)->code, Code::kTorn) << "an older step beside a newer one";
  }
  EXPECT_EQ(world.Check(other, 1, 1, proto::kFlagShared), Code::kTorn);
}

TEST_F(ManyLeases, OfTheLastSessionOfAJobEndBeforeItsWindowsGo) {
  world.EndSession(other, "done");
  for (uint64_t id = 1; id <= kLeases; ++id) world.Put(dying, id, 100, id, proto::kFlagShared);
  AcquireAll(dying, 0, false);
  (void)world.Create(dying, 1000, 5000);
  (void)world.Create(dying, 1001, 5000, proto::kFlagShared);
  world.EndSession(dying, "killed");
  EXPECT_GT(Leases(), 0u);
  EXPECT_GT(world.windows.window_count(), 0u);
  while (world.Turn()) {
  }
  EXPECT_EQ(Leases(), 0u);
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
  EXPECT_EQ(world.windows.window_count(), 0u);
}

// Dead sessions with leases over more pieces than a turn has work for, beside dead sessions with many small leases: in
// whatever order they died, none waits for all the others.
class LargeAndSmallLeases : public ::testing::Test {
 protected:
  static constexpr uint64_t kLargePieces = 24;
  static constexpr uint32_t kPerTurn = 16;
  static constexpr uint64_t kSmall = 1;  // The tensors.
  static constexpr uint64_t kLarge = 2;

  LargeAndSmallLeases() {
    world.Put(other, kSmall, 100, 1, proto::kFlagShared);
    const Answer created = world.Create(other, kLarge, kLargePieces * kPiece, proto::kFlagShared);
    EXPECT_EQ(world.Release(other, World::LeaseOf(created)).code, Code::kOk) << created.detail;
  }
  SessionId OpenWithLeases(uint64_t tensor, uint64_t count) {
    const SessionId session = world.OpenSession(job);
    const std::vector<proto::RequestItem> items(count, {tensor, 0, 0, 0});
    const Answer answer = world.Ask(session, Op::kAcquire, items, proto::kFlagShared);
    EXPECT_EQ(answer.code, Code::kOk) << answer.detail;
    return session;
  }
  // Is answered when all leases on the tensor have ended.
  uint64_t SendWriter(uint64_t tensor) {
    return world.Send(other, Op::kAcquire, {{tensor, 0, 100, 0}}, proto::kFlagShared | proto::kFlagWrite);
  }
  uint64_t TurnsUntilAnswered(uint64_t asked, uint64_t most) {
    uint64_t turns = 0;
    for (; !world.Answered(other, asked).has_value() && turns < most; ++turns) world.Turn();
    return turns;
  }
  uint64_t Leases() { return world.engine->Snapshot().lease_count; }

  World world{{.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 256 * kMiB},
               .engine = {.work = {.submit = kPerTurn, .teardown = kPerTurn, .frees = kPerTurn}}}};
  const JobId job = world.OpenJob();
  const SessionId other = world.OpenSession(job);
};

TEST_F(LargeAndSmallLeases, ALargeOneWaitsForThoseThatDiedBeforeItAndForNoneThatDiedAfter) {
  constexpr uint64_t kBefore = 100;
  constexpr uint64_t kAfter = 1000;
  std::vector<SessionId> dying;
  for (const uint64_t leases : {kBefore, kBefore}) dying.push_back(OpenWithLeases(kSmall, leases));
  dying.push_back(OpenWithLeases(kLarge, 1));
  for (const uint64_t leases : {kAfter, kAfter, kAfter}) dying.push_back(OpenWithLeases(kSmall, leases));
  const uint64_t writing = SendWriter(kLarge);
  world.Turn();
  for (const SessionId session : dying) world.EndSession(session, "killed");
  ASSERT_GT(Leases(), 2 * kBefore + 3 * kAfter - kPerTurn) << "a turn has work for some of them";
  TurnsUntilAnswered(writing, 2000);
  ASSERT_TRUE(world.Answered(other, writing).has_value());
  EXPECT_GT(Leases(), 2 * kAfter) << "it has not waited for those that died after it";
  for (uint32_t turns = 0; world.Turn(); ++turns) ASSERT_LT(turns, 10000u);
  EXPECT_EQ(Leases(), 1u) << "the writer's";
}

TEST_F(LargeAndSmallLeases, SmallOnesEndBesideManyLargeOnesThatDiedBefore) {
  constexpr uint64_t kLargeLeases = 60;
  const SessionId large = OpenWithLeases(kLarge, kLargeLeases);
  const SessionId small = OpenWithLeases(kSmall, 30);
  const uint64_t writing = SendWriter(kSmall);
  world.Turn();
  world.EndSession(large, "killed");
  world.EndSession(small, "killed");
  const uint64_t large_writing = SendWriter(kLarge);
  EXPECT_LT(TurnsUntilAnswered(writing, 20), 20u) << "they have a part of each turn";
  EXPECT_GT(Leases(), kLargeLeases * 3 / 4);
  EXPECT_LE(TurnsUntilAnswered(large_writing, 1000), 5 * kLargeLeases) << "they do not stand still meanwhile";
}

// Releases that were submitted before the death count, and may free tensors of namespaces that are being freed.
class ReleasesLeftAtDeath : public ::testing::TestWithParam<uint32_t> {
 protected:
  static constexpr uint64_t kLeases = 64;

  // Of the session's newest own tensor; the releases before it take all of the turn.
  void SendReleases(SessionId session) {
    const bool creation = GetParam() != proto::kFlagFreeAfter;
    if (!creation) world.Put(session, kNewest, 100);
    const Answer many = world.Ask(session, Op::kAcquire, std::vector<proto::RequestItem>(kLeases, {kFirst, 0, 0, 0}));
    ASSERT_EQ(many.code, Code::kOk);
    const Answer newest =
        creation ? world.CreateRange(session, kNewest, 100, 0, 100) : world.Acquire(session, kNewest, 0);
    ASSERT_EQ(newest.code, Code::kOk);
    std::vector<proto::RequestItem> items;
    for (const auto& span : many.spans) {
      if (items.empty() || items.back().value != span.lease) items.push_back({0, 0, 0, span.lease});
    }
    ASSERT_EQ(items.size(), kLeases);
    world.Send(session, Op::kRelease, items);
    world.Send(session, Op::kRelease, {{0, 0, 0, World::LeaseOf(newest)}}, GetParam());
  }
  void ExpectAllGoes() {
    while (world.Turn()) {
    }
    EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
    EXPECT_EQ(world.engine->Snapshot().lease_count, 0u);
  }

  static constexpr uint64_t kFirst = 1;
  static constexpr uint64_t kShared = 2;
  static constexpr uint64_t kNewest = 3;
  World world{{.engine = {.work = {.submit = 8, .teardown = 4, .frees = 4}}}};
  const JobId job = world.OpenJob();
};

TEST_P(ReleasesLeftAtDeath, FreeATensorOfANamespaceThatIsNotTheLastToGo) {
  const SessionId dying = world.OpenSession(job);
  world.Put(dying, kFirst, 100);
  world.Put(dying, kShared, 100, 1, proto::kFlagShared);
  SendReleases(dying);
  world.EndSession(dying, "killed");
  ExpectAllGoes();
}

TEST_P(ReleasesLeftAtDeath, OfTwoSessionsFreeTheirTensors) {
  const SessionId first = world.OpenSession(job);
  const SessionId second = world.OpenSession(job);
  world.OpenSession(job);
  for (const SessionId session : {first, second}) world.Put(session, kFirst, 100);
  for (const SessionId session : {first, second}) SendReleases(session);
  for (const SessionId session : {first, second}) world.EndSession(session, "killed");
  ExpectAllGoes();
}

INSTANTIATE_TEST_SUITE_P(Ways, ReleasesLeftAtDeath,
                         ::testing::Values(proto::kFlagFreeAfter, proto::kFlagAbandon, proto::kFlagUntouched));

// Of a job with many more windows than a turn closes, which the devices then give up all at once.
TEST(WindowsOfAClosedJob, GoTurnByTurn) {
  constexpr uint64_t kWindows = 4096;
  constexpr uint64_t kTensors = 16;
  constexpr uint64_t kPerTurn = WorkUnits{}.windows;
  World world({.windows = {.window_size = kPiece,
                           .arena_max_bytes = 2 * kWindows * kPiece,
                           .windows_max = 2 * kWindows,
                           .without_memory = true},
               .transfers = {.device_count = 0}});
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  for (uint64_t id = 1; id <= kTensors; ++id) {
    const Answer created = world.Create(session, id, kWindows / kTensors * kPiece);
    ASSERT_EQ(world.Release(session, World::LeaseOf(created)).code, Code::kOk) << created.detail;
  }
  const uint64_t all = world.windows.window_count();
  ASSERT_GE(all, kWindows);
  const auto closing = [&] {
    return world.engine->Snapshot().windows_by_condition[static_cast<size_t>(PoolCondition::kClosing)];
  };
  world.engine->CloseJob(job, "closed", false);
  for (uint32_t turn = 0; closing() < all; ++turn) {
    ASSERT_LT(turn, 100u);
    world.transfers.SetRemoveDelay(100 - turn);
    const uint64_t before = closing();
    ASSERT_TRUE(world.Turn()) << "the next turn follows at once";
    ASSERT_LE(closing() - before, kPerTurn);
  }
  for (uint32_t turn = 0; world.windows.window_count() != 0; ++turn) {
    ASSERT_LT(turn, 200u);
    const uint64_t before = world.windows.window_count();
    world.Turn();
    ASSERT_LE(before - world.windows.window_count(), kPerTurn);
  }
  EXPECT_EQ(world.engine->Snapshot().jobs.size(), 0u);
}

// The device may never answer.
TEST(DeathOverTurns, AWriteThatHangsKeepsItsWindowAlone) {
  constexpr uint64_t kWindow = 8 * kMiB;
  World world({.windows = {.window_size = kWindow, .arena_max_bytes = 8 * kWindow}});
  const SessionId dying = world.Open();
  for (uint64_t tensor = 1; tensor <= 3; ++tensor) world.Put(dying, tensor, kWindow);
  ASSERT_GE(world.windows.arena_bytes(), 3 * kWindow);
  world.transfers.HangDevice(0);
  world.Send(dying, proto::Op::kFlush, {{1, 0, 0, 0}});
  world.Turns(3);
  world.EndSession(dying, "killed");
  world.Turns(5);
  EXPECT_EQ(world.windows.arena_bytes(), kWindow);
  const SessionId other = world.Open();
  EXPECT_EQ(world.Create(other, 1, 7 * kWindow).code, Code::kOk) << "the rest is there for others";
}

}  // namespace
}  // namespace tier::tiering::testing
