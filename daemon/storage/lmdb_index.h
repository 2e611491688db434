// LmdbIndex: the `ram` index, an LMDB environment on a memory file. It outlives the daemon where somebody keeps the
// descriptor (service manager, keeper): a commit is a matter of memory order, so kill -9 loses no committed turn.
//
// The first record of an environment says which format the others have; a kept one of another format is refused whole.
//
// Staged operations lie in flat buffers that keep their capacity; Commit sorts them by key, keeps the last of each, and
// applies them in one transaction (sorted writes touch each page once). Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/storage/index.h"
#include "proto/mapping.h"
#include "proto/units.h"

struct MDB_txn;

namespace tier::storage {

inline constexpr uint64_t kRamIndexMapSizeDefault = 4 * kGiB;  // Address range; pages are taken as they are used.
inline constexpr size_t kStagedOperationsMax = size_t{1} << 22;

struct RamIndexOptions {
  uint64_t map_size = kRamIndexMapSizeDefault;  // Bytes. Ignored with a kept file, which brings its own.
  int memory_file = -1;                         // A kept memory file (taken over), or -1: make one.
};

class LmdbIndex final : public Index {
 public:
  // CORRUPT: the kept file holds no environment. VERSION: it is of another format than proto::kIndexVersion.
  // NO_MEMORY, DENIED: no memory file to be had.
  static Result<std::unique_ptr<LmdbIndex>> Open(const RamIndexOptions& options);
  ~LmdbIndex() override;

  void Put(const RecordKey& key, std::span<const std::byte> value) override;
  void Erase(const RecordKey& key) override;
  Status Commit() override;
  void Scan(const std::function<void(const RecordKey&, std::span<const std::byte>)>& visit) const override;
  uint64_t used_bytes() const override;
  bool HasRoom(uint64_t changes) const override;

  uint64_t map_size() const { return map_size_; }
  int memory_file() const { return memory_file_.get(); }  // To be kept by somebody; stays owned here.

 private:
  using KeyBytes = std::array<unsigned char, 28>;  // Big-endian, so that a tensor's records are one range.
  struct Staged {
    KeyBytes key;
    uint32_t sequence;  // Of two operations on one key the later counts.
    uint32_t value_size;
    bool replaces;          // It puts, and the key was erased before.
    uint64_t value_offset;  // In values_; kErase: no value.
  };
  struct Environment;
  static constexpr uint64_t kErase = UINT64_MAX;

  LmdbIndex(std::unique_ptr<Environment> environment, proto::FileDescriptor memory_file, uint64_t map_size);
  static KeyBytes Encode(const RecordKey& key);
  static RecordKey Decode(const unsigned char* bytes);
  void Stage(const RecordKey& key, uint64_t value_offset, uint32_t value_size);
  void KeepLastOfEachKey();
  Status CommitStaged(bool puts_too);
  int Apply(MDB_txn* transaction, bool puts_too);
  int TouchFirst(MDB_txn* transaction);  // An empty transaction would not count as one.

  std::unique_ptr<Environment> environment_;
  proto::FileDescriptor memory_file_;
  uint64_t map_size_;
  std::vector<Staged> staged_;
  std::vector<std::byte> values_;
};

}  // namespace tier::storage
