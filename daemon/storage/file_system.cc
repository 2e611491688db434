// See file_system.h. Types are the numbers that statfs(2) reports; not all of them stand in linux/magic.h.
#include "daemon/storage/file_system.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include "daemon/storage/os_error.h"

namespace tier::storage {
namespace {

struct UnfitFileSystem {
  uint64_t type;
  std::string_view reason;
};

constexpr UnfitFileSystem kUnfit[] = {
    {0x01021994, "tmpfs: its files lie in memory, which is what the SSD tier is to spare"},
    {0x858458f6, "ramfs: its files lie in memory, which is what the SSD tier is to spare"},
    {0x794c7630, "overlayfs: writes are copied up and direct I/O is not the disk's; mount a volume"},
    {0x00006969, "NFS: another machine's latency and failures are not an SSD's"},
    {0x01021997, "9p: another machine's latency and failures are not an SSD's"},
    {0x65735546, "FUSE: a user process between the daemon and the disk can block it forever"},
    {0xff534d42, "CIFS: another machine's latency and failures are not an SSD's"},
    {0xfe534d42, "SMB: another machine's latency and failures are not an SSD's"},
    {0x00c36400, "CephFS: another machine's latency and failures are not an SSD's"},
    {0x0bd00bd0, "Lustre: another machine's latency and failures are not an SSD's"},
    {0x73717368, "squashfs: it cannot be written"},
};

// What tells a device from all others: its number, or those of the file; of a file that is absent its name as well.
using Identity = std::tuple<dev_t, ino_t, dev_t, std::string>;

std::optional<Identity> IdentityOf(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) == 0) {
    // Several nodes may lead to one block device.
    if (S_ISBLK(about.st_mode)) return Identity{0, 0, about.st_rdev, ""};
    return Identity{about.st_dev, about.st_ino, 0, ""};
  }
  if (errno != ENOENT) return std::nullopt;
  const std::filesystem::path absent(path);
  const std::string directory = absent.has_parent_path() ? absent.parent_path().string() : ".";
  if (::stat(directory.c_str(), &about) != 0) return std::nullopt;
  return Identity{about.st_dev, about.st_ino, 0, absent.filename()};
}

}  // namespace

std::optional<std::string_view> ReasonAgainstFileSystem(uint64_t type) {
  for (const UnfitFileSystem& unfit : kUnfit) {
    if (unfit.type == type) return unfit.reason;
  }
  return std::nullopt;
}

Status CheckFileSystem(const std::string& path) {
  struct statfs about{};
  if (::statfs(path.c_str(), &about) != 0) return FailErrno(errno, "asking for the file system of " + path);
  // f_type is signed on some machines; the magic numbers are 32 bits.
  const auto reason = ReasonAgainstFileSystem(static_cast<uint32_t>(about.f_type));
  if (!reason) return {};
  return Fail(
      Code::kInvalid,
      fmt::format("{} cannot hold the SSD file: it is on {}; name a place on a local disk in daemon.data_directory or "
                  "ssd.devices",
                  path, *reason));
}

Status CheckNewFile(const std::string& path) {
  // /dev/shm is no device directory, and refused as tmpfs unless every file system is allowed.
  if (!path.starts_with("/dev/") || path.starts_with("/dev/shm/")) return {};
  return Fail(Code::kNotFound,
              fmt::format("{} does not exist; name a block device that does (lsblk) in ssd.devices", path));
}

Status CheckDistinct(std::span<const std::string> paths) {
  std::map<Identity, std::string> seen;
  for (const std::string& path : paths) {
    const auto identity = IdentityOf(path);
    if (!identity) continue;
    const auto [first, is_new] = seen.emplace(*identity, path);
    if (is_new) continue;
    return Fail(Code::kInvalid,
                first->second == path
                    ? fmt::format("{} is named twice: name it once in ssd.devices", path)
                    : fmt::format("{} and {} are one device: name it once in ssd.devices", first->second, path));
  }
  return {};
}

std::string ExistingPartOf(const std::string& path) {
  std::filesystem::path there = path;
  std::error_code error;
  while (there.has_relative_path() &&
         std::filesystem::status(there, error).type() == std::filesystem::file_type::not_found)
    there = there.parent_path();
  return there;
}

Result<uint64_t> SizeOf(int fd, const std::string& path) {
  struct stat about{};
  if (::fstat(fd, &about) != 0) return FailErrno(errno, "sizing " + path);
  auto size = static_cast<uint64_t>(about.st_size);
  if (S_ISBLK(about.st_mode) && ::ioctl(fd, BLKGETSIZE64, &size) != 0) return FailErrno(errno, "sizing " + path);
  return size;
}

Result<FileSystemSpace> SpaceOf(const std::string& path) {
  struct statvfs about{};
  if (::statvfs(path.c_str(), &about) != 0) return FailErrno(errno, "asking for the free space of " + path);
  return FileSystemSpace{.total = about.f_blocks * about.f_frsize,
                         .available = about.f_bavail * about.f_frsize,
                         .read_only = (about.f_flag & ST_RDONLY) != 0};
}

std::string WhyMisplaced(int fd, const std::string& path) {
  struct stat open{};
  struct stat there{};
  if (::fstat(fd, &open) != 0) return "";
  if (::stat(path.c_str(), &there) == 0) {
    if (there.st_dev == open.st_dev && there.st_ino == open.st_ino) return "";
  } else if (errno != ENOENT && errno != ENOTDIR) {
    return "";
  }
  if (open.st_nlink == 0) {
    return fmt::format(
        "the file {} was deleted, and what is on it ends with this tierd: save what jobs need elsewhere, "
        "then restart tierd",
        path);
  }
  return fmt::format("the file {} was moved, and the next start would not find what is on it: put it back", path);
}

}  // namespace tier::storage
