// ManifestStore: keeps the manifest of each named job, which says where its persisted tensors lie on SSD. References
// only, never tensor bytes.
//
// A manifest is opaque here, and so is the list of its extents, which is stored beside it and can be read without it:
// tiering encodes them (layouts in proto/manifest_record.h and proto/extent_list_record.h). Commits are synced; they
// and loads run off the engine thread. Engine thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/page_run.h"
#include "daemon/storage/device_numbers.h"
#include "daemon/storage/missing_device.h"
#include "proto/result.h"

namespace tier::storage {

struct ManifestResult {
  uint64_t cookie = 0;
  Code code = Code::kOk;
  std::string message;
  uint64_t commit = 0;                // Number of the synced commit.
  std::vector<std::byte> manifest{};  // That StartLoad asked for.
  std::vector<std::string> purged{};  // Jobs of which nothing is stored any more, by StartPurge.
  // With IO_ERROR: the change may have been committed or not. The next daemon finds out; until then the store refuses
  // everything with IO_ERROR.
  bool unknown = false;
};

class ManifestStore {
 public:
  virtual ~ManifestStore() = default;
  // Replaces the manifest of `job` ("uid/name") and its list in one synced transaction; the result comes by Poll.
  virtual void StartPut(uint64_t cookie, std::string job, std::vector<std::byte> manifest,
                        std::vector<std::byte> extents) = 0;
  virtual void StartErase(uint64_t cookie, std::string job) = 0;
  // Gives up a missing device for good, in one synced transaction: what is stored of jobs with extents on it, its
  // quarantined places, and its number, which the next start may give to another device. NOT_FOUND: it is not missing.
  // CORRUPT: a list of extents cannot be read, and may name it; nothing has changed.
  virtual void StartPurge(uint64_t cookie, std::string device_uuid) = 0;
  virtual void Poll(std::vector<ManifestResult>* results) = 0;
  // The last committed manifest; it comes by Poll, or NOT_FOUND if there is none.
  virtual void StartLoad(uint64_t cookie, std::string job) = 0;
  // Memory of a manifest that is needed no more. It is given back on another thread, for that takes milliseconds.
  virtual void Discard(std::shared_ptr<void> memory) = 0;
  // The last committed manifest at once. Blocks for a read of the file: for the start of the daemon.
  virtual Result<std::vector<std::byte>> Load(std::string_view job) const = 0;
  virtual Result<std::vector<std::byte>> LoadExtents(std::string_view job) const = 0;
  // Writes down which places of a device are quarantined, instead of what was; no result comes. None: erases it.
  virtual void StartQuarantine(uint16_t device, std::vector<base::PageRun> places) = 0;
  // As an earlier run wrote them down.
  virtual std::vector<base::PageRun> Quarantined(uint16_t device) const = 0;
  // How manifests and lists number the devices of this run.
  const DeviceNumbers& device_numbers() const { return device_numbers_; }
  // What a manifest names on one of them is lost until the device is back at a later start.
  const std::vector<MissingDevice>& missing_devices() const { return missing_; }
  // Of which there is a manifest, or a list of its extents.
  virtual Result<std::vector<std::string>> Jobs() const = 0;
  // Why nothing can be persisted any more, or resumed either, in a few words; empty: both can. Any thread.
  virtual std::string failure() const = 0;

 protected:
  // It was purged.
  void RemoveMissing(const std::string& uuid);

  DeviceNumbers device_numbers_;
  std::vector<MissingDevice> missing_;
};

}  // namespace tier::storage
