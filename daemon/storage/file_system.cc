// See file_system.h. Types are the numbers that statfs(2) reports; not all of them stand in linux/magic.h.
#include "daemon/storage/file_system.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
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

Status CheckDevicePath(const std::string& path, bool any_file_system) {
  struct stat about{};
  if (::stat(path.c_str(), &about) == 0) {
    if (S_ISBLK(about.st_mode)) return {};
    if (!S_ISREG(about.st_mode)) return Fail(Code::kInvalid, path + " is neither a block device nor a regular file");
    return any_file_system ? Status{} : CheckFileSystem(path);
  }
  if (errno != ENOENT) return FailErrno(errno, "looking at " + path);
  if (Status fits = CheckNewFile(path); !fits) return fits;
  const std::string parent = std::filesystem::path(path).parent_path();
  if (::stat(parent.empty() ? "." : parent.c_str(), &about) != 0) return FailErrno(errno, "looking at " + parent);
  return any_file_system ? Status{} : CheckFileSystem(parent.empty() ? "." : parent);
}

Result<FileSystemSpace> SpaceOf(const std::string& path) {
  struct statvfs about{};
  if (::statvfs(path.c_str(), &about) != 0) return FailErrno(errno, "asking for the free space of " + path);
  return FileSystemSpace{.total = about.f_blocks * about.f_frsize,
                         .available = about.f_bavail * about.f_frsize,
                         .read_only = (about.f_flag & ST_RDONLY) != 0};
}

}  // namespace tier::storage
