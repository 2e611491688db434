// See lmdb_manifest_store.h. Two databases: "manifests" (job → manifest) and "binding" (uuid, devices, commit).
#include "daemon/storage/lmdb_manifest_store.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "daemon/base/check.h"
#include "daemon/storage/device_lock.h"
#include "daemon/storage/index_transaction.h"
#include "daemon/storage/os_error.h"
#include "proto/start_thread.h"

namespace tier::storage {
namespace {

constexpr MDB_dbi kDatabasesMax = 2;
constexpr std::string_view kKeyUuid = "uuid";
constexpr std::string_view kKeyDevices = "devices";
constexpr std::string_view kKeyCommit = "commit";

MDB_val AsValue(std::string_view text) { return {text.size(), const_cast<char*>(text.data())}; }
MDB_val AsValue(std::span<const std::byte> bytes) { return {bytes.size(), const_cast<std::byte*>(bytes.data())}; }

// A fixed-size value of the binding; false: absent or of another size.
template <typename T>
bool Get(MDB_txn* transaction, MDB_dbi database, std::string_view name, T* value) {
  MDB_val key = AsValue(name);
  MDB_val found{};
  if (mdb_get(transaction, database, &key, &found) != 0 || found.mv_size != sizeof(T)) return false;
  std::memcpy(value, found.mv_data, sizeof(T));
  return true;
}

int Put(MDB_txn* transaction, MDB_dbi database, std::string_view name, std::span<const std::byte> bytes) {
  MDB_val key = AsValue(name);
  MDB_val value = AsValue(bytes);
  return mdb_put(transaction, database, &key, &value, 0);
}

std::vector<Uuid> GetUuids(MDB_txn* transaction, MDB_dbi database) {
  MDB_val key = AsValue(kKeyDevices);
  MDB_val found{};
  std::vector<Uuid> uuids;
  if (mdb_get(transaction, database, &key, &found) != 0) return uuids;
  uuids.resize(found.mv_size / sizeof(Uuid));
  if (!uuids.empty()) std::memcpy(uuids.data(), found.mv_data, uuids.size() * sizeof(Uuid));
  return uuids;
}

}  // namespace

struct LmdbManifestStore::Environment {
  IndexEnvironment handle;
  MDB_dbi manifests = 0;
  MDB_dbi binding = 0;
};

LmdbManifestStore::LmdbManifestStore(ManifestStoreOptions options) : options_(std::move(options)) {}

Result<std::unique_ptr<LmdbManifestStore>> LmdbManifestStore::Open(ManifestStoreOptions options) {
  TIER_CHECK(options.map_size >= kManifestMapSizeMin, "map of {} bytes", options.map_size);
  std::unique_ptr<LmdbManifestStore> store(new LmdbManifestStore(std::move(options)));
  Status status = store->OpenFile();
  if (status) status = store->OpenEnvironment();
  if (status) status = store->Bind();
  if (!status) return std::unexpected(status.error());
  auto thread = proto::StartThread("tier-manifest", proto::BlockedSignals::kAll, [raw = store.get()] { raw->Run(); });
  if (!thread) return std::unexpected(std::move(thread.error()));
  store->thread_ = std::move(*thread);
  return store;
}

LmdbManifestStore::~LmdbManifestStore() {
  if (thread_.joinable()) {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.NotifyOne();
    thread_.join();
  }
  environment_.reset();
  if (file_) UnlockDevice(file_.get());
}

Status LmdbManifestStore::OpenFile() {
  file_ = proto::FileDescriptor(::open(options_.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file_) return FailErrno(errno, "opening the index " + options_.path);
  return LockDevice(file_.get(), options_.path);
}

Status LmdbManifestStore::OpenEnvironment() {
  struct stat about{};
  if (::fstat(file_.get(), &about) != 0) return FailErrno(errno, "looking at the index " + options_.path);
  const uint64_t map_size = AlignUp(std::max(options_.map_size, static_cast<uint64_t>(about.st_size)), kPageSize);
  environment_ = std::make_unique<Environment>();
  MDB_env* handle = nullptr;
  if (const int error = mdb_env_create(&handle); error != 0) return FailIndex(error, "creating the index");
  environment_->handle.reset(handle);
  int error = mdb_env_set_mapsize(handle, map_size);
  if (error == 0) error = mdb_env_set_maxdbs(handle, kDatabasesMax);
  if (error == 0) error = mdb_env_open(handle, options_.path.c_str(), MDB_NOSUBDIR | MDB_NOTLS, 0600);
  if (error != 0) return FailIndex(error, "opening the index " + options_.path);
  // Only now: LMDB takes an empty file for a new environment, one of zeros for a damaged one.
  // Again where the end of an io_uring, which was only tried, interrupts it (seen on Linux 6.1).
  if (TEMP_FAILURE_RETRY(::fallocate(file_.get(), 0, 0, static_cast<off_t>(map_size))) != 0) {
    return FailErrno(errno, fmt::format("allocating {} bytes for the index {}", map_size, options_.path));
  }
  auto transaction = IndexTransaction::Begin(handle, 0);
  if (!transaction) return std::unexpected(transaction.error());
  error = mdb_dbi_open(transaction->get(), "manifests", MDB_CREATE, &environment_->manifests);
  if (error == 0) error = mdb_dbi_open(transaction->get(), "binding", MDB_CREATE, &environment_->binding);
  if (error == 0) error = transaction->Commit();
  if (error != 0) return FailIndex(error, "opening the databases of " + options_.path);
  return {};
}

Status LmdbManifestStore::CheckDevices(bool fresh, std::span<const Uuid> known) const {
  for (const ManifestDevice& device : options_.devices) {
    const bool bound = device.index_uuid != Uuid{};
    if (bound && (fresh || device.index_uuid != uuid_)) {
      return Fail(Code::kCorrupt,
                  fmt::format("device {} belongs to the index {} (commit {}), which {} is not: restore that file, or "
                              "format the device",
                              device.path, FormatUuid(device.index_uuid), device.index_commit, options_.path));
    }
    if (bound && device.index_commit > commit_) {
      return Fail(Code::kCorrupt, fmt::format("{} is an old copy: its last commit is {}, device {} has seen {}",
                                              options_.path, commit_, device.path, device.index_commit));
    }
  }
  for (const Uuid& uuid : known) {
    const bool present = std::any_of(options_.devices.begin(), options_.devices.end(),
                                     [&](const ManifestDevice& device) { return device.uuid == uuid; });
    if (!present) {
      return Fail(Code::kInvalid, fmt::format("the index {} names extents on device {}, which is not configured or was "
                                              "formatted since: name it again, or remove the index",
                                              options_.path, FormatUuid(uuid)));
    }
  }
  return {};
}

Status LmdbManifestStore::Bind() {
  auto transaction = IndexTransaction::Begin(environment_->handle.get(), 0);
  if (!transaction) return std::unexpected(transaction.error());
  MDB_txn* txn = transaction->get();
  const MDB_dbi binding = environment_->binding;
  const bool fresh = !Get(txn, binding, kKeyUuid, &uuid_);
  if (fresh) {
    uuid_ = DrawUuid();
  } else if (!Get(txn, binding, kKeyCommit, &commit_)) {
    return Fail(Code::kCorrupt, "the index " + options_.path + " lacks its commit number");
  }
  if (Status status = CheckDevices(fresh, GetUuids(txn, binding)); !status) return status;
  std::vector<Uuid> uuids;
  uuids.reserve(options_.devices.size());
  for (const ManifestDevice& device : options_.devices) uuids.push_back(device.uuid);
  const uint64_t commit = commit_ + 1;
  int error = Put(txn, binding, kKeyUuid, std::as_bytes(std::span(uuid_)));
  if (error == 0) error = Put(txn, binding, kKeyDevices, std::as_bytes(std::span(uuids)));
  if (error == 0) error = Put(txn, binding, kKeyCommit, std::as_bytes(std::span(&commit, 1)));
  if (error == 0) error = transaction->Commit();
  if (error != 0) return FailIndex(error, "binding the index " + options_.path);
  commit_ = commit;
  return options_.on_commit ? options_.on_commit(uuid_, commit_) : Status{};
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

void LmdbManifestStore::StartPut(uint64_t cookie, std::string job, std::vector<std::byte> manifest) {
  Enqueue({.cookie = cookie, .job = std::move(job), .manifest = std::move(manifest)});
}

void LmdbManifestStore::StartErase(uint64_t cookie, std::string job) {
  Enqueue({.cookie = cookie, .job = std::move(job), .kind = Request::Kind::kErase});
}

void LmdbManifestStore::StartLoad(uint64_t cookie, std::string job) {
  Enqueue({.cookie = cookie, .job = std::move(job), .kind = Request::Kind::kLoad});
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
}

void LmdbManifestStore::Run() {
  std::vector<Request> batch;
  const MutexLock lock(mutex_);
  for (;;) {
    WaitForWork();
    if (waiting_.empty() && stopping_) return;
    batch.swap(waiting_);
    std::vector<std::shared_ptr<void>> discarded = std::exchange(discarded_, {});
    std::vector<ManifestResult> done;
    {
      const MutexUnlock unlocked(mutex_);
      discarded.clear();
      done = Perform(batch);
      batch.clear();
    }
    if (std::chrono::steady_clock::now() >= superblock_retry_at_) {
      const MutexUnlock unlocked(mutex_);
      WriteSuperblocks();
    }
    std::move(done.begin(), done.end(), std::back_inserter(results_));
    if (options_.signal != nullptr) options_.signal->Signal();
  }
}

void LmdbManifestStore::WaitForWork() {
  while (waiting_.empty() && discarded_.empty() && !stopping_) {
    if (!wake_.WaitUntil(mutex_, superblock_retry_at_)) return;
  }
}

// The kernel reports a failed flush once and then forgets it: a second one that succeeds says nothing about the first.
Status LmdbManifestStore::FlushDevices() {
  if (flush_failure_.empty()) {
    const Status flushed = options_.flush_devices ? options_.flush_devices() : Status{};
    if (flushed) return {};
    flush_failure_ = flushed.error().message;
  }
  return Fail(Code::kIoError, fmt::format("a device lost a flush ({}): manifests are refused until tierd is restarted",
                                          flush_failure_));
}

void LmdbManifestStore::WriteSuperblocks() {
  const Status written = options_.on_commit ? options_.on_commit(uuid_, commit_) : Status{};
  const MutexLock lock(mutex_);
  superblock_failure_ = written ? std::string() : written.error().message;
  using Clock = std::chrono::steady_clock;
  superblock_retry_at_ = written ? Clock::time_point::max() : Clock::now() + options_.superblock_retry;
}

std::string LmdbManifestStore::superblock_failure() const {
  const MutexLock lock(mutex_);
  return superblock_failure_;
}

// The commits together; then the loads, which see them.
std::vector<ManifestResult> LmdbManifestStore::Perform(std::span<Request> batch) {
  const auto loads =
      std::ranges::stable_partition(batch, [](const Request& r) { return r.kind != Request::Kind::kLoad; });
  std::vector<ManifestResult> results = CommitBatch(batch.first(batch.size() - loads.size()));
  for (const Request& request : loads) {
    ManifestResult& result = results.emplace_back(ManifestResult{.cookie = request.cookie});
    Result<std::vector<std::byte>> manifest = Load(request.job);
    if (manifest) {
      result.manifest = *std::move(manifest);
    } else {
      result.code = manifest.error().code;
      result.message = std::move(manifest.error().message);
    }
  }
  return results;
}

std::vector<ManifestResult> LmdbManifestStore::CommitBatch(std::span<const Request> batch) {
  std::vector<ManifestResult> results;
  if (batch.empty()) return results;
  uint64_t commit = 0;
  Status status = CommitTogether(batch, &commit);
  if (!status && batch.size() > 1) {  // One of them does not fit: let each stand for itself.
    for (size_t i = 0; i < batch.size(); ++i) {
      std::vector<ManifestResult> one = CommitBatch(batch.subspan(i, 1));
      results.push_back(std::move(one.front()));
    }
    return results;
  }
  for (const Request& request : batch) {
    ManifestResult& result = results.emplace_back(ManifestResult{.cookie = request.cookie, .commit = commit});
    if (status) continue;
    // For the caller a full index of manifests is a full SSD tier.
    result.code = status.error().code == Code::kNoMemory ? Code::kNoSpace : status.error().code;
    result.message = status.error().message;
  }
  return results;
}

// An error means that LMDB has not committed: what comes after its commit cannot undo it and must not look as if.
Status LmdbManifestStore::CommitTogether(std::span<const Request> batch, uint64_t* commit) {
  const bool names_extents =
      std::any_of(batch.begin(), batch.end(), [](const Request& r) { return r.kind == Request::Kind::kPut; });
  if (names_extents) {
    if (Status flushed = FlushDevices(); !flushed) return flushed;
  }
  auto transaction = IndexTransaction::Begin(environment_->handle.get(), 0);
  if (!transaction) return std::unexpected(transaction.error());
  *commit = commit_ + 1;
  int error = Put(transaction->get(), environment_->binding, kKeyCommit, std::as_bytes(std::span(commit, 1)));
  for (const Request& request : batch) {
    if (error != 0) break;
    if (request.kind == Request::Kind::kPut) {
      error = Put(transaction->get(), environment_->manifests, request.job, request.manifest);
      continue;
    }
    MDB_val key = AsValue(request.job);
    error = mdb_del(transaction->get(), environment_->manifests, &key, nullptr);
    if (error == MDB_NOTFOUND) error = 0;
  }
  if (error == 0) error = transaction->Commit();
  if (error != 0) return FailIndex(error, "committing manifests to " + options_.path);
  commit_ = *commit;
  WriteSuperblocks();
  return {};
}

Result<std::vector<std::byte>> LmdbManifestStore::Load(std::string_view job) const {
  auto transaction = IndexTransaction::Begin(environment_->handle.get(), MDB_RDONLY);
  if (!transaction) return std::unexpected(transaction.error());
  MDB_val key = AsValue(job);
  MDB_val found{};
  const int error = mdb_get(transaction->get(), environment_->manifests, &key, &found);
  if (error == MDB_NOTFOUND)
    return Fail(Code::kNotFound,
                fmt::format("nothing is persisted of job {}: open it with mode create or attach", job));
  if (error != 0) return FailIndex(error, fmt::format("reading the manifest of job {}", job));
  const auto* bytes = static_cast<const std::byte*>(found.mv_data);
  return std::vector<std::byte>(bytes, bytes + found.mv_size);
}

std::vector<std::string> LmdbManifestStore::Jobs() const {
  std::vector<std::string> jobs;
  auto transaction = IndexTransaction::Begin(environment_->handle.get(), MDB_RDONLY);
  TIER_CHECK(transaction.has_value(), "{}", transaction.error().message);
  MDB_cursor* cursor = nullptr;
  const int opened = mdb_cursor_open(transaction->get(), environment_->manifests, &cursor);
  TIER_CHECK(opened == 0, "{}", mdb_strerror(opened));
  MDB_val key{};
  MDB_val value{};
  while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
    jobs.emplace_back(static_cast<const char*>(key.mv_data), key.mv_size);
  }
  mdb_cursor_close(cursor);
  return jobs;
}

}  // namespace tier::storage
