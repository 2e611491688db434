#include "tools/tierctl/device_verbs.h"

#include <cstdio>
#include <optional>

#include <fmt/format.h>

#include "daemon/storage/ssd_tier.h"
#include "tools/tierctl/connection.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/printable.h"

namespace tier::tierctl {
namespace {

Json ToJson(const storage::SsdDeviceDescription& device) {
  return {{"path", device.path},
          {"uuid", device.uuid},
          {"size_bytes", device.size},
          {"capacity_bytes", device.capacity},
          {"commit", device.superblock_commit},
          {"block_device", device.block_device}};
}

void Print(const storage::SsdDeviceDescription& device, const char* verb) {
  fmt::print("{} {}: uuid {}, {} for extents of {}\n", verb, Printable(device.path), device.uuid,
             HumanBytes(device.capacity), HumanBytes(device.size));
}

// INVALID, VERSION and CORRUPT are of what lies there: a refusal, and neither a wrong command line nor a daemon.
int ExplainDevice(const Error& error) {
  const int exit_code = Explain(error);
  const bool of_content = error.code == Code::kInvalid || error.code == Code::kVersion || error.code == Code::kCorrupt;
  return of_content ? kExitRefused : exit_code;
}

// As the daemon tells it. None: no daemon answers, or it does not have this device.
std::optional<v1::Device> FindInUse(const DaemonOptions& options, const std::string& uuid) {
  const auto channel = Connect(options);
  if (!channel) return std::nullopt;
  v1::ListDevicesResponse answer;
  const auto status = (*channel)->Call(&v1::ControlService::Stub::ListDevices, v1::ListDevicesRequest(), &answer,
                                       control_client::kCallTimeout);
  if (!status) return std::nullopt;
  for (const v1::Device& device : answer.devices()) {
    if (device.uuid() == uuid) return device;
  }
  return std::nullopt;
}

}  // namespace

int FormatDevice(const std::string& path, bool force, const OutputOptions& output) {
  const auto device = storage::FormatDevice(path, force);
  if (device) {
    output.json ? PrintJson(ToJson(*device)) : Print(*device, "formatted");
    return kExitOk;
  }
  return ExplainDevice(device.error());
}

int ShowDevice(const std::string& path, const DaemonOptions& options) {
  const auto device = storage::DescribeDevice(path);
  if (!device) return ExplainDevice(device.error());
  const auto now = FindInUse(options, device->uuid);
  if (options.output.json) {
    Json document = ToJson(*device);
    if (now) document["in_use"] = ToJson(*now);
    PrintJson(document);
    return kExitOk;
  }
  Print(*device, "device");
  if (now) {
    fmt::print("in use by tierd as device {}: reads {}, writes {} (p50 / p99), {:.2f} drive writes a day\n",
               now->index(), LatencyText(now->read_seconds_p50(), now->read_seconds_p99()),
               LatencyText(now->write_seconds_p50(), now->write_seconds_p99()), now->drive_writes_per_day());
  }
  return kExitOk;
}

}  // namespace tier::tierctl
