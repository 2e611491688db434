// SsdTier: the SSD half of the daemon as main() needs it. Opens the configured devices (creating the default file where
// asked), and holds what the engine works with: the ExtentStore, the TransferPort, and what people want to know.
//
// Open on any thread; from then on everything but the static functions belongs to the engine thread.
// Each device stays locked (flock on the very description its I/O uses) until the tier is destroyed and its last
// request has landed. REQUIRES at destruction: no transfer in flight.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/base/workers.h"
#include "daemon/storage/device_io.h"
#include "daemon/storage/extent_store.h"
#include "daemon/storage/file_system.h"
#include "daemon/storage/manifest_store.h"
#include "daemon/storage/ssd_tier_options.h"
#include "daemon/storage/transfer.h"
#include "proto/result.h"

namespace tier::storage {

enum class IoMode : uint8_t { kUring, kThreads };
enum class SsdMode : uint8_t {
  kFull,     // Every device, at the size that was asked for or that the rule gives.
  kReduced,  // A default file is smaller than the rule's usual one, or a file could not grow: mostly for lack of room.
  kNone,     // No device: tensors stay in RAM.
};
struct SsdDeviceDescription {
  std::string path;       // As configured; "(private file in DIR)" for one without a name.
  std::string uuid;       // 36 characters.
  uint64_t size = 0;      // Bytes, superblock area included.
  uint64_t capacity = 0;  // Bytes of the data area.
  uint64_t superblock_commit = 0;
  bool block_device = false;
  bool private_file = false;
  bool created = false;     // Formatted by this Open.
  uint64_t grown_from = 0;  // Bytes, before this Open; 0: it did not grow.
  std::string size_note;    // What of its size is not as it is configured; empty: nothing.
  uint32_t alignment = 0;   // Bytes that direct I/O asks for.
};

class SsdTier {
 public:
  // A path that has lost the device which this index knew there is done without, and told by missing_devices().
  // INVALID: foreign content (left untouched; says what to type), a file system that cannot serve, impossible sizes, a
  // device bound to an index while there is no data_dir.
  // ALREADY_EXISTS: a device in use by another process. NO_SPACE: no room for the file, with figures. DENIED: rights.
  // NO_MEMORY, IO_ERROR: the index cannot be read, and a device neither.
  // Of devices that are not required, some or all of these are the ssd_mode_reason() instead.
  static Result<std::unique_ptr<SsdTier>> Open(const SsdTierOptions& options, base::Workers& workers);
  ~SsdTier();
  SsdTier(const SsdTier&) = delete;
  SsdTier& operator=(const SsdTier&) = delete;

  ExtentStore& extents();
  TransferPort& transfers();
  // Null without data_dir, or without a device and room for the index. Its results wake completion_fd() too.
  ManifestStore* manifests();
  // Why the superblocks do not name the index's last commit (it holds all the same; they are tried again each second);
  // empty when they do.
  std::string superblock_failure() const;

  // A sentence for each device that was taken out since the last start.
  std::vector<std::string> dropped_devices() const;
  // As LmdbManifestStore's.
  std::vector<MissingDevice> missing_devices() const;
  std::vector<std::string> unread_quarantines() const;
  // That there was no index, and one was made for devices that were there; empty: there was one, or nothing was there.
  const std::string& index_note() const;
  // Why quarantined places are not written down; empty when they are.
  std::string quarantine_failure() const;

  // Readable when TransferPort::Poll or TakeRemoved may have something (an eventfd, non-blocking). Register it
  // edge-triggered (EPOLLET) and never read it, or level-triggered and call ClearWakeup() before each Poll that it
  // woke.
  int completion_fd() const;
  void ClearWakeup();

  IoMode io_mode() const;
  const std::string& io_mode_reason() const;  // Why not io_uring; empty when it is.
  SsdMode ssd_mode() const;
  const std::string& ssd_mode_reason() const;  // Why not kFull; empty: it was configured so.
  // Open has proven that all windows can be registered for I/O, and those that there are have been. False: "unpinned".
  // Any thread, as the next.
  bool pinned() const;
  std::string unpinned_reason() const;  // Empty when pinned.
  uint16_t device_count() const;
  const SsdDeviceDescription& device(uint16_t index) const;

 private:
  struct State;
  explicit SsdTier(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Without opening a tier: for `tierctl device list|format` and doctor.
// FormatDevice writes a fresh superblock pair on a block device or an existing file. INVALID when foreign content or a
// superblock of ours lies there and `force` is false; ALREADY_EXISTS when a daemon holds it.
Result<SsdDeviceDescription> FormatDevice(const std::string& path, bool force);
// Reads the superblock. NOT_FOUND: blank. INVALID: foreign content. CORRUPT: ours, both copies damaged.
Result<SsdDeviceDescription> DescribeDevice(const std::string& path);

}  // namespace tier::storage
