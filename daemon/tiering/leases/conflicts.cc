// See conflicts.h.
#include "daemon/tiering/leases/conflicts.h"

#include <algorithm>

#include <fmt/format.h>

#include "daemon/tiering/leases/updates.h"

namespace tier::tiering {
namespace {

using proto::Op;

constexpr uint32_t kOwnLeasesScannedMax = 1024;
constexpr uint32_t kOwnLeasesLookedAtMax = 8192;

// Whether one of the session's newest leases is of these pieces. It is not asked about the others: what waits for one
// of these hears so at its deadline. `*scanned` grows by the leases that were looked at.
bool HoldsPartOf(const Tables& tables, const SessionState& session, TensorIndex tensor, PieceRange pieces,
                 uint32_t* scanned) {
  if (tables.tensors[tensor].lease_count == 0) return false;
  uint32_t left = kOwnLeasesScannedMax;
  for (LeaseIndex index = session.record.leases; index != kNoLease && left != 0;
       index = tables.leases[index].next, --left) {
    ++*scanned;
    const Lease& lease = tables.leases[index];
    if (lease.tensor == tensor && pieces.Overlaps({lease.first_piece, lease.piece_count})) return true;
  }
  return false;
}

// A thread of the session that reads the piece already may read it again, or it could wait for itself. A lease of
// another piece makes no difference: only one of this piece wakes what waits there (OnLeaseGranted).
bool IsNested(const Tables& tables, const Ask& ask, const WaitItem& item, uint32_t piece, uint32_t* scanned) {
  return HoldsPartOf(tables, *ask.session, item.tensor.index, {piece, 1}, scanned);
}

// A waiting writer came before the ask. One that waits for a swap_out of the asking session must not hold that up.
// REQUIRES: the piece is kWanted.
bool ClaimStandsBefore(const Tables& tables, const Ask& ask, const WaitItem& item, const Piece& piece) {
  const PieceId id = tables.tensors.PieceOf(tables.tensors[item.tensor.index], piece.number);
  return ask.session->job->claims.EarlierThan(ask.number, id) != 0 &&
         !HasUnfinishedSwap(tables, item.tensor.index, *ask.session);
}

ConflictCause CauseOfRead(const Tables& tables, const Ask& ask, const WaitItem& item, const Piece& piece,
                          uint32_t* scanned) {
  if (piece.activity == Activity::kLeasedWrite) return ConflictCause::kLease;
  if (!piece.has(kWanted) || !ClaimStandsBefore(tables, ask, item, piece)) return ConflictCause::kNone;
  return IsNested(tables, ask, item, piece.number, scanned) ? ConflictCause::kNone : ConflictCause::kClaim;
}

ConflictCause CauseOfWrite(const Tables& tables, const Ask& ask, const WaitItem& item, const Piece& piece) {
  if (piece.read_leases != 0 || piece.activity == Activity::kLeasedWrite) return ConflictCause::kLease;
  if (piece.activity == Activity::kReadingIn) return ask.discards() ? ConflictCause::kTransfer : ConflictCause::kNone;
  const bool moves = piece.activity == Activity::kMoving;  // The grant cancels that.
  if (piece.activity != Activity::kNone && !moves) return ConflictCause::kTransfer;
  if (!piece.has(kWanted)) return ConflictCause::kNone;
  return ClaimStandsBefore(tables, ask, item, piece) ? ConflictCause::kClaim : ConflictCause::kNone;
}

bool MayRewriteTorn(const Ask& ask, const WaitItem& item, const Tensor& tensor) {
  if (!ask.exclusive() || !ask.discards()) return false;
  const uint32_t last = item.first_piece + item.piece_count - 1;
  return CoversPiece(item, tensor, item.first_piece) && CoversPiece(item, tensor, last);
}

bool TooManyRanges(const Tables& tables, const WaitItem& item) {
  const IntervalSet* sealed = tables.tensors.SealedOf(item.tensor.index);
  if (sealed == nullptr) return false;
  return sealed->intervals().size() + tables.tensors[item.tensor.index].lease_count >= kCreationRangesMax &&
         !sealed->Touches(item.offset, item.offset + item.length);
}

// Others wait for an unfinished swap_out. It may wait for what they lease of the tensor: then they must not, unless its
// session has ended and waits for nothing.
ConflictCheck CheckSwap(const Tables& tables, const Ask& ask, uint32_t index) {
  const WaitItem& item = ask.items[index];
  const PieceRange range{item.first_piece, item.piece_count};
  const uint64_t before = tables.updates.visits();
  const SessionState* const swapper = SwapperOf(tables, item.tensor.index, range, ask.session);
  const auto visits = static_cast<uint32_t>(tables.updates.visits() - before);
  if (swapper == nullptr) return {.updates_scanned = visits};
  const PieceRange all{0, tables.tensors[item.tensor.index].piece_count};
  uint32_t scanned = 0;
  const bool holds = !swapper->ending() && HoldsPartOf(tables, *ask.session, item.tensor.index, all, &scanned);
  return {.outcome = holds ? ConflictOutcome::kRefused : ConflictOutcome::kBlocked,
          .cause = ConflictCause::kUpdate,
          .item = index,
          .piece = item.first_piece,
          .leases_scanned = scanned,
          .updates_scanned = visits};
}

// ConflictOutcome on the tensor as a whole: kReady, kBlocked or kRefused.
ConflictCheck CheckTensorConflicts(const Tables& tables, const Ask& ask, uint32_t index) {
  const WaitItem& item = ask.items[index];
  const ConflictCheck refused{.outcome = ConflictOutcome::kRefused, .item = index, .piece = item.first_piece};
  if (!tables.Alive(item.tensor)) return refused;
  const Tensor& tensor = tables.tensors[item.tensor.index];
  // However many pieces: a free takes what is being moved with it when the transfer ends.
  if (ask.op == Op::kFree) {
    if (tensor.lease_count == 0) return {};
    return {.outcome = ConflictOutcome::kBlocked,
            .cause = ConflictCause::kAnyLease,
            .item = index,
            .piece = item.first_piece};
  }
  if (!tensor.has(kVisible)) {
    const bool creates = ask.exclusive() && tensor.creator == static_cast<uint64_t>(ask.session->id);
    if (creates) return TooManyRanges(tables, item) ? refused : ConflictCheck{};
    return {.outcome = ConflictOutcome::kBlocked,
            .cause = ConflictCause::kUnsealed,
            .item = index,
            .piece = item.first_piece};
  }
  if (tensor.torn() && !MayRewriteTorn(ask, item, tensor)) return refused;
  return MayHaveSwapper(tables, item.tensor.index) ? CheckSwap(tables, ask, index) : ConflictCheck{};
}

// The old bytes of the piece are not needed.
bool Overwritten(const Ask& ask, const WaitItem& item, const Tensor& tensor, const Piece& piece) {
  return ask.exclusive() && ask.discards() && CoversPiece(item, tensor, piece.number);
}

ConflictCause CauseOf(const Tables& tables, const Ask& ask, const WaitItem& item, const Piece& piece,
                      uint32_t* scanned) {
  return ask.exclusive() ? CauseOfWrite(tables, ask, item, piece) : CauseOfRead(tables, ask, item, piece, scanned);
}

// On a device that answers nothing.
bool IsUnreadable(const Tables& tables, const Piece& piece) {
  return piece.copies == Copies::kSsd && piece.activity == Activity::kNone &&
         !tables.devices.IsReadable(piece.ssd_device);
}

// Of the pieces of one item.
ConflictCheck CheckPieceConflicts(const Tables& tables, const Ask& ask, uint32_t index) {
  const WaitItem& item = ask.items[index];
  const Tensor& tensor = tables.tensors[item.tensor.index];
  uint32_t scanned = 0;
  ConflictCheck found;
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    const Piece& piece = tables.PieceOf(tensor, k);
    const ConflictCause cause = CauseOf(tables, ask, item, piece, &scanned);
    if (cause != ConflictCause::kNone) return {ConflictOutcome::kBlocked, cause, index, k, scanned, 0};
    if (!NeedsRoom(ask, item, tensor, piece)) continue;
    const bool lost = piece.has(kCorrupt) || IsUnreadable(tables, piece);
    if (lost && !Overwritten(ask, item, tensor, piece)) {
      return {ConflictOutcome::kRefused, ConflictCause::kNone, index, k, scanned, 0};
    }
    if (found.outcome == ConflictOutcome::kReady)
      found = {ConflictOutcome::kNeedsRoom, ConflictCause::kNone, index, k, 0, 0};
  }
  found.leases_scanned = scanned;
  return found;
}

}  // namespace

bool CoversPiece(const WaitItem& item, const Tensor& tensor, uint32_t number) {
  const uint64_t begin = uint64_t{number} * kBlockSize;
  return item.offset <= begin && item.offset + item.length >= begin + tensor.piece_length(number);
}

bool NeedsRoom(const Ask& ask, const WaitItem& item, const Tensor& tensor, const Piece& piece) {
  if (piece.copies == Copies::kCreating || piece.copies == Copies::kTorn) return !piece.ram;
  if (Overwritten(ask, item, tensor, piece) && piece.activity == Activity::kNone) return !piece.ram;
  return !piece.readable();
}

ConflictCheck CheckConflicts(const Tables& tables, const Ask& ask) {
  ConflictCheck found;
  for (uint32_t i = 0; i < ask.items.size(); ++i) {
    ConflictCheck check = CheckTensorConflicts(tables, ask, i);
    found.updates_scanned += check.updates_scanned;
    if (check.outcome == ConflictOutcome::kReady && ask.op != Op::kFree) check = CheckPieceConflicts(tables, ask, i);
    check.leases_scanned += found.leases_scanned;
    check.updates_scanned = found.updates_scanned;
    if (check.outcome == ConflictOutcome::kBlocked || check.outcome == ConflictOutcome::kRefused) return check;
    if (found.outcome == ConflictOutcome::kReady) found = check;
    found.leases_scanned = check.leases_scanned;
    found.updates_scanned = check.updates_scanned;
  }
  return found;
}

ConflictCheck CheckConflictAt(const Tables& tables, const Ask& ask, uint32_t index, uint32_t number) {
  const ConflictCheck whole = CheckTensorConflicts(tables, ask, index);
  if (whole.outcome != ConflictOutcome::kReady || ask.op == Op::kFree) return whole;
  const WaitItem& item = ask.items[index];
  uint32_t scanned = 0;
  const Piece& piece = tables.PieceOf(tables.tensors[item.tensor.index], number);
  const ConflictCause cause = CauseOf(tables, ask, item, piece, &scanned);
  const bool blocked = cause != ConflictCause::kNone;
  return {blocked ? ConflictOutcome::kBlocked : ConflictOutcome::kReady,
          cause,
          index,
          number,
          scanned,
          whole.updates_scanned};
}

Ask AskOf(const Tables& tables, const Waiter& waiter) {
  return {.session = &tables.AskerOf(waiter),
          .sequence = waiter.sequence,
          .op = waiter.op,
          .flags = waiter.flags,
          .number = waiter.number,
          .items = waiter.items};
}

uint32_t OwnLeasesCost(const SessionState& session) {
  return std::min(session.record.lease_count, kOwnLeasesLookedAtMax);
}

bool OwnLeasesBlock(const Tables& tables, const SessionState& session, const ConflictCheck& at, const Ask& ask) {
  if (session.requests.unfinished() != 0) return false;
  const WaitItem& item = ask.items[at.item];
  const Tensor& tensor = tables.tensors[item.tensor.index];
  if (at.cause == ConflictCause::kUnsealed) return tensor.creator == static_cast<uint64_t>(session.id);
  if (at.cause != ConflictCause::kLease && at.cause != ConflictCause::kAnyLease) return false;
  if (session.record.lease_count > kOwnLeasesLookedAtMax) return false;  // Told at the deadline.
  const bool any = at.cause == ConflictCause::kAnyLease;
  const Piece& piece = tables.PieceOf(tensor, at.piece);
  uint32_t own = 0;
  for (LeaseIndex index = session.record.leases; index != kNoLease; index = tables.leases[index].next) {
    const Lease& lease = tables.leases[index];
    if (lease.tensor != item.tensor.index || (!any && at.piece - lease.first_piece >= lease.piece_count)) continue;
    if (!any && lease.exclusive()) return true;
    ++own;
  }
  if (any) return own == tensor.lease_count;
  return piece.activity != Activity::kLeasedWrite && own == piece.read_leases;
}

namespace {

// Torn pieces, and what has to be rewritten since an update of the tensor broke. `offset`: of the first of them.
std::string DescribeTorn(const Tables& tables, TensorIndex index, uint64_t* offset) {
  constexpr uint32_t kNamedMax = 32;
  constexpr uint32_t kScannedMax = 4096;
  const Tensor& tensor = tables.tensors[index];
  const UpdateIndex broken = tables.updates.FindBroken(index);
  const auto unwritten = [&](uint32_t k) {
    return broken != kNoUpdate && tables.updates[broken].torn.Contains(k) && !tables.updates.Changed(broken, k);
  };
  std::string list;
  uint32_t named = 0;
  const uint32_t first = broken == kNoUpdate ? 0 : tables.updates[broken].torn.first;
  const uint32_t end = first + std::min(tensor.piece_count - first, kScannedMax);
  for (uint32_t k = first; k < end; ++k) {
    const Piece& piece = tables.PieceOf(tensor, k);
    const bool torn = piece.copies == Copies::kTorn;
    if (!torn && !unwritten(k)) continue;
    if (named == 0) *offset = uint64_t{k} * kBlockSize;
    if (named++ == kNamedMax) return list + ", ...";
    list +=
        fmt::format("{}{} ({} generation {})", named == 1 ? "" : ", ", k, torn ? "torn at" : "at", piece.generation);
  }
  return end == tensor.piece_count ? list : list + (named == 0 ? "some beyond " + std::to_string(end) : ", ...");
}

Refusal SwapRefusal(const Tables& tables, const WaitItem& item, const Ask& ask) {
  const Tensor& tensor = tables.tensors[item.tensor.index];
  const SessionState* swapper = SwapperOf(tables, item.tensor.index, {item.first_piece, item.piece_count}, ask.session);
  TIER_CHECK(swapper != nullptr, "tensor {} was refused without a reason", tensor.id);
  return {
      Code::kWouldDeadlock,
      fmt::format("tensor {:#x} is under an unfinished swap_out of session {}, which may wait for what this session "
                  "leases of it: release that first",
                  tensor.id, static_cast<uint64_t>(swapper->id)),
      {.tensor = tensor.id, .requested = item.length, .limit = tensor.size}};
}

}  // namespace

Refusal RefusalOf(const Tables& tables, const Ask& ask, const ConflictCheck& check) {
  const WaitItem& item = ask.items[check.item];
  Refusal refusal;
  if (!tables.Alive(item.tensor)) {
    refusal.code = Code::kNotFound;
    refusal.record.tensor = item.id;
    refusal.detail = fmt::format(
        "tensor {:#x} was freed or replaced, or its creation given up, while the request waited: ask again for what is "
        "there now",
        item.id);
    return refusal;
  }
  if (check.cause == ConflictCause::kUpdate) return SwapRefusal(tables, item, ask);
  const Tensor& tensor = tables.tensors[item.tensor.index];
  refusal.record.tensor = tensor.id;
  refusal.record.limit = tensor.size;
  if (tensor.torn()) {
    refusal.code = Code::kTorn;
    const std::string list = DescribeTorn(tables, item.tensor.index, &refusal.record.requested);
    refusal.detail = fmt::format(
        "a writer of tensor {:#x} ended in the middle: its {} pieces, written last at generation {}, may be of "
        "different updates; rewrite these whole with discard: {}; or free the tensor, or accept it as it stands",
        tensor.id, tensor.piece_count, tensor.generation, list);
    return refusal;
  }
  if (!tensor.has(kVisible)) {
    refusal.code = Code::kNoMemory;
    refusal.record.requested = item.offset;
    refusal.record.limit = kCreationRangesMax;
    refusal.detail = fmt::format(
        "tensor {:#x} is being created in {} separate ranges, at most {}: go on where a sealed range begins or ends",
        tensor.id, tables.tensors.SealedOf(item.tensor.index)->intervals().size() + tensor.lease_count,
        kCreationRangesMax);
    return refusal;
  }
  const Piece& piece = tables.PieceOf(tensor, check.piece);
  refusal.record.requested = uint64_t{check.piece} * kBlockSize;
  if (IsUnreadable(tables, piece)) {
    refusal.code = Code::kIoError;
    refusal.detail = fmt::format(
        "tensor {:#x} at byte {} cannot be read now: {}; the copy is kept, ask again when the device is back",
        tensor.id, refusal.record.requested, tables.devices.UnreadableReason(piece.ssd_device));
    return refusal;
  }
  TIER_CHECK(piece.has(kCorrupt), "tensor {} piece {} was refused without a reason", tensor.id, check.piece);
  refusal.code = Code::kCorrupt;
  refusal.detail = fmt::format(
      "tensor {:#x} at byte {} came back from device {} at byte {} with a wrong checksum, twice: the device "
      "changed it, or a process of the job changed or took away the memory that it was written from; write it again or "
      "free it",
      tensor.id, refusal.record.requested, piece.ssd_device, piece.ssd_run.offset_bytes());
  return refusal;
}

}  // namespace tier::tiering
