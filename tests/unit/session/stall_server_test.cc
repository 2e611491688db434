// Stalls by ControlApi: who may see those of which job.
#include <gtest/gtest.h>

#include "tests/support/session/control_callers.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using testing::kAdmin;
using testing::kAlice;
using testing::kBob;
using testing::SessionWorld;

TEST(StallServer, OwnersSeeTheirJobsAndAdministratorsAll) {
  SessionWorld world;
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train"}));
  world.OnEngine([&] {
    tiering::Stall stall;
    stall.tensor = 7;
    world.engine.stalls.stalls.push_back({.stall = stall, .key = "k"});
    world.engine.stalls.ended = 3;
  });
  const auto own = world.control().ListStalls(kAlice, "train");
  ASSERT_TRUE(own) << own.error().message;
  ASSERT_EQ(own->list.stalls.size(), 1u);
  EXPECT_EQ(own->list.stalls[0].stall.tensor, 7u);
  EXPECT_EQ(own->list.ended, 3u);
  EXPECT_GT(own->now_unix_ms, 1'700'000'000'000);
  EXPECT_EQ(world.control().ListStalls(kBob, "train").error().code, Code::kNotFound);
  EXPECT_TRUE(world.control().ListStalls(kAdmin, "1000/train"));
  EXPECT_EQ(world.control().ListStalls(kAdmin, "other").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace tier::session
