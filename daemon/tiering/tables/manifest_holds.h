// ManifestHolds: the extents that a job's manifest names. Such an extent outlives the piece it was written for: it may
// be reused only after a synced commit that no longer names it.
//
// The idea: each named extent has two bits (by the last synced manifest, by one that is being committed) and knows
// whether a piece still uses it. Engine thread only.
// Invariant: unused_pages() = Σ pages of named extents that no piece uses; they are live in the ExtentStore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "daemon/storage/extent.h"

namespace tier::tiering {

class ManifestHolds {
 public:
  bool empty() const { return holds_.empty(); }
  // The store has a manifest of the job: perhaps one without a single tensor.
  bool stored() const { return stored_; }
  void set_stored(bool stored) { stored_ = stored; }
  // Stays the same while the job closes, is parked and is resumed: commits under way find it by that. Jobs of one name
  // may follow each other faster than the store.
  uint64_t id() const { return id_; }
  void set_id(uint64_t id) { id_ = id; }
  size_t size() const { return holds_.size(); }
  uint64_t unused_pages() const { return unused_pages_; }
  bool Names(storage::Extent extent) const { return holds_.contains(KeyOf(extent)); }

  // A piece no longer uses the extent. True: a manifest names it, so it must not be freed now.
  bool Unuse(storage::Extent extent, bool bad);
  // A synced manifest that was loaded names this extent; no piece uses it yet.
  void Adopt(storage::Extent extent);
  // A piece of the resumed job uses a named extent from now on. False: it is not named, or used already.
  bool Use(storage::Extent extent);
  // The next manifest names this extent, which a piece uses.
  void Name(storage::Extent extent);
  // The next manifest is synced, or failed. Appends orphans that nothing names any more: the caller frees them, or
  // quarantines the bad ones.
  struct Dropped {
    storage::Extent extent;
    bool bad = false;
  };
  void OnSynced(std::vector<Dropped>* dropped);
  void OnFailed(std::vector<Dropped>* dropped);
  // The job's manifest is no more: nothing is named.
  void Clear(std::vector<Dropped>* dropped);
  template <typename Visit>
  void ForEachUnused(Visit visit) const {
    for (const auto& [key, hold] : holds_) {
      if (!hold.used) visit(hold.extent);
    }
  }

 private:
  static constexpr uint8_t kSynced = 1;
  static constexpr uint8_t kPending = 2;
  struct Hold {
    storage::Extent extent;
    uint8_t named_by = 0;
    bool used = true;  // By a piece.
    bool bad = false;
  };
  static uint64_t KeyOf(storage::Extent extent) {
    return uint64_t{extent.device} << 56 | uint64_t{extent.run.block} << 16 | extent.run.page;
  }
  void Sweep(std::vector<Dropped>* dropped);

  std::unordered_map<uint64_t, Hold> holds_;
  uint64_t unused_pages_ = 0;
  uint64_t id_ = 0;
  bool stored_ = false;
};

}  // namespace tier::tiering
