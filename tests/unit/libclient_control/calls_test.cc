// What the C functions for drains and events ask of the daemon.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/control/grpc_fixture.h"
#include "tier/control.h"

namespace tier::control {
namespace {

class CallsTest : public test::GrpcFixture {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(GrpcFixture::SetUp());
    ASSERT_EQ(tier_control_connect(options_.control_socket.c_str(), nullptr, &control_), TIER_OK)
        << tier_control_last_error();
  }
  void TearDown() override {
    tier_control_close(control_);
    GrpcFixture::TearDown();
  }

  tier_control* control_ = nullptr;
};

// The daemon takes an empty name for the node.
TEST_F(CallsTest, AnEmptyNameIsRefusedAndNotAskedOfTheDaemon) {
  EXPECT_EQ(tier_control_drain(control_, "", 1000), TIER_INVALID);
  EXPECT_THAT(tier_control_last_error(), ::testing::HasSubstr("the name of the job is empty"));
  EXPECT_TRUE(api_.drained.empty());
}

TEST_F(CallsTest, TheJobIsNamedToTheDaemon) {
  ASSERT_EQ(tier_control_drain(control_, "train", 1000), TIER_OK) << tier_control_last_error();
  ASSERT_EQ(api_.drained.size(), 1u);
  EXPECT_EQ(api_.drained[0].first, "train");
}

TEST_F(CallsTest, TheNodeIsDrainedAndUndrainedByTheirOwnCalls) {
  tier_control* admin = nullptr;
  ASSERT_EQ(tier_control_connect(options_.admin_socket.c_str(), nullptr, &admin), TIER_OK) << tier_control_last_error();
  ASSERT_EQ(tier_control_drain_node(admin, 1000), TIER_OK) << tier_control_last_error();
  ASSERT_EQ(api_.drained.size(), 1u);
  EXPECT_EQ(api_.drained[0].first, "");
  ASSERT_EQ(tier_control_undrain(admin), TIER_OK) << tier_control_last_error();
  EXPECT_EQ(api_.undrained, 1);
  tier_control_close(admin);
  EXPECT_EQ(tier_control_drain_node(nullptr, 1000), TIER_INVALID);
  EXPECT_EQ(tier_control_undrain(nullptr), TIER_INVALID);
}

TEST_F(CallsTest, WhoWasAwayIsToldTheEventsBehindTheLastThatItHas) {
  for (uint64_t i = 1; i <= 3; ++i)
    api_.recent.push_back({.sequence = i, .kind = "kind-" + std::to_string(i), .job = {}, .message = {}});
  tier_control_watch* watch = nullptr;
  ASSERT_EQ(tier_control_watch_since(control_, 1, &watch), TIER_OK) << tier_control_last_error();
  for (const char* kind : {"kind-2", "kind-3"}) {
    tier_control_event event = TIER_CONTROL_EVENT_INIT;
    ASSERT_EQ(tier_control_watch_next(watch, 10'000, &event), TIER_OK) << tier_control_last_error();
    EXPECT_STREQ(event.kind, kind);
  }
  tier_control_watch_stop(watch);
  EXPECT_EQ(tier_control_watch_since(nullptr, 1, &watch), TIER_INVALID);
}

}  // namespace
}  // namespace tier::control
