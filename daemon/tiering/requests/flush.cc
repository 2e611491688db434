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

bool Written(const Piece& piece) { return piece.ssd_run && piece.activity != Activity::kLeasedWrite; }

bool Writable(const Piece& piece) { return piece.copies == Copies::kRam && piece.activity == Activity::kNone; }

// Starts writes from the cursor on, as far as the port takes them. False: the turn has no more work left.
bool WriteAhead(Core& core, const Waiter& waiter) {
  JobState& job = *waiter.job;
  const PieceCursor at = waiter.flush().written;
  uint32_t looked = 0;
  const uint32_t look_max = 2 * core.ports.transfers.inflight_max();
  for (uint32_t i = at.item; i < waiter.items.size() && looked < look_max; ++i) {
    const WaitItem& item = waiter.items[i];
    if (!core.Alive(item.tensor)) continue;
    const Tensor& tensor = core.tensors[item.tensor.slot];
    uint32_t k = i == at.item ? at.piece : 0;
    for (; k < tensor.piece_count && looked < look_max; ++k, ++looked) {
      if (!core.work.TrySpend()) return false;
      if (!Writable(core.PieceOf(tensor, k))) continue;
      if (!CanStartWrite(core, job) || !StartWrite(core, tensor.piece(k))) return true;
      core.made_progress = true;
    }
  }
  return true;
}

// Shared tensors that nobody asked for by name: what became of them since is not the flush's affair.
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
void DropRepaired(const Core& core, Waiter& waiter) {
  FlushWait& flush = waiter.flush();
  if (!flush.corrupt) return;
  const TensorRef ref = waiter.items[flush.corrupt_at.item].tensor;
  if (core.Alive(ref) && core.PieceOf(core.tensors[ref.slot], flush.corrupt_at.piece).has(kCorrupt)) return;
  flush.corrupt = false;
  flush.written = flush.corrupt_at;
}

enum class Reached : uint8_t { kEnd, kUnwritten, kEndOfTurn };

// Moves the cursor over what is written, as far as the turn's looks reach.
Reached MoveOn(Core& core, Waiter& waiter) {
  FlushWait& flush = waiter.flush();
  PieceCursor& at = flush.written;
  for (; at.item < waiter.items.size(); ++at.item, at.piece = 0) {
    const WaitItem& item = waiter.items[at.item];
    if (!core.Alive(item.tensor)) continue;
    const Tensor& tensor = core.tensors[item.tensor.slot];
    for (; at.piece < tensor.piece_count; ++at.piece) {
      if (!core.work.TrySpend()) return Reached::kEndOfTurn;
      const Piece& piece = core.PieceOf(tensor, at.piece);
      if (!Written(piece) && !Skipped(flush, tensor, piece)) return Reached::kUnwritten;
      if (piece.has(kCorrupt) && at.item < flush.listing.first_unnamed) NoteCorrupt(flush);
    }
  }
  return Reached::kEnd;
}

// A mixture lies on SSD like anything else. Corrupt copies were met on the way. kNeedsRoom: the turn has no more work
// left.
ConflictCheck FindDamage(Core& core, Waiter& waiter) {
  FlushWait& flush = waiter.flush();
  const auto asked = static_cast<uint32_t>(std::min<size_t>(waiter.items.size(), flush.listing.first_unnamed));
  for (uint32_t& i = flush.checked; i < asked; ++i) {
    if (!core.work.TrySpend()) return {.verdict = Verdict::kNeedsRoom};
    const TensorRef tensor = waiter.items[i].tensor;
    if (core.Alive(tensor) && core.tensors[tensor.slot].torn()) return {.verdict = Verdict::kRefused, .item = i};
  }
  if (!flush.corrupt) return {};
  return {.verdict = Verdict::kRefused, .item = flush.corrupt_at.item, .piece = flush.corrupt_at.piece};
}

bool SwappedAtCursor(const Core& core, const Waiter& waiter) {
  const uint32_t at = waiter.flush().written.item;
  if (at == waiter.items.size()) return false;
  const TensorRef tensor = waiter.items[at].tensor;
  return core.Alive(tensor) && core.tensors[tensor.slot].has(kSwapping);
}

bool TornAtCursor(const Core& core, const Waiter& waiter) {
  const FlushWait& flush = waiter.flush();
  if (flush.written.item >= flush.listing.first_unnamed) return false;
  const WaitItem& item = waiter.items[flush.written.item];
  return core.Alive(item.tensor) && core.tensors[item.tensor.slot].torn();
}

// For a write of the job, and for the users of what stands at the cursor.
Outcome WaitAtCursor(Core& core, const Waiter& waiter) {
  core.waits.WaitForWrite(waiter.number);
  const PieceCursor at = waiter.flush().written;
  if (at.item >= waiter.items.size() || !core.Alive(waiter.items[at.item].tensor)) return Waits();
  const TensorSlot slot = waiter.items[at.item].tensor.slot;
  core.waits.WaitAtTensor(waiter.number, slot);
  const Tensor& tensor = core.tensors[slot];
  if (at.piece < tensor.piece_count && tensor.piece(at.piece) != kNoPiece)
    core.waits.WaitAtPiece(waiter.number, slot, at.piece);
  return Waits();
}

// Something is not on SSD yet.
Outcome WriteMore(Core& core, Waiter& waiter) {
  JobState& job = *waiter.job;
  const FlushWait& flush = waiter.flush();
  if (TornAtCursor(core, waiter)) {
    const Ask ask = AskOf(core, waiter);
    return Refused(RefusalOf(core, ask, {.verdict = Verdict::kRefused, .item = flush.written.item}),
                   flush.written.item);
  }
  // What is being written wakes it when it ends.
  if (!WriteAhead(core, waiter) && job.writing_pages == 0) return core.WaitForNextTurn(waiter);
  const bool failing = job.write_backoff >= kWriteFailuresBeforeRefusal &&
                       job.write_failure_count > flush.write_failures && job.writing_pages == 0;
  if (!failing) return WaitAtCursor(core, waiter);
  return Refused(WriteFailureRefusal(core, job, waiter.requested_bytes), flush.written.item);
}

// Everything is on SSD: its places become a manifest.
Outcome CommitManifest(Core& core, Waiter& waiter) {
  Outcome outcome = StartManifest(core, waiter);
  if (outcome.progress != Progress::kWaits) return outcome;
  if (core.waits.ready(waiter.number)) return Waits();  // It goes on in the next turn.
  if (!waiter.committing()) {
    const bool at_end =
        waiter.flush().written.item == waiter.items.size();  // Another manifest of the job is under way.
    return at_end ? WaitAtCursor(core, waiter) : WriteMore(core, waiter);
  }
  core.waits.WaitForStore(waiter.number);
  return Waits();
}

}  // namespace

Outcome AdvanceFlush(Core& core, Waiter& waiter) {
  PersistWait* const persist = std::get_if<PersistWait>(&waiter.kind);
  FlushWait& flush = waiter.flush();
  if (Outcome listed = Enumerate(core, waiter, &flush.listing); listed.progress != Progress::kReady) return listed;
  if (persist != nullptr) {
    if (Outcome counted = CheckSpace(core, waiter); counted.progress != Progress::kReady) return counted;
  }
  DropRepaired(core, waiter);
  // What an unfinished swap_out leaves is not gone over whole at each retry meanwhile.
  if (persist != nullptr && SwappedAtCursor(core, waiter)) return WriteMore(core, waiter);
  const Reached reached = MoveOn(core, waiter);
  if (reached == Reached::kUnwritten) return WriteMore(core, waiter);
  if (reached == Reached::kEndOfTurn) return core.WaitForNextTurn(waiter);
  if (persist != nullptr) return CommitManifest(core, waiter);
  const ConflictCheck found = FindDamage(core, waiter);
  if (found.verdict == Verdict::kNeedsRoom) return core.WaitForNextTurn(waiter);
  if (found.verdict != Verdict::kRefused) return Finished(0);
  return Refused(RefusalOf(core, AskOf(core, waiter), found), found.item);
}

}  // namespace tier::tiering
