// Pieces that as many requests wait for as a piece can count.
#include <gtest/gtest.h>

#include "daemon/tiering/tables/tables.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

TEST(Pins, WhoNeedsAPieceThatHasAllItsPinsWaitsForThatPiece) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 64 * kMiB}});
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  const SessionId last = world.OpenSession(job);
  world.Put(session, 1, 5000, 1, proto::kFlagShared);
  world.Put(session, 2, 5000, 1, proto::kFlagShared);
  ASSERT_EQ(world.Ask(session, Op::kFlush, {{2, 0, 0, 0}}, proto::kFlagShared).code, Code::kOk);
  ASSERT_EQ(world.Ask(session, Op::kDrop, {{2, 0, 0, 0}}, proto::kFlagShared).code, Code::kOk);
  world.transfers.Hold();
  const proto::RequestItem item{2, 0, 0, 0};
  for (uint64_t i = 1; i <= kPinsMax; ++i) {
    while (!world.engine->TakesRequests()) world.engine->Turn(world.now);
    world.engine->Submit(
        session,
        {.sequence = (1u << 24) + i, .op = Op::kAcquire, .flags = proto::kFlagShared, .items = {&item, 1}, .text = {}});
  }
  world.engine->Turn(world.now);
  const std::vector<proto::RequestItem> both{{1, 0, 0, 0}, {2, 0, 0, 0}};
  world.engine->Submit(
      last, {.sequence = 1u << 24, .op = Op::kAcquire, .flags = proto::kFlagShared, .items = both, .text = {}});
  for (int turn = 0; turn < 8; ++turn) world.engine->Turn(world.now);
  ASSERT_FALSE(world.Answered(last, 1u << 24).has_value());
  world.transfers.Release();
  world.Turns(kPinsMax * (kWaiterCost + 2) / WorkUnits{}.look + kPinsMax / WorkUnits{}.wake + 16);
  ASSERT_TRUE(world.Answered(last, 1u << 24).has_value());
  EXPECT_EQ(world.Answered(last, 1u << 24)->code, Code::kOk);
}

}  // namespace
}  // namespace tier::tiering::testing
