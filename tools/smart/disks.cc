#include "tools/smart/disks.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/storage/smart_file.h"

namespace tier::smart {
namespace {

namespace fs = std::filesystem;

// "nvme0n1", of a whole namespace.
bool IsNvmeDisk(std::string_view name) {
  constexpr std::string_view kNvme = "nvme";
  if (!name.starts_with(kNvme)) return false;
  const auto digits = [&name] {
    const size_t before = name.size();
    while (!name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) != 0) name.remove_prefix(1);
    return name.size() != before;
  };
  name.remove_prefix(kNvme.size());
  if (!digits() || name.empty() || name.front() != 'n') return false;
  name.remove_prefix(1);
  return digits() && name.empty();
}

// "S4EW NX0R  " becomes "S4EW_NX0R".
std::string SerialOf(const fs::path& folder) {
  std::string serial;
  std::getline(std::ifstream(folder / "device/serial"), serial);
  serial.resize(std::min({serial.size(), serial.find_last_not_of(' ') + 1, storage::kSmartWordMax}));
  std::ranges::replace_if(serial, [](char c) { return c <= ' ' || c > '~'; }, '_');
  return serial.empty() ? storage::kSmartSerialUnknown : serial;
}

// Any other error does not tell that nothing is there.
bool IsAbsent(const std::error_code& error) {
  return error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
}

void AddUnknown(std::string sentence, const std::error_code& error, DisksBehind* behind) {
  behind->unknown.push_back(std::move(sentence));
  behind->may_be_more |= !IsAbsent(error);
}

// The folder is of a block device; adds what it stands on. A part that fails hides no other.
Status AddDisks(fs::path folder, int layers, DisksBehind* behind) {
  std::error_code error;
  if (fs::exists(folder / "partition", error)) folder = folder.parent_path();
  if (error) behind->may_be_more = true;  // A partition of a disk would be taken for a device that is no disk.
  const std::string name = folder.filename().string();
  if (IsNvmeDisk(name)) {
    behind->disks.push_back({.name = name, .serial = SerialOf(folder)});
    return {};
  }
  if (layers == 0 || behind->disks.size() + behind->unknown.size() >= kDisksMax)
    return Fail(Code::kInvalid, fmt::format("{} is made of too many devices", name));
  std::vector<fs::path> below;
  const size_t unknown_before = behind->unknown.size();
  for (fs::directory_iterator each(folder / "slaves", error), end; !error && each != end; each.increment(error)) {
    std::error_code gone;
    below.push_back(fs::canonical(each->path(), gone));
    if (!gone) continue;
    below.pop_back();
    AddUnknown(fmt::format("{}: {}", each->path().filename().string(), gone.message()), gone, behind);
  }
  if (error && !IsAbsent(error)) {
    AddUnknown(fmt::format("cannot tell what {} is made of: {}", name, error.message()), error, behind);
  } else if (below.empty() && behind->unknown.size() == unknown_before) {
    behind->unknown.push_back(fmt::format("{} is no NVMe device", name));
  }
  std::ranges::sort(below);
  for (const fs::path& each : below) {
    if (Status added = AddDisks(each, layers - 1, behind); !added) return added;
  }
  return {};
}

}  // namespace

Result<dev_t> DeviceNumberOf(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) == 0) return S_ISBLK(about.st_mode) ? about.st_rdev : about.st_dev;
  const int why = errno;
  Code code = why == EACCES ? Code::kDenied : Code::kIoError;
  if (why == ENOENT || why == ENOTDIR || why == ENXIO || why == ENODEV) code = Code::kNotFound;
  return Fail(code, fmt::format("{}: {}", path, std::strerror(why)));
}

Result<DisksBehind> NvmeDisksBehind(dev_t device, const std::string& sys) {
  const std::string numbers = fmt::format("{}:{}", major(device), minor(device));
  std::error_code error;
  const fs::path folder = fs::canonical(fs::path(sys) / "dev/block" / numbers, error);
  if (error && IsAbsent(error)) {
    return Fail(Code::kNotFound,
                fmt::format("it is on no block device that the system knows ({}: {})", numbers, error.message()));
  }
  if (error) return Fail(Code::kIoError, fmt::format("cannot look up device {}: {}", numbers, error.message()));
  DisksBehind behind;
  if (Status added = AddDisks(folder, kLayersMax, &behind); !added) return std::unexpected(added.error());
  if (behind.disks.empty()) {
    TIER_CHECK(!behind.unknown.empty(), "{} is made of nothing", folder.string());
    return Fail(behind.may_be_more ? Code::kIoError : Code::kNotFound, behind.unknown.front());
  }
  std::ranges::sort(behind.disks);
  behind.disks.erase(std::ranges::unique(behind.disks).begin(), behind.disks.end());
  return behind;
}

}  // namespace tier::smart
