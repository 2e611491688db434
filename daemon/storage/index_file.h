// IndexFile: the file of the index, one LMDB environment with a few tables of keys and values, which this process alone
// has open. It is allocated to its map size before use and never mapped for writing, so a full disk is an error and not
// a SIGBUS. When it is full it grows, by as much again where its disk has the room.
//
// LMDB reads the file through a mapping. Where the file was cut short, or its disk cannot be read, a touch of that
// mapping raises SIGBUS. So every call that touches it runs under the fault guard (base/fault_guard). After a fault
// LMDB's own state is of no use: from then on every call answers IO_ERROR, until the process is restarted.
//
// A commit has three outcomes. Out of LMDB's commit an error does not tell whether the file has the changes: the page
// that makes them count may have been written before the error. After that too nothing is read or written any more.
//
// LMDB runs without its own locks (MDB_NOLOCK), so that there is no lock file, a mapping that could be cut short too.
// Then no reader may run beside a writer: one mutex covers each transaction. Other processes are kept out by a lock on
// the file. Thread-safe.
//
// For looking only (`read_only`) it takes no lock and writes nothing, so another process may have the index meanwhile.
// What a commit freed is used again by the next commit but one. So what was read is whole where no commit came between;
// where one did, the call answers ALREADY_EXISTS.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/base/fault_guard.h"
#include "daemon/storage/file_system.h"
#include "proto/mapping.h"
#include "proto/mutex.h"
#include "proto/result.h"
#include "proto/units.h"

struct MDB_env;
struct MDB_txn;

namespace tier::storage {

inline constexpr uint64_t kIndexDiskKept = 64 * kMiB;  // Stay free on its disk when it grows.
inline constexpr size_t kIndexKeyMax = 480;            // Bytes; LMDB's keys end at 511.

enum class IndexTable : uint8_t { kManifests, kExtents, kBinding, kQuarantine };
inline constexpr size_t kIndexTables = 4;

// A value to be written or, with `erase`, a key to be removed, which may be absent.
struct IndexChange {
  IndexTable table = IndexTable::kManifests;
  std::string_view key;
  std::span<const std::byte> value{};
  bool erase = false;
};

struct IndexWrite {
  Status status;
  bool unknown = false;  // With an error: the next Open finds either all changes or none.
};

struct IndexFileOptions {
  std::string path;
  uint64_t map_size = 0;  // Bytes, to begin with. A larger file that is there already keeps its size.
  std::function<Result<FileSystemSpace>(const std::string&)> space = SpaceOf;  // Tests: how full the disk is.
  bool read_only = false;  // It is there, and stays as it is. `map_size` means nothing.
};

class IndexFile {
 public:
  // ALREADY_EXISTS: in use. NO_SPACE: cannot be allocated. CORRUPT: it is no index. A file that a failed call made is
  // gone again, and one that was there has its size.
  static Result<std::unique_ptr<IndexFile>> Open(IndexFileOptions options);
  ~IndexFile();
  IndexFile(const IndexFile&) = delete;
  IndexFile& operator=(const IndexFile&) = delete;

  // All changes in one synced transaction, or none. NO_SPACE: the file is full and its disk too.
  IndexWrite Write(std::span<const IndexChange> changes);
  Result<std::vector<std::byte>> Get(IndexTable table, std::string_view key) const;  // NOT_FOUND: no such key.
  Result<std::vector<std::string>> Keys(IndexTable table) const;                     // In order.
  Result<bool> HasAny(IndexTable table) const;                                       // A key.
  // Why every call answers IO_ERROR from now on, in a few words: after a fault, after an unknown commit, and where the
  // file was found cut short. Empty: nothing of that. It waits for no other call.
  std::string failure() const TIER_EXCLUDES(failure_mutex_);
  // Looks at the length of the file, and at its file system: why it cannot be written now, in a few words. Empty: it
  // can, as far as that shows.
  std::string CheckWritable() const;
  std::string Misplaced() const { return WhyMisplaced(file_.get(), path_); }  // As of a DeviceFile.
  const std::string& path() const { return path_; }
  void RemoveIfMade();  // The file, if this Open made it: the start that needs it is refused.

 private:
  explicit IndexFile(IndexFileOptions options);
  Status OpenFile();
  Status CheckUnchanged() const TIER_REQUIRES(mutex_);
  Status OpenEnvironment();
  Status Allocate(uint64_t from, uint64_t size);
  Status OpenTables();
  Status GuardMap();
  IndexWrite TryWrite(std::span<const IndexChange> changes, bool* full) TIER_REQUIRES(mutex_);
  Status Grow(uint64_t needed) TIER_REQUIRES(mutex_);
  // IO_ERROR: the index failed before, or is shorter than its map.
  Status CheckTrusted() const TIER_REQUIRES(mutex_);
  // From now on every call answers with `reason`, and with what follows from it.
  std::unexpected<Error> GiveUp(std::string reason, std::string_view consequence) const TIER_REQUIRES(mutex_);
  std::unexpected<Error> GiveUpUnread(std::string reason) const TIER_REQUIRES(mutex_);
  // Runs `steps()`, which answers with an LMDB error, under the guard.
  template <typename Steps>
  Status Touch(std::string_view doing, Steps steps) const TIER_REQUIRES(mutex_);

  const IndexFileOptions options_;
  const std::string& path_ = options_.path;
  proto::FileDescriptor file_;  // Holds the lock.
  bool made_ = false;           // By this Open.
  uint64_t seen_commit_ = 0;    // Of the index as a read-only Open found it.
  uint64_t map_size_ = 0;
  MDB_env* environment_ = nullptr;
  MDB_txn* reader_ = nullptr;  // Of every read, so that a fault in one loses no memory.
  std::array<unsigned, kIndexTables> tables_{};
  std::span<const std::byte> map_;
  base::GuardedRange guarded_;
  mutable Mutex mutex_;
  mutable std::string refusal_ TIER_GUARDED_BY(mutex_);  // With which every call answers. Empty: none does.
  mutable Mutex failure_mutex_;                          // Held across no I/O, as mutex_ is.
  mutable std::string failure_ TIER_GUARDED_BY(failure_mutex_);
};

}  // namespace tier::storage
