// See lost_manifests.h.
#include "daemon/tiering/durability/lost_manifests.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "daemon/storage/extent_list.h"
#include "daemon/tiering/durability/stored_extents.h"

namespace tier::tiering {
namespace {

Error LostError(const std::string& key, const storage::MissingDevice& device) {
  return {Code::kIoError,
          fmt::format("job {} persisted tensors on device {}, which is missing: {}; bring the device back and restart "
                      "tierd, or give up what the job persisted: tierctl job remove --purge {} (of all jobs on it: "
                      "tierctl device purge {})",
                      key, device.Name(), device.reason, key, device.uuid)};
}

// The store has nothing of it any more: its extents on the other devices become free.
void DropPurged(Tables& tables, const std::string& key) {
  if (const ManifestHolds* const stored = tables.manifests.FindStored(key)) {
    ManifestHolds* const holds = tables.manifests.FindInactive(stored->id());
    TIER_CHECK(holds != nullptr, "the manifest of job {} is not inactive", key);
    holds->OnErased();
    holds->set_stored(false);
    tables.manifests.NeedSweep(holds->id());
  }
  tables.manifests.ClearBroken(key);
}

}  // namespace

bool SetIfLost(Tables& tables, const std::string& key) {
  const std::vector<storage::MissingDevice>& missing = tables.ports.manifests->missing_devices();
  if (missing.empty()) return false;
  const auto bytes = tables.ports.manifests->LoadExtents(key);
  const auto runs = bytes ? storage::DecodeExtentList(*bytes) : std::unexpected(bytes.error());
  if (!runs) return false;  // What can be said of it its manifest says.
  std::vector<std::string> uuids;
  const storage::MissingDevice* first = nullptr;
  for (const storage::MissingDevice& device : missing) {
    const bool named =
        !device.uuid.empty() && std::ranges::find(*runs, device.number, &proto::ExtentListRun::device) != runs->end();
    if (!named) continue;
    if (first == nullptr) first = &device;
    uuids.push_back(device.uuid);
  }
  if (first == nullptr) return false;
  tables.manifests.SetLost(key, LostError(key, *first), std::move(uuids));
  return true;
}

Status RefuseLost(const Tables& tables, const std::string& key) {
  if (tables.manifests.FindLost(key) != nullptr) {
    const Error* const broken = tables.manifests.FindBroken(key);
    TIER_CHECK(broken != nullptr, "job {} is lost without a reason", key);
    return std::unexpected(*broken);
  }
  const auto unknown = tables.manifests.extents_unknown().find(key);
  if (unknown == tables.manifests.extents_unknown().end()) return {};
  const auto& missing = tables.ports.manifests->missing_devices();
  const auto device = std::ranges::find_if(missing, [](const auto& each) { return !each.uuid.empty(); });
  if (device == missing.end()) return {};
  return Fail(Code::kIoError,
              fmt::format("what job {} persisted may lie on device {}, which is missing: {}; where it lies cannot be "
                          "read ({}); bring the device back and restart tierd, or give up what the job persisted: "
                          "tierctl job remove --purge {}",
                          key, device->Name(), device->reason, unknown->second.message, key));
}

Status StartPurge(Tables& tables, const std::string& uuid, EnginePort::Purged done) {
  TIER_CHECK(done != nullptr, "a purge of device {} that is not answered", uuid);
  // First: what was missing may be purged already, where that is not known.
  if (const Error* lost = tables.manifests.store_lost()) return std::unexpected(*lost);
  storage::ManifestStore* const store = tables.ports.manifests;
  const bool missing = store != nullptr && !uuid.empty() &&
                       std::ranges::find(store->missing_devices(), uuid, &storage::MissingDevice::uuid) !=
                           store->missing_devices().end();
  if (!missing) {
    return Fail(Code::kNotFound,
                fmt::format("no device {} is missing (tierctl device list); one that is there is emptied by tierctl "
                            "device drain",
                            uuid));
  }
  if (tables.manifests.AnyPurgeOf(uuid)) {
    return Fail(Code::kTimeout, fmt::format("device {} is being purged already; try again", uuid));
  }
  const uint64_t cookie = tables.manifests.NewCookie();
  tables.manifests.StartPurge(cookie, {.uuid = uuid, .done = std::move(done)});
  store->StartPurge(cookie, uuid);
  return {};
}

bool TakePurged(Tables& tables, const storage::ManifestResult& result) {
  const auto purge = tables.manifests.EndPurge(result.cookie);
  if (!purge) return false;
  if (result.code != Code::kOk) {
    if (result.unknown) tables.manifests.SetStoreLost({result.code, result.message});
    purge->done(Fail(result.code, result.message));
    return true;
  }
  for (const std::string& key : result.purged) DropPurged(tables, key);
  CloseToUnknownExtents(tables);
  purge->done(result.purged);
  return true;
}

}  // namespace tier::tiering
