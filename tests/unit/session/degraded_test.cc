// The causes by which a daemon does less than it was set up for.
#include "daemon/session/degraded.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::session {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> TextsOf(const DaemonDescription& daemon) {
  std::vector<std::string> texts;
  for (const Degradation& each : DegradedBy(daemon)) texts.push_back(each.text);
  return texts;
}

TEST(DegradedBy, NamesEachCause) {
  DaemonDescription daemon;
  daemon.devices.resize(2);
  EXPECT_THAT(TextsOf(daemon), IsEmpty());
  daemon.ssd_mode = "none";
  EXPECT_THAT(TextsOf(daemon), IsEmpty()) << "configured without an SSD tier";
  daemon.ssd_mode_reason = "the disk is full";
  daemon.memory_mode = "unpinned";
  daemon.memory_mode_reason = "no right to lock memory";  // Without an SSD tier that is no loss.
  daemon.engine.torn_count = 3;
  daemon.devices[1].index = 1;
  daemon.devices[1].now.traffic = {.errors = 3, .corrupt = 9, .window_faults = 7};  // The last are a client's doing.
  daemon.devices[1].recent_faults = {.errors = 2, .corrupt = 5};                    // The others no cause any more.
  daemon.devices[1].now.space.quarantined = 4096;
  daemon.devices[1].now.state = storage::DeviceState::kOffline;
  daemon.devices[1].now.reason = "Input/output error";
  EXPECT_THAT(TextsOf(daemon), ElementsAre("no SSD tier, tensors stay in RAM: the disk is full", "torn tensors: 3",
                                           "device 1 offline: Input/output error", "device 1 errors: 2",
                                           "device 1 corrupt pieces: 5", "device 1 quarantined: 4 KiB"));
}

TEST(DegradedBy, NamesWhatIsMissing) {
  DaemonDescription daemon;
  daemon.engine.missing = {{.uuid = "1-2", .path = "/dev/b", .reason = "it is gone", .lost_job_count = 3},
                           {.uuid = "", .path = "/dev/c", .reason = "it is foreign"}};
  EXPECT_THAT(TextsOf(daemon),
              ElementsAre("device 1-2 (last at /dev/b) is missing: it is gone; jobs lost: 3 (tierctl job list --lost)",
                          "device /dev/c is missing: it is foreign"));
  for (const Degradation& each : DegradedBy(daemon))
    EXPECT_EQ(DegradedCauseName(each.cause), std::string("missing_device"));
}

TEST(DegradedBy, MemoryThatIsNotPinnedIsOneWhereTransfersUseIt) {
  DaemonDescription daemon;
  daemon.ssd_mode = "full";
  daemon.memory_mode = "unpinned";
  daemon.memory_mode_reason = "no right to lock memory";
  EXPECT_THAT(TextsOf(daemon), ElementsAre("memory is not pinned: no right to lock memory"));
  daemon.memory_mode = "pinned";
  EXPECT_THAT(TextsOf(daemon), IsEmpty());
}

TEST(DegradedBy, LessSsdSpaceThanConfiguredIsOne) {
  DaemonDescription daemon;
  daemon.ssd_mode = "reduced";
  daemon.ssd_mode_reason = "11 GiB of 20 GiB are free";
  EXPECT_THAT(TextsOf(daemon), ElementsAre("less SSD space than configured: 11 GiB of 20 GiB are free"));
  EXPECT_EQ(DegradedCauseName(DegradedBy(daemon).front().cause), std::string("ssd_size"));
}

TEST(DegradedBy, AnIndexThatFailedIsOneInItsOwnWords) {
  DaemonDescription daemon;
  daemon.engine.index_failure = "nothing can be persisted: the file system of the index /d/index.mdb is read-only";
  EXPECT_THAT(TextsOf(daemon), ElementsAre(daemon.engine.index_failure));
  EXPECT_EQ(DegradedCauseName(DegradedBy(daemon).front().cause), std::string("index"));
}

TEST(DegradedBy, ANodeThatIsDrainedDoesWhatItWasTold) {
  DaemonDescription daemon;
  daemon.draining = true;
  EXPECT_THAT(TextsOf(daemon), IsEmpty());
}

// Whether no device takes new tensors is told as a cause of its own.
bool SsdIsDrained(const std::vector<tiering::DeviceView>& devices) {
  DaemonDescription daemon;
  for (const tiering::DeviceView& device : devices) daemon.devices.emplace_back().now = device;
  return std::ranges::any_of(DegradedBy(daemon),
                             [](const Degradation& each) { return each.cause == DegradedCause::kSsdDrained; });
}

TEST(DegradedBy, NoDeviceTakesTensorsWhereEachIsDrainedOrDoesNotAnswer) {
  const tiering::DeviceView online, drained{.draining = true}, offline{.state = storage::DeviceState::kOffline},
      suspect{.state = storage::DeviceState::kSuspect};
  EXPECT_FALSE(SsdIsDrained({}));
  EXPECT_FALSE(SsdIsDrained({drained, online}));
  EXPECT_FALSE(SsdIsDrained({drained, suspect})) << "it is tried again";
  EXPECT_FALSE(SsdIsDrained({offline, offline})) << "nobody told it to: the devices themselves are the cause";
  EXPECT_TRUE(SsdIsDrained({drained}));
  EXPECT_TRUE(SsdIsDrained({drained, drained}));
  EXPECT_TRUE(SsdIsDrained({offline, drained}));
}

}  // namespace
}  // namespace tier::session
