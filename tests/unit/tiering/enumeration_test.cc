// Requests that name no tensor and mean all of a namespace, which may hold more than one turn looks at.
#include <gtest/gtest.h>

#include "daemon/tiering/tables/tables.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

class AllTensors : public ::testing::Test {
 protected:
  static constexpr uint64_t kTensors = kLookMax + 1000;

  // Many small tensors on SSD and in RAM, without a proof of the books at each step.
  void PutMany(SessionId session, uint32_t flags = 0) {
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
    world.engine->Submit(session, {.sequence = ++sequence, .op = Op::kFlush, .items = {}, .text = {}});
    for (int turn = 0; turn < 100'000 && !world.Answered(session, sequence); ++turn) world.engine->Turn(world.now);
    ASSERT_EQ(world.Answered(session, sequence)->code, Code::kOk) << world.Answered(session, sequence)->detail;
    world.Turns(3);
  }

  // Turns until `count` such requests, sent at once, are answered.
  uint64_t TurnsFor(SessionId session, Op op, uint64_t count) {
    std::vector<uint64_t> sent;
    for (uint64_t i = 0; i < count; ++i) sent.push_back(world.Send(session, op, {}));
    uint64_t turns = 0;
    while (!world.Answered(session, sent.back()) && turns < 1000) {
      world.Turn();
      ++turns;
    }
    for (const uint64_t sequence : sent) EXPECT_EQ(world.Answered(session, sequence)->code, Code::kOk);
    return turns;
  }

  World world{{.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 256 * kMiB}, .device_blocks = 128}};
};

TEST_F(AllTensors, IsGoneThroughWithTheWorkOfTheTurn) {
  const SessionId session = world.Open();
  PutMany(session);
  constexpr uint64_t kRequests = 12;
  const uint64_t least = kRequests * kTensors / (WorkUnits{}.share + kLookMax);
  EXPECT_GE(TurnsFor(session, Op::kFlush, kRequests), least) << "though nothing is to be written";
  EXPECT_GE(TurnsFor(session, Op::kDrop, kRequests), least);
  EXPECT_EQ(world.Ask(session, Op::kStat, {{kTensors, 0, 0, 0}}).tensor.ram_bytes, 0u);
}

TEST_F(AllTensors, WhatIsFreedUnderTheCursorIsPassedOver) {
  const SessionId session = world.Open();
  PutMany(session);
  const uint64_t dropping = world.Send(session, Op::kDrop, {});
  world.Turn();
  ASSERT_FALSE(world.Answered(session, dropping).has_value()) << "it is more than a turn looks at";
  // The list goes from the newest to the oldest: what is left of it is the front.
  std::vector<proto::RequestItem> items;
  for (uint64_t id = 2; id <= 2500; ++id) items.push_back({id, 0, 0, 0});
  for (size_t first = 0; first < items.size(); first += 500) {
    const auto begin = items.begin() + static_cast<ptrdiff_t>(first);
    const size_t count = std::min<size_t>(500, items.size() - first);
    world.Send(session, Op::kFree, {begin, begin + static_cast<ptrdiff_t>(count)});
  }
  EXPECT_EQ(world.Wait(session, dropping).code, Code::kOk);
  EXPECT_EQ(world.Ask(session, Op::kStat, {{1, 0, 0, 0}}).tensor.ram_bytes, 0u) << "the oldest is the last";
}

TEST_F(AllTensors, OfAJobIsGoneThroughWithTheWorkOfTheTurnToo) {
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  PutMany(session, proto::kFlagShared);
  world.Send(session, Op::kFlush, {}, proto::kFlagShared);  // Takes what is left of this turn's looks.
  ASSERT_TRUE(world.engine->FlushJob(job, 1, 1000));
  world.Turn();
  ASSERT_FALSE(world.Answered(kInternalSession, 1).has_value()) << "it is more than a turn looks at";
  for (uint64_t first = 1; first <= 2500; first += 500) {
    std::vector<proto::RequestItem> items;
    for (uint64_t id = first; id < first + 500; ++id) items.push_back({id, 0, 0, 0});
    world.Send(session, Op::kFree, items, proto::kFlagShared);
  }
  EXPECT_EQ(world.Wait(kInternalSession, 1).code, Code::kOk) << "past what was freed under its cursor";
}

// What becomes of a shared tensor after a flush that names nothing has begun is not its caller's affair.
class EverythingShared : public ::testing::Test {
 protected:
  EverythingShared() {
    world.Put(a, 1, 8 * kBlockSize);
    world.Put(b, 2, kBlockSize, 1, proto::kFlagShared);
  }
  Code WriteDuringFlush(uint32_t flags, bool dies) {
    const uint64_t flushing = world.Send(a, Op::kFlush, {}, flags);
    world.Turn();
    EXPECT_FALSE(world.Answered(a, flushing).has_value());
    const Answer writing = world.Acquire(b, 2, proto::kFlagShared | proto::kFlagWrite);
    EXPECT_EQ(writing.code, Code::kOk) << writing.detail;
    if (dies) world.EndSession(b, "killed");
    return world.Wait(a, flushing).code;
  }

  World world{{.transfers = {.inflight_max = 4, .delay_turns_min = 5, .delay_turns_max = 5}}};
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
};

TEST_F(EverythingShared, IsFlushedWithoutWhatOthersBeginToWrite) { EXPECT_EQ(WriteDuringFlush(0, false), Code::kOk); }

TEST_F(EverythingShared, IsFlushedWithoutWhatOthersTear) {
  EXPECT_EQ(WriteDuringFlush(0, true), Code::kOk);
  world.Put(a, 3, kBlockSize);
  EXPECT_EQ(world.Ask(a, Op::kFlush, {}).code, Code::kOk) << "it is torn before, too";
  EXPECT_EQ(world.Ask(a, Op::kFlush, {}, proto::kFlagShared).code, Code::kTorn) << "this asks for what is shared";
}

TEST_F(EverythingShared, AsksForAllOfTheJobWhenTheDaemonDoes) {
  ASSERT_TRUE(world.engine->FlushJob(job, 1, 1000));
  EXPECT_EQ(world.Wait(kInternalSession, 1).code, Code::kOk);
  const Answer writing = world.Acquire(b, 2, proto::kFlagShared | proto::kFlagWrite);
  ASSERT_TRUE(world.engine->FlushJob(job, 2, 1000));
  world.Turns(10);
  EXPECT_FALSE(world.Answered(kInternalSession, 2).has_value()) << "what is being written is waited for";
  world.Release(b, World::LeaseOf(writing));
  EXPECT_EQ(world.Wait(kInternalSession, 2).code, Code::kOk);
  EXPECT_EQ(world.Rewrite(b, 2, 2, proto::kFlagShared).code, Code::kOk);
  ASSERT_EQ(world.Ask(b, Op::kTear, {{2, 0, 1, 0}}, proto::kFlagShared).code, Code::kOk);
  ASSERT_TRUE(world.engine->FlushJob(job, 3, 1000));
  EXPECT_EQ(world.Wait(kInternalSession, 3).code, Code::kTorn);
}

TEST_F(EverythingShared, OfAJobThatIsClosedIsDone) {
  ASSERT_TRUE(world.engine->FlushJob(job, 1, 1000));
  world.engine->CloseJob(job, "removed", true);
  EXPECT_EQ(world.Wait(kInternalSession, 1).code, Code::kOk) << "nothing is left to be written";
}

TEST_F(EverythingShared, AFlushOfOnesOwnTornTensorIsRefused) {
  const Answer writing = world.Acquire(a, 1, proto::kFlagWrite, 0, kBlockSize);
  world.Release(a, World::LeaseOf(writing));
  ASSERT_EQ(world.Ask(a, Op::kTear, {{1, 0, 1, 0}}).code, Code::kOk);
  EXPECT_EQ(world.Ask(a, Op::kFlush, {}).code, Code::kTorn);
}

TEST_F(AllTensors, OfOneWhoDiesHalfWayIsDropped) {
  const JobId job = world.OpenJob();
  const SessionId dead = world.OpenSession(job);
  const SessionId alive = world.OpenSession(job);
  PutMany(dead);
  world.Send(dead, Op::kDrop, {});
  world.Send(dead, Op::kFlush, {});
  world.Turn();
  world.EndSession(dead, "killed");
  world.Turns(5);
  world.Put(alive, 1, 5000);
  EXPECT_EQ(world.Ask(alive, Op::kFlush, {}).code, Code::kOk);
  EXPECT_EQ(world.Ask(alive, Op::kDrop, {}).value, 5000u);
}

}  // namespace
}  // namespace tier::tiering::testing
