// See index_file.h. What runs under the guard owns nothing that needs a destructor; what LMDB had allocated when a call
// ends there is lost.
//
// A page that cannot be read is covered whole: LMDB does not allocate while it reads the map, so a fault there leaves
// no lock of the allocator held. A page that is damaged and still looks like LMDB's is not. LMDB checks few of the
// offsets and lengths in it, and a write transaction moves bytes by them in copies of pages on the heap, or beside
// them. Then a fault may come inside malloc or free, whose lock stays held, so that a later allocation hangs; or the
// heap is damaged without a fault, and the daemon ends later or works with wrong bytes. This is accepted: it takes a
// disk that returns wrong bytes without an error; the guard ends most of such calls, each of which would end the daemon
// otherwise; and LMDB in a process of its own would cost each persist a copy and a hand-over.
#include "daemon/storage/index_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <lmdb.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/check.h"
#include "daemon/base/fault_escape.h"
#include "daemon/base/format_bytes.h"
#include "daemon/storage/device_lock.h"
#include "daemon/storage/file_mapping.h"
#include "daemon/storage/os_error.h"
#include "proto/units.h"

namespace tier::storage {
namespace {

constexpr unsigned kNoTable = ~0u;
constexpr uint64_t kGrowthMin = kMiB;  // Beside the values: pages of the tables themselves.
constexpr std::array<const char*, kIndexTables> kTableNames = {"manifests", "extents", "binding", "quarantine"};

MDB_val AsValue(std::string_view text) { return {text.size(), const_cast<char*>(text.data())}; }
MDB_val AsValue(std::span<const std::byte> bytes) { return {bytes.size(), const_cast<std::byte*>(bytes.data())}; }

// MDB_MAP_FULL → NO_SPACE, a damaged environment → CORRUPT, errno values as os_error.h has them.
std::unexpected<Error> FailIndex(int error, std::string_view doing) {
  if (error > 0) return FailErrno(error, doing);  // LMDB's own codes are negative.
  Code code = Code::kIoError;
  if (error == MDB_MAP_FULL || error == MDB_TXN_FULL) code = Code::kNoSpace;
  if (error == MDB_CORRUPTED || error == MDB_INVALID || error == MDB_PAGE_NOTFOUND) code = Code::kCorrupt;
  if (error == MDB_VERSION_MISMATCH) code = Code::kVersion;
  if (error == MDB_NOTFOUND) code = Code::kNotFound;
  return Fail(code, fmt::format("{}: {}", doing, mdb_strerror(error)));
}

int Apply(MDB_txn* transaction, std::span<const unsigned> tables, const IndexChange& change) {
  MDB_val key = AsValue(change.key);
  const MDB_dbi table = tables[static_cast<size_t>(change.table)];
  if (change.erase) {
    const int error = mdb_del(transaction, table, &key, nullptr);
    return error == MDB_NOTFOUND ? 0 : error;
  }
  MDB_val value = AsValue(change.value);
  return mdb_put(transaction, table, &key, &value, 0);
}

int ApplyAll(MDB_txn* transaction, std::span<const unsigned> tables, std::span<const IndexChange> changes) {
  int error = 0;
  for (size_t i = 0; i < changes.size() && error == 0; ++i) error = Apply(transaction, tables, changes[i]);
  return error;
}

int TryOpenTables(MDB_env* environment, MDB_txn** reader, unsigned* tables) {
  MDB_txn* transaction = nullptr;
  if (const int error = mdb_txn_begin(environment, nullptr, 0, &transaction); error != 0) return error;
  for (size_t i = 0; i < kIndexTables; ++i) {
    const int error = mdb_dbi_open(transaction, kTableNames[i], MDB_CREATE, &tables[i]);
    if (error == 0) continue;
    mdb_txn_abort(transaction);
    return error;
  }
  int error = mdb_txn_commit(transaction);
  if (error == 0) error = mdb_txn_begin(environment, nullptr, MDB_RDONLY, reader);
  if (error == 0) mdb_txn_reset(*reader);
  return error;
}

// Makes none: an index of an earlier tierd may lack one, and one that was never bound all of them.
int TryFindTables(MDB_env* environment, MDB_txn** reader, unsigned* tables, uint64_t* commit) {
  int error = mdb_txn_begin(environment, nullptr, MDB_RDONLY, reader);
  for (size_t i = 0; i < kIndexTables && error == 0; ++i) {
    error = mdb_dbi_open(*reader, kTableNames[i], 0, &tables[i]);
    if (error != MDB_NOTFOUND) continue;
    tables[i] = kNoTable;
    error = 0;
  }
  if (error == 0) *commit = mdb_txn_id(*reader);
  // The tables stay open only beyond a transaction that ends in order.
  if (error == 0) error = mdb_txn_commit(std::exchange(*reader, nullptr));
  if (error == 0) error = mdb_txn_begin(environment, nullptr, MDB_RDONLY, reader);
  if (error == 0) mdb_txn_reset(*reader);
  return error;
}

}  // namespace

IndexFile::IndexFile(IndexFileOptions options) : options_(std::move(options)) {}

Result<std::unique_ptr<IndexFile>> IndexFile::Open(IndexFileOptions options) {
  base::InstallFaultGuard();
  std::unique_ptr<IndexFile> index(new IndexFile(std::move(options)));
  Status status = index->OpenFile();
  if (status) status = index->OpenEnvironment();
  if (status) status = index->OpenTables();
  if (status) return index;
  index->RemoveIfMade();
  return std::unexpected(status.error());
}

void IndexFile::RemoveIfMade() {
  if (made_) (void)::unlink(path_.c_str());  // Fails only if another process removed it: the same outcome.
}

IndexFile::~IndexFile() {
  if (reader_ != nullptr) mdb_txn_abort(reader_);
  guarded_ = {};
  if (environment_ != nullptr) mdb_env_close(environment_);  // Touches nothing of the map.
  if (file_ && !options_.read_only) UnlockDevice(file_.get());
}

Status IndexFile::OpenFile() {
  if (options_.read_only) {
    file_ = proto::FileDescriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    return file_ ? Status() : FailErrno(errno, "opening the index " + path_);
  }
  constexpr int kFlags = O_RDWR | O_CLOEXEC;
  file_ = proto::FileDescriptor(::open(path_.c_str(), kFlags));
  if (!file_ && errno == ENOENT) {
    file_ = proto::FileDescriptor(::open(path_.c_str(), kFlags | O_CREAT | O_EXCL, 0600));
    made_ = static_cast<bool>(file_);
  }
  if (!file_) return FailErrno(errno, "opening the index " + path_);
  if (Status locked = LockDevice(file_.get(), path_); !locked) return locked;
  (void)::unlink((path_ + "-lock").c_str());  // An earlier tierd left it; no process uses it.
  return {};
}

// On failure the file has its size again: a disk that fills up on the way gives a part of the bytes.
Status IndexFile::Allocate(uint64_t from, uint64_t size) {
  // Again where the end of an io_uring, which was only tried, interrupts it (seen on Linux 6.1).
  if (TEMP_FAILURE_RETRY(::fallocate(file_.get(), 0, 0, static_cast<off_t>(size))) == 0) return {};
  const int error = errno;
  (void)!::ftruncate(file_.get(), static_cast<off_t>(from));  // Best effort: what is too much does no harm.
  return FailErrno(error, fmt::format("allocating {} for the index {}", base::FormatBytes(size), path_));
}

Status IndexFile::OpenEnvironment() {
  struct stat about{};
  if (::fstat(file_.get(), &about) != 0) return FailErrno(errno, "looking at the index " + path_);
  const auto size = static_cast<uint64_t>(about.st_size);
  map_size_ = AlignUp(std::max(options_.read_only ? 0 : options_.map_size, size), kPageSize);
  int error = mdb_env_create(&environment_);
  // Where a page does not hold what LMDB expects it would abort the process.
  if (error == 0) error = mdb_env_set_assert(environment_, [](MDB_env*, const char*) { base::EndGuardedCall(); });
  if (error == 0) error = mdb_env_set_mapsize(environment_, map_size_);
  if (error == 0) error = mdb_env_set_maxdbs(environment_, kIndexTables);
  // It maps the file and reads its head with ordinary calls: the map is not touched yet.
  const unsigned flags = MDB_NOSUBDIR | MDB_NOTLS | MDB_NOLOCK | (options_.read_only ? MDB_RDONLY : 0);
  if (error == 0) error = mdb_env_open(environment_, path_.c_str(), flags, 0600);
  if (error != 0) return FailIndex(error, "opening the index " + path_);
  if (options_.read_only) return GuardMap();
  // Only now: LMDB takes an empty file for a new environment, one of zeros for a damaged one.
  if (Status allocated = Allocate(size, map_size_); !allocated) return allocated;
  return GuardMap();
}

Status IndexFile::GuardMap() {
  const auto map = FindMapping(file_.get(), map_size_);
  if (!map) return Fail(Code::kIoError, fmt::format("guarding the index {}: {}", path_, map.error().message));
  map_ = *map;
  guarded_ = base::GuardedRange(map_.data(), map_.size());
  return {};
}

// An index of an earlier tierd may lack a table, and have no page left for it.
Status IndexFile::OpenTables() {
  const MutexLock lock(mutex_);
  if (options_.read_only) {
    return Touch("looking at the tables of the index " + path_,
                 [environment = environment_, reader = &reader_, tables = tables_.data(), commit = &seen_commit_] {
                   return TryFindTables(environment, reader, tables, commit);
                 });
  }
  for (;;) {  // Ends: each time the file has grown, or the disk has no room left.
    int error = 0;
    Status opened = Touch("opening the tables of the index " + path_,
                          [environment = environment_, reader = &reader_, tables = tables_.data(), &error] {
                            return error = TryOpenTables(environment, reader, tables);
                          });
    if (error != MDB_MAP_FULL) return opened;
    if (Status grown = Grow(kGrowthMin); !grown) return grown;
  }
}

std::string IndexFile::failure() const {
  const MutexLock lock(failure_mutex_);
  return failure_;
}

std::string IndexFile::CheckWritable() const {
  {
    const MutexLock lock(mutex_);
    if (!CheckTrusted()) return failure();
  }
  const auto space = options_.space(std::filesystem::path(path_).parent_path());
  if (!space || !space->read_only) return {};
  return fmt::format("the file system of the index {} is read-only", path_);
}

std::unexpected<Error> IndexFile::GiveUp(std::string reason, std::string_view consequence) const {
  refusal_ = fmt::format("{}: {}", reason, consequence);
  const MutexLock lock(failure_mutex_);
  failure_ = std::move(reason);
  return Fail(Code::kIoError, refusal_);
}

std::unexpected<Error> IndexFile::GiveUpUnread(std::string reason) const {
  return GiveUp(std::move(reason),
                "nothing can be persisted or resumed until tierd is restarted. Tensors can still be used, but end with "
                "the daemon: save them elsewhere, repair the disk or put a whole copy of the index in its place, then "
                "restart tierd");
}

Status IndexFile::CheckTrusted() const {
  if (!refusal_.empty()) return Fail(Code::kIoError, refusal_);
  struct stat about{};
  if (::fstat(file_.get(), &about) != 0) return FailErrno(errno, "looking at the index " + path_);
  const auto size = static_cast<uint64_t>(about.st_size);
  if (size >= map_size_) return {};
  // A write would make the file longer again, with zeros in the place of what was lost.
  return GiveUpUnread(fmt::format("the index {} was cut short to {} of {} bytes", path_, size, map_size_));
}

template <typename Steps>
Status IndexFile::Touch(std::string_view doing, Steps steps) const {
  if (Status trusted = CheckTrusted(); !trusted) return trusted;
  int error = 0;
  const base::AnyFaultEnds guard;  // What LMDB finds in a damaged page may lead it anywhere: see the top.
  if (!base::RunGuarded([&] { error = steps(); })) {
    return GiveUpUnread(fmt::format(
        "{}: a part of the file cannot be read, for it was cut short or damaged, or its disk fails", doing));
  }
  if (error != 0) return FailIndex(error, doing);
  return {};
}

IndexWrite IndexFile::TryWrite(std::span<const IndexChange> changes, bool* full) {
  bool committing = false;
  int error = 0;
  const auto write = [environment = environment_, &tables = tables_, changes, &committing, &error] {
    MDB_txn* transaction = nullptr;
    error = mdb_txn_begin(environment, nullptr, 0, &transaction);
    if (error != 0) return error;
    error = ApplyAll(transaction, tables, changes);
    if (error != 0) {
      mdb_txn_abort(transaction);
      return error;
    }
    committing = true;
    error = mdb_txn_commit(transaction);
    return error;
  };
  Status status = Touch("committing to the index " + path_, write);
  // LMDB finds out that the map is full before it writes anything.
  *full = error == MDB_MAP_FULL;
  if (status || !committing || error == MDB_MAP_FULL || error == MDB_TXN_FULL) return {.status = std::move(status)};
  const std::string why = error == 0 ? "a part of the file cannot be read" : mdb_strerror(error);
  status =
      GiveUp(fmt::format("it is unknown whether the last commit to the index {} was made ({})", path_, why),
             "a restart of tierd will tell. Until then what the manifests before and after it name is kept on SSD, "
             "and nothing can be persisted or resumed. Tensors can still be used, but end with the daemon: save "
             "them elsewhere and look after the disk before the restart");
  return {.status = std::move(status), .unknown = true};
}

IndexWrite IndexFile::Write(std::span<const IndexChange> changes) {
  TIER_CHECK(!options_.read_only, "{} changes of {}, which is open for reading", changes.size(), path_);
  uint64_t needed = kGrowthMin;
  for (const IndexChange& change : changes) needed += AlignUp(change.value.size(), kPageSize);
  const MutexLock lock(mutex_);
  for (;;) {  // Ends: each time the file has grown, or the disk has no room left.
    bool full = false;
    IndexWrite write = TryWrite(changes, &full);
    if (!full) return write;
    if (Status grown = Grow(needed); !grown) return {.status = std::move(grown)};
  }
}

Status IndexFile::Grow(uint64_t needed) {
  const auto space = options_.space(std::filesystem::path(path_).parent_path());
  if (!space) return std::unexpected(space.error());
  const uint64_t most = space->available - std::min(space->available, kIndexDiskKept);
  const uint64_t more = std::min(std::max(map_size_, needed), most) / kPageSize * kPageSize;
  if (more < needed) {
    return Fail(Code::kNoSpace,
                fmt::format("the index {} of {} is full and cannot grow by {}: its disk has {} free, and {} of that "
                            "stay free; make room on that disk, or remove what jobs persisted that are not needed "
                            "(tierctl job remove --purge)",
                            path_, base::FormatBytes(map_size_), base::FormatBytes(needed),
                            base::FormatBytes(space->available), base::FormatBytes(kIndexDiskKept)));
  }
  if (Status allocated = Allocate(map_size_, map_size_ + more); !allocated) return allocated;
  // No transaction is open: the caller's has ended, and the mutex keeps others out.
  Status status = Touch("growing the index " + path_, [environment = environment_, size = map_size_ + more] {
    return mdb_env_set_mapsize(environment, size);
  });
  map_size_ += more;
  if (status) status = GuardMap();
  if (status) return {};
  return GiveUpUnread(status.error().message);  // LMDB may have let go of the old map.
}

Status IndexFile::CheckUnchanged() const {
  if (!options_.read_only) return {};
  MDB_envinfo about{};
  Status status = Touch("reading the index " + path_,
                        [environment = environment_, &about] { return mdb_env_info(environment, &about); });
  if (!status || about.me_last_txnid == seen_commit_) return status;
  return Fail(Code::kAlreadyExists,
              fmt::format("the index {} is in use by a tierd, which changed it while it was read: try again", path_));
}

Result<std::vector<std::byte>> IndexFile::Get(IndexTable table, std::string_view key) const {
  const MutexLock lock(mutex_);
  MDB_val found{};
  const MDB_dbi handle = tables_[static_cast<size_t>(table)];
  const std::string doing = fmt::format("reading {} of the index {}", key, path_);
  if (handle == kNoTable) return Fail(Code::kNotFound, doing + ": it has no such table");
  Status status = Touch(doing, [reader = reader_, handle, key, &found] {
    if (const int error = mdb_txn_renew(reader); error != 0) return error;
    MDB_val name = AsValue(key);
    const int error = mdb_get(reader, handle, &name, &found);
    mdb_txn_reset(reader);
    return error;
  });
  if (!status) return std::unexpected(status.error());
  const auto at = static_cast<size_t>(static_cast<const std::byte*>(found.mv_data) - map_.data());
  if (at > map_.size() || found.mv_size > map_.size() - at) {
    return Fail(Code::kCorrupt, fmt::format("{}: {} bytes lie outside the file", doing, found.mv_size));
  }
  // The bytes stay as they are until the next transaction, and the mutex holds that off.
  std::vector<std::byte> value(found.mv_size);
  status = Touch(doing, [&found, bytes = value.data()] {
    if (found.mv_size != 0) std::memcpy(bytes, found.mv_data, found.mv_size);
    return 0;
  });
  if (status) status = CheckUnchanged();
  if (!status) return std::unexpected(status.error());
  return value;
}

Result<bool> IndexFile::HasAny(IndexTable table) const {
  const MutexLock lock(mutex_);
  const MDB_dbi handle = tables_[static_cast<size_t>(table)];
  if (handle == kNoTable) return false;
  MDB_stat about{};
  Status status = Touch("counting the names in the index " + path_, [reader = reader_, handle, &about] {
    if (const int error = mdb_txn_renew(reader); error != 0) return error;
    const int error = mdb_stat(reader, handle, &about);
    mdb_txn_reset(reader);
    return error;
  });
  if (status) status = CheckUnchanged();
  if (!status) return std::unexpected(status.error());
  return about.ms_entries != 0;
}

Result<std::vector<std::string>> IndexFile::Keys(IndexTable table) const {
  const MutexLock lock(mutex_);
  const MDB_dbi handle = tables_[static_cast<size_t>(table)];
  if (handle == kNoTable) return std::vector<std::string>();  // Of a read-only one alone.
  const std::string doing = "reading the names in the index " + path_;
  MDB_cursor* cursor = nullptr;
  Status status = Touch(doing, [reader = reader_, handle, &cursor] {
    const int error = mdb_txn_renew(reader);
    return error == 0 ? mdb_cursor_open(reader, handle, &cursor) : error;
  });
  std::vector<std::string> keys;
  std::array<char, 512> name{};
  size_t length = 0;
  while (status) {
    status = Touch(doing, [cursor, &name, &length] {
      MDB_val key{};
      MDB_val value{};
      const int error = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
      length = std::min(key.mv_size, name.size());
      if (error == 0) std::memcpy(name.data(), key.mv_data, length);
      return error;
    });
    if (status) keys.emplace_back(name.data(), length);
  }
  if (cursor != nullptr) mdb_cursor_close(cursor);
  mdb_txn_reset(reader_);
  if (status.error().code != Code::kNotFound) return std::unexpected(status.error());
  if (Status unchanged = CheckUnchanged(); !unchanged) return std::unexpected(unchanged.error());
  return keys;
}

}  // namespace tier::storage
