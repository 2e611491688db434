// See known_devices.h.
#include "daemon/storage/known_devices.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "daemon/base/check.h"
#include "daemon/storage/device_file.h"
#include "daemon/storage/file_system.h"
#include "daemon/storage/index_devices.h"
#include "daemon/storage/lmdb_manifest_store.h"
#include "daemon/storage/os_error.h"

namespace tier::storage {
namespace {

// Its label says that it had more bytes than it has.
bool IsCutShort(const std::string& path, const proto::Superblock& label) {
  const proto::FileDescriptor device(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const Result<uint64_t> size = device ? SizeOf(device.get(), path) : FailErrno(errno, "opening " + path);
  return size && label.device_size > *size;
}

// By what stat(2) answers.
bool IsGone(int error) {
  return error == ENOENT || error == ENOTDIR || error == ENXIO || error == ENODEV || error == EIO;
}

}  // namespace

std::string IndexPath(const std::string& data_dir) { return data_dir + "/index.mdb"; }

// A lost index is made with its first size, and one that is full grows only where kIndexDiskKept stays free.
uint64_t RoomForIndex(const std::string& data_dir, const std::string& path) {
  struct stat directory{};
  struct stat file{};
  if (data_dir.empty() || ::stat(data_dir.c_str(), &directory) != 0 || ::stat(path.c_str(), &file) != 0) return 0;
  return directory.st_dev == file.st_dev ? kIndexDiskKept + kManifestMapSizeDefault : 0;
}

KnownDevices::~KnownDevices() = default;

const KnownDevices::Table* KnownDevices::Read() {
  if (opened_) return table_ ? &*table_ : nullptr;
  opened_ = true;
  struct stat about{};
  if (index_path_.empty()) return nullptr;
  if (::stat(index_path_.c_str(), &about) != 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR) return nullptr;
    return Failed(FailErrno(error, "looking at " + index_path_).error(), nullptr);
  }
  if (about.st_size == 0) return nullptr;
  auto index =
      IndexFile::Open({.path = index_path_, .map_size = kManifestMapSizeDefault, .read_only = use_ == IndexUse::kLook});
  if (!index) return Failed(index.error(), nullptr);
  file_ = std::move(*index);
  const auto identity = ReadIdentity(*file_);
  if (!identity) return Failed(identity.error(), nullptr);
  if (identity->uuid == Uuid{}) return nullptr;
  auto devices = IndexDevices::Read(*file_);
  if (!devices) return Failed(devices.error(), nullptr);
  auto paths = devices->KnownPaths(*file_);
  if (!paths) return Failed(paths.error(), nullptr);
  table_.emplace(Table{.index = *identity, .paths = *std::move(paths), .devices = *std::move(devices)});
  return &*table_;
}

const std::vector<ManifestDevice>& KnownDevices::Needed() {
  if (needed_) return *needed_;
  needed_.emplace();
  const Table* const table = Read();
  if (table == nullptr) return *needed_;
  TIER_CHECK(file_ != nullptr, "a table of {} paths without its index", table->paths.size());
  auto needed = table->devices.Needed(*file_);
  if (needed) {
    needed_ = *std::move(needed);
  } else {
    failure_ = needed.error();
    needed_ = table->devices.Known();  // Each of them may be.
  }
  return *needed_;
}

bool KnownDevices::Knows(const std::string& path) {
  const Table* const table = Read();
  return table != nullptr && std::ranges::find(table->paths, path) != table->paths.end();
}

bool KnownDevices::IsNeeded(const std::string& path) {
  TIER_CHECK(!path.empty(), "a device without a path ({})", index_path_);
  return std::ranges::find(Needed(), path, &ManifestDevice::path) != Needed().end();
}

std::string KnownDevices::NoRoomFor(const Uuid& uuid, std::span<const Uuid> opened,
                                    std::span<const std::string> configured) {
  const Table* const table = Read();
  if (table == nullptr) return {};
  const std::vector<ManifestDevice> known = table->devices.Known();
  // Lists are not read while there are numbers for all in any case.
  if (known.size() + opened.size() + 1 <= kIndexDevicesMax) return {};
  const auto has = [](const auto& all, const auto& each) { return std::ranges::find(all, each) != all.end(); };
  const auto is_known = [&](const Uuid& each) {
    return std::ranges::find(known, each, &ManifestDevice::uuid) != known.end();
  };
  if (is_known(uuid)) return {};
  const auto kept = std::ranges::count_if(known, [&](const ManifestDevice& device) {
    return has(opened, device.uuid) || has(configured, device.path) ||
           std::ranges::find(Needed(), device.uuid, &ManifestDevice::uuid) != Needed().end();
  });
  const auto fresh = std::ranges::count_if(opened, [&](const Uuid& each) { return !is_known(each); });
  if (static_cast<size_t>(kept + fresh) < kIndexDevicesMax) return {};
  return fmt::format(
      "the index {} knows {} devices, the most that it can, and this one is new to it; give up missing "
      "ones (tierctl device purge UUID), then restart tierd",
      index_path_, kIndexDevicesMax);
}

bool KnownDevices::IsNew(const proto::Superblock& superblock) {
  if (IndexUuidOf(superblock) != Uuid{}) return false;
  const Table* const table = Read();
  if (table == nullptr) return false;
  const std::vector<ManifestDevice> known = table->devices.Known();
  return std::ranges::find(known, UuidOf(superblock), &ManifestDevice::uuid) == known.end();
}

Status KnownDevices::CheckNew(const std::string& path, std::span<const Uuid> opened,
                              std::span<const std::string> configured) {
  TIER_CHECK(std::ranges::find(configured, path) != configured.end(), "'{}' is not configured", path);
  if (Knows(path)) return {};
  for (const ManifestDevice& device : Needed()) {
    if (device.path.empty()) continue;  // It cannot be named again.
    if (std::ranges::find(opened, device.uuid) != opened.end()) continue;
    if (std::ranges::find(configured, device.path) != configured.end()) continue;
    return Fail(Code::kInvalid,
                fmt::format("{} is new, and {}, on whose device {} jobs persisted tensors, is not in ssd.devices any "
                            "more: a misspelling? Name it again; if it is lost, leave it there until it is given up: "
                            "tierctl device purge {}",
                            path, device.path, FormatUuid(device.uuid), FormatUuid(device.uuid)));
  }
  return {};
}

// Where nothing is, at a path that the index never knew, nothing can be lost: a device more, beside one that is lost.
std::string KnownDevices::NotMadeReason(const std::string& path, std::span<const Uuid> opened) {
  TIER_CHECK(!path.empty(), "a device without a path ({})", index_path_);
  struct stat about{};
  const bool is_there = ::stat(path.c_str(), &about) == 0;
  if (!is_there && !Knows(path)) return {};
  for (const ManifestDevice& device : Needed()) {
    if (std::ranges::find(opened, device.uuid) != opened.end()) continue;
    const std::string uuid = FormatUuid(device.uuid);
    const std::string last = device.path.empty() ? std::string() : fmt::format(" (last at {})", device.path);
    const std::string anyhow =
        is_there ? fmt::format("; if {} is blank and not needed, type: tierctl device format {}", path, path) : "";
    const std::string done = is_there ? fmt::format("{} is left as it is", path)
                                      : fmt::format("nothing is there at {}, and nothing was made there", path);
    return fmt::format(
        "{}: device {}{}, on which jobs persisted tensors, is not open, and {}; if it is at another path, name that in "
        "ssd.devices; if it is lost, type: tierctl device purge {}{}; then restart tierd",
        done, uuid, last,
        is_there ? "may be what is there, for disks may change their names"
                 : "a file system may not be mounted: then mount it",
        uuid, anyhow);
  }
  return {};
}

Status KnownDevices::CheckBound(const ManifestDevice& device) {
  if (device.index_uuid == Uuid{} || index_path_.empty()) return {};
  const Table* const table = Read();
  if (failure()) return {};
  return CheckBinding(device, table != nullptr ? table->index : IndexIdentity{}, index_path_);
}

Status KnownDevices::CheckIndex(std::span<const ManifestDevice> devices) {
  const Table* const table = Read();
  if (failure()) return std::unexpected(*failure());
  for (const ManifestDevice& device : devices) {
    if (Status bound = CheckBound(device); !bound) return bound;
  }
  if (table == nullptr) return {};
  const ManifestDevice* const unbound = table->devices.NamedAndUnbound(*file_, devices);
  return unbound == nullptr ? Status() : std::unexpected(OldCopyRefusal(*unbound, index_path_));
}

bool KnownDevices::IsLost(const std::string& path, const Error& why) {
  TIER_CHECK(why.code != Code::kOk, "{} was refused without a reason", path);
  if (!Knows(path)) return false;
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return IsGone(errno);
  if (!S_ISREG(about.st_mode) && !S_ISBLK(about.st_mode)) return false;
  switch (why.code) {
    case Code::kNotFound:              // A node without a device behind it.
    case Code::kIoError: return true;  // It does not answer.
    case Code::kInvalid:
    case Code::kCorrupt: break;  // Foreign, or not as it is configured.
    default: return false;
  }
  const auto label = DeviceFile::ReadSuperblock(path);
  if (label) return IsCutShort(path, *label) || IsOfAnother(path, *label);
  const Code found = label.error().code;
  return found == Code::kInvalid || found == Code::kCorrupt || (found == Code::kNotFound && IsNeeded(path));
}

bool KnownDevices::IsOfAnother(const std::string& path, const proto::Superblock& superblock) {
  const Uuid bound = IndexUuidOf(superblock);
  if (bound == Uuid{} || !Knows(path)) return false;
  const Uuid& own = Read()->index.uuid;
  return own != Uuid{} && bound != own;
}

}  // namespace tier::storage
