// A LmdbManifestStore over several devices, which come and go between its runs.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/storage/extent_list.h"
#include "tests/unit/storage/manifest_store_fixture.h"

namespace tier::storage {

class SeveralDevicesTest : public ManifestStoreTest {
 protected:
  static ManifestDevice NewDevice(const std::string& path) { return {.path = path, .uuid = DrawUuid()}; }

  Result<std::unique_ptr<LmdbManifestStore>> TryOpen(const std::vector<ManifestDevice*>& devices,
                                                     const std::vector<AbsentPath>& absent = {}) {
    ManifestStoreOptions options = Options();
    options.absent_paths = absent;
    options.devices.clear();
    for (const ManifestDevice* device : devices) options.devices.push_back(*device);
    options.on_commit = [devices](const Uuid& index, uint64_t commit) -> Status {
      for (ManifestDevice* device : devices) {
        device->index_uuid = index;
        device->index_commit = commit;
      }
      return {};
    };
    return LmdbManifestStore::Open(options);
  }
  std::unique_ptr<LmdbManifestStore> OpenWith(const std::vector<ManifestDevice*>& devices,
                                              const std::vector<AbsentPath>& absent = {}) {
    auto store = TryOpen(devices, absent);
    EXPECT_TRUE(store) << store.error().message;
    return store ? std::move(*store) : nullptr;
  }
  static std::vector<std::string> MissingUuids(const LmdbManifestStore& store) {
    std::vector<std::string> uuids;
    for (const MissingDevice& missing : store.missing_devices()) uuids.push_back(missing.uuid);
    return uuids;
  }
  static std::vector<uint16_t> NumbersOf(const LmdbManifestStore& store, uint16_t devices) {
    std::vector<uint16_t> numbers;
    for (uint16_t i = 0; i < devices; ++i) numbers.push_back(store.device_numbers().StoredOf(i));
    return numbers;
  }
  // `job` persists one block on each of these devices, as this run numbers them.
  void Put(LmdbManifestStore* store, const std::string& job, const std::vector<uint16_t>& devices) {
    ExtentListWriter list(devices.size(), store->device_numbers());
    for (const uint16_t device : devices) list.Add({.run = {.block = 7, .page = 0, .pages = 512}, .device = device});
    store->StartPut(1, job, Manifest("of " + job), std::move(list).Take());
    EXPECT_EQ(Wait(store, 1).at(1).code, Code::kOk);
  }
  // The table of devices as the index has it. REQUIRES: the index is not open.
  std::vector<Uuid> StoredUuids() {
    const auto index = IndexFile::Open({.path = path_, .map_size = 4 * kMiB});
    const auto bytes = (*index)->Get(IndexTable::kBinding, "devices").value();
    std::vector<Uuid> uuids(bytes.size() / sizeof(Uuid));
    std::memcpy(uuids.data(), bytes.data(), bytes.size());
    return uuids;
  }
  void WriteUuids(std::span<const Uuid> uuids) {
    const auto index = IndexFile::Open({.path = path_, .map_size = 4 * kMiB});
    const IndexChange change{.table = IndexTable::kBinding, .key = "devices", .value = std::as_bytes(uuids)};
    EXPECT_TRUE((*index)->Write({&change, 1}).status);
  }

  ManifestDevice a_ = NewDevice("/dev/a");
  ManifestDevice b_ = NewDevice("/dev/b");
  ManifestDevice c_ = NewDevice("/dev/c");
};

}  // namespace tier::storage
