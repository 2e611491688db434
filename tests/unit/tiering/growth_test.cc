// A turn starts a bounded number of windows: what a request lacks beyond these it gets in the turns that follow, and
// nothing else changes for it or for others.
#include <gtest/gtest.h>

#include "daemon/tiering/memory/hand_over.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;

WorldOptions WithWindowsInATurn(uint64_t arena, uint32_t windows) {
  WorldOptions options = WithArena(arena, kPiece);
  options.engine.work.windows = windows;
  return options;
}

// Another job waits for memory beyond its promise: it would take what the first one has not started yet.
TEST(Growth, WhatAJobIsOwedStaysOwedUntilAllOfItHasCome) {
  World world(WithWindowsInATurn(64 * kMiB, 2));
  const JobId greedy = world.OpenJob();
  const SessionId session = world.OpenSession(greedy);
  world.PutEach(session, 1, 32, kPiece);
  for (uint64_t id = 1; id <= 32; ++id) ASSERT_EQ(world.Free(session, id).code, Code::kOk);
  ASSERT_EQ(world.Job(greedy).held_bytes, 60 * kMiB) << "two windows are left";
  const SessionId owner = world.Open({.guarantee_bytes = 24 * kMiB});
  const uint64_t asked = world.Send(owner, Op::kCreate, {{1, 0, 0, 24 * kMiB}});
  for (uint32_t turn = 0; turn < 100 && world.sink.returns.size() < 10; ++turn) {
    world.Turn();
    world.Advance(kHandOverInterval);
  }
  ASSERT_EQ(world.sink.returns.size(), 10U);
  world.Send(session, Op::kCreate, {{100, 0, 0, 44 * kMiB}});
  world.ReturnWindows();
  for (uint32_t turn = 0; turn < 100 && !world.Answered(owner, asked); ++turn) {
    world.Turn();
    ASSERT_EQ(world.Job(greedy).held_bytes, 40 * kMiB) << "turn " << turn;
  }
  ASSERT_TRUE(world.Answered(owner, asked).has_value());
  EXPECT_EQ(world.Answered(owner, asked)->code, Code::kOk);
}

// Seven clean pieces, each in a window of its own.
void PutClean(World& world, SessionId session) {
  world.PutEach(session, 1, 7, kPiece);
  ASSERT_EQ(world.Ask(session, Op::kFlush, {}).code, Code::kOk);
}

TEST(Growth, WhatNoWindowCanHoldIsEvictedAtOnce) {
  World world(WithWindowsInATurn(16 * kMiB, 1));
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  ASSERT_NO_FATAL_FAILURE(PutClean(world, session));
  ASSERT_EQ(world.windows.window_count(), 7U);
  world.windows.SetDelay(50);
  const uint64_t asked = world.Send(session, Op::kCreate, {{8, 0, 0, 3 * kPiece}});
  world.Turns(5);
  EXPECT_GE(world.Job(job).evicted_bytes, 2 * kPiece) << "one window is coming, and no other can";
  EXPECT_EQ(world.Wait(session, asked).code, Code::kOk);
}

TEST(Growth, WhatMoreWindowsCanHoldIsNotEvicted) {
  World world(WithWindowsInATurn(64 * kMiB, 1));
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  ASSERT_NO_FATAL_FAILURE(PutClean(world, session));
  EXPECT_EQ(world.Create(session, 8, 10 * kPiece).code, Code::kOk);
  EXPECT_EQ(world.Job(job).evicted_bytes, 0U);
}

}  // namespace
}  // namespace tier::tiering::testing
