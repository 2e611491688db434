#include "tools/tierctl/node_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/tierctl/output.h"

namespace tier::tierctl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

v1::Device Device(uint32_t index, bool draining, v1::DeviceState state = v1::DEVICE_STATE_ONLINE) {
  v1::Device device;
  device.set_index(index);
  device.set_draining(draining);
  device.set_state(state);
  return device;
}

TEST(NodeText, NoSsdModeReadsAsIfTheDiskWereFull) {
  v1::NodeStatus status;
  status.set_ssd_mode(v1::SSD_MODE_FULL);
  EXPECT_EQ(SsdModeText(status), "as configured");
  status.set_ssd_mode(v1::SSD_MODE_NONE);
  EXPECT_EQ(SsdModeText(status), "none");
  status.set_ssd_mode(v1::SSD_MODE_REDUCED);
  EXPECT_EQ(SsdModeText(status), "reduced");
}

TEST(NodeText, TellsOfEachCauseAndOfADrain) {
  v1::NodeStatus status;
  EXPECT_EQ(LackText(status), "");
  status.set_draining(true);
  EXPECT_EQ(LackText(status), "draining: no new job or process is taken");
  status.add_degraded_by("torn tensors: 3");
  status.add_degraded_by("device 0 errors: 2");
  EXPECT_EQ(LackText(status),
            "degraded: torn tensors: 3; device 0 errors: 2; draining: no new job or process is taken");
  status.set_draining(false);
  EXPECT_EQ(LackText(status), "degraded: torn tensors: 3; device 0 errors: 2");
}

TEST(NodeText, SaysWhenAReloadWasRefusedAndWhy) {
  v1::NodeStatus status;
  EXPECT_EQ(ReloadText(status), "");
  status.set_reload_failure("tierd.toml:3: no such user: bob; all settings stay as they are");
  status.mutable_reload_failure_time()->set_seconds(1'763'985'601);
  EXPECT_EQ(ReloadText(status), "refused at " + LocalTimeText(1'763'985'601) + ": " + status.reload_failure());
}

TEST(NodeText, ARefusedReloadIsInTheFirstLineToo) {
  v1::NodeStatus status;
  EXPECT_EQ(HealthText(status), "ok");
  status.set_reload_failure("tierd.toml:3: no such user: bob");
  EXPECT_EQ(HealthText(status), "ok, but the last reload was refused (see reload)");
  EXPECT_EQ(LackText(status), "") << "it runs as before";
  status.add_degraded_by("torn tensors: 3");
  EXPECT_EQ(HealthText(status), "degraded: torn tensors: 3; the last reload was refused (see reload)");
  status.clear_reload_failure();
  EXPECT_EQ(HealthText(status), "degraded: torn tensors: 3");
}

TEST(NodeText, SaysThatWhatWasPersistedLastCannotBeReliedUpon) {
  v1::NodeStatus status;
  EXPECT_EQ(UnpersistedText(status), "");
  status.set_index_failure("nothing can be persisted: the index was cut short");
  EXPECT_THAT(UnpersistedText(status), AllOf(HasSubstr("the index was cut short. What jobs persisted last cannot be"),
                                             HasSubstr("before tierd is restarted")));
}

TEST(NodeText, SaysWhatFollowsFromDrainingTheLastDevice) {
  Devices devices;
  *devices.Add() = Device(0, true);
  EXPECT_THAT(LastDeviceText(devices, 0), AllOf(HasSubstr("no other SSD device takes new tensors"),
                                                HasSubstr("device 0 stays there"), HasSubstr("device drain 0 --undo")));
  *devices.Add() = Device(1, false, v1::DEVICE_STATE_GONE);
  EXPECT_THAT(LastDeviceText(devices, 0), HasSubstr("no other SSD device"));
  *devices.Add() = Device(2, false, v1::DEVICE_STATE_SUSPECT);
  EXPECT_EQ(LastDeviceText(devices, 0), "");
  EXPECT_THAT(LastDeviceText(devices, 2), HasSubstr("device drain 2 --undo"));
}

}  // namespace
}  // namespace tier::tierctl
