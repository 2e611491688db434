// KnownDevices: which configured device a start can do without, as the index of the last run tells. A path that the
// index knew may have lost its device: the SSD is gone, was swapped for one of another tierd, or holds foreign data by
// now. Then the tier starts on the others, and touches nothing at that path: where jobs persisted tensors on that
// SSD, it makes no other device there either, for what is blank may be only a label that is gone, and what is absent a
// file system that is not mounted. A path that the index never knew is a
// mistake in the configuration, and refuses the start. Thread-compatible.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "daemon/storage/file_system.h"
#include "daemon/storage/index_devices.h"
#include "daemon/storage/superblock.h"
#include "proto/result.h"

namespace tier::storage {

class KnownDevices {
 public:
  // None are known where there is no index, or where it cannot be read: its own opening says why.
  static KnownDevices Read(const std::string& index_path);

  // `why`: the refusal of the device. True: the path had a device of this index, and the refusal says that it is not
  // there any more. A device that is in use, of a later format, forbidden to this user or of another size is there.
  bool IsLost(const std::string& path, const Error& why) const;
  // What jobs persisted lies on the device that was at the path: no other one is made in its place.
  bool IsNeeded(const std::string& path) const;
  // A device was made at a path that the index never knew, while one that jobs need is neither among those that were
  // opened nor configured where it was: a misspelled path, most likely. INVALID with both.
  Status CheckMade(const std::string& path, std::span<const Uuid> opened,
                   std::span<const std::string> configured) const;
  // The path had a device of this index, and this superblock is of a device of another index.
  bool IsOfAnother(const std::string& path, const proto::Superblock& superblock) const;

 private:
  bool Knows(const std::string& path) const;

  Uuid index_{};                    // Zero: there is no index.
  std::vector<std::string> paths_;  // Where its devices were, and where the last run missed some.
  std::vector<ManifestDevice> needed_;
};

}  // namespace tier::storage
