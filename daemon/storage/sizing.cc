// See sizing.h.
#include "daemon/storage/sizing.h"

#include <algorithm>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"

namespace tier::storage {

using base::FormatBytes;

Result<uint64_t> PlanFileSize(FileSystemSpace space, uint64_t requested, const std::string& directory) {
  if (requested != 0) {
    if (requested < proto::kDiskSizeMin) {
      return Fail(Code::kInvalid, fmt::format("an SSD file of {} is too small: set ssd.file_size to at least {}",
                                              FormatBytes(requested), FormatBytes(proto::kDiskSizeMin)));
    }
    if (requested > space.available) {
      return Fail(
          Code::kNoSpace,
          fmt::format("an SSD file of {} does not fit into {}: {} of {} are available; lower ssd.file_size, or name "
                      "another place in daemon.data_directory or ssd.devices",
                      FormatBytes(requested), directory, FormatBytes(space.available), FormatBytes(space.total)));
    }
    return requested / kBlockSize * kBlockSize;
  }
  const uint64_t size = std::min(kDefaultFileMax, space.available / kDefaultFreeDivisor) / kBlockSize * kBlockSize;
  const uint64_t leave = std::max(kLeaveFreeMin, space.total / kLeaveFreeDivisor);
  if (size >= proto::kDiskSizeMin && space.available - size >= leave) return size;
  return Fail(Code::kNoSpace,
              fmt::format("no room for the default SSD file in {}: {} of {} are available, it would take {} and must "
                          "leave {} free; free some space, or set ssd.file_size, daemon.data_directory or ssd.devices",
                          directory, FormatBytes(space.available), FormatBytes(space.total), FormatBytes(size),
                          FormatBytes(leave)));
}

}  // namespace tier::storage
