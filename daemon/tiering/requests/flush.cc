// See flush.h.
#include "daemon/tiering/requests/flush.h"

#include <algorithm>

#include "daemon/tiering/durability/manifests.h"
#include "daemon/tiering/leases/conflicts.h"
#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/requests/enumeration.h"
#include "daemon/tiering/requests/refusals.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

bool Writable(const Piece& piece) { return piece.copies == Copies::kRam && piece.activity == Activity::kNone; }

// Starts writes from the cursor on, as far as the port takes them. False: the turn has no more work left.
bool WriteAhead(Tables& tables, const Waiter& waiter) {
  JobState& job = *waiter.job;
  const PieceCursor at = waiter.flush().written;
  uint32_t looked = 0;
  const uint32_t look_max = 2 * tables.ports.transfers.inflight_max();
  for (uint32_t i = at.item; i < waiter.items.size() && looked < look_max; ++i) {
    const WaitItem& item = waiter.items[i];
    if (!tables.Alive(item.tensor)) continue;
    const Tensor& tensor = tables.tensors[item.tensor.index];
    uint32_t k = i == at.item ? at.piece : 0;
    for (; k < tensor.piece_count && looked < look_max; ++k, ++looked) {
      if (!tables.work.TrySpend()) return false;
      if (!Writable(tables.PieceOf(tensor, k))) continue;
      const PieceId id = tables.tensors.PieceOf(tensor, k);
      if (!CanStartWrite(tables, job) || !StartWrite(tables, id, WriteFor::kRequest)) return true;
      tables.turn.NoteProgress();
    }
  }
  return true;
}

// Shared tensors that the request did not name: the flush skips those that were torn or are being written.
bool Skipped(const FlushWait& flush, const Tensor& tensor, const Piece& piece) {
  if (flush.written.item < flush.listing.first_unnamed) return false;
  return tensor.torn() || piece.activity == Activity::kLeasedWrite;
}

// The first one is told of, once everything else is written.
void NoteCorrupt(FlushWait& flush) {
  if (flush.corrupt) return;
  flush.corrupt = true;
  flush.corrupt_at = flush.written;
}

// What was noted may be freed or rewritten by now: then the next one behind it counts.
void DropRepaired(const Tables& tables, Waiter& waiter) {
  FlushWait& flush = waiter.flush();
  if (!flush.corrupt) return;
  const TensorRef ref = waiter.items[flush.corrupt_at.item].tensor;
  if (tables.Alive(ref) && tables.PieceOf(tables.tensors[ref.index], flush.corrupt_at.piece).has(kCorrupt)) return;
  flush.corrupt = false;
  flush.written = flush.corrupt_at;
}

enum class Reached : uint8_t { kEnd, kUnwritten, kEndOfTurn };

// Moves the cursor over written pieces, as far as the turn's work reaches.
Reached MoveOn(Tables& tables, Waiter& waiter) {
  FlushWait& flush = waiter.flush();
  PieceCursor& at = flush.written;
  for (; at.item < waiter.items.size(); ++at.item, at.piece = 0) {
    const WaitItem& item = waiter.items[at.item];
    if (!tables.Alive(item.tensor)) continue;
    const Tensor& tensor = tables.tensors[item.tensor.index];
    for (; at.piece < tensor.piece_count; ++at.piece) {
      if (!tables.work.TrySpend()) return Reached::kEndOfTurn;
      const Piece& piece = tables.PieceOf(tensor, at.piece);
      if (!piece.on_ssd() && !Skipped(flush, tensor, piece)) return Reached::kUnwritten;
      if (piece.has(kCorrupt) && at.item < flush.listing.first_unnamed) NoteCorrupt(flush);
    }
  }
  return Reached::kEnd;
}

// A mixture lies on SSD like anything else. Corrupt copies were met on the way. kNeedsRoom: the turn has no more work
// left.
ConflictCheck FindDamage(Tables& tables, Waiter& waiter) {
  FlushWait& flush = waiter.flush();
  const auto asked = static_cast<uint32_t>(std::min<size_t>(waiter.items.size(), flush.listing.first_unnamed));
  for (uint32_t& i = flush.checked; i < asked; ++i) {
    if (!tables.work.TrySpend()) return {.outcome = ConflictOutcome::kNeedsRoom};
    const TensorRef tensor = waiter.items[i].tensor;
    if (tables.Alive(tensor) && tables.tensors[tensor.index].torn())
      return {.outcome = ConflictOutcome::kRefused, .item = i};
  }
  if (!flush.corrupt) return {};
  return {.outcome = ConflictOutcome::kRefused, .item = flush.corrupt_at.item, .piece = flush.corrupt_at.piece};
}

bool SwappedAtCursor(const Tables& tables, const Waiter& waiter) {
  const uint32_t at = waiter.flush().written.item;
  if (at == waiter.items.size()) return false;
  const TensorRef tensor = waiter.items[at].tensor;
  return tables.Alive(tensor) && tables.tensors[tensor.index].has(kSwapping);
}

bool TornAtCursor(const Tables& tables, const Waiter& waiter) {
  const FlushWait& flush = waiter.flush();
  if (flush.written.item >= flush.listing.first_unnamed) return false;
  const WaitItem& item = waiter.items[flush.written.item];
  return tables.Alive(item.tensor) && tables.tensors[item.tensor.index].torn();
}

// For a write of the job, and for the users of what stands at the cursor.
Outcome WaitAtCursor(Tables& tables, const Waiter& waiter) {
  tables.waits.WaitForWrite(waiter.number);
  const PieceCursor at = waiter.flush().written;
  if (at.item >= waiter.items.size() || !tables.Alive(waiter.items[at.item].tensor)) return Waits();
  const TensorIndex index = waiter.items[at.item].tensor.index;
  tables.waits.WaitAtTensor(waiter.number, index);
  const Tensor& tensor = tables.tensors[index];
  if (at.piece < tensor.piece_count && tables.tensors.PieceOf(tensor, at.piece) != kNoPiece)
    tables.waits.WaitAtPiece(waiter.number, index, at.piece);
  return Waits();
}

// Something is not on SSD yet.
Outcome WriteMore(Tables& tables, Waiter& waiter) {
  JobState& job = *waiter.job;
  const FlushWait& flush = waiter.flush();
  if (TornAtCursor(tables, waiter)) {
    const Ask ask = AskOf(tables, waiter);
    return Refused(RefusalOf(tables, ask, {.outcome = ConflictOutcome::kRefused, .item = flush.written.item}),
                   flush.written.item);
  }
  // What is being written wakes it when it ends.
  if (!WriteAhead(tables, waiter) && job.transfers.writing_pages() == 0) return tables.WaitForNextTurn(waiter);
  const bool failing = job.failures.in_a_row() >= kWriteFailuresBeforeRefusal &&
                       job.failures.count() > flush.write_failures && job.transfers.writing_pages() == 0;
  if (!failing) return WaitAtCursor(tables, waiter);
  return Refused(WriteFailureRefusal(tables, waiter), flush.written.item);
}

// Everything is on SSD: its places become a manifest.
Outcome CommitManifest(Tables& tables, Waiter& waiter) {
  Outcome outcome = StartManifest(tables, waiter);
  if (outcome.progress != Progress::kWaits) return outcome;
  if (tables.waits.ready(waiter.number)) return Waits();  // It goes on in the next turn.
  if (!waiter.committing()) {
    const bool at_end =
        waiter.flush().written.item == waiter.items.size();  // Another manifest of the job is under way.
    return at_end ? WaitAtCursor(tables, waiter) : WriteMore(tables, waiter);
  }
  tables.waits.WaitForStore(waiter.number);
  return Waits();
}

}  // namespace

Outcome AdvanceFlush(Tables& tables, Waiter& waiter) {
  PersistWait* const persist = std::get_if<PersistWait>(&waiter.kind);
  FlushWait& flush = waiter.flush();
  if (Outcome listed = Enumerate(tables, waiter, &flush.listing); listed.progress != Progress::kReady) return listed;
  if (persist != nullptr) {
    if (Outcome counted = CheckSpace(tables, waiter); counted.progress != Progress::kReady) return counted;
  }
  DropRepaired(tables, waiter);
  // What an unfinished swap_out leaves is not gone over whole at each retry meanwhile.
  if (persist != nullptr && SwappedAtCursor(tables, waiter)) return WriteMore(tables, waiter);
  const Reached reached = MoveOn(tables, waiter);
  if (reached == Reached::kUnwritten) return WriteMore(tables, waiter);
  if (reached == Reached::kEndOfTurn) return tables.WaitForNextTurn(waiter);
  if (persist != nullptr) return CommitManifest(tables, waiter);
  const ConflictCheck found = FindDamage(tables, waiter);
  if (found.outcome == ConflictOutcome::kNeedsRoom) return tables.WaitForNextTurn(waiter);
  if (found.outcome != ConflictOutcome::kRefused) return Finished(0);
  return Refused(RefusalOf(tables, AskOf(tables, waiter), found), found.item);
}

}  // namespace tier::tiering
