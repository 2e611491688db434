// Conflicts: what stands in the way of a request for leases. Engine thread only.
#pragma once

#include <span>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// A request for leases, as examined: fresh, or kept by a waiter.
struct Ask {
  SessionState* session = nullptr;
  uint64_t sequence = 0;
  proto::Op op = proto::Op::kNone;  // kCreate, kAcquire, kFree.
  uint32_t flags = 0;
  uint64_t number = UINT64_MAX;  // Of its waiter: who came first. A fresh request came last.
  std::span<const WaitItem> items;

  bool exclusive() const { return op != proto::Op::kAcquire || (flags & proto::kFlagWrite) != 0; }
  bool discards() const { return (flags & proto::kFlagDiscard) != 0; }
};
Ask AskOf(const Tables& tables, const Waiter& waiter);

enum class ConflictOutcome : uint8_t {
  kReady,      // Can be granted now.
  kNeedsRoom,  // Nothing conflicts; pieces have to be given room or read first.
  kBlocked,    // See `cause`.
  kRefused,    // See `refusal`.
};
enum class ConflictCause : uint8_t {
  kNone,
  kLease,     // Of that piece.
  kAnyLease,  // Of any piece: a free waits for all of them, and for nothing else.
  kUnsealed,
  kTransfer,
  kClaim,
  kUpdate,  // An unfinished swap_out of another session.
};

struct ConflictCheck {
  ConflictOutcome outcome = ConflictOutcome::kReady;
  ConflictCause cause = ConflictCause::kNone;
  uint32_t item = 0;  // What blocks it, or what the refusal is about.
  uint32_t piece = 0;
  uint32_t leases_scanned = 0;  // Of the asking session, beside the pieces.
};
// Units of work that a check took beside those for the pieces.
inline uint32_t CostOfLeasesScanned(const ConflictCheck& check) { return check.leases_scanned / 8; }
ConflictCheck CheckConflicts(const Tables& tables, const Ask& ask);
// The same of that one piece: whether what blocked the ask there still does, for less than examining all of it.
ConflictCheck CheckConflictAt(const Tables& tables, const Ask& ask, uint32_t item, uint32_t piece);
// ConflictOutcome kRefused in words.
Refusal RefusalOf(const Tables& tables, const Ask& ask, const ConflictCheck& check);

// Whether this piece needs room (or bytes) before the ask can have it.
bool NeedsRoom(const Ask& ask, const WaitItem& item, const Tensor& tensor, const Piece& piece);
bool CoversPiece(const WaitItem& item, const Tensor& tensor, uint32_t number);
// Only leases of the session itself stand in the way at that piece. Of a session that is ending some, or holds very
// many, it is not said.
bool OwnLeasesBlock(const Tables& tables, const SessionState& session, const ConflictCheck& at, const Ask& ask);
uint32_t OwnLeasesCost(const SessionState& session);  // Units of work.

}  // namespace tier::tiering
