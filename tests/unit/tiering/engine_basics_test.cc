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
  world.engine->EndSession(session, "gone");
  world.Turns(3);
  EXPECT_EQ(world.extents.total().live, 0u);
  EXPECT_EQ(world.windows.window_count(), 0u);
  EXPECT_TRUE(world.index.committed().empty());
}

}  // namespace
}  // namespace tier::tiering::testing
