// Creates, releases and frees of more tensors than one turn works on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/tables/waiter.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using proto::RequestItem;

class LongRequest : public ::testing::Test {
 protected:
  static constexpr uint64_t kCount = 5 * kItemsPerTurnMax + 3;
  static constexpr uint64_t kTurns = 6;  // So many it takes.
  static constexpr uint64_t kFirst = 1'000'000;

  static std::vector<RequestItem> Items(uint64_t first, uint64_t count, uint64_t size) {
    std::vector<RequestItem> items;
    for (uint64_t id = first; id < first + count; ++id) items.push_back({id, 0, 0, size});
    return items;
  }
  static std::vector<RequestItem> LeasesOf(const Answer& answer, uint64_t count) {
    std::vector<RequestItem> items;
    for (uint32_t i = 0; i < count; ++i) items.push_back({0, 0, 0, World::LeaseOf(answer, i)});
    return items;
  }
  uint64_t SendWithin(SessionId asking, const std::vector<RequestItem>& items, uint32_t timeout_ms) {
    constexpr uint64_t kSequence = 1u << 20;
    world.engine->Submit(
        asking, {.sequence = kSequence, .op = Op::kCreate, .timeout_ms = timeout_ms, .items = items, .text = {}});
    return kSequence;
  }
  uint64_t Tensors() { return world.engine->Snapshot().tensor_count; }
  uint64_t Leases() { return world.engine->Snapshot().lease_count; }
  Code Stat(SessionId asking, uint64_t tensor) { return world.Ask(asking, Op::kStat, {{tensor, 0, 0, 0}}).code; }

  LongRequest() {
    world.Put(other, kFirst, 5000);  // The window is there.
    EXPECT_EQ(world.Free(other, kFirst).code, Code::kOk);
  }

  World world{{.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 8 * kMiB}, .device_blocks = 16}};
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  const SessionId other = world.OpenSession(job);
};

TEST_F(LongRequest, ACreateMakesAPartInEachTurnAndAnswersOnce) {
  const uint64_t creating = world.Send(session, Op::kCreate, Items(1, kCount, 5000));
  uint64_t made = 0;
  for (uint64_t turn = 0; turn < kTurns; ++turn) {
    EXPECT_FALSE(world.Answered(session, creating).has_value());
    EXPECT_TRUE(world.engine->HoldsBackNext(session));
    world.Turn();
    EXPECT_LE(Tensors() - made, kItemsPerTurnMax) << "in turn " << turn;
    made = Tensors();
  }
  const Answer created = world.Answered(session, creating).value_or(Answer{.code = Code::kTimeout});
  ASSERT_EQ(created.code, Code::kOk) << created.detail;
  EXPECT_FALSE(world.engine->HoldsBackNext(session));
  ASSERT_EQ(created.spans.size(), kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    EXPECT_EQ(created.spans[i].item, i);
    world.Fill({created.spans[i]}, i + 1, 7);
  }
  ASSERT_EQ(world.Ask(session, Op::kRelease, LeasesOf(created, kCount)).code, Code::kOk);
  for (uint64_t id = 1; id <= kCount; ++id) EXPECT_EQ(world.Check(session, id, 7), Code::kOk) << id;
}

TEST_F(LongRequest, WhatAnotherAsksMeanwhileIsAnsweredBefore) {
  const uint64_t creating = world.Send(session, Op::kCreate, Items(1, kCount, 5000));
  world.Turn();
  world.Put(other, 1, 5000);
  EXPECT_FALSE(world.Answered(session, creating).has_value());
  EXPECT_EQ(world.Wait(session, creating).code, Code::kOk);
  EXPECT_EQ(world.Check(other, 1), Code::kOk);
}

// Two that held a part each would wait for each other.
TEST_F(LongRequest, ACreateThatLacksRoomHoldsNothingWhileItWaits) {
  const Answer kept = world.Create(other, 1, 6 * kMiB);
  ASSERT_EQ(kept.code, Code::kOk) << kept.detail;
  const uint64_t creating = world.Send(session, Op::kCreate, Items(1, 40, 100 * kKiB));
  world.Turns(10);
  EXPECT_FALSE(world.Answered(session, creating).has_value());
  EXPECT_FALSE(world.engine->HoldsBackNext(session)) << "its session can give room back";
  EXPECT_EQ(Leases(), 1u) << "of the other";
  ASSERT_EQ(world.Release(other, World::LeaseOf(kept)).code, Code::kOk);
  ASSERT_EQ(world.Free(other, 1).code, Code::kOk);
  const Answer created = world.Wait(session, creating);
  ASSERT_EQ(created.code, Code::kOk) << created.detail;
  EXPECT_EQ(world.Ask(session, Op::kRelease, LeasesOf(created, 40)).code, Code::kOk);
}

TEST_F(LongRequest, ACreateThatLacksRoomIsRefusedAtItsDeadline) {
  ASSERT_EQ(world.Create(other, 1, 6 * kMiB).code, Code::kOk);
  const uint64_t sequence = SendWithin(session, Items(1, 40, 100 * kKiB), 5);
  world.Turn();
  world.Advance(std::chrono::milliseconds(10));  // Before it has come to what there is no room for.
  world.Turns(10);
  const Answer refused = world.Answered(session, sequence).value_or(Answer{});
  EXPECT_EQ(refused.code, Code::kTimeout) << refused.detail;
  EXPECT_EQ(Tensors(), 1u);
}

TEST_F(LongRequest, ACreateThatIsLongUnderWayHasNoDeadline) {
  const uint64_t sequence = SendWithin(session, Items(1, kCount, 5000), 5);
  for (uint64_t turn = 0; turn < kTurns; ++turn) {
    world.Turn();
    world.Advance(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(world.Answered(session, sequence).value_or(Answer{.code = Code::kTimeout}).code, Code::kOk);
}

TEST_F(LongRequest, ACreateThatMustNotWaitIsRefusedAndLeavesNothing) {
  ASSERT_EQ(world.Create(other, 1, 6 * kMiB).code, Code::kOk);
  const Answer refused = world.Ask(session, Op::kCreate, Items(1, 40, 100 * kKiB), proto::kFlagNoWait);
  EXPECT_EQ(refused.code, Code::kTimeout) << refused.detail;
  world.Turns(5);
  EXPECT_EQ(Tensors(), 1u);
  EXPECT_EQ(Leases(), 1u);
}

TEST_F(LongRequest, ANameThatIsTakenRefusesTheWholeOfACreate) {
  world.Put(session, 40, 5000, 3);
  const Answer refused = world.Ask(session, Op::kCreate, Items(1, 60, 5000));
  EXPECT_EQ(refused.code, Code::kAlreadyExists);
  EXPECT_EQ(refused.error.tensor, 40u);
  EXPECT_EQ(refused.value, 39u) << "the item";
  world.Turns(5);
  EXPECT_EQ(Tensors(), 1u);
  EXPECT_EQ(Leases(), 0u);
  EXPECT_EQ(world.Check(session, 40, 3), Code::kOk);
  EXPECT_EQ(Stat(session, 1), Code::kNotFound);
}

TEST_F(LongRequest, WhatCannotBeInOneOfItsItemsIsRefusedBeforeAnyIsMade) {
  std::vector<RequestItem> items = Items(1, 60, 5000);
  items.back().value = 0;
  const uint64_t creating = world.Send(session, Op::kCreate, items);
  world.Turn();
  EXPECT_EQ(world.Answered(session, creating).value_or(Answer{}).code, Code::kInvalid);
  EXPECT_EQ(Tensors(), 0u);
}

TEST_F(LongRequest, ACreateWhoseSessionDiesLeavesNothing) {
  for (const uint32_t flags : {0u, static_cast<uint32_t>(proto::kFlagShared)}) {
    const SessionId dying = world.OpenSession(job);
    world.Send(dying, Op::kCreate, Items(1, kCount, 5000), flags);
    world.Turns(2);
    EXPECT_NE(Tensors(), 0u);
    world.EndSession(dying, "killed");
    world.Turns(5);
    EXPECT_EQ(Tensors(), 0u);
    EXPECT_EQ(Leases(), 0u);
  }
}

TEST_F(LongRequest, ACreateIsRefusedWhenTheDaemonBeginsToStop) {
  const uint64_t creating = world.Send(session, Op::kCreate, Items(1, kCount, 5000));
  world.Turns(2);
  world.engine->StartDrain("the daemon stops");
  EXPECT_EQ(world.Wait(session, creating).code, Code::kDisconnected);
  world.Turns(5);
  EXPECT_EQ(Tensors(), 0u);
}

TEST_F(LongRequest, AReleaseEndsAPartInEachTurn) {
  const Answer created = world.Ask(session, Op::kCreate, Items(1, kCount, 5000));
  ASSERT_EQ(created.code, Code::kOk) << created.detail;
  const uint64_t releasing = world.Send(session, Op::kRelease, LeasesOf(created, kCount));
  uint64_t held = kCount;
  uint64_t turns = 0;
  for (; !world.Answered(session, releasing) && turns < 100; ++turns) {
    world.Turn();
    EXPECT_LE(held - Leases(), 2 * kItemsPerTurnMax) << "with those of its submission, in turn " << turns;
    held = Leases();
  }
  EXPECT_GE(turns, kTurns - 1);
  EXPECT_EQ(Leases(), 0u);
  EXPECT_EQ(world.Answered(session, releasing).value_or(Answer{.code = Code::kTimeout}).code, Code::kOk);
}

TEST_F(LongRequest, AFreeTakesAllNamesAtOnceAndTheBytesTurnByTurn) {
  const Answer created = world.Ask(session, Op::kCreate, Items(1, kCount, 5000));
  ASSERT_EQ(world.Ask(session, Op::kRelease, LeasesOf(created, kCount)).code, Code::kOk);
  const uint64_t freeing = world.Send(session, Op::kFree, Items(1, kCount, 0));
  EXPECT_EQ(Stat(session, kCount), Code::kNotFound);
  EXPECT_EQ(world.Wait(session, freeing).value, kCount);
  for (int turn = 0; turn < 10; ++turn) world.Turn();
  EXPECT_EQ(Tensors(), 0u);
  EXPECT_EQ(world.Create(session, 1, 8 * kMiB).code, Code::kOk) << "all of the room is back";
}

// A client that frees faster than that does not pile them up.
TEST_F(LongRequest, WhatFreesLeaveToLaterTurnsIsBounded) {
  for (uint64_t round = 0; round < 40; ++round) {
    const Answer created = world.Ask(session, Op::kCreate, Items(1, 512, 64));
    ASSERT_EQ(created.code, Code::kOk) << created.detail;
    ASSERT_EQ(world.Ask(session, Op::kRelease, LeasesOf(created, 512), proto::kFlagUntouched).code, Code::kOk);
    world.Send(session, Op::kFree, Items(1, 512, 0));
  }
  EXPECT_LE(Tensors(), kFreedLaterMax + 512);
}

// What is freed already is not missed.
TEST_F(LongRequest, WhatIsFreedGivesRoomAtOnce) {
  const Answer created = world.Ask(session, Op::kCreate, Items(1, 30, 128 * kKiB));
  ASSERT_EQ(created.code, Code::kOk) << created.detail;
  ASSERT_EQ(world.Ask(session, Op::kRelease, LeasesOf(created, 30)).code, Code::kOk);
  const uint64_t written = world.transfers.traffic(0).written_bytes;
  world.Send(session, Op::kFree, Items(1, 30, 0));
  EXPECT_EQ(world.Ask(session, Op::kCreate, {{100, 0, 0, 7 * kMiB}}, proto::kFlagNoWait).code, Code::kOk);
  EXPECT_EQ(world.transfers.traffic(0).written_bytes, written) << "nothing of it is evicted";
}

TEST(LongRequestLimits, TheTensorsOfAJobAreCountedForEachPart) {
  World world({.engine = {.tensors_per_job_max = 100}});
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  std::vector<RequestItem> items;
  for (uint64_t id = 1; id <= 60; ++id) items.push_back({id, 0, 0, 64});
  const uint64_t first = world.Send(a, Op::kCreate, items);
  const uint64_t second = world.Send(b, Op::kCreate, items);
  const Answer one = world.Wait(a, first);
  const Answer other = world.Wait(b, second);
  EXPECT_NE(one.code == Code::kOk, other.code == Code::kOk) << one.detail << "; " << other.detail;
  EXPECT_EQ(one.code == Code::kOk ? other.code : one.code, Code::kNoMemory);
  world.Turns(10);
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 60u);
}

TEST_F(LongRequest, ACreateThatComesToNothingIsTakenBackTurnByTurn) {
  world.Put(session, kCount, 5000, 3);  // The last name is taken.
  const uint64_t creating = world.Send(session, Op::kCreate, Items(1, kCount, 5000));
  uint64_t before = 0;
  for (int turn = 0; turn < 20 && !world.Answered(session, creating); ++turn) {
    before = Leases();
    world.Turn();
    EXPECT_LE(before - std::min(before, Leases()), kItemsPerTurnMax);
  }
  EXPECT_EQ(world.Answered(session, creating).value_or(Answer{}).code, Code::kAlreadyExists);
  EXPECT_EQ(Leases(), 0u);
}

}  // namespace
}  // namespace tier::tiering::testing
