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

uint64_t GrownSize(uint64_t size, uint64_t requested) { return std::max(size, requested / kBlockSize * kBlockSize); }

Status CheckGrowth(FileSystemSpace space, uint64_t more, const std::string& directory, uint64_t for_index) {
  if (more == 0 || more + for_index <= space.available) return {};
  const std::string kept =
      for_index == 0 ? std::string() : fmt::format(", of which {} stay free for the index", FormatBytes(for_index));
  return Fail(Code::kNoSpace,
              fmt::format("{} more do not fit into {}, where {} of {} are available{}", FormatBytes(more), directory,
                          FormatBytes(space.available), FormatBytes(space.total), kept));
}

std::string KeptSizeNote(const std::string& path, uint64_t size, uint64_t requested) {
  if (requested == 0 || requested >= size) return {};
  return fmt::format(
      "{} keeps its {}, for a file does not shrink, and ssd.file_size is {}; for a smaller one move or remove what "
      "jobs "
      "persisted on it (tierctl device drain, tierctl job remove --purge), stop tierd and remove the file",
      path, FormatBytes(size), FormatBytes(requested));
}

std::string GrowthNote(const std::string& path, uint64_t before, uint64_t after) {
  return fmt::format("{} grows from {} to {} at the next start", path, FormatBytes(before), FormatBytes(after));
}

std::string NextSizeNote(const std::string& path, uint64_t size, uint64_t requested) {
  const uint64_t after = GrownSize(size, requested);
  if (after == size) return KeptSizeNote(path, size, requested);
  return GrowthNote(path, size, after) + ", where its file system has the room";
}

}  // namespace tier::storage
