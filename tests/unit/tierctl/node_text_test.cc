#include "tools/tierctl/node_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  status.set_ssd_mode_reason("of 10 GiB 9 must stay free");
  EXPECT_EQ(SsdModeText(status), "reduced (of 10 GiB 9 must stay free)");
}

TEST(NodeText, TellsOfTheNodeAndOfItsLastDevice) {
  v1::NodeStatus status;
  EXPECT_EQ(DrainedText(status), "");
  *status.add_devices() = Device(0, true);
  *status.add_devices() = Device(1, false);
  EXPECT_EQ(DrainedText(status), "") << "the other takes what comes";
  status.mutable_devices(1)->set_draining(true);
  EXPECT_THAT(DrainedText(status), HasSubstr("no SSD device takes new tensors"));
  status.set_draining(true);
  EXPECT_THAT(DrainedText(status), HasSubstr("no new job or process is taken; no SSD device"));
  status.mutable_devices(1)->set_draining(false);
  EXPECT_EQ(DrainedText(status), "draining: no new job or process is taken");
  status.mutable_devices(1)->set_state(v1::DEVICE_STATE_OFFLINE);
  EXPECT_THAT(DrainedText(status), HasSubstr("no SSD device takes new tensors"));
  status.set_draining(false);
  status.mutable_devices(0)->set_draining(false);
  EXPECT_EQ(DrainedText(status), "") << "degraded_by tells of devices that do not answer";
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
