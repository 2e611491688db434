// See start_plan.h.
#include "daemon/storage/start_plan.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <sys/stat.h>

#include "daemon/base/allocated_bytes.h"
#include "daemon/base/check.h"
#include "daemon/storage/device_opening.h"
#include "daemon/storage/known_devices.h"
#include "daemon/storage/lmdb_manifest_store.h"
#include "daemon/storage/sizing.h"

namespace tier::storage {
namespace {

constexpr int kAttemptsMax = 3;

// The index has its room before files grow.
void PlanIndex(const SsdTierOptions& options) {
  if (options.data_dir.empty()) return;
  struct stat about{};
  const bool is_there = ::stat(IndexPath(options.data_dir).c_str(), &about) == 0;
  const auto has = static_cast<int64_t>(is_there ? base::AllocatedBytes(about) : 0);
  const auto needs = static_cast<int64_t>(kManifestMapSizeDefault);
  if (has < needs) options.plan->Take(ExistingPartOf(options.data_dir), needs - has);
}

std::vector<std::string> NotesOn(OpenedDevices opened, const SsdTierOptions& options) {
  std::vector<std::string> notes;
  for (const std::string& why : opened.unread) notes.push_back(fmt::format("ssd.devices: not checked: {}", why));
  for (const AbsentPath& absent : opened.absent) {
    notes.push_back(
        fmt::format("ssd.devices: {}: {}; tierd starts without it, and lists it as missing: what jobs persisted on it "
                    "is lost until it is back (tierctl device list)",
                    absent.path, absent.reason));
  }
  PlanIndex(options);
  const std::vector<std::string> kept = SettleSizes(opened.files, options);
  for (size_t i = 0; i < opened.files.size(); ++i) {
    const DeviceFile& file = opened.files[i];
    std::string note = kept[i];
    if (file.grown_from() != 0) note = GrowthNote(file.path(), file.grown_from(), file.superblock().device_size);
    if (note.empty() && !file.block_device()) note = file.size_note();
    if (!note.empty()) notes.push_back("ssd.file_size: " + note);
  }
  return notes;
}

}  // namespace

uint64_t IndexBytes(const std::string& data_dir) {
  struct stat about{};
  const bool is_there = ::stat(IndexPath(data_dir).c_str(), &about) == 0;
  return std::max(kManifestMapSizeDefault, is_there ? static_cast<uint64_t>(about.st_size) : 0);
}

// A daemon that persists for the first time after a device was read, and before the index is, makes both differ, once.
Result<std::vector<std::string>> PlanStart(const SsdTierOptions& options) {
  TIER_CHECK(!options.plan, "a plan of {} devices within another one", options.devices.size());
  for (int attempt = 1;; ++attempt) {
    SsdTierOptions planned = options;
    planned.plan = std::make_shared<SpacePlan>(options.space);
    auto opened = OpenDevices(planned);
    if (opened) return NotesOn(std::move(*opened), planned);
    const Code code = opened.error().code;
    const bool may_differ = code == Code::kCorrupt || code == Code::kAlreadyExists;
    if (!may_differ || attempt == kAttemptsMax) return std::unexpected(std::move(opened.error()));
  }
}

}  // namespace tier::storage
