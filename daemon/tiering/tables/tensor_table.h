// TensorTable: finds a tensor by (job, space, id). Open addressing with linear probing; an entry is the tensor's slot
// and 32 bits of its hash, so that a probe of a wrong entry costs no second cache line.
//
// Engine thread only. Doubles at 3/4 full; no allocation in steady state. Invariant: entries + tombstones < capacity.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "daemon/tiering/tables/slab.h"
#include "daemon/tiering/tables/tensor.h"

namespace tier::tiering {

using TensorSlab = Slab<Tensor, TensorSlot>;

struct TensorKey {
  uint64_t job = 0;
  uint64_t space = 0;  // 0: the job's shared namespace; else the session whose namespace it is.
  uint64_t tensor = 0;
  friend auto operator<=>(const TensorKey&, const TensorKey&) = default;
};

class TensorTable {
 public:
  // `seed`: clients choose ids, and could choose such as all fall into one place if they knew it.
  TensorTable(const TensorSlab& tensors, uint64_t seed);

  uint64_t HashOf(const TensorKey& key) const;

  TensorSlot Find(const TensorKey& key) const { return Find(key, HashOf(key)); }
  TensorSlot Find(const TensorKey& key, uint64_t hash) const;
  void Prefetch(uint64_t hash) const { __builtin_prefetch(&entries_[hash & mask_]); }
  // What the first probe of this hash would name, for fetching it ahead. kNoTensor: nothing.
  TensorSlot Hint(uint64_t hash) const;
  void Insert(const TensorKey& key, TensorSlot slot);  // REQUIRES: not present.
  void Erase(const TensorKey& key);                    // REQUIRES: present.
  uint64_t size() const { return size_; }
  uint64_t capacity() const { return entries_.size(); }

 private:
  struct Entry {
    uint32_t tag = 0;
    TensorSlot slot = kNoTensor;  // kNoTensor with tag 0: never used; with tag 1: a tombstone.
  };
  static constexpr uint32_t kTombstone = 1;
  static uint32_t TagOf(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }
  bool Matches(const Entry& entry, const TensorKey& key) const;
  void Rebuild(uint64_t capacity);
  void Place(uint64_t hash, TensorSlot slot);

  const TensorSlab& tensors_;
  const uint64_t seed_;
  std::vector<Entry> entries_;
  uint64_t mask_ = 0;
  uint64_t size_ = 0;
  uint64_t tombstones_ = 0;
};

}  // namespace tier::tiering
