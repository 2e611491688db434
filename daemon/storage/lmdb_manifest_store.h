// LmdbManifestStore: the index of manifests, one file in the data directory (index_file.h) that says what must survive
// the machine. Commits run on a thread of its own, all waiting requests in one synced transaction. After a fault of the
// file, or a commit whose outcome is unknown, every request answers IO_ERROR until the daemon is restarted. The file is
// looked at every `index_check` too, so that failure() tells of it before a job persists, or is to be resumed; and a
// superblock that could not be written is tried again then, so that failure() ends without a job.
//
// It is bound to its devices: it knows their uuids, and while it has manifests each superblock names it and its last
// commit. A lost half shows. Where no superblock names it, nothing is persisted, and its loss costs nothing.
// The order of one commit: flush the devices, so that what the manifests name is durable; the superblocks, where they
// do not name the index yet; LMDB's own synced commit, from which the manifests count; the superblocks again, which
// only let an old copy of the index be told and are tried again. Engine thread, except the commit thread's part.
// Invariant: requests started == committed + failed + unknown + waiting.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/storage/completion_signal.h"
#include "daemon/storage/index_devices.h"
#include "daemon/storage/index_file.h"
#include "daemon/storage/manifest_store.h"
#include "daemon/storage/misplaced_files.h"
#include "daemon/storage/superblock.h"
#include "proto/mutex.h"

namespace tier::storage {

inline constexpr uint64_t kManifestMapSizeDefault = 256 * kMiB;
inline constexpr uint64_t kManifestMapSizeMin = kMiB;
// Waiting, beyond which a manifest is refused with NO_MEMORY at once. What has no bytes, an erase or a load, never is.
inline constexpr size_t kManifestRequestsMax = 1024;
inline constexpr size_t kManifestJobNameMax = kIndexKeyMax;

struct ManifestStoreOptions {
  std::string path;                                                            // The file.
  uint64_t map_size = kManifestMapSizeDefault;                                 // Bytes, to begin with; it grows.
  std::function<Result<FileSystemSpace>(const std::string&)> space = SpaceOf;  // Tests: how full its disk is.
  std::vector<ManifestDevice> devices;
  std::vector<AbsentPath> absent_paths;      // Configured, and done without.
  const CompletionSignal* signal = nullptr;  // Rung when Poll has something; may be null.
  // Called on the commit thread before each commit of manifests: makes all that was written to the devices durable.
  // After one failure it is unknown what is durable: manifests are refused until the daemon is restarted.
  std::function<Status()> flush_devices;
  // Called on the commit thread before each commit of manifests, and every `index_check`: why the next start would not
  // find what is on this device (DeviceFile::Misplaced). Manifests that name it are refused meanwhile.
  std::function<std::string(uint16_t device)> misplaced;
  // Called on the commit thread after each synced commit, and once by Open: writes the superblocks. `index` is zero, as
  // is `commit`, while there is no manifest. A failure takes nothing back (see superblock_failure()); the call is
  // repeated after `superblock_retry`. Before the first manifest it is called too, and its failure refuses that.
  std::function<Status(const Uuid& index, uint64_t commit)> on_commit;
  std::chrono::milliseconds superblock_retry{1000};
  std::chrono::milliseconds index_check{10'000};  // How often file and devices are tried that no request touches.
};

class LmdbManifestStore final : public ManifestStore {
 public:
  // CORRUPT: a device names an index that is not here, or a later commit of this one, or no index, though manifests
  // name it (an old copy of the file).
  // INVALID: too many devices, with those that are missing (index_devices.h). ALREADY_EXISTS: in use. NO_SPACE: cannot
  // be allocated.
  static Result<std::unique_ptr<LmdbManifestStore>> Open(ManifestStoreOptions options);
  ~LmdbManifestStore() override;  // Commits what waits, then joins.

  void StartPut(uint64_t cookie, std::string job, std::vector<std::byte> manifest,
                std::vector<std::byte> extents) override;
  void StartErase(uint64_t cookie, std::string job) override;
  void StartLoad(uint64_t cookie, std::string job) override;
  void StartPurge(uint64_t cookie, std::string device_uuid) override;
  void Discard(std::shared_ptr<void> memory) override;
  void Poll(std::vector<ManifestResult>* results) override;
  Result<std::vector<std::byte>> Load(std::string_view job) const override;
  Result<std::vector<std::byte>> LoadExtents(std::string_view job) const override;
  Result<std::vector<std::string>> Jobs() const override;
  void StartQuarantine(uint16_t device, std::vector<base::PageRun> places) override;
  std::vector<base::PageRun> Quarantined(uint16_t device) const override { return quarantined_.at(device); }
  std::string failure() const override;

  const Uuid& uuid() const { return uuid_; }
  bool is_new() const { return is_new_; }  // There was no index.
  // A sentence for each device that the index knew until now, and that was taken out.
  const std::vector<std::string>& dropped_devices() const { return devices_.dropped(); }
  // Sentences that say which quarantined places could not be read, and are tried again, or not be erased.
  const std::vector<std::string>& unread_quarantines() const { return unread_quarantines_; }
  // Why quarantined places are not written down, as of the last attempt; empty: they are. Any thread.
  std::string quarantine_failure() const;
  // Why the devices do not know the last commit; empty when they do. Any thread.
  std::string superblock_failure() const;

 private:
  struct Request {
    uint64_t cookie = 0;
    std::string job;  // Of a purge: the uuid of the device.
    std::vector<std::byte> manifest;
    std::vector<std::byte> extents;
    enum class Kind : uint8_t { kPut, kErase, kLoad, kPurge } kind = Kind::kPut;
  };
  explicit LmdbManifestStore(ManifestStoreOptions options);
  Status OpenIndex();
  Status Bind();
  Status CheckNamed();
  Status TakeQuarantines();
  Status EraseStaleQuarantines(const std::vector<std::string>& stale);
  Status LeaveQuarantines();
  void Enqueue(Request request);
  void Run();
  void WaitForWork() TIER_REQUIRES(mutex_);
  Status FlushDevices();
  Status NameDevices();
  Status NameIndex(bool named);
  void WriteSuperblocks();
  void CheckIndex();
  MisplacedFiles FindMisplaced();
  void RetryDevices();
  void WriteQuarantines(const std::map<uint16_t, std::vector<base::PageRun>>& quarantines);
  std::vector<ManifestResult> Perform(std::span<Request> batch);
  std::vector<ManifestResult> CommitBatch(std::span<const Request> batch);
  ManifestResult Load(const Request& request) const;
  ManifestResult Purge(const Request& request);
  IndexWrite CommitPurge(uint16_t number, const std::string& uuid, std::span<const std::string> jobs, uint64_t* commit);
  IndexWrite CommitTogether(std::span<const Request> batch, uint64_t* commit);

  ManifestStoreOptions options_;
  std::unique_ptr<IndexFile> index_;
  Uuid uuid_{};
  bool is_new_ = false;
  IndexDevices devices_;                                 // Its table: the commit thread's, once it runs.
  std::vector<std::vector<base::PageRun>> quarantined_;  // Of each device, as Open found them.
  std::vector<std::string> unread_quarantines_;
  bool quarantines_damaged_ = false;  // Their table: this run does not touch it any more.
  uint64_t commit_ = 0;               // Last synced. Commit thread, once it runs; as the next two.
  bool named_ = false;                // There are manifests, or may be: superblocks name the index.
  std::string flush_failure_;         // Empty: every flush came through.

  mutable Mutex mutex_;
  CondVar wake_;
  std::vector<Request> waiting_ TIER_GUARDED_BY(mutex_);
  std::map<uint16_t, std::vector<base::PageRun>> quarantines_ TIER_GUARDED_BY(mutex_);  // By device; the last ones.
  std::string quarantine_failure_ TIER_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<void>> discarded_ TIER_GUARDED_BY(mutex_);
  std::vector<ManifestResult> results_ TIER_GUARDED_BY(mutex_);
  std::vector<std::string> purged_ TIER_GUARDED_BY(mutex_);  // Devices, which Poll takes from `missing_`.
  std::string unready_ TIER_GUARDED_BY(mutex_);     // Why the devices were not ready for the last manifest; or empty.
  std::string unwritable_ TIER_GUARDED_BY(mutex_);  // IndexFile::CheckWritable, as last found.
  std::string misplaced_ TIER_GUARDED_BY(mutex_);   // Of all devices, and of the index.
  std::chrono::steady_clock::time_point check_at_ TIER_GUARDED_BY(mutex_){};
  std::string superblock_failure_ TIER_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point superblock_retry_at_ TIER_GUARDED_BY(mutex_) =
      std::chrono::steady_clock::time_point::max();
  bool stopping_ TIER_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tier::storage
