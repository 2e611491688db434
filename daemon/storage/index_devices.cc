// See index_devices.h.
#include "daemon/storage/index_devices.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/storage/extent_list.h"

namespace tier::storage {
namespace {

constexpr std::string_view kKeyDevices = "devices";     // Uuids, by number; a zero one behind them (AddChanges).
constexpr std::string_view kKeyPaths = "device_paths";  // Absent in an index of an earlier tierd.

constexpr size_t kStoredUuidsMax = DeviceNumbers::kStoredMax;  // Of devices one less, and the zero one.

// Empty: the key is absent.
Result<std::vector<std::byte>> GetIfAny(const IndexFile& index, std::string_view key) {
  auto bytes = index.Get(IndexTable::kBinding, key);
  if (!bytes && bytes.error().code == Code::kNotFound) return std::vector<std::byte>();
  return bytes;
}

std::vector<std::string> SplitPaths(std::span<const std::byte> bytes) {
  std::vector<std::string> paths(1);
  for (const std::byte byte : bytes) {
    if (byte == std::byte{0}) {
      paths.emplace_back();
    } else {
      paths.back().push_back(static_cast<char>(byte));
    }
  }
  paths.pop_back();
  return paths;
}

Result<std::vector<std::string>> Jobs(const IndexFile& index) {
  auto manifests = index.Keys(IndexTable::kManifests);
  if (!manifests) return manifests;
  auto lists = index.Keys(IndexTable::kExtents);
  if (!lists) return lists;
  std::vector<std::string> jobs;
  std::ranges::set_union(*manifests, *lists, std::back_inserter(jobs));
  return jobs;
}

}  // namespace

Result<IndexDevices> IndexDevices::Read(const IndexFile& index) {
  const auto uuids = GetIfAny(index, kKeyDevices);
  if (!uuids) return std::unexpected(uuids.error());
  const auto paths = GetIfAny(index, kKeyPaths);
  if (!paths) return std::unexpected(paths.error());
  IndexDevices devices;
  const size_t count = uuids->size() / sizeof(Uuid);
  const bool whole = uuids->size() % sizeof(Uuid) == 0 && count <= kStoredUuidsMax;
  if (whole) {
    devices.uuids_.resize(count);
    if (count != 0) std::memcpy(devices.uuids_.data(), uuids->data(), uuids->size());
    devices.DropFreeAtEnd();
  }
  if (!whole || devices.uuids_.size() == kStoredUuidsMax) {
    return Fail(Code::kCorrupt, fmt::format("the index {} has a damaged table of devices ({} bytes): restore it from a "
                                            "copy",
                                            index.path(), uuids->size()));
  }
  devices.paths_ = SplitPaths(*paths);
  devices.paths_.resize(devices.uuids_.size());
  return devices;
}

void IndexDevices::DropFreeAtEnd() {
  while (!uuids_.empty() && uuids_.back() == Uuid{}) uuids_.pop_back();
}

std::string IndexDevices::Describe(uint16_t number) const {
  const std::string uuid = FormatUuid(uuids_[number]);
  return paths_[number].empty() ? uuid : fmt::format("{} (last at {})", uuid, paths_[number]);
}

Status IndexDevices::CheckUnnamed(const IndexFile& index, std::span<const uint16_t> missing) const {
  const auto refuse = [&](uint16_t number, const std::string& why) {
    return Fail(Code::kInvalid,
                fmt::format("the index {} knows device {}, which is not in ssd.devices or was formatted since, and {}: "
                            "name it again; it can be taken out once it is empty (tierctl device drain, then tierctl "
                            "device list). To give up all that jobs persisted, remove the index and format the devices",
                            index.path(), Describe(number), why));
  };
  const auto jobs = Jobs(index);
  if (!jobs) return std::unexpected(jobs.error());
  for (const std::string& job : *jobs) {
    const auto bytes = index.Get(IndexTable::kExtents, job);
    const auto runs = bytes ? DecodeExtentList(*bytes) : std::unexpected(bytes.error());
    if (!runs) return refuse(missing[0], fmt::format("may hold what job {} persisted ({})", job, runs.error().message));
    for (const proto::ExtentListRun& run : *runs) {
      if (std::ranges::find(missing, run.device) != missing.end()) {
        return refuse(run.device, fmt::format("holds what job {} persisted", job));
      }
    }
  }
  return {};
}

Status IndexDevices::DropMissing(const IndexFile& index, std::span<const ManifestDevice> devices) {
  std::vector<uint16_t> missing;
  for (uint16_t number = 0; number < uuids_.size(); ++number) {
    const bool there = std::ranges::find(devices, uuids_[number], &ManifestDevice::uuid) != devices.end();
    if (!there && uuids_[number] != Uuid{}) missing.push_back(number);
  }
  if (missing.empty()) return {};
  if (Status unnamed = CheckUnnamed(index, missing); !unnamed) return unnamed;
  for (const uint16_t number : missing) {
    dropped_.push_back(
        fmt::format("device {} is not in ssd.devices any more, and nothing persisted lies on it: the "
                    "index {} does without it",
                    Describe(number), index.path()));
    uuids_[number] = {};
    paths_[number].clear();
  }
  return {};
}

uint16_t IndexDevices::NumberOf(const ManifestDevice& device) {
  auto found = std::ranges::find(uuids_, device.uuid);
  if (found == uuids_.end()) found = std::ranges::find(uuids_, Uuid{});
  if (found == uuids_.end()) {
    found = uuids_.insert(uuids_.end(), Uuid{});
    paths_.emplace_back();
  }
  *found = device.uuid;
  const auto number = static_cast<uint16_t>(found - uuids_.begin());
  paths_[number] = device.path;
  return number;
}

Status IndexDevices::Match(const IndexFile& index, std::span<const ManifestDevice> devices) {
  if (Status dropped = DropMissing(index, devices); !dropped) return dropped;
  std::vector<uint16_t> numbers;
  for (const ManifestDevice& device : devices) numbers.push_back(NumberOf(device));
  DropFreeAtEnd();
  paths_.resize(uuids_.size());
  in_order_ = uuids_.size() == numbers.size() && std::ranges::is_sorted(numbers);
  numbers_ = DeviceNumbers(numbers);
  return {};
}

std::vector<std::string> IndexDevices::StaleQuarantines(std::vector<std::string> recorded) const {
  if (recorded.size() <= kQuarantineRecordsMax) return {};
  std::erase_if(recorded, [this](const std::string& key) {
    return std::ranges::any_of(uuids_, [&](const Uuid& uuid) { return FormatUuid(uuid) == key; });
  });
  return recorded;
}

void IndexDevices::AddChanges(std::vector<IndexChange>* changes) {
  stored_paths_.clear();
  for (const std::string& path : paths_) stored_paths_.append(path).push_back('\0');
  stored_uuids_ = uuids_;
  if (!in_order_) stored_uuids_.emplace_back();  // An earlier tierd refuses it, which would number devices otherwise.
  TIER_CHECK(stored_uuids_.size() <= kStoredUuidsMax, "a table of {} devices", stored_uuids_.size());
  changes->push_back(
      {.table = IndexTable::kBinding, .key = kKeyDevices, .value = std::as_bytes(std::span(stored_uuids_))});
  changes->push_back(
      {.table = IndexTable::kBinding, .key = kKeyPaths, .value = std::as_bytes(std::span(stored_paths_))});
}

}  // namespace tier::storage
