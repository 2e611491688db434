// Tensors that very many sessions change: what ends all of their updates removes the records turn by turn.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;

// Sessions that have all changed a part of each of the same tensors.
class ManySharers : public ::testing::Test {
 protected:
  static constexpr uint64_t kSessions = 256;
  static constexpr uint64_t kTensors = 32;
  static constexpr uint64_t kRecords = kSessions * kTensors;
  // A record costs eight units of the stages that remove some.
  static constexpr uint64_t kPerTurn = (WorkUnits{}.teardown + WorkUnits{}.frees) / 8;
  static_assert(kRecords > 2 * kPerTurn);

  ManySharers() : other(world.OpenSession(job)) {
    for (uint64_t id = 1; id <= kTensors; ++id) {
      world.Put(other, id, kPiece + 4096, id, proto::kFlagShared);
      all.push_back({id, 0, 0, 0});
    }
    std::vector<proto::RequestItem> parts = all;
    for (proto::RequestItem& part : parts) part = {part.tensor, kPiece, 4096, 0};
    for (uint64_t i = 0; i < kSessions; ++i) {
      sessions.push_back(world.OpenSession(job));
      Rewrite(sessions.back(), parts);
    }
    cost = Charged() / kRecords;
  }
  uint64_t Charged() const {
    return world.engine->Snapshot().metadata.of_kind[static_cast<size_t>(MetadataKind::kUpdates)];
  }
  void Submit(SessionId session, Op op, const std::vector<proto::RequestItem>& items, uint32_t flags = 0) {
    world.engine->Submit(
        session, {.sequence = ++sequence, .op = op, .flags = proto::kFlagShared | flags, .items = items, .text = {}});
  }
  // Notes how much of the charge goes in one turn.
  void Turn() {
    const uint64_t before = Charged();
    world.engine->Turn(world.now);
    most_gone = std::max(most_gone, before - std::min(before, Charged()));
  }
  void Rewrite(SessionId session, const std::vector<proto::RequestItem>& items) {
    Submit(session, Op::kAcquire, items, proto::kFlagWrite);
    for (int turns = 0; !world.Answered(session, sequence) && turns < 4; ++turns) Turn();
    const Answer granted = world.Answered(session, sequence).value_or(Answer{.code = Code::kTimeout});
    ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
    std::vector<proto::RequestItem> leases;
    for (uint32_t i = 0; i < items.size(); ++i) leases.push_back({0, 0, 0, World::LeaseOf(granted, i)});
    Submit(session, Op::kRelease, leases);
    for (int turns = 0; !world.Answered(session, sequence) && turns < 4; ++turns) Turn();
  }
  // With `begin` and the turns after it all records go, in no turn more than its work reaches.
  template <typename Begin>
  void ExpectRemovedTurnByTurn(Begin begin) {
    ASSERT_EQ(Charged(), kRecords * cost);
    most_gone = 0;
    begin();
    for (int turns = 0; Charged() != 0 && turns < 1000; ++turns) Turn();
    EXPECT_EQ(Charged(), 0u);
    EXPECT_LE(most_gone / cost, kPerTurn);
    EXPECT_LE(world.engine->Snapshot().turn_work_max, WorkUnits{}.all());
    world.engine->CheckInvariants();
  }

  World world{{.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 128 * kMiB}}};
  const JobId job = world.OpenJob();
  const SessionId other;
  std::vector<SessionId> sessions;
  std::vector<proto::RequestItem> all;
  uint64_t sequence = 1u << 24;
  uint64_t cost = 0;       // What a record charges its user.
  uint64_t most_gone = 0;  // Of all their charges, in one turn.
};

TEST_F(ManySharers, AreRemovedTurnByTurnFromAFreedTensor) {
  ExpectRemovedTurnByTurn([&] { Submit(other, Op::kFree, all); });
}

TEST_F(ManySharers, AreRemovedTurnByTurnFromAnAcceptedTensor) {
  ExpectRemovedTurnByTurn([&] { Submit(other, Op::kAccept, all); });
}

TEST_F(ManySharers, AreRemovedTurnByTurnFromATensorThatIsSealedWhole) {
  ExpectRemovedTurnByTurn([&] { Rewrite(other, all); });
  for (const SessionId session : sessions) world.EndSession(session, "killed");
  EXPECT_EQ(world.engine->Snapshot().torn_count, 0u);
}

TEST_F(ManySharers, CountNoMoreWhenTheTensorWasAcceptedAndTheyDie) {
  Submit(other, Op::kAccept, all);
  world.engine->Turn(world.now);
  ASSERT_NE(Charged(), 0u);
  for (const SessionId session : sessions) world.EndSession(session, "killed");
  for (int turns = 0; turns < 100; ++turns) world.engine->Turn(world.now);
  EXPECT_EQ(world.engine->Snapshot().torn_count, 0u);
  EXPECT_EQ(Charged(), 0u);
}

TEST_F(ManySharers, ThatDieAreRemovedTurnByTurn) {
  uint64_t before = Charged();
  for (const SessionId session : sessions) world.engine->EndSession(session, Code::kOk, "killed", std::nullopt);
  for (int turns = 0; turns < 100; ++turns) {
    world.engine->Turn(world.now);
    const uint64_t left = Charged();
    EXPECT_LE((before - std::min(before, left)) / cost, kPerTurn) << "in turn " << turns;
    before = left;
  }
  EXPECT_EQ(before, kTensors * cost) << "the broken ones";
  EXPECT_EQ(world.engine->Snapshot().torn_count, kTensors);
  EXPECT_LE(world.engine->Snapshot().turn_work_max, WorkUnits{}.all());
  world.engine->CheckInvariants();
}

}  // namespace
}  // namespace tier::tiering::testing
