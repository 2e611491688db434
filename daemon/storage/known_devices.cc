// See known_devices.h.
#include "daemon/storage/known_devices.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/stat.h>

#include "daemon/base/check.h"
#include "daemon/storage/device_file.h"
#include "daemon/storage/index_devices.h"
#include "daemon/storage/lmdb_manifest_store.h"

namespace tier::storage {
namespace {

// By what stat(2) answers.
bool IsGone(int error) {
  return error == ENOENT || error == ENOTDIR || error == ENXIO || error == ENODEV || error == EIO;
}

}  // namespace

KnownDevices KnownDevices::Read(const std::string& index_path) {
  KnownDevices known;
  struct stat about{};
  if (::stat(index_path.c_str(), &about) != 0 || about.st_size == 0) return known;
  const auto index = IndexFile::Open({.path = index_path, .map_size = kManifestMapSizeDefault});
  if (!index) return known;
  const auto uuid = (*index)->Get(IndexTable::kBinding, kKeyIndexUuid);
  auto paths = IndexDevices::KnownPaths(**index);
  auto needed = IndexDevices::Needed(**index);
  if (!uuid || uuid->size() != sizeof(Uuid) || !paths || !needed) return known;
  std::memcpy(known.index_.data(), uuid->data(), uuid->size());
  known.paths_ = *std::move(paths);
  known.needed_ = *std::move(needed);
  return known;
}

bool KnownDevices::Knows(const std::string& path) const { return std::ranges::find(paths_, path) != paths_.end(); }

bool KnownDevices::IsNeeded(const std::string& path) const {
  return std::ranges::find(needed_, path, &ManifestDevice::path) != needed_.end();
}

Status KnownDevices::CheckMade(const std::string& path, std::span<const Uuid> opened,
                               std::span<const std::string> configured) const {
  TIER_CHECK(!path.empty() && !opened.empty(), "a device was made at '{}', and {} are open", path, opened.size());
  if (Knows(path)) return {};
  for (const ManifestDevice& device : needed_) {
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

bool KnownDevices::IsLost(const std::string& path, const Error& why) const {
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
  if (label) return IsOfAnother(path, *label);
  const Code found = label.error().code;
  return found == Code::kInvalid || found == Code::kCorrupt || (found == Code::kNotFound && IsNeeded(path));
}

bool KnownDevices::IsOfAnother(const std::string& path, const proto::Superblock& superblock) const {
  Uuid bound{};
  std::copy_n(superblock.index_uuid, bound.size(), bound.begin());
  return bound != Uuid{} && index_ != Uuid{} && bound != index_ && Knows(path);
}

}  // namespace tier::storage
