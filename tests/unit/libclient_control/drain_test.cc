// What tier_control_drain asks of the daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/control/grpc_fixture.h"
#include "tier/control.h"

namespace tier::control {
namespace {

class DrainTest : public test::GrpcFixture {
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
TEST_F(DrainTest, AnEmptyNameIsRefusedAndNotAskedOfTheDaemon) {
  EXPECT_EQ(tier_control_drain(control_, "", 1000), TIER_INVALID);
  EXPECT_THAT(tier_control_last_error(), ::testing::HasSubstr("the name of the job is empty"));
  EXPECT_TRUE(api_.drained.empty());
}

TEST_F(DrainTest, TheJobIsNamedToTheDaemon) {
  ASSERT_EQ(tier_control_drain(control_, "train", 1000), TIER_OK) << tier_control_last_error();
  ASSERT_EQ(api_.drained.size(), 1u);
  EXPECT_EQ(api_.drained[0].first, "train");
}

}  // namespace
}  // namespace tier::control
