// See index_devices.h.
#include "daemon/storage/index_devices.h"

#include <algorithm>
#include <bitset>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/storage/extent_list.h"

namespace tier::storage {
namespace {

constexpr std::string_view kKeyDevices = "devices";     // Uuids, by number; a zero one behind them (AddChanges).
constexpr std::string_view kKeyPaths = "device_paths";  // Absent in an index of an earlier tierd, as the next.
constexpr std::string_view kKeyAbsentPaths = "absent_paths";

constexpr size_t kStoredUuidsMax = kIndexDevicesMax + 1;  // With the zero one.

// Empty: the key is absent.
Result<std::vector<std::byte>> GetIfAny(const IndexFile& index, std::string_view key) {
  auto bytes = index.Get(IndexTable::kBinding, key);
  if (!bytes && bytes.error().code == Code::kNotFound) return std::vector<std::byte>();
  return bytes;
}

// A value of the binding that has a fixed size. False: absent, or of another size.
template <typename T>
Result<bool> GetFixed(const IndexFile& index, std::string_view key, T* value) {
  const auto bytes = GetIfAny(index, key);
  if (!bytes) return std::unexpected(bytes.error());
  if (bytes->size() != sizeof(T)) return false;
  std::memcpy(value, bytes->data(), sizeof(T));
  return true;
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

// Of devices, which its list of extents names.
using Numbers = std::bitset<size_t{UINT16_MAX} + 1>;
Result<Numbers> NumbersNamedBy(const IndexFile& index, const std::string& job) {
  const auto bytes = index.Get(IndexTable::kExtents, job);
  if (!bytes) return std::unexpected(bytes.error());
  const auto runs = DecodeExtentList(*bytes);
  if (!runs) return std::unexpected(runs.error());
  Numbers numbers;
  for (const proto::ExtentListRun& run : *runs) numbers.set(run.device);
  return numbers;
}

}  // namespace

ManifestDevice ManifestDeviceOf(const std::string& path, const proto::Superblock& superblock) {
  return {.path = path,
          .uuid = UuidOf(superblock),
          .index_uuid = IndexUuidOf(superblock),
          .index_commit = superblock.index_commit};
}

Result<IndexIdentity> ReadIdentity(const IndexFile& index) {
  IndexIdentity identity;
  const Result<bool> known = GetFixed(index, kKeyIndexUuid, &identity.uuid);
  if (!known) return std::unexpected(known.error());
  if (!*known) return IndexIdentity{};
  const Result<bool> numbered = GetFixed(index, kKeyCommit, &identity.commit);
  if (!numbered) return std::unexpected(numbered.error());
  if (!*numbered) return Fail(Code::kCorrupt, "the index " + index.path() + " lacks its commit number");
  return identity;
}

Status CheckBinding(const ManifestDevice& device, const IndexIdentity& index, const std::string& index_path) {
  if (device.index_uuid == Uuid{}) return {};
  if (device.index_uuid != index.uuid) {
    return Fail(Code::kCorrupt,
                fmt::format("device {} belongs to the index {} (commit {}), which {} is not: restore "
                            "that file, or format the device",
                            device.path, FormatUuid(device.index_uuid), device.index_commit, index_path));
  }
  if (device.index_commit <= index.commit) return {};
  return Fail(Code::kCorrupt, fmt::format("{} is an old copy: its last commit is {}, device {} has seen {}", index_path,
                                          index.commit, device.path, device.index_commit));
}

Error OldCopyRefusal(const ManifestDevice& unbound, const std::string& index_path) {
  return {Code::kCorrupt, fmt::format("{} is an old copy: it names tensors on device {}, whose superblock says that "
                                      "nothing is persisted there any more: put the latest copy in its place, or "
                                      "format the device",
                                      index_path, unbound.path)};
}

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

// Only what is certain to mean nothing is dropped: a list that cannot be read may name any page of any device.
Status IndexDevices::DropUnnamed(const IndexFile& index, std::span<const ManifestDevice> devices) {
  std::vector<uint16_t> unnamed;
  for (uint16_t number = 0; number < uuids_.size(); ++number) {
    const bool there = std::ranges::find(devices, uuids_[number], &ManifestDevice::uuid) != devices.end();
    if (!there && uuids_[number] != Uuid{}) unnamed.push_back(number);
  }
  if (unnamed.empty()) return {};
  const auto jobs = Jobs(index);
  if (!jobs) return std::unexpected(jobs.error());
  for (const std::string& job : *jobs) {
    const auto numbers = NumbersNamedBy(index, job);
    if (!numbers && !index.failure().empty()) return std::unexpected(numbers.error());
    if (!numbers) return {};
    std::erase_if(unnamed, [&](uint16_t number) { return numbers->test(number); });
  }
  for (const uint16_t number : unnamed) {
    dropped_.push_back(
        fmt::format("device {} is not in ssd.devices any more, and nothing persisted lies on it: the "
                    "index {} does without it",
                    Describe(number), index.path()));
    uuids_[number] = {};
    paths_[number].clear();
  }
  return {};
}

// Devices that are not there and were not dropped.
void IndexDevices::NoteMissing(std::span<const ManifestDevice> devices, std::span<const AbsentPath> absent) {
  for (uint16_t number = 0; number < uuids_.size(); ++number) {
    if (uuids_[number] == Uuid{} || numbers_.DeviceOf(number) != DeviceNumbers::kNone) continue;
    MissingDevice& missing = missing_.emplace_back(
        MissingDevice{.uuid = FormatUuid(uuids_[number]), .path = paths_[number], .reason = {}, .number = number});
    const auto is_at = std::ranges::find(devices, missing.path, &ManifestDevice::path);
    const auto is_absent = std::ranges::find(absent, missing.path, &AbsentPath::path);
    if (is_absent != absent.end()) {
      missing.reason = is_absent->reason;
      missing.is_configured = true;
    } else if (is_at != devices.end()) {
      missing.reason = fmt::format("{} is another device now, {}", is_at->path, FormatUuid(is_at->uuid));
    } else {
      missing.reason = "it is not in ssd.devices";
    }
  }
  for (const AbsentPath& each : absent) {
    if (std::ranges::find(missing_, each.path, &MissingDevice::path) != missing_.end()) continue;
    missing_.push_back({.uuid = {}, .path = each.path, .reason = each.reason, .is_configured = true});
  }
  absent_paths_.clear();
  for (const AbsentPath& each : absent) absent_paths_.append(each.path).push_back('\0');
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

Result<std::vector<std::string>> IndexDevices::KnownPaths(const IndexFile& index) const {
  const auto absent = GetIfAny(index, kKeyAbsentPaths);
  if (!absent) return std::unexpected(absent.error());
  std::vector<std::string> paths = paths_;
  std::ranges::move(SplitPaths(*absent), std::back_inserter(paths));
  std::erase(paths, std::string());
  return paths;
}

std::vector<ManifestDevice> IndexDevices::Known() const {
  TIER_CHECK(paths_.size() == uuids_.size() && uuids_.size() <= kIndexDevicesMax, "{} paths of {} devices",
             paths_.size(), uuids_.size());
  std::vector<ManifestDevice> known;
  for (size_t number = 0; number < uuids_.size(); ++number) {
    if (uuids_[number] != Uuid{}) known.push_back({.path = paths_[number], .uuid = uuids_[number]});
  }
  return known;
}

Result<std::vector<ManifestDevice>> IndexDevices::Needed(const IndexFile& index) const {
  const auto jobs = Jobs(index);
  if (!jobs) return std::unexpected(jobs.error());
  TIER_CHECK(paths_.size() == uuids_.size(), "{} paths of {} devices", paths_.size(), uuids_.size());
  Numbers named;
  for (const std::string& job : *jobs) {
    const auto numbers = NumbersNamedBy(index, job);
    numbers ? named |= *numbers : named.set();
  }
  std::vector<ManifestDevice> needed;
  for (uint16_t number = 0; number < uuids_.size(); ++number) {
    if (uuids_[number] != Uuid{} && named.test(number))
      needed.push_back({.path = paths_[number], .uuid = uuids_[number]});
  }
  return needed;
}

const ManifestDevice* IndexDevices::NamedAndUnbound(const IndexFile& index,
                                                    std::span<const ManifestDevice> devices) const {
  std::vector<std::pair<uint16_t, const ManifestDevice*>> unbound;
  for (const ManifestDevice& device : devices) {
    const auto known = std::ranges::find(uuids_, device.uuid);
    if (known == uuids_.end() || device.index_uuid != Uuid{}) continue;
    unbound.emplace_back(static_cast<uint16_t>(known - uuids_.begin()), &device);
  }
  if (unbound.empty()) return nullptr;
  const auto jobs = Jobs(index);
  if (!jobs) return nullptr;
  for (const std::string& job : *jobs) {
    const auto numbers = NumbersNamedBy(index, job);
    if (!numbers) continue;
    for (const auto& [number, device] : unbound) {
      if (numbers->test(number)) return device;
    }
  }
  return nullptr;
}

Status IndexDevices::Match(const IndexFile& index, std::span<const ManifestDevice> devices,
                           std::span<const AbsentPath> absent) {
  if (Status dropped = DropUnnamed(index, devices); !dropped) return dropped;
  const auto known =
      static_cast<size_t>(std::ranges::count_if(uuids_, [](const Uuid& uuid) { return uuid != Uuid{}; }));
  const auto fresh = static_cast<size_t>(std::ranges::count_if(devices, [this](const ManifestDevice& device) {
    return std::ranges::find(uuids_, device.uuid) == uuids_.end();
  }));
  if (known + fresh >= kStoredUuidsMax) {
    return Fail(
        Code::kInvalid,
        fmt::format("the index {} knows {} devices, {} of ssd.devices are new to it, and {} are all that it can "
                    "have: bring one that is missing back (tierctl device list), or start with fewer new ones "
                    "and give up the missing ones (tierctl device purge UUID)",
                    index.path(), known, fresh, kStoredUuidsMax - 1));
  }
  std::vector<uint16_t> numbers;
  for (const ManifestDevice& device : devices) numbers.push_back(NumberOf(device));
  DropFreeAtEnd();
  paths_.resize(uuids_.size());
  in_order_ = uuids_.size() == numbers.size() && std::ranges::is_sorted(numbers);
  numbers_ = DeviceNumbers(numbers);
  NoteMissing(devices, absent);
  return {};
}

std::vector<std::string> IndexDevices::StaleQuarantines(std::vector<std::string> recorded) const {
  if (recorded.size() <= kQuarantineRecordsMax) return {};
  std::erase_if(recorded, [this](const std::string& key) {
    return std::ranges::any_of(uuids_, [&](const Uuid& uuid) { return FormatUuid(uuid) == key; });
  });
  return recorded;
}

Result<std::vector<std::string>> IndexDevices::JobsOn(const IndexFile& index, uint16_t number) {
  auto jobs = Jobs(index);
  if (!jobs) return jobs;
  Status readable;
  std::erase_if(*jobs, [&](const std::string& job) {
    const auto numbers = NumbersNamedBy(index, job);
    if (!numbers && readable) {
      readable = Fail(Code::kCorrupt, fmt::format("nothing is purged while it is unknown where job {} persisted its "
                                                  "tensors ({}): restore the index from a copy, or give up that job "
                                                  "first: tierctl job remove --purge {}",
                                                  job, numbers.error().message, job));
    }
    return !numbers || !numbers->test(number);
  });
  if (!readable) return std::unexpected(readable.error());
  return jobs;
}

uint16_t IndexDevices::NumberOfMissing(const std::string& uuid) const {
  for (uint16_t number = 0; number < uuids_.size(); ++number) {
    const bool missing = uuids_[number] != Uuid{} && numbers_.DeviceOf(number) == DeviceNumbers::kNone;
    if (missing && FormatUuid(uuids_[number]) == uuid) return number;
  }
  return DeviceNumbers::kNone;
}

void IndexDevices::Free(uint16_t number) {
  TIER_CHECK(number < uuids_.size() && numbers_.DeviceOf(number) == DeviceNumbers::kNone, "device {} is not missing",
             number);
  uuids_[number] = {};
  paths_[number].clear();
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
  changes->push_back({.table = IndexTable::kBinding,
                      .key = kKeyAbsentPaths,
                      .value = std::as_bytes(std::span(absent_paths_)),
                      .erase = absent_paths_.empty()});
}

}  // namespace tier::storage
