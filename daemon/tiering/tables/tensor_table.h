// TensorTable: finds a tensor by (job, space, id). Open addressing with linear probing; an entry is the tensor's index
// and 32 bits of its hash, so that a probe of a wrong entry costs no second cache line.
//
// It doubles when it is 3/4 full, and halves when it is less than 1/8 full. It moves its entries some at a time: each
// later insertion or removal moves a few, and ShrinkSome some more, so that no operation takes longer with more
// tensors. Until all are moved both halves are searched; then the pages of the old half go back to the system, some at
// a time too. Engine thread only. No allocation in steady state. Invariant: entries + tombstones < capacity, of each
// half.
#pragma once

#include <compare>
#include <cstdint>

#include "daemon/base/zeroed_memory.h"
#include "daemon/tiering/tables/tensor_slab.h"

namespace tier::tiering {

struct TensorKey {
  JobIndex job = kNoJob;
  uint64_t space = 0;  // 0: the job's shared namespace; else the session whose namespace it is.
  uint64_t tensor = 0;
  friend auto operator<=>(const TensorKey&, const TensorKey&) = default;
};

class TensorTable {
 public:
  // `seed` is secret: clients choose ids, and with the seed could choose ids that all fall into one place.
  TensorTable(const TensorSlab& tensors, uint64_t seed);

  uint64_t HashOf(const TensorKey& key) const;

  TensorIndex Find(const TensorKey& key) const { return Find(key, HashOf(key)); }
  TensorIndex Find(const TensorKey& key, uint64_t hash) const;
  void Prefetch(uint64_t hash) const { __builtin_prefetch(&new_.entries[hash & new_.mask]); }
  // The tensor at the first probe of this hash, to fetch its record into the cache ahead. kNoTensor: none.
  TensorIndex Hint(uint64_t hash) const;
  void Insert(const TensorKey& key, TensorIndex index);  // REQUIRES: not present.
  void Erase(const TensorKey& key);                      // REQUIRES: present.
  uint64_t size() const { return new_.size + old_.size; }
  uint64_t capacity() const { return new_.capacity() + old_.capacity(); }
  uint64_t bytes() const { return new_.memory.size() + old_.memory.size(); }
  // It is too large for its entries, or a change of its size is under way: ShrinkSome does a part of that.
  bool can_shrink() const { return old_.entries != nullptr || too_large(); }
  bool ShrinkSome();             // False: there is nothing to do.
  void CheckInvariants() const;  // O(capacity).

 private:
  struct Entry {
    uint32_t tag = 0;
    uint32_t value = 0;  // Index + 1; 0 with tag 0: never used; 0 with tag 1: a tombstone.
    TensorIndex index() const { return TensorIndex{value - 1}; }
  };
  struct Half {
    base::ZeroedMemory memory;
    Entry* entries = nullptr;  // In `memory`.
    uint64_t mask = 0;
    uint64_t size = 0;
    uint64_t tombstones = 0;
    uint64_t capacity() const { return entries == nullptr ? 0 : mask + 1; }
  };
  static constexpr uint32_t kTombstone = 1;
  // To map and unmap memory the engine waits for threads that populate windows: the table of a node that has a few
  // thousand tensors, more and less, stays as it is.
  static constexpr uint64_t kCapacityMin = 8192;
  static constexpr uint64_t kNowhere = UINT64_MAX;
  static uint32_t TagOf(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }
  static Half MakeHalf(uint64_t capacity);
  static void Place(Half* half, uint64_t hash, TensorIndex index);
  bool Matches(const Entry& entry, const TensorKey& key) const;
  uint64_t PlaceOf(const Half& half, const TensorKey& key, uint64_t hash) const;  // kNowhere: not there.
  static void EraseAt(Half* half, uint64_t at);
  void StartMove(uint64_t capacity);
  void MoveSome();
  bool too_large() const { return new_.capacity() > kCapacityMin && 8 * size() < new_.capacity(); }

  const TensorSlab& tensors_;
  const uint64_t seed_;
  Half new_;
  Half old_;                // The half whose entries are being moved; empty if there is none.
  uint64_t next_move_ = 0;  // Entries of the old half below this were moved.
};

}  // namespace tier::tiering
