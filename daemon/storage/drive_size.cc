#include "daemon/storage/drive_size.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include <fmt/format.h>

#include "daemon/base/check.h"

namespace tier::storage {

std::optional<uint64_t> DriveBytes(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return std::nullopt;
  return DriveBytes(S_ISBLK(about.st_mode) ? about.st_rdev : about.st_dev, "/sys");
}

std::optional<uint64_t> DriveBytes(dev_t number, const std::string& sysfs) {
  TIER_CHECK(!sysfs.empty(), "no sysfs for device {}", number);
  constexpr uint64_t kSector = 512;  // Of sysfs, whatever the drive's is.
  const std::string device = fmt::format("{}/dev/block/{}:{}", sysfs, major(number), minor(number));
  std::error_code error;
  // A partition's folder lies in its drive's.
  const bool is_part = std::filesystem::exists(device + "/partition", error);
  const auto place = std::filesystem::canonical(device, error);
  if (error) return std::nullopt;
  // Of volumes that lie on others: which part of which drive is not told here.
  if (!std::filesystem::is_empty(place / "slaves", error) && !error) return std::nullopt;
  std::ifstream file((is_part ? place.parent_path() : place) / "size");
  uint64_t sectors = 0;
  if (!(file >> sectors) || sectors == 0 || sectors > std::numeric_limits<uint64_t>::max() / kSector)
    return std::nullopt;
  return sectors * kSector;
}

}  // namespace tier::storage
