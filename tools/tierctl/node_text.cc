#include "tools/tierctl/node_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "tools/tierctl/message_json.h"

namespace tier::tierctl {
namespace {

bool TakesTensors(const v1::Device& device) {
  return !device.draining() && device.state() != v1::DEVICE_STATE_OFFLINE && device.state() != v1::DEVICE_STATE_GONE;
}

}  // namespace

std::string SsdModeText(const v1::NodeStatus& status) {
  switch (status.ssd_mode()) {
    // Its name in metrics and JSON reads as if the disk were full.
    case v1::SSD_MODE_FULL: return "as configured";
    case v1::SSD_MODE_REDUCED: return fmt::format("reduced ({})", status.ssd_mode_reason());
    default: return WordOf(status.ssd_mode());
  }
}

std::string DrainedText(const v1::NodeStatus& status) {
  std::string text = status.draining() ? "draining: no new job or process is taken" : "";
  if (std::ranges::none_of(status.devices(), &v1::Device::draining)) return text;
  if (std::ranges::any_of(status.devices(), TakesTensors)) return text;
  return text + (text.empty() ? "" : "; ") +
         "no SSD device takes new tensors: they stay in RAM, and are refused where it has no room";
}

std::string LastDeviceText(const Devices& devices, uint32_t device) {
  const auto takes = [device](const v1::Device& each) { return each.index() != device && TakesTensors(each); };
  if (std::ranges::any_of(devices, takes)) return {};
  return fmt::format(
      "no other SSD device takes new tensors: from now on they stay in RAM, and are refused (NO_SPACE) where it has no "
      "room; what lies on device {0} stays there. 'tierctl device drain {0} --undo' uses it again, and so does a "
      "restart of tierd; with another device in ssd.devices it can be emptied",
      device);
}

}  // namespace tier::tierctl
