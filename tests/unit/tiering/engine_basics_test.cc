// The path of a tensor through the engine: create, seal, acquire, evict, read back, free.
#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

TEST(EngineBasics, WhatWasSealedIsReadBack) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, 5 * kMiB + 100);
  EXPECT_EQ(world.Check(session, 1), Code::kOk);
}

TEST(EngineBasics, ATensorWrittenOutAndDroppedComesBackFromSsd) {
  World world;
  const SessionId session = world.Open();
  world.PutOnSsd(session, 1, 5 * kMiB + 100);
  EXPECT_EQ(world.Ask(session, proto::Op::kStat, {{1, 0, 0, 0}}).tensor.ram_bytes, 0u);
  EXPECT_EQ(world.Check(session, 1), Code::kOk);
}

TEST(EngineBasics, MoreThanTheArenaHoldsGoesThroughSsd) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}});
  const SessionId session = world.Open();
  world.PutEach(session, 1, 24, 2 * kMiB);
  EXPECT_EQ(world.CheckEach(session, 1, 24), Code::kOk);
}

TEST(EngineBasics, EndingTheLastSessionOfAnEphemeralJobFreesEverything) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, 5 * kMiB);
  world.PutOnSsd(session, 2, 3 * kMiB);
  world.EndSession(session, "gone");
  world.Turns(3);
  EXPECT_EQ(world.extents.total().live, 0u);
  EXPECT_EQ(world.windows.window_count(), 0u);
}

TEST(EngineBasics, CountersOfOneJobAreThoseOfTheSnapshot) {
  World world(WithArena(64 * kMiB));
  const JobId first = world.OpenJob({.guarantee_bytes = 4 * kMiB});
  const JobId second = world.OpenJob({.limit_bytes = 8 * kMiB});
  const SessionId session = world.OpenSession(first);
  world.Put(session, 1, 3 * kMiB);
  (void)world.OpenSession(second);
  const EngineSnapshot snapshot = world.engine->Snapshot();
  ASSERT_EQ(snapshot.jobs.size(), 2u);
  for (const JobView& view : snapshot.jobs) {
    const JobCounters counters = world.engine->Counters(view.id);
    EXPECT_EQ(counters.ram_bytes, view.counters.ram_bytes);
    EXPECT_EQ(counters.dirty_bytes, view.counters.dirty_bytes);
    EXPECT_EQ(counters.guarantee_bytes, view.counters.guarantee_bytes);
    EXPECT_EQ(counters.limit_bytes, view.counters.limit_bytes);
    EXPECT_EQ(counters.share_bytes, view.counters.share_bytes);
    EXPECT_EQ(counters.window_count, view.counters.window_count);
    EXPECT_EQ(counters.session_count, view.counters.session_count);
    EXPECT_EQ(counters.tensor_count, view.counters.tensor_count);
  }
  EXPECT_EQ(world.engine->Counters(first).tensor_count, 1u);
  EXPECT_EQ(world.engine->Counters(JobId{99}).guarantee_bytes, 0u) << "nobody's";
}

}  // namespace
}  // namespace tier::tiering::testing
