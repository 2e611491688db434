// IndexDevices: the devices that an index knows, by uuid. A device's place in this table is its number in the stored
// manifests and lists of extents, whatever place it has in ssd.devices. A number whose device was taken out is free:
// the next device that is new to the index takes it.
//
// A device that is not there any more is dropped when no list of extents names it. Then its number means nothing, and
// so a list that is written later by it cannot be mistaken. One that a list names, or may name, is missing: it keeps
// its number, so that its jobs are whole again when it comes back.
//
// Configured paths that a start did without are remembered until the next one, which may do without them too.
//
// An earlier tierd numbers devices as ssd.devices lists them, and requires only that it knows each uuid of the table.
// Where the numbers of this run are others, a zero uuid ends the table, so that it refuses the index.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/storage/device_numbers.h"
#include "daemon/storage/index_file.h"
#include "daemon/storage/missing_device.h"
#include "daemon/storage/superblock.h"

namespace tier::storage {

struct ManifestDevice {
  std::string path;  // For messages.
  Uuid uuid{};
  Uuid index_uuid{};  // As its superblock says; zero: bound to no index yet.
  uint64_t index_commit = 0;
};

ManifestDevice ManifestDeviceOf(const std::string& path, const proto::Superblock& superblock);

// By what superblocks name an index.
struct IndexIdentity {
  Uuid uuid{};          // Zero: it was made and never bound, or there is none.
  uint64_t commit = 0;  // The last one.
};
// CORRUPT: it lacks its commit number.
Result<IndexIdentity> ReadIdentity(const IndexFile& index);

// CORRUPT: the device is bound to an index that the file at `index_path` is not, or to a later commit of it.
Status CheckBinding(const ManifestDevice& device, const IndexIdentity& index, const std::string& index_path);
// CORRUPT, of what NamedAndUnbound found.
Error OldCopyRefusal(const ManifestDevice& unbound, const std::string& index_path);

// A configured path without a device of this index, which the start does without (known_devices.h).
struct AbsentPath {
  std::string path;
  std::string reason;
};

// Of devices that one index can know, the missing ones among them.
inline constexpr size_t kIndexDevicesMax = DeviceNumbers::kStoredMax - 1;

// In IndexTable::kBinding: of the index itself.
inline constexpr std::string_view kKeyIndexUuid = "uuid";
inline constexpr std::string_view kKeyCommit = "commit";

// Devices of which quarantined places are written down. Those that were taken out count too, for they may come back.
inline constexpr size_t kQuarantineRecordsMax = 64;

class IndexDevices {
 public:
  // CORRUPT: it is no table.
  static Result<IndexDevices> Read(const IndexFile& index);
  // Before Match. Paths that may have lost their devices: of the table, and those that the last start did without.
  Result<std::vector<std::string>> KnownPaths(const IndexFile& index) const;
  // Before Match. The devices that lists of extents name, or may name. Path empty: unknown.
  Result<std::vector<ManifestDevice>> Needed(const IndexFile& index) const;
  std::vector<ManifestDevice> Known() const;  // Before Match: of the table.
  // Before Match. A device that a list of extents names, and whose superblock names no index. Lists that cannot be read
  // count as naming nothing. Null: there is none.
  const ManifestDevice* NamedAndUnbound(const IndexFile& index, std::span<const ManifestDevice> devices) const;
  // Gives each device its number. INVALID: with those that are missing there are too many. IO_ERROR, CORRUPT: the index
  // cannot be read.
  Status Match(const IndexFile& index, std::span<const ManifestDevice> devices, std::span<const AbsentPath> absent);
  const DeviceNumbers& numbers() const { return numbers_; }
  // Devices that lists of extents name, or may name, by number; then the absent paths that none of these was at.
  const std::vector<MissingDevice>& missing() const { return missing_; }
  // A sentence for each device that Match dropped.
  const std::vector<std::string>& dropped() const { return dropped_; }
  // Jobs whose lists of extents name a device with this stored number. CORRUPT: a list cannot be read, and may name it.
  static Result<std::vector<std::string>> JobsOn(const IndexFile& index, uint16_t number);
  // The number of a missing device. kNone: no device with this uuid is missing.
  uint16_t NumberOfMissing(const std::string& uuid) const;
  // The number is free. REQUIRES: its device is missing.
  void Free(uint16_t number);
  // Of the devices with a record of quarantined places those that are not known any more, where there are more than
  // needed.
  std::vector<std::string> StaleQuarantines(std::vector<std::string> recorded) const;
  // The table as it is now, to be written; the values live as long as this.
  void AddChanges(std::vector<IndexChange>* changes);

 private:
  void DropFreeAtEnd();
  Status DropUnnamed(const IndexFile& index, std::span<const ManifestDevice> devices);
  void NoteMissing(std::span<const ManifestDevice> devices, std::span<const AbsentPath> absent);
  uint16_t NumberOf(const ManifestDevice& device);
  std::string Describe(uint16_t number) const;

  std::vector<Uuid> uuids_;         // Zero: the number is free.
  std::vector<std::string> paths_;  // Where each was last, for messages. Empty: unknown.
  DeviceNumbers numbers_;
  bool in_order_ = true;  // The numbers are those of the run, and none is free.
  std::vector<std::string> dropped_;
  std::vector<MissingDevice> missing_;
  std::vector<Uuid> stored_uuids_;
  std::string stored_paths_;  // One after the other, each with a zero byte behind it.
  std::string absent_paths_;  // The same.
};

}  // namespace tier::storage
