// See device_opening.h.
#include "daemon/storage/device_opening.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/detached_calls.h"
#include "daemon/storage/known_devices.h"

namespace tier::storage {
namespace {

bool IsDispensable(const SsdDeviceOptions& device, Code why) {
  if (device.need != Need::kIfRoom) return device.need == Need::kIfPossible;
  if (why != Code::kNoSpace) return false;  // And so a file that hangs is not asked for its size.
  std::error_code absent;
  const uint64_t size = std::filesystem::file_size(device.path, absent);
  // A file that is there may hold persisted tensors, also one whose holes the disk has no room to fill.
  return absent || size == 0;
}

// Why the disk is still too full for a usual default file in the place of this one; empty: it is not, or this is one.
std::string ShortageAround(const DeviceFile& file, const SsdTierOptions& options) {
  const std::string directory = std::filesystem::path(file.path()).parent_path();
  auto space = options.space(directory);
  if (!space) return {};
  const uint64_t size = file.superblock().device_size;
  space->available += size;
  if (size >= std::min(kDefaultFileMax, space->available / kDefaultFreeDivisor)) return {};
  return PlanDefaultFile(*space, directory).shortage;
}

// What the manifests of its index name on a bound device would be overwritten by a tier that knows nothing of them.
Status RefuseBound(const DeviceFile& file) {
  const Uuid index = IndexUuidOf(file.superblock());
  if (index == Uuid{}) return {};
  return Fail(Code::kInvalid,
              fmt::format("{} holds tensors that the index {} (commit {}) names, and no data directory to find it in: "
                          "set daemon.data_directory, or give up what it holds by: tierctl device format --force {}",
                          file.path(), FormatUuid(index), file.superblock().index_commit, file.path()));
}

std::string ForeignReason(const DeviceFile& file) {
  return fmt::format(
      "{} is left untouched: it is device {} of another index, {} (commit {}); to give up what it holds, "
      "type: tierctl device format --force {}",
      file.path(), FormatUuid(UuidOf(file.superblock())), FormatUuid(IndexUuidOf(file.superblock())),
      file.superblock().index_commit, file.path());
}

// An index that cannot be read may be why the device is not known to be lost: it comes first.
Error RefusalOf(const Error& device, const std::optional<Error>& index) {
  if (!index) return device;
  TIER_CHECK(index->code != Code::kOk, "an index failed without a reason, beside: {}", device.message);
  return {index->code, fmt::format("{}; and so it is not known whether tierd can do without a device: {}",
                                   index->message, device.message)};
}

enum class Make : uint8_t { kNo, kYes };

DeviceFileOptions FileOptions(const SsdTierOptions& options, const SsdDeviceOptions& device, Make make) {
  return {.path = device.path,
          .size = device.size,
          .private_file = device.private_file,
          .discard_at_format = options.discard_at_format,
          .allow_any_file_system = options.allow_any_file_system,
          .space = options.space,
          .may_make = make == Make::kYes,
          .plan = options.plan,
          .data_dir = options.data_dir};
}

class DeviceOpening {
 public:
  explicit DeviceOpening(const SsdTierOptions& options)
      : options_(options),
        known_(options.data_dir.empty() ? std::string() : IndexPath(options.data_dir),
               options.plan ? IndexUse::kLook : IndexUse::kOwn) {
    for (const SsdDeviceOptions& device : options.devices) {
      places_.emplace_back().device = &device;
      paths_.push_back(device.path);
    }
  }
  Result<OpenedDevices> Run() {
    Status status = Find();
    if (status) status = CheckNew();
    if (status) status = MakeAll();
    if (status && options_.plan) status = CheckIndex();
    if (!status) {
      for (const Place& place : places_) {
        if (place.file) place.file->RemoveIfMade();
      }
      return std::unexpected(status.error());
    }
    for (Place& place : places_) {
      if (place.file) opened_.files.push_back(std::move(*place.file));
    }
    return std::move(opened_);
  }

 private:
  struct Place {  // One path of the configuration.
    const SsdDeviceOptions* device = nullptr;
    std::optional<DeviceFile> file{};
    std::optional<Error> refusal{};  // Why it is not open. None: it is, or is done without.
    bool to_make = false;            // Nothing is there, and nothing that jobs need was.
    bool is_asked = false;           // An attempt is under way, or its answer was not taken.
    base::TimePoint asked{};         // When that attempt began.
    bool was_retried = false;        // It has failed and was asked again.
    bool hangs = false;              // An attempt has not answered in time.
  };

  Status Find();
  Status CheckNew();
  Status MakeAll();
  Status CheckIndex();
  Status CheckDistinctPaths() const;
  void Ask(size_t number);
  void TakeAnswers();
  void WaitForAnswers();
  bool IsRetried(const Place& place, base::TimePoint retry_until);
  void RefuseHanging();
  void Pause(size_t unanswered);
  void Take(Place* place, Result<DeviceFile> file);
  Status Settle(Place* place);
  Status SettleRefused(Place* place);
  Status CheckOpened(const Place& place) const;
  std::vector<Uuid> OpenedUuids(const Place* but) const;
  // Of a plan: the daemon that starts may be another user.
  bool MayNotReadIndex() const { return options_.plan && known_.failure() && known_.failure()->code == Code::kDenied; }
  std::string NoRoomFor(const Place& place, const Uuid& uuid) {
    return known_.NoRoomFor(uuid, OpenedUuids(&place), paths_);
  }
  void DoWithout(Place* place, std::string reason) {
    place->file.reset();
    place->refusal.reset();
    opened_.absent.push_back({.path = place->device->path, .reason = std::move(reason)});
  }

  const SsdTierOptions& options_;
  KnownDevices known_;
  std::deque<Place> places_;
  base::DetachedCalls<Result<DeviceFile>> attempts_;  // By place.
  base::Duration reading_{0};                         // The time that was spent on the lists of all jobs.
  std::vector<std::string> paths_;
  OpenedDevices opened_;
};

void DeviceOpening::Take(Place* place, Result<DeviceFile> file) {
  place->refusal.reset();
  if (file) {
    place->file.emplace(std::move(*file));
  } else {
    place->refusal = std::move(file.error());
  }
}

void DeviceOpening::Ask(size_t number) {
  Place& place = places_[number];
  DeviceFileOptions file = FileOptions(options_, *place.device, Make::kNo);
  // It has no device of its own that could hang, and is made at once, which may take longer than an answer.
  if (file.private_file) return Take(&place, DeviceFile::Open(file));
  // The thread may outlive this, and so owns all that it uses.
  const auto attempt = [before = options_.before_attempt, file = std::move(file)] {
    if (before) before(file.path);
    return DeviceFile::Open(file);
  };
  if (Status started = attempts_.Start(number, "tierd-open", attempt); !started) {
    place.refusal = std::move(started.error());
  } else {
    place.is_asked = true;
    place.asked = options_.now();
  }
}

void DeviceOpening::TakeAnswers() {
  for (size_t number = 0; number < places_.size(); ++number) {
    Place& place = places_[number];
    if (!place.is_asked) continue;
    auto answer = attempts_.Take(number);
    if (!answer) continue;
    place.is_asked = false;
    Take(&place, std::move(*answer));
  }
}

void DeviceOpening::Pause(size_t unanswered) {
  if (options_.pause) return options_.pause(unanswered);
  // Ends early when all have answered, as the devices of a whole machine do.
  unanswered != 0 ? attempts_.WaitAtMost(kOpenRetryPause) : std::this_thread::sleep_for(kOpenRetryPause);
}

// A device that failed late, as one in a long reset, is asked once more after that time. To learn whether jobs need a
// device, this thread may read the lists of all jobs: no device is asked again meanwhile, so that time does not count.
bool DeviceOpening::IsRetried(const Place& place, base::TimePoint retry_until) {
  const bool failed = !place.is_asked && place.refusal && place.refusal->code == Code::kIoError;
  // Of a plan all labels are read before the index, which a daemon may change meanwhile.
  if (!failed || options_.plan) return false;
  const base::TimePoint before = options_.now();
  const bool needed = known_.IsNeeded(place.device->path);
  const base::TimePoint now = options_.now();
  reading_ += now - before;
  return needed && (!place.was_retried || now < retry_until + reading_);
}

// Devices that jobs need are opened again after an error, all of them until one time. An attempt that is under way may
// take kOpenWait, and until it answers its device gets no second one.
void DeviceOpening::WaitForAnswers() {
  const base::TimePoint retry_until = options_.open_until.value_or(options_.now() + kOpenWait);
  const auto is_retried = [&](const Place& place) { return IsRetried(place, retry_until); };
  const auto may_answer = [&](const Place& place) {
    return place.is_asked && options_.now() < std::max(retry_until, place.asked + kOpenWait);
  };
  for (;;) {
    TakeAnswers();
    if (std::ranges::none_of(places_, is_retried) && std::ranges::none_of(places_, may_answer)) break;
    const base::TimePoint paused = options_.now();
    Pause(static_cast<size_t>(std::ranges::count_if(places_, &Place::is_asked)));
    TakeAnswers();
    if (options_.now() - paused < kOpenRetryPause) continue;  // The pause has ended early.
    if (options_.on_wait) options_.on_wait(2 * kOpenWait);
    for (size_t number = 0; number < places_.size(); ++number) {
      if (!is_retried(places_[number])) continue;
      places_[number].was_retried = true;
      Ask(number);
    }
  }
  RefuseHanging();
}

void DeviceOpening::RefuseHanging() {
  for (Place& place : places_) {
    place.hangs = std::exchange(place.is_asked, false);
    if (!place.hangs) continue;
    TIER_CHECK(!place.file, "{} is asked again, and is open", place.device->path);
    const auto hung = std::chrono::duration_cast<std::chrono::seconds>(options_.now() - place.asked);
    place.refusal = {Code::kIoError, fmt::format("{} does not answer: an attempt to open it has hung for {} s (the "
                                                 "kernel's log may say why)",
                                                 place.device->path, hung.count())};
  }
}

Status DeviceOpening::Find() {
  for (size_t number = 0; number < places_.size(); ++number) Ask(number);
  WaitForAnswers();
  if (Status distinct = CheckDistinctPaths(); !distinct) return distinct;
  for (Place& place : places_) {
    if (Status settled = Settle(&place); !settled) return settled;
  }
  return {};
}

// Of two attempts on one device the second one meets the lock of the first. A path that hangs is not looked at.
Status DeviceOpening::CheckDistinctPaths() const {
  std::vector<std::string> answering;
  for (const Place& place : places_) {
    if (!place.hangs) answering.push_back(place.device->path);
  }
  return CheckDistinct(answering);
}

Status DeviceOpening::CheckNew() {
  const std::vector<Uuid> opened = OpenedUuids(nullptr);
  for (const Place& place : places_) {
    const bool is_new = place.to_make || (place.file && known_.IsNew(place.file->superblock()));
    if (!is_new) continue;
    if (Status fits = known_.CheckNew(place.device->path, opened, paths_); !fits) return fits;
  }
  return {};
}

Status DeviceOpening::MakeAll() {
  if (std::ranges::none_of(places_, &Place::to_make)) return {};
  // A data directory that is not mounted, for one: what is blank may be what the index that is not there needs.
  for (const Place& place : places_) {
    if (!place.file) continue;
    const ManifestDevice device = ManifestDeviceOf(place.device->path, place.file->superblock());
    if (Status ours = known_.CheckBound(device); !ours) return ours;
  }
  for (Place& place : places_) {
    if (!place.to_make) continue;
    std::string reason = known_.NotMadeReason(place.device->path, OpenedUuids(nullptr));
    if (reason.empty()) reason = NoRoomFor(place, {});
    if (!reason.empty()) {
      DoWithout(&place, std::move(reason));
      continue;
    }
    if (options_.on_wait) options_.on_wait(kMakeWait);
    Take(&place, DeviceFile::Open(FileOptions(options_, *place.device, Make::kYes)));
    if (Status settled = Settle(&place); !settled) return settled;
  }
  return {};
}

// A start has its store of manifests find this out.
Status DeviceOpening::CheckIndex() {
  TIER_CHECK(options_.plan != nullptr, "{} devices of a start are checked in place of its index", places_.size());
  std::vector<ManifestDevice> devices;
  for (const Place& place : places_) {
    if (place.file) devices.push_back(ManifestDeviceOf(place.device->path, place.file->superblock()));
  }
  Status checked = known_.CheckIndex(devices);
  const bool was_read = !known_.failure() || (!MayNotReadIndex() && known_.failure()->code != Code::kAlreadyExists);
  if (checked || was_read) return checked;
  opened_.unread.push_back(std::move(checked.error().message));
  return {};
}

Status DeviceOpening::Settle(Place* place) {
  if (!place->file) return SettleRefused(place);
  const DeviceFile& file = *place->file;
  if (known_.IsOfAnother(place->device->path, file.superblock())) {
    DoWithout(place, ForeignReason(file));
    return {};
  }
  if (std::string full = NoRoomFor(*place, UuidOf(file.superblock())); !full.empty()) {
    DoWithout(place, std::move(full));
    return {};
  }
  if (Status checked = CheckOpened(*place); !checked) return checked;
  const bool found = place->device->need != Need::kRequired && !file.created();
  if (std::string reason = found ? ShortageAround(file, options_) : file.shortage(); !reason.empty())
    opened_.shortage = std::move(reason);
  return {};
}

// What is not there is made only where no job needs what was there, and the index has a number.
Status DeviceOpening::SettleRefused(Place* place) {
  TIER_CHECK(place->refusal, "{} is neither open nor refused", place->device->path);
  const Error why = *place->refusal;
  const std::string& path = place->device->path;
  const bool tried = std::exchange(place->to_make, false);
  if (options_.plan && why.code == Code::kDenied) {  // The daemon may be another user.
    place->refusal.reset();
    opened_.unread.push_back(why.message);
    return {};
  }
  if (why.code == Code::kNotFound && !tried && !known_.IsNeeded(path)) {
    if (std::string full = NoRoomFor(*place, {}); !full.empty()) {
      DoWithout(place, std::move(full));
      return {};
    }
    place->to_make = !known_.failure() || MayNotReadIndex();  // Else it is not known what jobs need.
    if (place->to_make) return {};
  }
  if (IsDispensable(*place->device, why.code) && !known_.IsNeeded(path)) {
    place->refusal.reset();
    opened_.shortage = why.message;
    return {};
  }
  // A path that hangs is not looked at: that may hang too.
  const bool is_lost = place->hangs ? known_.Knows(path) : known_.IsLost(path, why);
  if (!is_lost) return std::unexpected(RefusalOf(why, known_.failure()));
  DoWithout(place, why.message);
  return {};
}

Status DeviceOpening::CheckOpened(const Place& place) const {
  const DeviceFile& file = *place.file;
  if (options_.data_dir.empty()) {
    if (Status unbound = RefuseBound(file); !unbound) return unbound;
  }
  const Uuid uuid = UuidOf(file.superblock());
  for (const Place& other : places_) {
    if (&other == &place || !other.file || UuidOf(other.file->superblock()) != uuid) continue;
    return Fail(Code::kInvalid, fmt::format("{} and {} carry the same uuid {}: one is a copy of the other; name one of "
                                            "them in ssd.devices",
                                            other.file->path(), file.path(), FormatUuid(uuid)));
  }
  return {};
}

std::vector<Uuid> DeviceOpening::OpenedUuids(const Place* but) const {
  std::vector<Uuid> opened;
  for (const Place& place : places_) {
    if (place.file && &place != but) opened.push_back(UuidOf(place.file->superblock()));
  }
  return opened;
}

}  // namespace

Result<OpenedDevices> OpenDevices(const SsdTierOptions& options) { return DeviceOpening(options).Run(); }

// A start is not refused for want of room: what it has serves, as before.
std::vector<std::string> SettleSizes(std::span<DeviceFile> files, const SsdTierOptions& options) {
  std::vector<std::string> kept;
  for (DeviceFile& file : files) {
    kept.emplace_back();
    if (file.private_file()) continue;
    const auto device = std::ranges::find(options.devices, file.path(), &SsdDeviceOptions::path);
    TIER_CHECK(device != options.devices.end(), "{} is open, and not configured", file.path());
    DeviceFileOptions wanted = FileOptions(options, *device, Make::kNo);
    wanted.for_index = RoomForIndex(options.data_dir, file.path());
    if (!file.IsToGrow(wanted)) {
      file.CutExcess();
      continue;
    }
    if (options.on_wait) options.on_wait(kMakeWait);
    if (Status grown = file.Grow(wanted); !grown) kept.back() = std::move(grown.error().message);
  }
  return kept;
}

}  // namespace tier::storage
