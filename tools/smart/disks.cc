#include "tools/smart/disks.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include <fmt/format.h>

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

// The folder is of a block device; adds what it stands on.
Status AddDisks(fs::path folder, int layers, std::vector<std::string>* disks) {
  std::error_code error;
  if (fs::exists(folder / "partition", error)) folder = folder.parent_path();
  const std::string name = folder.filename().string();
  if (IsNvmeDisk(name)) {
    disks->push_back("/dev/" + name);
    return {};
  }
  if (layers == 0 || disks->size() >= kDisksMax)
    return Fail(Code::kInvalid, fmt::format("{} is made of too many devices", name));
  std::vector<fs::path> below;
  for (fs::directory_iterator each(folder / "slaves", error), end; !error && each != end; each.increment(error)) {
    below.push_back(fs::canonical(each->path(), error));
    if (error) break;
  }
  if (error && error != std::errc::no_such_file_or_directory)
    return Fail(Code::kIoError, fmt::format("cannot tell what {} is made of: {}", name, error.message()));
  if (below.empty()) return Fail(Code::kNotFound, fmt::format("{} is no NVMe device", name));
  std::ranges::sort(below);
  for (const fs::path& each : below) {
    if (Status added = AddDisks(each, layers - 1, disks); !added) return added;
  }
  return {};
}

}  // namespace

Result<dev_t> DeviceNumberOf(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) == 0) return S_ISBLK(about.st_mode) ? about.st_rdev : about.st_dev;
  const int why = errno;
  return Fail(why == EACCES ? Code::kDenied : Code::kNotFound, fmt::format("{}: {}", path, std::strerror(why)));
}

Result<std::vector<std::string>> NvmeDisksBehind(dev_t device, const std::string& sys) {
  const std::string numbers = fmt::format("{}:{}", major(device), minor(device));
  std::error_code error;
  const fs::path folder = fs::canonical(fs::path(sys) / "dev/block" / numbers, error);
  if (error) {
    return Fail(Code::kNotFound,
                fmt::format("it is on no block device that the system knows ({}: {})", numbers, error.message()));
  }
  std::vector<std::string> disks;
  if (Status added = AddDisks(folder, kLayersMax, &disks); !added) return std::unexpected(added.error());
  std::ranges::sort(disks);
  disks.erase(std::ranges::unique(disks).begin(), disks.end());
  return disks;
}

}  // namespace tier::smart
