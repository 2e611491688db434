// See ssd_tier.h. Opening goes from what can be refused (devices) to what cannot (bookkeeping).
#include "daemon/storage/ssd_tier.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"
#include "daemon/storage/completion_signal.h"
#include "daemon/storage/device_file.h"
#include "daemon/storage/device_opening.h"
#include "daemon/storage/io_thread.h"
#include "daemon/storage/io_threads.h"
#include "daemon/storage/known_devices.h"
#include "daemon/storage/lmdb_manifest_store.h"
#include "daemon/storage/thread_pool_io.h"
#include "daemon/storage/transfer_engine.h"
#include "daemon/storage/uring.h"

namespace tier::storage {
namespace {

using base::FormatBytes;

constexpr size_t kPoolThreads = 8;  // Of all devices together, but at least two for each.

SsdDeviceDescription Describe(const std::string& path, const proto::Superblock& superblock) {
  SsdDeviceDescription description;
  description.path = path;
  description.uuid = FormatUuid(UuidOf(superblock));
  description.size = superblock.device_size;
  description.capacity = superblock.block_count * superblock.block_size;
  description.superblock_commit = superblock.commit;
  return description;
}

SsdDeviceDescription Describe(const DeviceFile& file) {
  SsdDeviceDescription description = Describe(file.path(), file.superblock());
  description.block_device = file.block_device();
  description.private_file = file.private_file();
  description.created = file.created();
  description.grown_from = file.grown_from();
  description.size_note = file.size_note();
  description.alignment = file.alignment();
  return description;
}

Status CheckOptions(const SsdTierOptions& options) {
  if (options.devices.size() > kDevicesMax) {
    return Fail(Code::kInvalid,
                fmt::format("{} devices in ssd.devices, at most {}", options.devices.size(), kDevicesMax));
  }
  if (options.io_depth == 0 || options.io_depth > kIoDepthMax) {
    return Fail(Code::kInvalid, fmt::format("an I/O depth of {}: it goes from 1 to {}", options.io_depth, kIoDepthMax));
  }
  if (options.inflight_max == 0 || options.inflight_max > kTransfersInflightMax) {
    return Fail(Code::kInvalid,
                fmt::format("{} transfers in flight: from 1 to {}", options.inflight_max, kTransfersInflightMax));
  }
  const uint32_t merge = options.merge_bytes_max == 0 ? kMergeBytesDefault : options.merge_bytes_max;
  if (merge >= kBlockSize && merge <= kMergeBytesMax) return {};
  return Fail(Code::kInvalid, fmt::format("requests merged up to {}: from {} to {}", FormatBytes(merge),
                                          FormatBytes(kBlockSize), FormatBytes(kMergeBytesMax)));
}

}  // namespace

struct SsdTier::State {
  // Destroyed from the bottom up: transfers before the devices they go to.
  CompletionSignal signal;
  std::vector<DeviceFile> files;
  std::vector<SsdDeviceDescription> descriptions;
  ExtentStore extents;
  IoMode mode = IoMode::kUring;
  std::string mode_reason;
  std::string shortage;            // Of room for the devices.
  std::vector<AbsentPath> absent;  // Configured, and lost.
  std::string unproven;            // Why not all windows can be pinned; empty: they can.
  std::unique_ptr<IoThreads> transfers;
  bool bound = false;                            // The index names the devices: they belong together from then on.
  std::unique_ptr<LmdbManifestStore> manifests;  // Its thread writes superblocks: gone before the files.
  std::string index_note;

  Status TakeDevices(const SsdTierOptions& options);
  // They get their sizes: once the index was checked, so that a start that it refuses changes none. From Open to the
  // first manifest its thread writes no superblock, as this does.
  void SettleDevices(const SsdTierOptions& options);
  // I/O of every device, by io_uring or, where it is not to be had for one, of all by threads.
  Result<std::vector<IoThreadParts>> OpenIo(const SsdTierOptions& options);
  Result<std::vector<IoThreadParts>> OpenRings(const SsdTierOptions& options) const;
  Result<std::vector<IoThreadParts>> OpenPools(const SsdTierOptions& options) const;
  Status StartThreads(const SsdTierOptions& options, std::vector<IoThreadParts> parts, base::Workers& workers);
  Status OpenManifests(const SsdTierOptions& tier);
  Status Open(const SsdTierOptions& options, base::Workers& workers);
  // Goes on after a failure; the first one is the answer.
  Status OnEveryDevice(const std::function<Status(DeviceFile&)>& step);
};

Status SsdTier::State::OnEveryDevice(const std::function<Status(DeviceFile&)>& step) {
  Status first;
  for (DeviceFile& file : files) {
    if (Status status = step(file); !status && first) first = std::move(status);
  }
  return first;
}

Status SsdTier::State::TakeDevices(const SsdTierOptions& options) {
  auto opened = OpenDevices(options);
  if (!opened) return std::unexpected(std::move(opened.error()));
  files = std::move(opened->files);
  absent = std::move(opened->absent);
  if (!opened->shortage.empty()) shortage = std::move(opened->shortage);
  if (files.empty() && shortage.empty() && !absent.empty()) shortage = absent.front().reason;
  return {};
}

void SsdTier::State::SettleDevices(const SsdTierOptions& options) {
  TIER_CHECK(transfers == nullptr && descriptions.empty(), "{} devices are in use", descriptions.size());
  auto kept = SettleSizes(files, options);
  std::erase(kept, std::string());
  if (!kept.empty()) shortage = fmt::format("{}", fmt::join(kept, "; "));
  for (const DeviceFile& file : files) {
    descriptions.push_back(Describe(file));
    extents.AddDevice(file.block_count());
  }
}

Result<std::vector<IoThreadParts>> SsdTier::State::OpenRings(const SsdTierOptions& options) const {
  std::vector<IoThreadParts> all;
  for (const DeviceFile& file : files) {
    auto wake = std::make_unique<CompletionSignal>();
    auto uring =
        UringIo::Create({.inflight_max = options.io_depth + 1, .windows_max = options.windows_max}, file.fd(), *wake);
    if (!uring) return std::unexpected(uring.error());
    all.push_back({.wake = std::move(wake), .io = std::move(*uring)});
  }
  if (!all.empty()) return all;
  const CompletionSignal wake;  // Without a device too the mode is what the machine allows.
  if (auto probe = UringIo::Create({.windows_max = 1}, -1, wake); !probe) return std::unexpected(probe.error());
  return all;
}

Result<std::vector<IoThreadParts>> SsdTier::State::OpenPools(const SsdTierOptions& options) const {
  std::vector<IoThreadParts> all;
  const auto threads = static_cast<uint32_t>(std::max<size_t>(kPoolThreads / std::max<size_t>(files.size(), 1), 2));
  for (const DeviceFile& file : files) {
    auto wake = std::make_unique<CompletionSignal>();
    auto pool = ThreadPoolIo::Create({.inflight_max = options.io_depth + 1, .threads = threads}, file.fd(), *wake);
    if (!pool) return std::unexpected(std::move(pool.error()));
    all.push_back({.wake = std::move(wake), .io = std::move(*pool)});
  }
  return all;
}

Result<std::vector<IoThreadParts>> SsdTier::State::OpenIo(const SsdTierOptions& options) {
  if (options.io == IoChoice::kThreads) {
    mode_reason = "configured";
  } else {
    auto rings = OpenRings(options);
    if (rings) return rings;
    if (options.io == IoChoice::kUring) {
      return Fail(rings.error().code, rings.error().message + "; set ssd.engine to \"auto\" to go on without");
    }
    mode_reason = rings.error().message;
  }
  mode = IoMode::kThreads;
  return OpenPools(options);
}

Status SsdTier::State::StartThreads(const SsdTierOptions& options, std::vector<IoThreadParts> parts,
                                    base::Workers& workers) {
  std::vector<std::unique_ptr<IoThread>> threads;
  for (size_t device = 0; device < files.size(); ++device) {
    const DeviceFile& file = files[device];
    TransferEngineOptions engine{
        .device = static_cast<uint16_t>(device),
        .place = {.data_offset = file.data_offset(), .capacity_bytes = file.block_count() * kBlockSize},
        .io_depth = options.io_depth,
        .inflight_max = options.inflight_max,
        .windows_max = options.windows_max};
    if (options.merge_bytes_max != 0) engine.merge_bytes_max = options.merge_bytes_max;
    auto thread = IoThread::Start(engine, std::move(parts[device]), workers, signal);
    if (!thread) return std::unexpected(thread.error());
    threads.push_back(std::move(*thread));
  }
  transfers = std::make_unique<IoThreads>(std::move(threads), options.inflight_max, options.windows_max);
  return {};
}

Status SsdTier::State::OpenManifests(const SsdTierOptions& tier) {
  ManifestStoreOptions options{
      .path = IndexPath(tier.data_dir), .space = tier.space, .devices = {}, .absent_paths = absent, .signal = &signal};
  for (const DeviceFile& file : files) options.devices.push_back(ManifestDeviceOf(file.path(), file.superblock()));
  options.misplaced = [this](uint16_t device) { return files[device].Misplaced(); };
  options.flush_devices = [this] { return OnEveryDevice([](DeviceFile& file) { return file.Flush(); }); };
  options.on_commit = [this](const Uuid& index, uint64_t commit) {
    if (!bound) bound = true;
    return OnEveryDevice([&](DeviceFile& file) { return file.CommitIndex(index, commit); });
  };
  auto store = LmdbManifestStore::Open(std::move(options));
  if (!store) return std::unexpected(store.error());
  manifests = std::move(*store);
  if (manifests->is_new() && !std::ranges::all_of(files, &DeviceFile::created)) {
    index_note = fmt::format(
        "there was no index {}, and a new one was made, as no device that is here names one; if {} is not "
        "new, it may not be mounted, and then quotas, owners and reservations are missing too: stop tierd, "
        "mount it, and start tierd again",
        IndexPath(tier.data_dir), tier.data_dir);
  }
  return {};
}

Status SsdTier::State::Open(const SsdTierOptions& options, base::Workers& workers) {
  shortage = options.no_device_reason;
  if (Status status = TakeDevices(options); !status) return status;
  auto parts = OpenIo(options);
  if (!parts) return std::unexpected(parts.error());
  if (files.empty()) {
    unproven = "without an SSD device no memory is registered for I/O";
  } else if (mode == IoMode::kUring) {
    if (Status proven = ProvePinning(files.size() * options.window_bytes_max); !proven)
      unproven = proven.error().message;
  }
  if (!options.data_dir.empty()) {
    Status status = OpenManifests(options);
    // Without a device there is nothing that a manifest could name: the index may be missing for the same reason.
    const bool ram_only = files.empty() && !shortage.empty();
    if (!status && !(ram_only && status.error().code == Code::kNoSpace)) return status;
  }
  SettleDevices(options);
  return StartThreads(options, std::move(*parts), workers);
}

Result<std::unique_ptr<SsdTier>> SsdTier::Open(const SsdTierOptions& options, base::Workers& workers) {
  if (Status status = CheckOptions(options); !status) return std::unexpected(status.error());
  auto state = std::make_unique<State>();
  if (Status status = state->Open(options, workers); !status) {
    if (!state->bound) {
      for (const DeviceFile& file : state->files) file.RemoveIfMade();
    }
    return std::unexpected(status.error());
  }
  return std::unique_ptr<SsdTier>(new SsdTier(std::move(state)));
}

SsdTier::SsdTier(std::unique_ptr<State> state) : state_(std::move(state)) {}
SsdTier::~SsdTier() = default;

ExtentStore& SsdTier::extents() { return state_->extents; }
TransferPort& SsdTier::transfers() { return *state_->transfers; }
ManifestStore* SsdTier::manifests() { return state_->manifests.get(); }
std::string SsdTier::superblock_failure() const {
  return state_->manifests ? state_->manifests->superblock_failure() : std::string();
}
std::vector<std::string> SsdTier::dropped_devices() const {
  return state_->manifests ? state_->manifests->dropped_devices() : std::vector<std::string>();
}
std::vector<MissingDevice> SsdTier::missing_devices() const {
  return state_->manifests ? state_->manifests->missing_devices() : std::vector<MissingDevice>();
}
std::vector<std::string> SsdTier::unread_quarantines() const {
  return state_->manifests ? state_->manifests->unread_quarantines() : std::vector<std::string>();
}
const std::string& SsdTier::index_note() const { return state_->index_note; }
std::string SsdTier::quarantine_failure() const {
  return state_->manifests ? state_->manifests->quarantine_failure() : std::string();
}
int SsdTier::completion_fd() const { return state_->signal.fd(); }
void SsdTier::ClearWakeup() { state_->signal.Clear(); }
IoMode SsdTier::io_mode() const { return state_->mode; }
const std::string& SsdTier::io_mode_reason() const { return state_->mode_reason; }
SsdMode SsdTier::ssd_mode() const {
  if (state_->files.empty()) return SsdMode::kNone;
  return state_->shortage.empty() ? SsdMode::kFull : SsdMode::kReduced;
}
const std::string& SsdTier::ssd_mode_reason() const { return state_->shortage; }
bool SsdTier::pinned() const { return state_->unproven.empty() && state_->transfers->pinned(); }
std::string SsdTier::unpinned_reason() const {
  const std::string reason = state_->transfers->unpinned_reason();
  return reason.empty() ? state_->unproven : reason;
}
uint16_t SsdTier::device_count() const { return static_cast<uint16_t>(state_->files.size()); }

const SsdDeviceDescription& SsdTier::device(uint16_t index) const {
  TIER_CHECK(index < state_->descriptions.size(), "device {} of {}", index, state_->descriptions.size());
  return state_->descriptions[index];
}

Result<SsdDeviceDescription> FormatDevice(const std::string& path, bool force) {
  const Result<DeviceFile> file = DeviceFile::Format(path, force);
  if (!file) return std::unexpected(file.error());
  return Describe(*file);
}

Result<SsdDeviceDescription> DescribeDevice(const std::string& path) {
  const Result<proto::Superblock> superblock = DeviceFile::ReadSuperblock(path);
  if (!superblock) return std::unexpected(superblock.error());
  return Describe(path, *superblock);
}

}  // namespace tier::storage
