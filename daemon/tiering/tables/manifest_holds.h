// ManifestHolds: the extents that a job's manifest names. Such an extent outlives the piece it was written for: it may
// be reused only after a synced commit that no longer names it.
//
// The idea: manifests are numbered. For each named extent the table has the last manifest that named it, the one before
// if that is the synced one, and whether a piece still uses it. So a manifest takes effect at once, however many
// extents it names: extents that no manifest names any more are swept out afterwards, some at a time. Engine thread
// only. Invariant: unused_pages() = Σ pages of named extents that no piece uses; they are live in the ExtentStore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/base/time.h"
#include "daemon/storage/extent.h"
#include "daemon/tiering/tables/metadata_charge.h"
#include "daemon/tiering/tables/unused_pages.h"

namespace tier::tiering {

// Why extents of a manifest are still on a device that is being emptied, and when they are looked at again.
struct MoveRest {
  enum class Reason : uint8_t { kNone, kUnread, kNoRoom, kNotCommitted };
  Reason reason = Reason::kNone;
  uint8_t failures = 0;  // In a row.
  uint32_t drain = 0;    // MoveState::drain at that time: a later change of the draining devices makes it void.
  base::TimePoint again_at;
};

class ManifestHolds {
 public:
  ManifestHolds() = default;
  // `unused_of_all`: the sums of what this and other manifests hold beside pieces; outlives it.
  ManifestHolds(uint64_t id, uint32_t uid, UnusedPages* unused_of_all)
      : id_(id), uid_(uid), unused_of_all_(unused_of_all) {}
  bool empty() const { return holds_.empty(); }
  // The store has a manifest of the job, perhaps without tensors.
  bool stored() const { return stored_; }
  void set_stored(bool stored) { stored_ = stored; }
  // Stays the same while the job closes, is inactive and is resumed, so that commits under way find these holds. Jobs
  // of one name may be closed and opened faster than the store answers.
  uint64_t id() const { return id_; }
  // The user of its job, who is charged also while that is not open.
  uint32_t uid() const { return uid_; }
  void set_uid(uint32_t uid) {
    if (unused_of_all_ != nullptr) unused_of_all_->Move(uid_, uid, unused_pages_);
    uid_ = uid;
  }
  size_t size() const { return holds_.size(); }
  // To the metadata of its job's user, by durability/manifests.
  MetadataCharge<MetadataKind::kManifests>& charge() { return charge_; }
  uint64_t unused_pages() const { return unused_pages_; }
  // Of unused_pages(), those on that device.
  uint64_t unused_pages_on(uint16_t device) const { return unused_on_.on(device); }
  const MoveRest& move_rest() const { return move_rest_; }
  void set_move_rest(const MoveRest& rest);
  // Its job is not open, from now on; it is again. `damaged`: the manifest cannot be read.
  void SetInactive(bool damaged);
  void SetActive();
  // Why extents that no piece uses stay where they are.
  Stay stay() const;
  bool Names(storage::Extent extent) const { return holds_.contains(KeyOf(extent)); }

  // A piece no longer uses the extent. True: a manifest names it, so it must not be freed now.
  bool Unuse(storage::Extent extent, bool bad);
  // A synced manifest that was loaded names this extent; no piece uses it yet.
  void Adopt(storage::Extent extent);
  // A piece of the resumed job uses a named extent from now on. False: it is not named, or used already.
  bool Use(storage::Extent extent);
  // A manifest is being captured: it names extents until OnSynced or OnFailed. One at a time.
  void Begin();
  bool begun() const { return pending_ != 0; }
  // The begun manifest names this extent, which a piece uses. REQUIRES: begun.
  void Name(storage::Extent extent);
  // The begun manifest names this extent, which no piece uses: a new one, or one that is named already. False: that is
  // not so. REQUIRES: begun.
  void NameNew(storage::Extent extent);
  bool NameKept(storage::Extent extent);
  void OnSynced();
  void OnFailed();  // Does nothing if no manifest was begun.
  // The job's manifest was erased: none is synced.
  void OnErased();
  // Whether the begun manifest is synced, or the synced one erased, is unknown: what was named stays named for as long
  // as this daemon runs. No manifest is begun after that.
  void OnUnknown();

  // Extents that no manifest names any more are to be swept out. SweepOne looks at one extent, and appends it if no
  // piece uses it; the caller frees such extents, or quarantines bad ones. REQUIRES for SweepOne: sweeping().
  bool sweeping() const { return sweep_.has_value(); }
  struct Dropped {
    storage::Extent extent;
    bool bad = false;
  };
  void SweepOne(std::vector<Dropped>* dropped);
  void CheckInvariants() const;
  template <typename Visit>
  void ForEachUnused(Visit visit) const {
    for (const auto& [key, hold] : holds_) {
      if (!hold.used) visit(hold.extent);
    }
  }

 private:
  struct Hold {
    storage::Extent extent;
    uint32_t named_by = 0;         // The manifest that named it last.
    uint32_t named_by_before = 0;  // The manifest before that, if it was the synced one.
    bool used = true;              // By a piece.
    bool bad = false;
  };
  static uint64_t KeyOf(storage::Extent extent) {
    return uint64_t{extent.device} << 56 | uint64_t{extent.run.block} << 16 | extent.run.page;
  }
  bool Named(const Hold& hold) const;
  void NameBy(Hold& hold) const;
  // Makes a change that may alter stay().
  template <typename Change>
  void ChangeStay(Change change);
  void AddUnused(const storage::Extent& extent);
  void SubtractUnused(const storage::Extent& extent);

  std::map<uint64_t, Hold> holds_;  // Ordered: a sweep goes on where it was.
  uint32_t last_ = 0;               // Number of the last manifest.
  uint32_t pending_ = 0;            // Number of the begun manifest; 0: none.
  uint32_t synced_ = 0;             // Number of the synced manifest; 0: none, or it names nothing.
  std::optional<uint64_t> sweep_;   // Extents below this key were swept.
  uint64_t unused_pages_ = 0;
  DevicePages unused_on_;
  MoveRest move_rest_;
  uint64_t id_ = 0;
  uint32_t uid_ = 0;
  UnusedPages* unused_of_all_ = nullptr;  // Null: of no table.
  MetadataCharge<MetadataKind::kManifests> charge_;
  bool stored_ = false;
  bool inactive_ = false;
  bool damaged_ = false;
  bool unknown_ = false;  // What is synced.
};

}  // namespace tier::tiering
