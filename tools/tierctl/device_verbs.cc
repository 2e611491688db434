#include "tools/tierctl/device_verbs.h"

#include <cstdio>

#include <fmt/format.h>

#include "daemon/storage/ssd_tier.h"
#include "tools/tierctl/connection.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/printable.h"

namespace tier::tierctl {
namespace {

int Print(const storage::SsdDeviceDescription& device, const char* verb, const OutputOptions& output) {
  if (output.json) {
    PrintJson({{"path", device.path},
               {"uuid", device.uuid},
               {"size_bytes", device.size},
               {"capacity_bytes", device.capacity},
               {"commit", device.superblock_commit},
               {"block_device", device.block_device}});
  } else {
    fmt::print("{} {}: uuid {}, {} for extents of {}\n", verb, Printable(device.path), device.uuid,
               HumanBytes(device.capacity), HumanBytes(device.size));
  }
  return kExitOk;
}

}  // namespace

int FormatDevice(const std::string& path, bool force, const OutputOptions& output) {
  const auto device = storage::FormatDevice(path, force);
  if (device) return Print(*device, "formatted", output);
  (void)Explain(device.error());
  // The daemon calls foreign content INVALID. To the person at the keyboard it is a refusal, not a usage error.
  return device.error().code == Code::kNotFound ? kExitNotFound : kExitRefused;
}

int ShowDevice(const std::string& path, const OutputOptions& output) {
  const auto device = storage::DescribeDevice(path);
  if (device) return Print(*device, "device", output);
  (void)Explain(device.error());
  return device.error().code == Code::kNotFound ? kExitNotFound : kExitFailure;
}

}  // namespace tier::tierctl
