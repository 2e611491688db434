// Each option of the engine is passed on to it.
#include <chrono>

#include <gtest/gtest.h>

#include "daemon/engine_side.h"

namespace tier {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(EngineOptions, AreWhatTheConfigurationSays) {
  const config::Config config = config::ParseConfig(R"(
[engine]
deadline = "7s"
write_behind = "11%"
evict = "13%"
prefetch_maximum = "17MiB"
[jobs]
max_tensors = 19
max_leases = 23
max_metadata = "29MiB"
reclaim_deadline = "31s"
on_unreturned = "kill"
idle_after = "37s"
stall_threshold = "41ms"
)",
                                                    "tierd.toml")
                                    .value();
  const tiering::EngineOptions options = EngineOptionsOf(config);
  EXPECT_EQ(options.deadline_default, seconds(7));
  EXPECT_DOUBLE_EQ(options.write_behind_start, 0.11);
  EXPECT_DOUBLE_EQ(options.evict_start, 0.13);
  EXPECT_EQ(options.prefetch_bytes_max, 17 * kMiB);
  EXPECT_EQ(options.tensors_per_job_max, 19u);
  EXPECT_EQ(options.leases_per_session_max, 23u);
  EXPECT_EQ(options.metadata_bytes_per_uid_max, 29 * kMiB);
  EXPECT_EQ(options.reclaim_deadline, seconds(31));
  EXPECT_TRUE(options.kills_keepers);
  EXPECT_EQ(options.idle_after, seconds(37));
  EXPECT_EQ(options.stall_threshold, milliseconds(41));
}

}  // namespace
}  // namespace tier
