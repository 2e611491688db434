// See lmdb_manifest_store.h. Four tables: kManifests (job → manifest), kExtents (job → list of
// its extents), kBinding (uuid, devices, commit) and kQuarantine (uuid of a device → its quarantined places).
#include "daemon/storage/lmdb_manifest_store.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/storage/quarantine_record.h"
#include "proto/start_thread.h"

namespace tier::storage {
namespace {

template <typename T>
IndexChange Bound(std::string_view key, std::span<const T> value) {
  return {.table = IndexTable::kBinding, .key = key, .value = std::as_bytes(value)};
}

// Also where it cannot be told.
bool MayHaveManifests(const IndexFile& index) {
  const auto manifests = index.HasAny(IndexTable::kManifests);
  const auto lists = index.HasAny(IndexTable::kExtents);
  return !manifests || !lists || *manifests || *lists;
}

}  // namespace

LmdbManifestStore::LmdbManifestStore(ManifestStoreOptions options) : options_(std::move(options)) {}

Result<std::unique_ptr<LmdbManifestStore>> LmdbManifestStore::Open(ManifestStoreOptions options) {
  TIER_CHECK(options.map_size >= kManifestMapSizeMin, "map of {} bytes", options.map_size);
  std::unique_ptr<LmdbManifestStore> store(new LmdbManifestStore(std::move(options)));
  if (Status opened = store->OpenIndex(); !opened) return std::unexpected(opened.error());
  if (Status bound = store->Bind(); !bound) {
    if (store->commit_ == 0) store->index_->RemoveIfMade();  // No superblock names it yet.
    return std::unexpected(bound.error());
  }
  // Not the faults: the guard takes them; blocked, they would kill.
  auto thread =
      proto::StartThread("tier-manifest", proto::BlockedSignals::kAsynchronous, [raw = store.get()] { raw->Run(); });
  if (!thread) return std::unexpected(std::move(thread.error()));
  store->thread_ = std::move(*thread);
  return store;
}

Status LmdbManifestStore::OpenIndex() {
  index_.reset();  // It holds the lock on the file.
  auto index = IndexFile::Open({.path = options_.path, .map_size = options_.map_size, .space = options_.space});
  if (!index) return std::unexpected(index.error());
  index_ = std::move(*index);
  return {};
}

LmdbManifestStore::~LmdbManifestStore() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyOne();
  thread_.join();
}

Status LmdbManifestStore::Bind() {
  const Result<IndexIdentity> known = ReadIdentity(*index_);
  if (!known) return std::unexpected(known.error());
  commit_ = known->commit;
  is_new_ = known->uuid == Uuid{};
  uuid_ = is_new_ ? DrawUuid() : known->uuid;
  for (const ManifestDevice& device : options_.devices) {
    if (Status bound = CheckBinding(device, *known, options_.path); !bound) return bound;
  }
  auto devices = IndexDevices::Read(*index_);
  if (!devices) return std::unexpected(std::move(devices.error()));
  devices_ = std::move(*devices);
  if (Status named = CheckNamed(); !named) return named;
  if (Status matched = devices_.Match(*index_, options_.devices, options_.absent_paths); !matched) return matched;
  device_numbers_ = devices_.numbers();
  missing_ = devices_.missing();
  const uint64_t commit = commit_ + 1;
  std::vector<IndexChange> changes = {Bound<Uuid>(kKeyIndexUuid, std::span(&uuid_, 1)),
                                      Bound<uint64_t>(kKeyCommit, std::span(&commit, 1))};
  devices_.AddChanges(&changes);
  if (IndexWrite write = index_->Write(changes); !write.status) return std::move(write.status);
  commit_ = commit;
  if (Status written = NameIndex(named_); !written) return written;
  return TakeQuarantines();
}

// A device is bound before the first manifest that names it is committed, and not unbound before the last one is gone.
// So where manifests name one that is not bound, they are older than what was written there since.
Status LmdbManifestStore::CheckNamed() {
  named_ = MayHaveManifests(*index_);
  const ManifestDevice* const unbound = named_ ? devices_.NamedAndUnbound(*index_, options_.devices) : nullptr;
  // After a fault the index answers nothing more. Opened again it does: the other tables may be whole.
  if (!index_->failure().empty()) {
    if (Status opened = OpenIndex(); !opened) return opened;
  }
  if (unbound == nullptr) return {};
  return std::unexpected(OldCopyRefusal(*unbound, options_.path));
}

Status LmdbManifestStore::NameIndex(bool named) {
  if (!options_.on_commit) return {};
  return options_.on_commit(named ? uuid_ : Uuid{}, named ? commit_ : 0);
}

// A start is not refused for want of them: no tensor depends on them, and each costs two failed writes to be found
// again. So what has to do with them comes after the commit that binds the index.
Status LmdbManifestStore::TakeQuarantines() {
  quarantined_.resize(options_.devices.size());
  for (size_t i = 0; i < options_.devices.size(); ++i) {
    const auto bytes = index_->Get(IndexTable::kQuarantine, FormatUuid(options_.devices[i].uuid));
    if (!bytes && bytes.error().code == Code::kNotFound) continue;
    if (!bytes) return LeaveQuarantines();
    auto places = DecodeQuarantine(*bytes);
    if (places) {
      quarantined_[i] = std::move(*places);
    } else {
      unread_quarantines_.push_back(
          fmt::format("the quarantined places of device {} are not known, and are tried "
                      "again: {}",
                      options_.devices[i].path, places.error().message));
    }
  }
  auto recorded = index_->Keys(IndexTable::kQuarantine);
  if (!recorded) return LeaveQuarantines();
  return EraseStaleQuarantines(devices_.StaleQuarantines(std::move(*recorded)));
}

Status LmdbManifestStore::EraseStaleQuarantines(const std::vector<std::string>& stale) {
  if (stale.empty()) return {};
  std::vector<IndexChange> changes;
  for (const std::string& key : stale) {
    changes.push_back({.table = IndexTable::kQuarantine, .key = key, .erase = true});
  }
  const IndexWrite write = index_->Write(changes);
  if (write.status) return {};
  const bool damaged = !write.unknown && write.status.error().code != Code::kNoSpace;
  if (damaged) return LeaveQuarantines();
  unread_quarantines_.push_back(
      fmt::format("the quarantined places of {} devices that were taken out are kept, beyond "
                  "the {} that are needed at most: {}",
                  stale.size(), kQuarantineRecordsMax, write.status.error().message));
  return {};
}

// Their table is damaged. After a fault in it the index answers nothing more. Opened again it does: no commit had
// begun, and the other tables may be whole.
Status LmdbManifestStore::LeaveQuarantines() {
  quarantines_damaged_ = true;
  const std::string why = fmt::format("the index {} is damaged where it has the quarantined places", options_.path);
  unread_quarantines_.push_back(why + ": those that are not known are tried again");
  {
    const MutexLock lock(mutex_);
    quarantine_failure_ = why;
  }
  return index_->failure().empty() ? Status{} : OpenIndex();
}

void LmdbManifestStore::StartQuarantine(uint16_t device, std::vector<base::PageRun> places) {
  TIER_CHECK(device < options_.devices.size(), "device {} of {}", device, options_.devices.size());
  {
    const MutexLock lock(mutex_);
    quarantines_[device] = std::move(places);
  }
  wake_.NotifyOne();
}

// One transaction each: it has nothing to do with what the manifests name.
void LmdbManifestStore::WriteQuarantines(const std::map<uint16_t, std::vector<base::PageRun>>& quarantines) {
  if (quarantines_damaged_) return;  // It is told since the start.
  Status written;
  for (const auto& [device, places] : quarantines) {
    const std::string key = FormatUuid(options_.devices[device].uuid);
    const std::vector<std::byte> record = EncodeQuarantine(places);
    const IndexChange change{.table = IndexTable::kQuarantine, .key = key, .value = record, .erase = places.empty()};
    if (IndexWrite write = index_->Write({&change, 1}); !write.status) written = std::move(write.status);
  }
  const MutexLock lock(mutex_);
  quarantine_failure_ = written ? std::string() : written.error().message;
}

std::string LmdbManifestStore::quarantine_failure() const {
  const MutexLock lock(mutex_);
  return quarantine_failure_;
}

void LmdbManifestStore::Enqueue(Request request) {
  {
    const MutexLock lock(mutex_);
    const bool full = request.kind == Request::Kind::kPut && waiting_.size() >= kManifestRequestsMax;
    if (full || request.job.empty() || request.job.size() > kManifestJobNameMax) {
      results_.push_back({.cookie = request.cookie,
                          .code = full ? Code::kNoMemory : Code::kInvalid,
                          .message = full ? fmt::format("{} manifests wait to be written already", waiting_.size())
                                          : fmt::format("a job name of {} bytes", request.job.size())});
    } else {
      waiting_.push_back(std::move(request));
    }
  }
  wake_.NotifyOne();
  if (options_.signal != nullptr) options_.signal->Signal();  // For a refusal; harmless otherwise.
}

void LmdbManifestStore::StartPut(uint64_t cookie, std::string job, std::vector<std::byte> manifest,
                                 std::vector<std::byte> extents) {
  Enqueue({.cookie = cookie, .job = std::move(job), .manifest = std::move(manifest), .extents = std::move(extents)});
}

void LmdbManifestStore::StartErase(uint64_t cookie, std::string job) {
  Enqueue({.cookie = cookie, .job = std::move(job), .kind = Request::Kind::kErase});
}

void LmdbManifestStore::StartLoad(uint64_t cookie, std::string job) {
  Enqueue({.cookie = cookie, .job = std::move(job), .kind = Request::Kind::kLoad});
}

void LmdbManifestStore::StartPurge(uint64_t cookie, std::string device_uuid) {
  Enqueue({.cookie = cookie, .job = std::move(device_uuid), .kind = Request::Kind::kPurge});
}

void LmdbManifestStore::Discard(std::shared_ptr<void> memory) {
  {
    const MutexLock lock(mutex_);
    discarded_.push_back(std::move(memory));
  }
  wake_.NotifyOne();
}

void LmdbManifestStore::Poll(std::vector<ManifestResult>* results) {
  const MutexLock lock(mutex_);
  std::move(results_.begin(), results_.end(), std::back_inserter(*results));
  results_.clear();
  for (const std::string& uuid : std::exchange(purged_, {})) RemoveMissing(uuid);
}

void LmdbManifestStore::Run() {
  std::vector<Request> batch;
  const MutexLock lock(mutex_);
  for (;;) {
    WaitForWork();
    if (waiting_.empty() && quarantines_.empty() && stopping_) return;
    batch.swap(waiting_);
    std::vector<std::shared_ptr<void>> discarded = std::exchange(discarded_, {});
    const auto quarantines = std::exchange(quarantines_, {});
    std::vector<ManifestResult> done;
    {
      const MutexUnlock unlocked(mutex_);
      discarded.clear();
      done = Perform(batch);
      if (!quarantines.empty()) WriteQuarantines(quarantines);
      batch.clear();
    }
    if (std::chrono::steady_clock::now() >= superblock_retry_at_) {
      const MutexUnlock unlocked(mutex_);
      WriteSuperblocks();
    }
    std::move(done.begin(), done.end(), std::back_inserter(results_));
    if (options_.signal != nullptr && !results_.empty()) options_.signal->Signal();
    if (std::chrono::steady_clock::now() >= check_at_) {
      const MutexUnlock unlocked(mutex_);
      CheckIndex();
    }
  }
}

void LmdbManifestStore::WaitForWork() {
  while (waiting_.empty() && quarantines_.empty() && discarded_.empty() && !stopping_) {
    if (!wake_.WaitUntil(mutex_, std::min(superblock_retry_at_, check_at_))) return;
  }
}

// The kernel reports a failed flush once and then forgets it: a second one that succeeds says nothing about the first.
Status LmdbManifestStore::FlushDevices() {
  if (flush_failure_.empty()) {
    const Status flushed = options_.flush_devices ? options_.flush_devices() : Status{};
    if (flushed) return {};
    flush_failure_ = flushed.error().message;
  }
  return Fail(Code::kIoError, fmt::format("a device lost a flush ({}): nothing can be persisted until tierd is "
                                          "restarted",
                                          flush_failure_));
}

// By the last commit, not the one that is to come: that may fail, and the index would look like an old copy.
Status LmdbManifestStore::NameDevices() {
  if (named_) return {};
  if (Status written = NameIndex(true); !written) {
    return Fail(Code::kIoError,
                fmt::format("nothing is persisted while a superblock cannot be written: {}", written.error().message));
  }
  named_ = true;
  return {};
}

void LmdbManifestStore::WriteSuperblocks() {
  const Status written = NameIndex(named_);
  const MutexLock lock(mutex_);
  superblock_failure_ = written ? std::string() : written.error().message;
  using Clock = std::chrono::steady_clock;
  superblock_retry_at_ = written ? Clock::time_point::max() : Clock::now() + options_.superblock_retry;
}

std::string LmdbManifestStore::superblock_failure() const {
  const MutexLock lock(mutex_);
  return superblock_failure_;
}

// Else what a job was refused for would seem to last until another job persists. A lost flush does last.
void LmdbManifestStore::RetryDevices() {
  {
    const MutexLock lock(mutex_);
    if (unready_.empty() || !flush_failure_.empty()) return;
  }
  const Status ready = NameDevices();
  if (ready) {  // The job's manifest was refused: while there is none, the loss of the index must cost nothing.
    named_ = MayHaveManifests(*index_);
    WriteSuperblocks();
  }
  const MutexLock lock(mutex_);
  unready_ = ready ? std::string() : ready.error().message;
}

// What shows without a request: else it would not be known before a job persists, or is to be resumed.
void LmdbManifestStore::CheckIndex() {
  RetryDevices();
  (void)FindMisplaced();
  std::string unwritable = index_->CheckWritable();
  const MutexLock lock(mutex_);
  unwritable_ = std::move(unwritable);
  check_at_ = std::chrono::steady_clock::now() + options_.index_check;
}

std::string LmdbManifestStore::failure() const {
  if (const std::string lost = index_->failure(); !lost.empty())
    return "nothing can be persisted or resumed until tierd is restarted: " + lost;
  const MutexLock lock(mutex_);
  if (!unready_.empty()) return unready_;
  if (!unwritable_.empty()) return "nothing can be persisted: " + unwritable_;
  return misplaced_.empty() ? "" : "not all can be persisted: " + misplaced_;
}

MisplacedFiles LmdbManifestStore::FindMisplaced() {
  MisplacedFiles found(options_.misplaced, options_.devices.size(), index_->Misplaced());
  const MutexLock lock(mutex_);
  misplaced_ = found.Text();
  return found;
}

// The commits together; then, each by itself, the purges; then the loads, which see all of these.
std::vector<ManifestResult> LmdbManifestStore::Perform(std::span<Request> batch) {
  using Kind = Request::Kind;
  const auto others = std::ranges::stable_partition(
      batch, [](const Request& r) { return r.kind == Kind::kPut || r.kind == Kind::kErase; });
  const auto loads = std::ranges::stable_partition(others, [](const Request& r) { return r.kind == Kind::kPurge; });
  std::vector<ManifestResult> results = CommitBatch(batch.first(batch.size() - others.size()));
  for (const Request& request : others) {
    results.push_back(request.kind == Kind::kPurge ? Purge(request) : Load(request));
  }
  TIER_CHECK(results.size() == batch.size(), "{} results of {} requests, {} of them loads", results.size(),
             batch.size(), loads.size());
  return results;
}

ManifestResult LmdbManifestStore::Load(const Request& request) const {
  Result<std::vector<std::byte>> manifest = Load(request.job);
  if (manifest) return {.cookie = request.cookie, .manifest = *std::move(manifest)};
  return {.cookie = request.cookie, .code = manifest.error().code, .message = std::move(manifest.error().message)};
}

ManifestResult LmdbManifestStore::Purge(const Request& request) {
  const auto refuse = [&](const Error& error) {
    return ManifestResult{.cookie = request.cookie, .code = error.code, .message = error.message};
  };
  const uint16_t number = devices_.NumberOfMissing(request.job);
  if (number == DeviceNumbers::kNone) {
    return refuse({Code::kNotFound, fmt::format("no device {} is missing", request.job)});
  }
  auto jobs = IndexDevices::JobsOn(*index_, number);
  if (!jobs) return refuse(jobs.error());
  ManifestResult result{.cookie = request.cookie};
  if (IndexWrite write = CommitPurge(number, request.job, *jobs, &result.commit); !write.status) {
    result = refuse(write.status.error());
    result.unknown = write.unknown;
    return result;
  }
  result.purged = *std::move(jobs);
  const MutexLock lock(mutex_);
  purged_.push_back(request.job);
  return result;
}

IndexWrite LmdbManifestStore::CommitPurge(uint16_t number, const std::string& uuid, std::span<const std::string> jobs,
                                          uint64_t* commit) {
  IndexDevices next = devices_;
  next.Free(number);
  *commit = commit_ + 1;
  std::vector<IndexChange> changes = {Bound<uint64_t>(kKeyCommit, std::span(commit, 1))};
  for (const std::string& job : jobs) {
    changes.push_back({.table = IndexTable::kManifests, .key = job, .erase = true});
    changes.push_back({.table = IndexTable::kExtents, .key = job, .erase = true});
  }
  if (!quarantines_damaged_) changes.push_back({.table = IndexTable::kQuarantine, .key = uuid, .erase = true});
  next.AddChanges(&changes);
  if (IndexWrite write = index_->Write(changes); !write.status) return write;
  devices_.Free(number);
  commit_ = *commit;
  named_ = MayHaveManifests(*index_);
  WriteSuperblocks();
  return {};
}

std::vector<ManifestResult> LmdbManifestStore::CommitBatch(std::span<const Request> batch) {
  std::vector<ManifestResult> results;
  if (batch.empty()) return results;
  uint64_t commit = 0;
  const IndexWrite write = CommitTogether(batch, &commit);
  if (!write.status && !write.unknown && batch.size() > 1) {  // One of them does not fit: let each stand for itself.
    for (size_t i = 0; i < batch.size(); ++i) {
      std::vector<ManifestResult> one = CommitBatch(batch.subspan(i, 1));
      results.push_back(std::move(one.front()));
    }
    return results;
  }
  for (const Request& request : batch) {
    ManifestResult& result = results.emplace_back(ManifestResult{.cookie = request.cookie, .commit = commit});
    if (write.status) continue;
    result.code = write.status.error().code;
    result.message = write.status.error().message;
    result.unknown = write.unknown;
  }
  return results;
}

// What comes after the commit cannot undo it and must not look as if.
IndexWrite LmdbManifestStore::CommitTogether(std::span<const Request> batch, uint64_t* commit) {
  const bool names_extents =
      std::any_of(batch.begin(), batch.end(), [](const Request& r) { return r.kind == Request::Kind::kPut; });
  if (names_extents) {
    const MisplacedFiles misplaced = FindMisplaced();
    for (const Request& request : batch) {
      if (Status found = misplaced.Check(request.extents, devices_.numbers()); !found) return {.status = found};
    }
    Status ready = FlushDevices();
    if (ready) ready = NameDevices();
    {
      const MutexLock lock(mutex_);
      unready_ = ready ? std::string() : ready.error().message;
    }
    if (!ready) return {.status = std::move(ready)};
  }
  *commit = commit_ + 1;
  std::vector<IndexChange> changes = {Bound<uint64_t>(kKeyCommit, std::span(commit, 1))};
  for (const Request& request : batch) {
    const bool erase = request.kind == Request::Kind::kErase;
    changes.push_back({.table = IndexTable::kManifests, .key = request.job, .value = request.manifest, .erase = erase});
    changes.push_back({.table = IndexTable::kExtents, .key = request.job, .value = request.extents, .erase = erase});
  }
  if (IndexWrite write = index_->Write(changes); !write.status) return write;
  commit_ = *commit;
  if (!names_extents) named_ = MayHaveManifests(*index_);
  WriteSuperblocks();
  return {};
}

Result<std::vector<std::byte>> LmdbManifestStore::Load(std::string_view job) const {
  auto manifest = index_->Get(IndexTable::kManifests, job);
  if (!manifest && manifest.error().code == Code::kNotFound) {
    return Fail(Code::kNotFound,
                fmt::format("nothing is persisted of job {}: open it with mode resume_or_create, attach or "
                            "create",
                            job));
  }
  return manifest;
}

Result<std::vector<std::byte>> LmdbManifestStore::LoadExtents(std::string_view job) const {
  return index_->Get(IndexTable::kExtents, job);
}

Result<std::vector<std::string>> LmdbManifestStore::Jobs() const {
  auto manifests = index_->Keys(IndexTable::kManifests);
  if (!manifests) return manifests;
  auto extents = index_->Keys(IndexTable::kExtents);
  if (!extents) return extents;
  std::vector<std::string> jobs;
  std::ranges::set_union(*manifests, *extents, std::back_inserter(jobs));
  return jobs;
}

}  // namespace tier::storage
