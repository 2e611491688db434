// MetadataBudget: what the daemon itself keeps in memory for each user: records of tensors and pieces, of leases and
// unfinished updates, string keys, requests that wait, answers that are not read, manifests that are being written or
// read, and the extents that manifests name, also those of closed jobs. All jobs of one uid share an account, so that
// no user can have the daemon killed for its memory, or take what another one needs.
//
// The owner of a record charges the account when it adds the record and releases the charge with it: sums, never scans.
// A request that adds records is refused before it adds any (Check). It asks for all that its grant and the end of its
// leases can add, so what is admitted stays within the limit later too; a tear alone may add one record for each tensor
// beyond it. Releases and steps add nothing, and are
// never refused. Frees and flushes that have to wait may use a reserve beyond the limit.
// Prefetch hints, sessions and windows on their way have fixed bounds elsewhere.
//
// Invariants: charged() of an account is the sum over its kinds, and over the records of its jobs (CheckInvariants of
// the engine); an account is open while its user has a job, or a manifest of a closed one. Engine thread only. No
// allocation but in Open.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "daemon/tiering/api/snapshot.h"
#include "daemon/tiering/tables/intern_table.h"
#include "daemon/tiering/tables/lease_table.h"
#include "daemon/tiering/tables/manifest_holds.h"
#include "daemon/tiering/tables/metadata_charge.h"
#include "daemon/tiering/tables/piece_set.h"
#include "daemon/tiering/tables/reply_buffer.h"
#include "daemon/tiering/tables/session_state.h"
#include "daemon/tiering/tables/tensor_slab.h"
#include "daemon/tiering/tables/waiter.h"

namespace tier::tiering {

// Bytes that a record takes, with its entries in the containers that lead to it.
// Of a tensor with all its pieces, made or not. (A piece is listed in its tensor, and found by its place in RAM.)
constexpr uint64_t TensorCost(uint64_t piece_count) {
  return sizeof(Tensor) + 56 + piece_count * (sizeof(Piece) + 3 * sizeof(PieceId)) +
         SparseArrays::BytesMax(piece_count);
}
// Of an update, which has two bitmaps too, an entry in a hash table, and at worst a list of its own. Both sizes are
// checked bounds: the table of updates charges for them itself.
inline constexpr uint64_t kUpdateSizeMax = 112;
inline constexpr uint64_t kUpdateListSizeMax = 56;
constexpr uint64_t UpdateCost(uint64_t pieces) {
  return kUpdateSizeMax + 16 + kUpdateListSizeMax + 4 + 2 * PieceSets::BytesMax(pieces);
}
// Exclusive leases leave an update behind, or a sealed range.
constexpr uint64_t LeaseCost(bool exclusive, uint64_t piece_count) {
  return sizeof(Lease) + 8 + (exclusive ? UpdateCost(piece_count) : 0);
}
// Of the ranges of a tensor that were sealed while it is created.
inline uint64_t SealedCost(const IntervalSet* sealed) {
  return sealed == nullptr ? 0 : 64 + sealed->intervals().capacity() * sizeof(IntervalSet::Interval);
}
// Of a string key: its record with an entry in each of two hash tables (a bucket and a link of 4 bytes), and the cells
// of its text; each with an entry of 4 bytes in its slab, and 4 for what the slabs' chunks take besides.
inline constexpr uint64_t kKeyCost = sizeof(KeyRecord) + 24;
inline constexpr uint64_t kKeyTextCost = sizeof(KeyText) + 8;
constexpr uint64_t KeyCost(uint64_t length) { return kKeyCost + InternTable::TextsOf(length) * kKeyTextCost; }
inline uint64_t KeysCost(const InternTable& keys) { return keys.size() * kKeyCost + keys.texts() * kKeyTextCost; }
inline constexpr uint64_t kAwaitedPieceCost = 160;  // A place to wait, and a claim.
// Its entry in the WaitTable, the nodes of that table's sets, its items; what it has at each piece; and what its grant
// adds.
inline uint64_t RequestCost(const Waiter& waiter) {
  const bool lease = std::holds_alternative<LeaseWait>(waiter.kind);
  const ReleaseWait* release = std::get_if<ReleaseWait>(&waiter.kind);
  const CreateWait* create = std::get_if<CreateWait>(&waiter.kind);
  return sizeof(Waiter) + 640 + waiter.items.capacity() * sizeof(WaitItem) +
         (lease ? waiter.work_cost * kAwaitedPieceCost : 0) +
         (release != nullptr ? release->items.capacity() * sizeof(proto::RequestItem) : 0) +
         (create != nullptr ? create->items.capacity() * sizeof(proto::RequestItem) +
                                  create->spans.capacity() * sizeof(proto::SpanRecord)
                            : 0) +
         waiter.grant_cost;
}
// An unread answer costs its entries in the ring.
inline constexpr uint64_t kHoldCost = 80;  // A node of the map.
inline uint64_t HoldsCost(const ManifestHolds& holds) { return holds.size() * kHoldCost; }

class MetadataAccount {
 public:
  MetadataAccount(uint32_t uid, uint64_t limit) : uid_(uid), limit_(limit) {}

  void Charge(MetadataKind kind, uint64_t bytes) {
    of_kind_[static_cast<size_t>(kind)] += bytes;
    charged_ += bytes;
  }
  void Release(MetadataKind kind, uint64_t bytes);  // REQUIRES: that much is charged.
  // What `*charge` stands for costs `bytes` now. REQUIRES: the charge is to this account.
  template <MetadataKind kKind>
  void Recharge(MetadataCharge<kKind>* charge, uint64_t bytes) {
    Charge(kKind, bytes);  // First: what it costs in both cases is never given back.
    Release(kKind, charge->bytes_);
    charge->bytes_ = bytes;
  }

  bool HasRoom(uint64_t bytes) const { return charged_ + bytes <= limit_; }
  bool HasRoomInReserve(uint64_t bytes) const { return charged_ + bytes <= limit_ + limit_ / 16; }
  // It has more than it may keep. What it had when the limit was lowered it may, until it gives that back.
  bool IsOver() const { return !HasRoomInReserve(0) && charged_ > allowed_ + limit_ / 16; }
  // What is charged stays, also beyond it.
  void SetLimit(uint64_t limit) {
    if (limit < limit_) allowed_ = charged_;
    limit_ = limit;
  }
  uint32_t uid() const { return uid_; }
  uint64_t limit() const { return limit_; }
  uint64_t charged() const { return charged_; }
  uint64_t available() const { return charged_ < limit_ ? limit_ - charged_ : 0; }
  const MetadataSums& of_kind() const { return of_kind_; }
  std::string Describe() const;             // Who has what, and how to get more.
  Refusal RefusalOf(uint64_t bytes) const;  // There is no room for so many more.

 private:
  const uint32_t uid_;
  uint64_t limit_;
  uint64_t allowed_ = 0;  // Charged when the limit was lowered last, less what was given back since.
  uint64_t charged_ = 0;
  MetadataSums of_kind_{};
};

class MetadataBudget {
 public:
  explicit MetadataBudget(uint64_t of_one_uid_max) : of_one_uid_max_(of_one_uid_max) {}
  MetadataBudget(const MetadataBudget&) = delete;
  MetadataBudget& operator=(const MetadataBudget&) = delete;

  void SetLimit(uint64_t of_one_uid_max);
  // The user's account. It stays where it is until it was closed as often as opened.
  MetadataAccount& Open(uint32_t uid);
  MetadataAccount& At(uint32_t uid) { return users_.at(uid).account; }  // REQUIRES: open.
  const MetadataAccount& At(uint32_t uid) const { return users_.at(uid).account; }
  void Close(const MetadataAccount& account);  // REQUIRES: the last one to close has released everything.
  // Why the session's user may not have records of so many bytes more; counted. None: it may. The daemon's own requests
  // always may. `reserve`: those that hand out no memory may use the reserve.
  std::optional<Refusal> Check(const SessionState& session, uint64_t bytes, bool reserve);
  void CountRefusal() { ++refusals_; }
  MetadataFigures figures() const;
  // `expected`: of each open account, what its records cost.
  void CheckInvariants(const std::unordered_map<const MetadataAccount*, MetadataSums>& expected) const;

 private:
  struct User {
    MetadataAccount account;
    uint32_t opened = 0;
  };
  uint64_t of_one_uid_max_;
  std::unordered_map<uint32_t, User> users_;
  uint64_t refusals_ = 0;
};

}  // namespace tier::tiering
