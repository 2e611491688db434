// Conflicts: what prevents a request for leases from being granted. Engine thread only.
#pragma once

#include <span>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// A request for leases, as it is checked: a new one, or one that a waiter keeps.
struct Ask {
  SessionState* session = nullptr;
  uint64_t sequence = 0;
  proto::Op op = proto::Op::kNone;  // kCreate, kAcquire, kFree.
  uint32_t flags = 0;
  uint64_t number = UINT64_MAX;  // Of its waiter, in the order of arrival. A new request is the last.
  std::span<const WaitItem> items;

  bool exclusive() const { return op != proto::Op::kAcquire || (flags & proto::kFlagWrite) != 0; }
  bool discards() const { return (flags & proto::kFlagDiscard) != 0; }
};
Ask AskOf(const Tables& tables, const Waiter& waiter);

enum class ConflictOutcome : uint8_t {
  kReady,      // It can be granted now.
  kNeedsRoom,  // Nothing conflicts; pieces have to be given room or read first.
  kBlocked,    // See `cause`.
  kRefused,    // See `refusal`.
};
enum class ConflictCause : uint8_t {
  kNone,
  kLease,     // A lease of that piece.
  kAnyLease,  // A lease of any piece: a free waits for all leases, and for nothing else.
  kUnsealed,
  kTransfer,
  kClaim,
  kUpdate,  // An unfinished swap_out of another session.
};

struct ConflictCheck {
  ConflictOutcome outcome = ConflictOutcome::kReady;
  ConflictCause cause = ConflictCause::kNone;
  uint32_t item = 0;  // Where the conflict is, or what the refusal is about.
  uint32_t piece = 0;
  // What was looked at beside the pieces: leases of the asking session, and records of updates.
  uint32_t leases_scanned = 0;
  uint32_t updates_scanned = 0;
};
// Units of work that a check took in addition to those for the pieces.
inline uint32_t CostOfRecordsScanned(const ConflictCheck& check) {
  return check.leases_scanned / 8 + check.updates_scanned;
}
ConflictCheck CheckConflicts(const Tables& tables, const Ask& ask);
// Checks that one piece only: tells for less work whether the conflict found there before is still there.
ConflictCheck CheckConflictAt(const Tables& tables, const Ask& ask, uint32_t item, uint32_t piece);
// The refusal for ConflictOutcome kRefused.
Refusal RefusalOf(const Tables& tables, const Ask& ask, const ConflictCheck& check);

// Whether this piece needs room (or bytes) before the ask can have it.
bool NeedsRoom(const Ask& ask, const WaitItem& item, const Tensor& tensor, const Piece& piece);
bool CoversPiece(const WaitItem& item, const Tensor& tensor, uint32_t number);
// The conflict at that piece is with leases of the session itself alone. Always false for a session that is ending
// leases, or holds very many.
bool OwnLeasesBlock(const Tables& tables, const SessionState& session, const ConflictCheck& at, const Ask& ask);
uint32_t OwnLeasesCost(const SessionState& session);  // Units of work.

}  // namespace tier::tiering
