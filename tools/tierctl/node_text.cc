#include "tools/tierctl/node_text.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/tierctl/message_json.h"
#include "tools/tierctl/output.h"

namespace tier::tierctl {
namespace {

bool TakesTensors(const v1::Device& device) {
  return !device.draining() && device.state() != v1::DEVICE_STATE_OFFLINE && device.state() != v1::DEVICE_STATE_GONE;
}

}  // namespace

std::string SsdModeText(const v1::NodeStatus& status) {
  // Its name in metrics and JSON reads as if the disk were full.
  return status.ssd_mode() == v1::SSD_MODE_FULL ? "as configured" : WordOf(status.ssd_mode());
}

std::string PagesText(const v1::NodeStatus& status) {
  return status.huge_page_mode() == v1::HUGE_PAGE_MODE_NONE ? "none yet" : WordOf(status.huge_page_mode());
}

std::string MissingAdvice(const v1::MissingDevice& device) {
  return device.lost_job_count() == 0 ? kBehindAPurge
                                      : "tierctl job list --lost names the jobs that have lost something";
}

std::string LackText(const v1::NodeStatus& status) {
  std::vector<std::string> parts;
  if (!status.degraded_by().empty())
    parts.push_back(fmt::format("degraded: {}", fmt::join(status.degraded_by(), "; ")));
  if (status.draining()) parts.emplace_back("draining: no new job or process is taken");
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string HealthText(const v1::NodeStatus& status) {
  const std::string lack = LackText(status);
  const std::string refused = status.reload_failure().empty() ? "" : "the last reload was refused (see reload)";
  if (lack.empty()) return refused.empty() ? "ok" : "ok, but " + refused;
  return refused.empty() ? lack : lack + "; " + refused;
}

std::string ReloadText(const v1::NodeStatus& status) {
  if (status.reload_failure().empty()) return {};
  return fmt::format("refused at {}: {}", LocalTimeText(status.reload_failure_time().seconds()),
                     status.reload_failure());
}

std::string UnpersistedText(const v1::NodeStatus& status) {
  if (status.index_failure().empty()) return {};
  return fmt::format(
      "{}. What jobs persisted last cannot be relied upon: save elsewhere what is needed, and look after the disk "
      "before tierd is restarted",
      status.index_failure());
}

std::string LastDeviceText(const Devices& devices, uint32_t device) {
  const auto takes = [device](const v1::Device& each) { return each.index() != device && TakesTensors(each); };
  if (std::ranges::any_of(devices, takes)) return {};
  return fmt::format(
      "no other SSD device takes new tensors. What lies on device {0} stays there; from now on new tensors stay in "
      "RAM, and are refused (NO_SPACE) where it has no room. 'tierctl device drain {0} --undo' uses it again, and so "
      "does a "
      "restart of tierd; with another device in ssd.devices it can be emptied",
      device);
}

}  // namespace tier::tierctl
