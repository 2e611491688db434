#include "daemon/ssd_words.h"

#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "daemon/base/format_bytes.h"
#include "daemon/storage/drive_size.h"
#include "daemon/storage/sizing.h"

namespace tier {

std::string SsdShortage(const storage::SsdTier& ssd) {
  const std::string& reason = ssd.ssd_mode_reason();
  if (reason.empty()) return "";
  const bool none = ssd.ssd_mode() == storage::SsdMode::kNone;
  return (none ? "no SSD tier, tensors stay in RAM: " : "the SSD file is smaller than usual: ") + reason;
}

session::DeviceDescription Described(uint16_t index, const storage::SsdDeviceDescription& device) {
  session::DeviceDescription described{.index = index, .path = device.path, .uuid = device.uuid, .now = {}};
  described.block_device = device.block_device;
  described.drive_bytes = storage::DriveBytes(device.path).value_or(0);
  return described;
}

std::string DeviceText(uint16_t index, const storage::SsdDeviceDescription& device) {
  const std::string grown =
      device.grown_from == 0 ? std::string() : ", its file grew from " + base::FormatBytes(device.grown_from);
  return fmt::format("device {}: {} ({}{}{})", index, device.path, base::FormatBytes(device.capacity),
                     device.created ? ", formatted now" : "", grown);
}

std::vector<std::string> NextSizeNotes(const storage::SsdTier& ssd, uint64_t file_size) {
  std::vector<std::string> notes;
  for (uint16_t i = 0; i < ssd.device_count(); ++i) {
    const storage::SsdDeviceDescription& device = ssd.device(i);
    if (device.block_device || device.private_file) continue;
    std::string note = storage::NextSizeNote(device.path, device.size, file_size);
    if (!note.empty()) notes.push_back(std::move(note));
  }
  return notes;
}

void LogSsdTier(const storage::SsdTier& ssd) {
  if (!ssd.io_mode_reason().empty()) spdlog::warn("I/O mode {}: {}", IoModeName(ssd), ssd.io_mode_reason());
  for (uint16_t i = 0; i < ssd.device_count(); ++i) {
    const storage::SsdDeviceDescription& device = ssd.device(i);
    spdlog::info("{}", DeviceText(i, device));
    if (!device.size_note.empty()) spdlog::warn("{}", device.size_note);
  }
  if (!ssd.index_note().empty()) spdlog::warn("{}", ssd.index_note());
  for (const std::string& dropped : ssd.dropped_devices()) spdlog::info("{}", dropped);
  for (const storage::MissingDevice& missing : ssd.missing_devices()) spdlog::warn("{}", storage::MissingText(missing));
  for (const std::string& unread : ssd.unread_quarantines()) spdlog::warn("{}", unread);
  if (const std::string shortage = SsdShortage(ssd); !shortage.empty()) spdlog::warn("{}", shortage);
  // Without a device there is nothing to pin, and the line above says why there is none.
  if (!ssd.pinned() && ssd.device_count() != 0) spdlog::warn("memory mode unpinned: {}", ssd.unpinned_reason());
}

std::string IoModeName(const storage::SsdTier& ssd) {
  return ssd.io_mode() == storage::IoMode::kUring ? "io_uring" : "threads";
}

std::string SsdModeName(storage::SsdMode mode) {
  switch (mode) {
    case storage::SsdMode::kFull: return "full";
    case storage::SsdMode::kReduced: return "reduced";
    case storage::SsdMode::kNone: break;
  }
  return "none";
}

}  // namespace tier
