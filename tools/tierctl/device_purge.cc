// See device_purge.h.
#include "tools/tierctl/device_purge.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include <fmt/format.h>

#include "daemon/base/counted.h"
#include "tools/tierctl/ask.h"
#include "tools/tierctl/connection.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/node_text.h"
#include "tools/tierctl/printable.h"
#include "tools/tierctl/socket_verbs.h"

namespace tier::tierctl {
namespace {

using Stub = v1::ControlService::Stub;

std::string PlaceOf(const v1::MissingDevice& device) {
  return device.uuid() + (device.path().empty() ? "" : fmt::format(" ({})", device.path()));
}

// Nothing is asked of the daemon that it would do.
Status CheckUnforced(const DaemonOptions& options, const std::string& uuid) {
  const auto channel = Connect(options);
  if (!channel) return std::unexpected(channel.error());
  if (!IsForAdministrators(**channel)) return std::unexpected(AdministratorsOnly("purge a missing device"));
  v1::ListDevicesResponse devices;
  if (auto listed = (*channel)->Call(&Stub::ListDevices, v1::ListDevicesRequest(), &devices); !listed) return listed;
  const auto device = std::ranges::find_if(
      devices.missing(), [&uuid](const v1::MissingDevice& each) { return !uuid.empty() && each.uuid() == uuid; });
  if (device == devices.missing().end()) {
    return Fail(Code::kNotFound, fmt::format("no device {} is missing (tierctl device list); one that is there is "
                                             "emptied by tierctl device drain",
                                             uuid));
  }
  if (device->lost_job_count() == 0) return {};
  v1::ListJobsResponse jobs;
  if (auto listed = (*channel)->CallPages(&Stub::ListJobs, v1::ListJobsRequest(), &jobs); !listed) return listed;
  if (!options.output.json) fmt::print("{}", PurgePreview(*device, jobs, options.output));
  return Fail(Code::kDenied, fmt::format("what {} persisted on the missing device {} would be lost for good; to give "
                                         "it up anyhow, type: tierctl device purge --force {}",
                                         base::Counted(device->lost_job_count(), "job"), PlaceOf(*device), uuid));
}

}  // namespace

std::string PurgePreview(const v1::MissingDevice& device, const v1::ListJobsResponse& jobs,
                         const OutputOptions& output) {
  std::vector<v1::StoredManifest> lost;
  for (const v1::StoredManifest& each : jobs.stored_manifests()) {
    if (std::ranges::find(each.lost_devices(), device.uuid()) != each.lost_devices().end()) lost.push_back(each);
  }
  std::string text =
      Wrapped(Printable(fmt::format("device {} is missing: {}", PlaceOf(device), device.reason())), output.width, 0) +
      "\n";
  text +=
      Wrapped("to be given up, on the missing device and on all others (HERE: what those that are here have of it):",
              output.width, 0);
  text +=
      "\n" + RenderTable({MakeColumn("JOB", lost, false, [](const v1::StoredManifest& each) { return each.name(); }),
                          MakeColumn("UID", lost, true,
                                     [](const v1::StoredManifest& each) { return UserText(each.uid(), each.owner()); }),
                          MakeColumn("HERE", lost, true,
                                     [](const v1::StoredManifest& each) { return HumanBytes(each.ssd_bytes()); })},
                         output);
  if (device.lost_job_count() > lost.size())
    text += fmt::format("and that of {}\n", base::Counted(device.lost_job_count() - lost.size(), "other job"));
  return text;
}

int PurgeDevice(const DaemonOptions& options, const std::string& uuid, bool force) {
  if (!force) {
    if (const Status checked = CheckUnforced(options, uuid); !checked) return Explain(checked.error());
  }
  v1::PurgeDeviceRequest request;
  request.set_uuid(uuid);
  return Ask<v1::PurgeDeviceResponse>(options, &Stub::PurgeDevice, request, [&](const v1::PurgeDeviceResponse& answer) {
    if (options.output.json) {
      Json document = ToJson(answer);
      document["purged"] = uuid;
      PrintJson(document);
      return kExitOk;
    }
    fmt::print("device {} is given up, with what {} persisted on it\n", Printable(uuid),
               base::Counted(answer.jobs_size(), "job"));
    for (const std::string& job : answer.jobs()) fmt::print("  {}\n", Printable(job));
    fmt::print("{}\n", kBehindAPurge);
    return kExitOk;
  });
}

}  // namespace tier::tierctl
