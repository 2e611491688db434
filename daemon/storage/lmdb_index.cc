// See lmdb_index.h. NOLOCK: one process, one thread. NOSYNC: the bytes are memory anyhow.
#include "daemon/storage/lmdb_index.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <tuple>

#include <fmt/format.h>
#include <sys/stat.h>

#include "daemon/base/check.h"
#include "daemon/storage/index_transaction.h"
#include "daemon/storage/os_error.h"
#include "proto/index_record.h"

namespace tier::storage {
namespace {

constexpr unsigned kOpenFlags = MDB_NOSUBDIR | MDB_NOLOCK | MDB_NOSYNC | MDB_NOMETASYNC | MDB_WRITEMAP;
constexpr uint64_t kMapSizeMin = kMiB;
constexpr size_t kStagedReserve = 4096;             // Operations of an ordinary turn.
constexpr uint64_t kRootsReserve = 64 * kPageSize;  // Of each tree some pages are copied in every transaction.
constexpr size_t kValuesReserve = 512 * kKiB;
constexpr std::array<unsigned char, 1> kFormatKey = {0};  // Shorter than any other: the first.

MDB_val AsValue(std::span<const unsigned char> bytes) {
  return {bytes.size(), const_cast<unsigned char*>(bytes.data())};  // LMDB only reads what is put.
}

bool IsFormatKey(const MDB_val& key) { return key.mv_size == kFormatKey.size(); }

int WriteFormat(MDB_txn* transaction, MDB_dbi database) {
  proto::IndexFormatRecord format{.magic = proto::kIndexMagic, .version = proto::kIndexVersion, .reserved = 0};
  MDB_val key = AsValue(kFormatKey);
  MDB_val value{sizeof(format), &format};
  return mdb_put(transaction, database, &key, &value, 0);
}

Status CheckFormat(MDB_txn* transaction, MDB_dbi database) {
  MDB_val key = AsValue(kFormatKey);
  MDB_val value{};
  const int error = mdb_get(transaction, database, &key, &value);
  if (error != 0 && error != MDB_NOTFOUND) return FailIndex(error, "reading the format of the kept index");
  proto::IndexFormatRecord format{.magic = proto::kIndexMagic, .version = 1, .reserved = 0};  // 1 did not say so.
  if (error == 0) {
    if (value.mv_size != sizeof(format)) {
      return Fail(Code::kCorrupt, fmt::format("the kept index has a format record of {} bytes", value.mv_size));
    }
    std::memcpy(&format, value.mv_data, sizeof(format));
  }
  if (format.magic != proto::kIndexMagic || format.reserved != 0)
    return Fail(Code::kCorrupt, "the kept index is not one of tierd's");
  if (format.version == proto::kIndexVersion) return {};
  return Fail(Code::kVersion, fmt::format("the kept index has format {}, this daemon reads format {}: start the daemon "
                                          "that wrote it, or start without the kept index",
                                          format.version, proto::kIndexVersion));
}

}  // namespace

struct LmdbIndex::Environment {
  IndexEnvironment handle;
  MDB_dbi database = 0;
};

Result<std::unique_ptr<LmdbIndex>> LmdbIndex::Open(const RamIndexOptions& options) {
  proto::FileDescriptor file(options.memory_file);
  const bool kept = static_cast<bool>(file);
  uint64_t map_size = AlignUp(std::max(options.map_size, kMapSizeMin), kPageSize);
  if (kept) {
    struct stat about{};
    if (::fstat(file.get(), &about) != 0) return FailErrno(errno, "looking at the kept index");
    map_size = static_cast<uint64_t>(about.st_size);
    if (map_size < kMapSizeMin) return Fail(Code::kCorrupt, fmt::format("the kept index has {} bytes", map_size));
  } else {
    // Empty, for LMDB takes zeros for a damaged environment; it sizes the file itself.
    auto made = proto::CreateMemoryFile("tier-index", 0, /*seal=*/false);
    if (!made) return std::unexpected(made.error());
    file = std::move(*made);
  }
  auto environment = std::make_unique<Environment>();
  MDB_env* handle = nullptr;
  if (const int error = mdb_env_create(&handle); error != 0) return FailIndex(error, "creating the index");
  environment->handle.reset(handle);
  int error = mdb_env_set_mapsize(handle, map_size);
  const std::string path = fmt::format("/proc/self/fd/{}", file.get());
  if (error == 0) error = mdb_env_open(handle, path.c_str(), kOpenFlags, 0600);
  if (error != 0) return FailIndex(error, "opening the index");
  auto transaction = IndexTransaction::Begin(handle, 0);
  if (!transaction) return std::unexpected(transaction.error());
  error = mdb_dbi_open(transaction->get(), nullptr, 0, &environment->database);
  if (error == 0 && kept) {
    if (Status known = CheckFormat(transaction->get(), environment->database); !known) {
      return std::unexpected(known.error());
    }
  } else if (error == 0) {
    error = WriteFormat(transaction->get(), environment->database);
  }
  if (error == 0) error = transaction->Commit();
  if (error != 0) return FailIndex(error, "opening the index database");
  return std::unique_ptr<LmdbIndex>(new LmdbIndex(std::move(environment), std::move(file), map_size));
}

LmdbIndex::LmdbIndex(std::unique_ptr<Environment> environment, proto::FileDescriptor memory_file, uint64_t map_size)
    : environment_(std::move(environment)), memory_file_(std::move(memory_file)), map_size_(map_size) {
  staged_.reserve(kStagedReserve);
  values_.reserve(kValuesReserve);
}

LmdbIndex::~LmdbIndex() = default;

LmdbIndex::KeyBytes LmdbIndex::Encode(const RecordKey& key) {
  KeyBytes bytes;
  const uint64_t parts[3] = {key.job, key.space, key.tensor};
  for (size_t i = 0; i < 3; ++i) {
    const uint64_t big_endian = __builtin_bswap64(parts[i]);
    std::memcpy(bytes.data() + 8 * i, &big_endian, 8);
  }
  const uint32_t record = __builtin_bswap32(key.record);
  std::memcpy(bytes.data() + sizeof(parts), &record, sizeof(record));
  return bytes;
}
static_assert(std::endian::native == std::endian::little);

RecordKey LmdbIndex::Decode(const unsigned char* bytes) {
  uint64_t parts[3];
  uint32_t record = 0;
  std::memcpy(parts, bytes, sizeof(parts));
  std::memcpy(&record, bytes + sizeof(parts), sizeof(record));
  return {.job = __builtin_bswap64(parts[0]),
          .space = __builtin_bswap64(parts[1]),
          .tensor = __builtin_bswap64(parts[2]),
          .record = __builtin_bswap32(record)};
}

void LmdbIndex::Stage(const RecordKey& key, uint64_t value_offset, uint32_t value_size) {
  TIER_CHECK(staged_.size() < kStagedOperationsMax, "{} operations staged", staged_.size());
  staged_.push_back({.key = Encode(key),
                     .sequence = static_cast<uint32_t>(staged_.size()),
                     .value_size = value_size,
                     .replaces = false,
                     .value_offset = value_offset});
}

void LmdbIndex::Put(const RecordKey& key, std::span<const std::byte> value) {
  TIER_CHECK(!value.empty() && value.size() < map_size_, "value of {} bytes", value.size());
  Stage(key, values_.size(), static_cast<uint32_t>(value.size()));
  values_.insert(values_.end(), value.begin(), value.end());
}

void LmdbIndex::Erase(const RecordKey& key) { Stage(key, kErase, 0); }

void LmdbIndex::KeepLastOfEachKey() {
  std::sort(staged_.begin(), staged_.end(),
            [](const Staged& a, const Staged& b) { return std::tie(a.key, a.sequence) < std::tie(b.key, b.sequence); });
  size_t kept = 0;
  bool erased = false;
  for (size_t i = 0; i < staged_.size(); ++i) {
    Staged& operation = staged_[i];
    erased |= operation.value_offset == kErase || operation.replaces;
    const bool last_of_key = i + 1 == staged_.size() || staged_[i + 1].key != operation.key;
    if (!last_of_key) continue;
    operation.replaces = erased && operation.value_offset != kErase;
    operation.sequence = static_cast<uint32_t>(kept);
    staged_[kept++] = operation;
    erased = false;
  }
  staged_.resize(kept);
}

Status LmdbIndex::Commit() {
  if (staged_.empty()) return {};
  KeepLastOfEachKey();
  Status all = CommitStaged(/*puts_too=*/true);
  // Full: what erases needs little room, and two transactions later LMDB reuses the pages that it gave back.
  for (int round = 0; round < 2 && !all && all.error().code == Code::kNoMemory; ++round) {
    if (!CommitStaged(/*puts_too=*/false)) break;
    std::erase_if(staged_, [](const Staged& operation) { return operation.value_offset == kErase; });
    for (Staged& operation : staged_) operation.replaces = false;
    all = CommitStaged(/*puts_too=*/true);
  }
  if (all) {
    staged_.clear();
    values_.clear();
    return {};
  }
  if (all.error().code != Code::kNoMemory) return all;
  return Fail(Code::kNoMemory, fmt::format("the index is full: {} of {} bytes used, {} changes wait; free tensors",
                                           used_bytes(), map_size_, staged_.size()));
}

Status LmdbIndex::CommitStaged(bool puts_too) {
  auto transaction = IndexTransaction::Begin(environment_->handle.get(), 0);
  if (!transaction) return std::unexpected(transaction.error());
  int error = Apply(transaction->get(), puts_too);
  if (error == 0) error = transaction->Commit();
  if (error != 0) return FailIndex(error, "committing to the index");
  return {};
}

int LmdbIndex::Apply(MDB_txn* transaction, bool puts_too) {
  // Erases first: they make the room that puts may need.
  for (const Staged& operation : staged_) {
    // What is replaced goes whole, or some of its records would be of the old and others missing.
    if (operation.value_offset != kErase && (puts_too || !operation.replaces)) continue;
    MDB_val key = AsValue(operation.key);
    const int error = mdb_del(transaction, environment_->database, &key, nullptr);
    if (error != 0 && error != MDB_NOTFOUND) return error;
  }
  if (!puts_too) return TouchFirst(transaction);
  for (const Staged& operation : staged_) {
    if (operation.value_offset == kErase) continue;
    MDB_val key = AsValue(operation.key);
    MDB_val value{operation.value_size, values_.data() + operation.value_offset};
    const int error = mdb_put(transaction, environment_->database, &key, &value, 0);
    if (error != 0) return error;
  }
  return 0;
}

int LmdbIndex::TouchFirst(MDB_txn* transaction) {
  MDB_cursor* cursor = nullptr;
  if (const int error = mdb_cursor_open(transaction, environment_->database, &cursor); error != 0) return error;
  MDB_val key{};
  MDB_val value{};
  int error = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);
  if (error == 0) {
    const std::vector<std::byte> same(static_cast<const std::byte*>(value.mv_data),
                                      static_cast<const std::byte*>(value.mv_data) + value.mv_size);
    MDB_val again{same.size(), const_cast<std::byte*>(same.data())};
    error = mdb_cursor_put(cursor, &key, &again, MDB_CURRENT);
  }
  mdb_cursor_close(cursor);
  return error == MDB_NOTFOUND ? 0 : error;
}

void LmdbIndex::Scan(const std::function<void(const RecordKey&, std::span<const std::byte>)>& visit) const {
  auto transaction = IndexTransaction::Begin(environment_->handle.get(), MDB_RDONLY);
  TIER_CHECK(transaction.has_value(), "{}", transaction.error().message);
  MDB_cursor* cursor = nullptr;
  const int opened = mdb_cursor_open(transaction->get(), environment_->database, &cursor);
  TIER_CHECK(opened == 0, "{}", mdb_strerror(opened));
  MDB_val key{};
  MDB_val value{};
  int error = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);
  for (; error == 0; error = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) {
    if (IsFormatKey(key)) continue;
    TIER_CHECK(key.mv_size == sizeof(KeyBytes), "key of {} bytes", key.mv_size);
    visit(Decode(static_cast<const unsigned char*>(key.mv_data)),
          {static_cast<const std::byte*>(value.mv_data), value.mv_size});
  }
  mdb_cursor_close(cursor);
  TIER_CHECK(error == MDB_NOTFOUND, "{}", mdb_strerror(error));
}

uint64_t LmdbIndex::used_bytes() const {
  MDB_stat about{};
  const int error = mdb_env_stat(environment_->handle.get(), &about);
  TIER_CHECK(error == 0, "{}", mdb_strerror(error));
  return (about.ms_branch_pages + about.ms_leaf_pages + about.ms_overflow_pages) * uint64_t{about.ms_psize};
}

// A change may copy a page and split it, and what it gave back is had again two transactions later.
bool LmdbIndex::HasRoom(uint64_t changes) const {
  constexpr uint64_t kPagesPerChange = 3;
  const uint64_t needed = (staged_.size() + changes) * kPagesPerChange * kPageSize + kRootsReserve;
  return used_bytes() + needed <= map_size_;
}

}  // namespace tier::storage
