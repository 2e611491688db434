// DeviceFile: one SSD device as a descriptor for direct I/O: a raw block device, a preallocated file, or a private file
// without a name. An open device can serve, is used by no other process, and holds only this daemon's data.
//
// The lock is flock on the very description that I/O goes through, so that it stays held until a dead daemon's last
// request has landed. Any thread, one at a time; CommitIndex may run on another thread than I/O.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/storage/file_system.h"
#include "daemon/storage/space_plan.h"
#include "daemon/storage/superblock.h"
#include "proto/disk.h"
#include "proto/mapping.h"
#include "proto/result.h"

namespace tier::storage {

inline constexpr uint32_t kDeviceAlignmentMax = kPageSize;  // What direct I/O may ask for at most.

struct DeviceFileOptions {
  std::string path;
  uint64_t size = 0;                   // Files only: of a new one, and to Grow to. 0: as it stands, or sizing.h's rule.
  bool private_file = false;           // `path` is the directory of a file without a name.
  bool discard_at_format = true;       // Block devices.
  bool allow_any_file_system = false;  // Tests.
  std::function<Result<FileSystemSpace>(const std::string&)> space = SpaceOf;
  uint64_t for_index = 0;  // Bytes that stay free on its file system when it grows.
  // A file that is absent is made, and what has no label is formatted. False: NOT_FOUND.
  bool may_make = true;
  // Everything is done but to lock, make or write: the plan has what it would take of the disk. None: all is done.
  std::shared_ptr<SpacePlan> plan;
  std::string data_dir;  // With a plan: a directory that counts as made where it is absent.
};

class DeviceFile {
 public:
  static Result<DeviceFile> Open(const DeviceFileOptions& options);
  DeviceFile(DeviceFile&&) noexcept = default;
  DeviceFile& operator=(DeviceFile&&) = delete;
  ~DeviceFile();  // Unlocks at once. REQUIRES: no I/O in flight on fd().

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  const proto::Superblock& superblock() const { return superblock_; }
  uint64_t data_offset() const { return superblock_.data_offset; }
  uint32_t block_count() const { return static_cast<uint32_t>(superblock_.block_count); }
  bool block_device() const { return block_device_; }
  bool private_file() const { return private_file_; }
  bool created() const { return created_; }  // Formatted by this Open.
  void RemoveIfMade() const;                 // The file, if this Open made it: the start that needs it is refused.
  uint32_t alignment() const { return alignment_; }
  // Why this Open made a smaller file than the rule's usual one (sizing.h); empty: it did not.
  const std::string& shortage() const { return shortage_; }

  // What of its size is not as it is configured; empty: nothing.
  const std::string& size_note() const { return size_note_; }
  uint64_t grown_from() const { return grown_from_; }  // Bytes, before Grow; 0: it did not grow.

  // Whether the file is smaller than `options.size`.
  bool IsToGrow(const DeviceFileOptions& options) const;
  // Extends the file to `options.size`, in whole blocks; what it holds stays as it is. A crash on the way leaves a
  // device of the old size or of the new one. NO_SPACE, INVALID, IO_ERROR and others: it has its old size, as the
  // sentence says. REQUIRES: IsToGrow; block_count() was not used yet.
  Status Grow(const DeviceFileOptions& options);
  // Gives back what a growth that was interrupted has left behind the end that the superblock says; size_note() tells.
  // Of a file that is not to grow. Best effort, and never of a block device.
  void CutExcess();

  // Names the synced index that extents on this device belong to, and its last commit; a zero uuid: none. One
  // superblock write and a flush, two where it is another index than before.
  Status CommitIndex(const Uuid& index, uint64_t index_commit);

  // Why the next start would not find what is on it: its path leads to this file no more. Empty: it does, as far as can
  // be seen, or it is a block device or has no name anyhow.
  std::string Misplaced() const;

  // Makes every write that has completed durable.
  Status Flush();

  // For tools. Format: as FormatDevice in ssd_tier.h. ReadSuperblock: as DescribeDevice.
  static Result<DeviceFile> Format(const std::string& path, bool force);
  static Result<proto::Superblock> ReadSuperblock(const std::string& path);

 private:
  DeviceFile() = default;
  Status OpenPrivate(const DeviceFileOptions& options);
  Status OpenNew(const DeviceFileOptions& options);
  Status OpenPresent(const DeviceFileOptions& options);
  Status OpenNode(bool allow_any_file_system);
  Status MakeRoom(const DeviceFileOptions& options, const std::string& directory);
  Result<FileSystemSpace> SpaceIn(const std::string& directory, const DeviceFileOptions& options) const;
  Status Plan(uint64_t size, const std::string& directory);
  Status Preallocate(uint64_t size, const std::string& directory);
  Status Extend(uint64_t size, const DeviceFileOptions& options);
  Status SetSize(uint64_t size);
  bool BothCopiesSay(uint64_t size) const;
  Status Lock();
  Status CheckAlignment();
  Status Adopt(const DeviceFileOptions& options, const proto::Superblock& found);
  Status FormatNow(bool discard);
  Status WriteNext(proto::Superblock next);
  Status WriteCopy(const proto::Superblock& superblock);

  proto::FileDescriptor fd_;
  std::shared_ptr<SpacePlan> plan_;  // None: it is locked, and may be written.
  uint64_t planned_ = 0;             // With a plan: bytes that the file has of its disk, with those of the plan.
  std::string path_;
  std::string shortage_;
  std::string size_note_;
  uint64_t grown_from_ = 0;
  proto::Superblock superblock_{};
  uint64_t size_ = 0;  // Bytes, of the file or the block device: the superblock may say less.
  uint32_t alignment_ = 0;
  bool block_device_ = false;
  bool private_file_ = false;
  bool created_ = false;
  bool made_ = false;  // The file, by this Open.
};

}  // namespace tier::storage
