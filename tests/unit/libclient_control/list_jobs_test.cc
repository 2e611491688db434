// A list of more jobs than a page of the daemon's has.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/control/control_service.h"
#include "tests/support/control/grpc_fixture.h"
#include "tier/control.h"

namespace tier::control {
namespace {

class ListJobsTest : public test::GrpcFixture {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(GrpcFixture::SetUp());
    for (uint64_t id = 1; id <= kJobs; ++id)
      api_.jobs.push_back({.id = id, .name = "job-" + std::to_string(id), .counters = {}});
    ASSERT_EQ(tier_control_connect(options_.control_socket.c_str(), nullptr, &control_), TIER_OK)
        << tier_control_last_error();
  }
  void TearDown() override {
    tier_control_close(control_);
    GrpcFixture::TearDown();
  }

  static constexpr size_t kJobs = 2 * kJobsListedMax + 7;
  tier_control* control_ = nullptr;
};

TEST_F(ListJobsTest, HasThoseOfAllPages) {
  std::vector<tier_control_job> jobs(kJobs + 1, tier_control_job TIER_CONTROL_JOB_INIT);
  size_t count = 0;
  ASSERT_EQ(tier_control_list_jobs(control_, jobs.data(), jobs.size(), &count), TIER_OK) << tier_control_last_error();
  ASSERT_EQ(count, kJobs);
  for (size_t i = 0; i < kJobs; ++i) ASSERT_EQ(jobs[i].name, "job-" + std::to_string(i + 1));
  EXPECT_STREQ(jobs[kJobs].name, "");
  EXPECT_EQ(tier_control_list_jobs(control_, jobs.data(), 3, &count), TIER_OK);
  EXPECT_EQ(count, kJobs) << "all are counted, though few fit";
}

}  // namespace
}  // namespace tier::control
