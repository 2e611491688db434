// See sizing.h.
#include "daemon/storage/sizing.h"

#include <algorithm>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"

namespace tier::storage {

using base::FormatBytes;

DefaultFile PlanDefaultFile(FileSystemSpace space, const std::string& directory) {
  const uint64_t leave = std::max(kLeaveFreeMin, space.total / kLeaveFreeDivisor);
  const uint64_t room = space.available > leave ? space.available - leave : 0;
  const uint64_t wanted = std::min(kDefaultFileMax, space.available / kDefaultFreeDivisor);
  DefaultFile file;
  if (wanted > room || wanted < kDefaultFileMin) {
    file.shortage = fmt::format("{} of {} are free in {}, of which {} must stay free", FormatBytes(space.available),
                                FormatBytes(space.total), directory, FormatBytes(leave));
  }
  const uint64_t size = std::min(wanted, room) / kBlockSize * kBlockSize;
  if (size >= kDefaultFileMin) file.size = size;
  return file;
}

Result<uint64_t> PlanFileSize(FileSystemSpace space, uint64_t requested, const std::string& directory) {
  if (requested < proto::kDiskSizeMin) {
    return Fail(Code::kInvalid, fmt::format("an SSD file of {} is too small: set ssd.file_size to at least {}",
                                            FormatBytes(requested), FormatBytes(proto::kDiskSizeMin)));
  }
  if (requested > space.available) {
    return Fail(Code::kNoSpace,
                fmt::format("an SSD file of {} does not fit into {}: {} of {} are available; lower ssd.file_size, or "
                            "name another place in daemon.data_directory or ssd.devices",
                            FormatBytes(requested), directory, FormatBytes(space.available), FormatBytes(space.total)));
  }
  return requested / kBlockSize * kBlockSize;
}

}  // namespace tier::storage
