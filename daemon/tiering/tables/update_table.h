// UpdateTable: what sessions are changing in tensors that others can name. Engine thread only.
//
// One record for each (session, tensor), from the first seal of a part on. It holds the pieces sealed by hand since it
// was opened, and the session's unfinished swap_out, which has sealed a part of its range. If the session ends with
// either of them, the record loses its session and is *broken*: the tensor is TORN until the pieces of `torn` are
// rewritten. A tensor has at most one broken record.
//
// A step of the session ends the changes by hand in all of its records at once, however many there are: a record has
// the step in which it was changed, and changes of an earlier step count no more (HasChanged). Such records are settled
// later, some in each turn. When a session ends, its records are broken one after the other; until a record is broken,
// other sessions wait at it (ending()).
//
// In a sharded tensor a record also has a *shard*: the bytes that the session wrote, and the number of the step in
// which it wrote last. A record with a shard stays when its update is finished. When its session ends and the tensor is
// not torn, the record loses its session and is *left*: the bytes stay as they are, in a step that no session
// continues. A tensor has at most one left record, which takes the shards of all sessions that have ended in that step.
//
// The records of a tensor are in a list, which has what is asked about all of them: any number of sessions may share a
// tensor, and a call that is not said to go over its records looks at a few of them. An open record is found by its
// list and its session. When all updates of a tensor end, its list *ends*: the tensor has none any more, and the
// records, which count no more, are removed some in each turn (RemoveEnded), or with their sessions. Until then they
// count in swap_count alone.
//
// The table keeps the records, their lists, and the flag kSwapping of a tensor; leases/updates.h decides the rest.
//
// Invariants: an open record has changed some pieces by hand but not all, or has an unfinished swap_out, or a shard, or
//   had one when the shards of the tensor were cleared;
//   `swap` and `torn` lie in the tensor; kSwapping is set exactly while a record of the tensor has an unfinished
//   swap_out; a broken record has no session, no swap_out, no shard, and `changed` holds less than all of `torn`; a
//   left record has a shard and nothing else; only sharded tensors have shards; along the list of a session `step`
//   never rises, and is at most the session's; behind its oldest record that is not settled none has changed a piece;
//   a list that has not ended has records, those with an unfinished swap_out first; the index holds the open records.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "daemon/tiering/tables/hash_buckets.h"
#include "daemon/tiering/tables/interval_set.h"
#include "daemon/tiering/tables/piece_set.h"
#include "daemon/tiering/tables/slab.h"
#include "daemon/tiering/tables/tensor_slab.h"

namespace tier::tiering {

class JobTable;

enum class UpdateIndex : uint32_t {};
inline constexpr UpdateIndex kNoUpdate{UINT32_MAX};

// Pieces [first, first + count).
struct PieceRange {
  uint32_t first = 0;
  uint32_t count = 0;

  uint32_t end() const { return first + count; }
  bool empty() const { return count == 0; }
  bool Contains(uint32_t number) const { return number - first < count; }
  bool Overlaps(PieceRange other) const { return first < other.end() && other.first < end(); }
  friend bool operator==(const PieceRange&, const PieceRange&) = default;
};

struct Shard {
  uint64_t number = 0;  // SessionRecord::step when the session sealed one of the bytes last.
  // From the first to the last byte that it sealed, without bytes at either end that other sessions have sealed since.
  IntervalSet::Interval bytes;

  bool empty() const { return bytes.begin == bytes.end; }
};

struct Update {
  UpdateListIndex list = kNoUpdateList;
  uint16_t session = 0;  // Index, while it is open.
  bool open = false;
  uint32_t step = 0;  // While it is open: the session's step count when it was opened, or last changed by hand.
  UpdateIndex next_of_tensor = kNoUpdate;
  UpdateIndex previous_of_tensor = kNoUpdate;
  UpdateIndex next_of_session = kNoUpdate;
  UpdateIndex previous_of_session = kNoUpdate;
  PieceRange swap;      // Of the unfinished swap_out; empty: there is none.
  PieceRange torn;      // Of a broken record: to be rewritten.
  uint32_t clears = 0;  // UpdateList::clears when the shard was written: it counts while the two are equal.
  uint64_t commit = 0;  // The manifest commit that ends the changes by hand; 0: none, or changed again since.
  PieceSet changed;     // Of an open record: sealed by hand. Of a broken one: rewritten since.
  PieceSet swapped;     // Sealed by the unfinished swap_out.
  Shard shard;          // Of a sharded tensor.

  bool swapping() const { return !swap.empty(); }
};

// The records of one tensor.
struct UpdateList {
  TensorIndex tensor = kNoTensor;  // kNoTensor: the list has ended.
  JobIndex job = kNoJob;
  uint32_t piece_count = 0;      // Of the tensor.
  UpdateIndex head = kNoUpdate;  // Those with an unfinished swap_out are first.
  UpdateIndex tail = kNoUpdate;
  UpdateIndex broken = kNoUpdate;
  UpdateIndex left = kNoUpdate;
  uint32_t count = 0;   // Records.
  uint32_t swaps = 0;   // Of these: with an unfinished swap_out.
  uint32_t shards = 0;  // Of these: with a shard.
  uint32_t clears = 0;  // How often all shards were cleared.
  bool in_step = true;  // All shards have the same step number.

  bool ended() const { return tensor == kNoTensor; }
};

class UpdateTable {
 public:
  // `seed`: of the index of the records. Secret, as clients choose which sessions change which tensors.
  UpdateTable(TensorSlab& tensors, const JobTable& jobs, uint64_t seed) : tensors_(tensors), jobs_(jobs), seed_(seed) {}
  UpdateTable(const UpdateTable&) = delete;
  UpdateTable& operator=(const UpdateTable&) = delete;

  const Update& operator[](UpdateIndex index) const { return updates_[index]; }
  // The piece is in its `changed`.
  bool Changed(UpdateIndex index, uint32_t piece) const { return sets_.Contains(updates_[index].changed, piece); }
  // The session's open record, or the broken one of the tensor. kNoUpdate: there is none.
  UpdateIndex Find(TensorIndex tensor, uint16_t session) const;
  UpdateIndex FindBroken(TensorIndex tensor) const { return ListOf(tensor).broken; }
  // All shards of the tensor have the same step number.
  bool InStep(TensorIndex tensor) const { return ListOf(tensor).in_step; }
  bool HasShard(UpdateIndex index) const {
    const Update& update = updates_[index];
    return !update.shard.empty() && update.clears == lists_[update.list].clears;
  }
  // Of the record's tensor. kNoTensor: its list has ended.
  TensorIndex TensorOf(UpdateIndex index) const { return lists_[updates_[index].list].tensor; }
  JobIndex JobOf(UpdateIndex index) const { return lists_[updates_[index].list].job; }
  bool HasAny(TensorIndex tensor) const { return tensors_[tensor].updates != kNoUpdateList; }
  uint32_t CountOf(TensorIndex tensor) const { return ListOf(tensor).count; }
  uint32_t SwapsOf(TensorIndex tensor) const { return ListOf(tensor).swaps; }
  // The first record of the tensor for which `matches(index)` holds, among all or among those with an unfinished
  // swap_out. kNoUpdate: there is none.
  template <typename Matches>
  UpdateIndex FindIf(TensorIndex tensor, Matches matches) const {
    return FindIn(ListOf(tensor), ListOf(tensor).count, matches);
  }
  template <typename Matches>
  UpdateIndex FindSwapIf(TensorIndex tensor, Matches matches) const {
    return FindIn(ListOf(tensor), ListOf(tensor).swaps, matches);
  }
  // Calls `visit` with each record of the tensor whose session is ending, until that returns false; it may break or
  // remove the record. Looks at no more records than the tensor has, and than there are ending sessions.
  template <typename Visit>
  void VisitEnding(TensorIndex tensor, Visit visit) const;
  // Records that were looked at since the start. What a call adds is its cost.
  uint64_t visits() const { return visits_; }
  UpdateIndex FirstOfSession(uint16_t session) const {
    return session < sessions_.size() ? sessions_[session].head : kNoUpdate;
  }
  // The record is open, and holds pieces that were changed by hand in the session's present step.
  bool HasChanged(UpdateIndex index) const {
    const Update& update = updates_[index];
    return update.open && !update.changed.empty() && update.step == sessions_[update.session].step;
  }
  // The record's session has ended, and the record is not broken yet. any_ending: there may be such records.
  bool any_ending() const { return !ending_.empty(); }
  bool ending(UpdateIndex index) const { return updates_[index].open && sessions_[updates_[index].session].ending; }
  // Tensors of which the session has an unfinished swap_out.
  uint32_t swap_count(uint16_t session) const { return session < sessions_.size() ? sessions_[session].swaps : 0; }

  // The session's open record, made if there is none. The caller adds to it before it calls another function.
  UpdateIndex Open(TensorIndex tensor, uint16_t session);
  void AddChanged(UpdateIndex index, PieceRange pieces);
  // REQUIRES: open; no unfinished swap_out, or one of the same range.
  void AddSwapped(UpdateIndex index, PieceRange range, PieceRange pieces);
  // Each of the three removes the record if it is empty then. REQUIRES: open.
  void EndSwap(UpdateIndex index);
  void EndChanged(UpdateIndex index);
  void EndBoth(UpdateIndex index);
  // The session has sealed these bytes in its step of that number: they leave all other shards. Goes over the records
  // of the tensor if it has other shards. REQUIRES: open, of a sharded tensor.
  void AddToShard(UpdateIndex index, uint64_t number, IntervalSet::Interval bytes);
  // Removes the shards of the tensor: it is one content, or all of it is to be rewritten.
  void ClearShards(TensorIndex tensor);
  // The session ends: only its shard stays. REQUIRES: open; without a shard, or InStep.
  void Leave(UpdateIndex index);
  // The session's changes by hand until now are finished.
  void EndStep(uint16_t session);
  // Settles one record of an earlier step. False: there is none.
  bool SettleOne();
  bool any_to_settle() const { return !settling_.empty(); }
  // The session ends, and its records are to be broken. REQUIRES: it opens no record until all of them are gone.
  void BeginEnding(uint16_t session);
  void SetCommit(UpdateIndex index, uint64_t commit) { updates_.Edit(index).commit = commit; }
  void Remove(UpdateIndex index);
  // All updates of the tensor end, and with them its list. REQUIRES: HasAny.
  UpdateListIndex EndList(TensorIndex tensor);
  // Removes one record of a list that has ended, if it has one. False: it has no others, and is gone itself.
  bool RemoveEnded(UpdateListIndex index);
  // The pieces are to be rewritten, in addition to the torn ones; pieces rewritten so far count no more. True: the
  // tensor had no broken record.
  bool AddTorn(TensorIndex tensor, PieceRange pieces);
  // True: all torn pieces are rewritten, and the broken record is gone. REQUIRES: broken.
  bool AddRewritten(UpdateIndex index, PieceRange pieces);

  uint32_t used() const { return updates_.used(); }
  uint64_t bytes() const { return updates_.bytes() + lists_.bytes() + open_.bytes() + sets_.bytes(); }
  bool can_shrink() const {
    return updates_.can_shrink() || lists_.can_shrink() || sets_.can_shrink() || open_.can_shrink();
  }
  bool ShrinkSome() { return updates_.ShrinkOne() || lists_.ShrinkOne() || sets_.ShrinkOne() || open_.ShrinkSome(); }
  // Calls `visit` with the list of each record.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (uint32_t i = 0; i < updates_.capacity(); ++i) {
      const UpdateListIndex list = updates_[UpdateIndex{i}].list;
      if (list != kNoUpdateList) visit(lists_[list]);
    }
  }
  void CheckInvariants() const;

 private:
  struct OfSession {
    UpdateIndex head = kNoUpdate;    // Newest step first.
    UpdateIndex oldest = kNoUpdate;  // The oldest that is not settled: those behind it have a shard or a swap_out.
    uint32_t swaps = 0;
    uint32_t step = 0;      // Steps ended by it, and by earlier sessions of its index.
    bool settling = false;  // In settling_.
    bool ending = false;
    uint32_t ending_at = 0;  // In ending_.
  };
  static const UpdateList kEmptyList;

  const UpdateList& ListOf(TensorIndex tensor) const {
    const UpdateListIndex list = tensors_[tensor].updates;
    return list == kNoUpdateList ? kEmptyList : lists_[list];
  }
  // Among the first `count` of the list.
  template <typename Matches>
  UpdateIndex FindIn(const UpdateList& list, uint32_t count, Matches matches) const {
    UpdateIndex index = list.head;
    for (; count != 0; --count, index = updates_[index].next_of_tensor) {
      ++visits_;
      if (matches(index)) return index;
    }
    return kNoUpdate;
  }
  // `index`, or the first open record behind it in the list of its tensor.
  UpdateIndex OpenFrom(UpdateIndex index) const {
    while (index != kNoUpdate && !updates_[index].open) index = updates_[index].next_of_tensor;
    return index;
  }
  uint64_t HashOf(UpdateListIndex list, uint16_t session) const;
  uint64_t HashOf(UpdateIndex index) const { return HashOf(updates_[index].list, updates_[index].session); }
  OfSession& At(uint16_t session);
  UpdateIndex Add(TensorIndex tensor);
  void LinkFirst(UpdateIndex index);
  void LinkLast(UpdateIndex index);
  void Unlink(UpdateIndex index);
  void Close(UpdateIndex index);
  void DropSwap(UpdateIndex index);
  void DropShard(UpdateIndex index);
  void CutShard(UpdateIndex index, IntervalSet::Interval bytes);
  void ClearChanged(UpdateIndex index);
  void CheckRecord(UpdateIndex index) const;
  void CheckOpen(UpdateIndex index, const UpdateList& list) const;
  void CheckSession(const OfSession& session) const;
  uint32_t CheckList(UpdateListIndex index) const;
  void LinkToSession(UpdateIndex index, uint16_t session);
  void UnlinkFromSession(UpdateIndex index);
  void ClearSwap(UpdateIndex index);
  void RemoveIfEmpty(UpdateIndex index);
  void Refresh(UpdateIndex index);

  TensorSlab& tensors_;
  const JobTable& jobs_;  // To charge their users.
  const uint64_t seed_;
  Slab<Update, UpdateIndex, 2048> updates_;
  Slab<UpdateList, UpdateListIndex, 4096> lists_;
  HashBuckets<UpdateIndex> open_;  // The open records, by list and session.
  PieceSets sets_;
  std::vector<OfSession> sessions_;  // By index.
  std::vector<uint16_t> ending_;     // Sessions that are ending and have records.
  std::deque<uint16_t> settling_;    // Sessions that may have records of earlier steps.
  mutable uint64_t visits_ = 0;
};

template <typename Visit>
void UpdateTable::VisitEnding(TensorIndex tensor, Visit visit) const {
  if (ending_.size() <= ListOf(tensor).count) {
    // A session whose last record goes is replaced by the last of those that were visited.
    for (size_t i = ending_.size(); i-- != 0;) {
      const UpdateIndex index = Find(tensor, ending_[i]);
      if (index != kNoUpdate && !visit(index)) return;
    }
    return;
  }
  for (UpdateIndex index = OpenFrom(ListOf(tensor).head); index != kNoUpdate;) {
    ++visits_;
    const UpdateIndex next = OpenFrom(updates_[index].next_of_tensor);  // With a break only records that are not go.
    if (ending(index) && !visit(index)) return;
    index = next;
  }
}

}  // namespace tier::tiering
