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

// Starts writes from the cursor on, as far as the port takes them.
void WriteAhead(Core& core, Waiter& waiter) {
  JobState& job = *waiter.job;
  uint32_t looked = 0;
  const uint32_t look_max = 2 * core.ports.transfers.inflight_max();
  for (uint32_t i = waiter.cursor_item; i < waiter.items.size() && looked < look_max; ++i) {
    const WaitItem& item = waiter.items[i];
    if (!core.Alive(item.tensor)) continue;
    const Tensor& tensor = core.tensors[item.tensor.slot];
    uint32_t k = i == waiter.cursor_item ? waiter.cursor_piece : 0;
    for (; k < tensor.piece_count && looked < look_max; ++k, ++looked) {
      core.work_left -= core.work_left == 0 ? 0 : 1;
      if (!Writable(core.PieceOf(tensor, k))) continue;
      if (!CanStartWrite(core, job) || !StartWrite(core, tensor.piece(k))) return;
      core.made_progress = true;
    }
  }
}

// Shared tensors that nobody asked for by name: what became of them since is not the flush's affair.
bool Skipped(const Waiter& waiter, const Tensor& tensor, const Piece& piece) {
  if (waiter.cursor_item < waiter.first_unnamed) return false;
  return tensor.torn() || piece.activity == Activity::kLeasedWrite;
}

// The first one is told of, once everything else is written.
void NoteCorrupt(Waiter& waiter) {
  if (waiter.corrupt) return;
  waiter.corrupt = true;
  waiter.corrupt_item = waiter.cursor_item;
  waiter.corrupt_piece = waiter.cursor_piece;
}

// What was noted may be freed or rewritten by now: then the next one behind it counts.
void DropRepaired(const Core& core, Waiter& waiter) {
  if (!waiter.corrupt) return;
  const TensorRef ref = waiter.items[waiter.corrupt_item].tensor;
  if (core.Alive(ref) && core.PieceOf(core.tensors[ref.slot], waiter.corrupt_piece).has(kCorrupt)) return;
  waiter.corrupt = false;
  waiter.cursor_item = waiter.corrupt_item;
  waiter.cursor_piece = waiter.corrupt_piece;
}

// Moves the cursor over what is written, as far as the turn's looks reach. True: everything is.
bool AllWritten(Core& core, Waiter& waiter) {
  for (; waiter.cursor_item < waiter.items.size(); ++waiter.cursor_item, waiter.cursor_piece = 0) {
    const WaitItem& item = waiter.items[waiter.cursor_item];
    if (!core.Alive(item.tensor)) continue;
    const Tensor& tensor = core.tensors[item.tensor.slot];
    for (; waiter.cursor_piece < tensor.piece_count; ++waiter.cursor_piece) {
      if (core.work_left == 0) {
        waiter.job->retry_waiters = true;
        core.made_progress = true;
        return false;
      }
      --core.work_left;
      const Piece& piece = core.PieceOf(tensor, waiter.cursor_piece);
      if (!Written(piece) && !Skipped(waiter, tensor, piece)) return false;
      if (piece.has(kCorrupt) && waiter.cursor_item < waiter.first_unnamed) NoteCorrupt(waiter);
    }
  }
  return true;
}

// A mixture lies on SSD like anything else. Corrupt copies were met on the way.
ConflictCheck FindDamage(const Core& core, const Waiter& waiter) {
  const auto asked = static_cast<uint32_t>(std::min<size_t>(waiter.items.size(), waiter.first_unnamed));
  for (uint32_t i = 0; i < asked; ++i) {
    const TensorRef tensor = waiter.items[i].tensor;
    if (core.Alive(tensor) && core.tensors[tensor.slot].torn()) return {.verdict = Verdict::kRefused, .item = i};
  }
  if (!waiter.corrupt) return {};
  return {.verdict = Verdict::kRefused, .item = waiter.corrupt_item, .piece = waiter.corrupt_piece};
}

bool SwappedAtCursor(const Core& core, const Waiter& waiter) {
  if (waiter.cursor_item == waiter.items.size()) return false;
  const TensorRef tensor = waiter.items[waiter.cursor_item].tensor;
  return core.Alive(tensor) && core.tensors[tensor.slot].has(kSwapping);
}

bool TornAtCursor(const Core& core, const Waiter& waiter) {
  if (waiter.cursor_item >= waiter.first_unnamed) return false;
  const WaitItem& item = waiter.items[waiter.cursor_item];
  return core.Alive(item.tensor) && core.tensors[item.tensor.slot].torn();
}

// Something is not on SSD yet.
Outcome WriteMore(Core& core, Waiter& waiter) {
  JobState& job = *waiter.job;
  if (TornAtCursor(core, waiter)) {
    const Ask ask = AskOf(core, waiter);
    return Refused(RefusalOf(core, ask, {.verdict = Verdict::kRefused, .item = waiter.cursor_item}),
                   waiter.cursor_item);
  }
  WriteAhead(core, waiter);
  const bool failing = job.write_backoff >= kWriteFailuresBeforeRefusal &&
                       job.write_failure_count > waiter.write_failures && job.writing_pages == 0;
  if (!failing) return Waits();
  return Refused(WriteFailureRefusal(core, job, waiter.requested_bytes), waiter.cursor_item);
}

}  // namespace

Outcome AdvanceFlush(Core& core, Waiter& waiter) {
  if (Outcome listed = Enumerate(core, waiter); listed.progress != Progress::kReady) return listed;
  if (waiter.cookie != 0) return Waits();  // Its manifest is being committed.
  if (waiter.op == proto::Op::kPersist) {
    if (Outcome counted = CheckSpace(core, waiter); counted.progress != Progress::kReady) return counted;
  }
  DropRepaired(core, waiter);
  // What an unfinished swap_out leaves is not gone over whole at each retry meanwhile.
  const bool swapped = waiter.op == proto::Op::kPersist && SwappedAtCursor(core, waiter);
  if (swapped || !AllWritten(core, waiter)) return WriteMore(core, waiter);
  if (waiter.op == proto::Op::kPersist) return StartManifest(core, waiter);
  const ConflictCheck found = FindDamage(core, waiter);
  if (found.verdict != Verdict::kRefused) return Finished(0);
  return Refused(RefusalOf(core, AskOf(core, waiter), found), found.item);
}

}  // namespace tier::tiering
