// KnownDevices: which configured device a start can do without, as the index of the last run tells. A path that the
// index knew may have lost its device: the SSD is gone, was swapped for one of another tierd, or holds foreign data by
// now. Then the tier starts on the others, and touches nothing at that path: where jobs persisted tensors on that
// SSD, it makes no other device there either, for what is blank may be only a label that is gone, and what is absent a
// file system that is not mounted. A path that the index never knew is a
// mistake in the configuration, and refuses the start.
//
// A kernel may give the disks other names at each start. So while a device that jobs need is not open, a blank one at
// any path may be that one with its label gone, and is not formatted.
//
// The index is read when a question asks for it, and each part of it once: a start on whole devices reads its uuid, and
// no list of extents. It is open while this lives, and locked unless it is only looked at. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/storage/file_system.h"
#include "daemon/storage/index_devices.h"
#include "daemon/storage/index_file.h"
#include "daemon/storage/superblock.h"
#include "proto/result.h"

namespace tier::storage {

// Where the index of a data directory lies.
std::string IndexPath(const std::string& data_dir);
// Bytes that stay free for the index where a file at `path` grows on its file system; 0: it is on another one.
uint64_t RoomForIndex(const std::string& data_dir, const std::string& path);

enum class IndexUse : uint8_t {
  kOwn,   // For a start: it is locked against all others.
  kLook,  // Beside a daemon that has it: nothing is locked or written.
};

class KnownDevices {
 public:
  // Empty: there is no index, and nothing is known.
  explicit KnownDevices(std::string index_path, IndexUse use = IndexUse::kOwn)
      : index_path_(std::move(index_path)), use_(use) {}
  ~KnownDevices();

  // `why`: the refusal of the device. True: the path had a device of this index, and the refusal says that it is not
  // there any more, or was cut short. A device that is in use, of a later format or forbidden to this user is there.
  bool IsLost(const std::string& path, const Error& why);
  // What jobs persisted lies on the device that was at the path: no other one is made in its place.
  bool IsNeeded(const std::string& path);
  // The index had a device there, or its last run missed one there.
  bool Knows(const std::string& path);
  // The superblock belongs to no index, and the index does not know its device.
  bool IsNew(const proto::Superblock& superblock);
  // A device that is new, or about to be made, is at a path that the index never knew, while one that jobs need is
  // neither among those that were opened nor configured where it was: a misspelled path, most likely. INVALID with
  // both.
  Status CheckNew(const std::string& path, std::span<const Uuid> opened, std::span<const std::string> configured);
  // Why nothing is made at the path: a device that jobs need is not among the `opened` ones, and what is blank there
  // may be that one, or the index had another device there. Empty: something may be made.
  std::string NotMadeReason(const std::string& path, std::span<const Uuid> opened);
  // CORRUPT where the device belongs to an index that is not there, is another one, or is an older copy: such a start
  // is refused, and nothing may be made before that.
  Status CheckBound(const ManifestDevice& device);
  // All for which the index, or its absence, refuses a start on these devices, so far as it is read without being
  // owned. DENIED: this user may not read it.
  Status CheckIndex(std::span<const ManifestDevice> devices);
  // The path had a device of this index, and this superblock is of a device of another index.
  bool IsOfAnother(const std::string& path, const proto::Superblock& superblock);
  // Why the index has no number for one more device that is new to it, beside the `opened` ones, those that will be at
  // the `configured` paths, and those that jobs need. Empty: it has one, or knows this device.
  std::string NoRoomFor(const Uuid& uuid, std::span<const Uuid> opened, std::span<const std::string> configured);
  // Why what the index knows could not be read, where a question asked for it. None: it could, or there is none.
  const std::optional<Error>& failure() const { return failure_; }

 private:
  struct Table {
    IndexIdentity index{};
    std::vector<std::string> paths;  // Where its devices were, and where the last run missed some.
    IndexDevices devices;
  };
  // Null: there is no index, or it cannot be read.
  const Table* Read();
  const std::vector<ManifestDevice>& Needed();
  template <typename T>
  T Failed(const Error& error, T nothing) {
    failure_ = error;
    return nothing;
  }

  const std::string index_path_;
  const IndexUse use_;
  bool opened_ = false;  // Or tried.
  std::unique_ptr<IndexFile> file_;
  std::optional<Table> table_;
  std::optional<std::vector<ManifestDevice>> needed_;
  std::optional<Error> failure_;
};

}  // namespace tier::storage
