// See gather.h.
#include "daemon/tiering/gather.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "daemon/tiering/everything.h"
#include "daemon/tiering/persist.h"
#include "daemon/tiering/refusals.h"
#include "daemon/tiering/replace.h"
#include "daemon/tiering/residency.h"
#include "daemon/tiering/rewrite.h"
#include "daemon/tiering/room.h"
#include "daemon/tiering/transfers.h"
#include "daemon/tiering/waiting.h"

namespace tier::tiering {
namespace {

uint32_t PagesOfPiece(const Tensor& tensor, uint32_t number) {
  return static_cast<uint32_t>(PagesFor(tensor.piece_length(number)));
}

bool Missing(const Ask& ask, const WaitItem& item, const Tensor& tensor, const Piece& piece) {
  return !piece.ram && NeedsRoom(ask, item, tensor, piece);
}

// All of an item in one piece of the pool, where it has that much: runs are what makes a tensor contiguous.
bool GiveWhole(Core& core, const Ask& ask, const WaitItem& item) {
  const Tensor& tensor = core.tensors[item.tensor.slot];
  uint32_t blocks = 0;
  uint32_t tail = 0;
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    if (!Missing(ask, item, tensor, core.PieceOf(tensor, k))) continue;
    const uint32_t pages = PagesOfPiece(tensor, k);
    (pages == kPagesPerBlock ? blocks : tail) += pages == kPagesPerBlock ? 1 : pages;
  }
  if (blocks + tail == 0) return true;
  if (!TakeRuns(core, *tensor.job, blocks, tail)) return false;
  size_t next = 0;
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    if (Missing(ask, item, tensor, core.PieceOf(tensor, k))) GiveRam(core, tensor.piece(k), core.runs[next++]);
  }
  TIER_CHECK(next == core.runs.size(), "{} runs for {} pieces", core.runs.size(), next);
  return true;
}

bool GiveOneByOne(Core& core, const Ask& ask, const WaitItem& item, bool may_evict) {
  const Tensor& tensor = core.tensors[item.tensor.slot];
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    if (!Missing(ask, item, tensor, core.PieceOf(tensor, k))) continue;
    const base::PageRun run = TakeRun(core, *tensor.job, PagesOfPiece(tensor, k), may_evict);
    if (!run) return false;
    GiveRam(core, tensor.piece(k), run);
  }
  return true;
}

void StartReads(Core& core, const Ask& ask) {
  for (const WaitItem& item : ask.items) {
    const Tensor& tensor = core.tensors[item.tensor.slot];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      const Piece& piece = core.PieceOf(tensor, k);
      const bool unread = piece.copies == Copies::kSsd && piece.activity == Activity::kNone && piece.has(kReserved);
      if (unread && NeedsRoom(ask, item, tensor, piece)) StartRead(core, tensor.piece(k), false);
    }
  }
}

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
      core.looks_left -= core.looks_left == 0 ? 0 : 1;
      if (!Writable(core.PieceOf(tensor, k))) continue;
      if (!CanStartWrite(core, job) || !StartWrite(core, tensor.piece(k))) return;
      core.acted = true;
    }
  }
}

// Shared tensors that nobody asked for by name: what became of them since is not the flush's affair.
bool Skipped(const Waiter& waiter, const Tensor& tensor, const Piece& piece) {
  if (waiter.cursor_item < waiter.unasked_from) return false;
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
void ForgetHealed(const Core& core, Waiter& waiter) {
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
      if (core.looks_left == 0) {
        waiter.job->pump = true;
        core.acted = true;
        return false;
      }
      --core.looks_left;
      const Piece& piece = core.PieceOf(tensor, waiter.cursor_piece);
      if (!Written(piece) && !Skipped(waiter, tensor, piece)) return false;
      if (piece.has(kCorrupt) && waiter.cursor_item < waiter.unasked_from) NoteCorrupt(waiter);
    }
  }
  return true;
}

// A mixture lies on SSD like anything else. Corrupt copies were met on the way.
Examination FindDamage(const Core& core, const Waiter& waiter) {
  const auto asked = static_cast<uint32_t>(std::min<size_t>(waiter.items.size(), waiter.unasked_from));
  for (uint32_t i = 0; i < asked; ++i) {
    const TensorRef tensor = waiter.items[i].tensor;
    if (core.Alive(tensor) && core.tensors[tensor.slot].torn()) return {.verdict = Verdict::kRefused, .item = i};
  }
  if (!waiter.corrupt) return {};
  return {.verdict = Verdict::kRefused, .item = waiter.corrupt_item, .piece = waiter.corrupt_piece};
}

// True: the flush was answered, and is gone.
bool RefuseDamaged(Core& core, WaiterList::iterator waiter) {
  const Examination found = FindDamage(core, *waiter);
  if (found.verdict != Verdict::kRefused) return false;
  RefuseWaiter(core, waiter, RefusalOf(core, AskOf(core, *waiter), found), found.item);
  return true;
}

bool RewrittenAtCursor(const Core& core, const Waiter& waiter) {
  if (waiter.cursor_item == waiter.items.size()) return false;
  const TensorRef tensor = waiter.items[waiter.cursor_item].tensor;
  return core.Alive(tensor) && BeingRewritten(core, tensor);
}

bool TornAtCursor(const Core& core, const Waiter& waiter) {
  if (waiter.cursor_item >= waiter.unasked_from) return false;
  const WaitItem& item = waiter.items[waiter.cursor_item];
  return core.Alive(item.tensor) && core.tensors[item.tensor.slot].torn();
}

}  // namespace

Need NeedOf(const Core& core, const Ask& ask) {
  Need need;
  for (const WaitItem& item : ask.items) {
    const Tensor& tensor = core.tensors[item.tensor.slot];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      if (!Missing(ask, item, tensor, core.PieceOf(tensor, k))) continue;
      const uint32_t pages = PagesOfPiece(tensor, k);
      (pages == kPagesPerBlock ? need.blocks : need.slot_pages) += pages == kPagesPerBlock ? 1 : pages;
    }
  }
  return need;
}

uint64_t NewlyHeldPages(const Core& core, std::span<const WaitItem> items) {
  std::vector<PieceId> fresh;
  for (const WaitItem& item : items) {
    const Tensor& tensor = core.tensors[item.tensor.slot];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      if (!Held(core.PieceOf(tensor, k))) fresh.push_back(tensor.piece(k));
    }
  }
  std::sort(fresh.begin(), fresh.end());
  fresh.erase(std::unique(fresh.begin(), fresh.end()), fresh.end());
  uint64_t pages = 0;
  for (const PieceId id : fresh) {
    const Piece& piece = core.pieces[id];
    pages += PagesOfPiece(core.tensors[piece.tensor], piece.number);
  }
  return pages;
}

bool LeasesFit(const Core& core, const Ask& ask) {
  const JobState& job = *ask.session->job;
  const uint64_t leasable = LeasableOf(core, job);
  if (leasable == UINT64_MAX || ask.op == proto::Op::kFree) return true;
  uint64_t most = job.held_pages;  // Where not all of it is in RAM yet, and nothing is there twice.
  for (const WaitItem& item : ask.items) most += uint64_t{item.piece_count} * kPagesPerBlock;
  if (most * kPageSize <= leasable) return true;
  const uint64_t held = job.held_pages - VacatedBy(core, ask).held_pages;
  const uint64_t pages = NewlyHeldPages(core, ask.items);
  return pages == 0 || (held + pages) * kPageSize <= leasable;
}

bool Gather(Core& core, const Ask& ask) {
  JobState& job = *ask.session->job;
  const Need need = NeedOf(core, ask);
  bool complete = true;
  if (need.pages() != 0) {
    const bool covered = Grow(core, job, need);
    // What windows under way will hold is waited for; beyond that, cold pieces make room.
    const bool may_evict = !covered || job.windows_making == 0;
    for (const WaitItem& item : ask.items) {
      complete = GiveWhole(core, ask, item) || GiveOneByOne(core, ask, item, may_evict);
      if (!complete) break;
    }
    if (!complete && may_evict) GrowByOne(core, job, need);
    job.upkeep = true;
  }
  StartReads(core, ask);
  return complete;
}

bool AdvanceFlush(Core& core, WaiterList::iterator waiter) {
  const Listed listed = ListEverything(core, waiter);
  if (listed != Listed::kReady) return listed == Listed::kGone;
  if (waiter->cookie != 0) return false;  // Its manifest is being committed.
  if (waiter->op == proto::Op::kPersist) {
    const Listed counted = CheckSpace(core, waiter);
    if (counted != Listed::kReady) return counted == Listed::kGone;
  }
  ForgetHealed(core, *waiter);
  // One that is half rewritten is not gone over whole at each pump meanwhile.
  const bool rewritten = waiter->op == proto::Op::kPersist && RewrittenAtCursor(core, *waiter);
  if (rewritten || !AllWritten(core, *waiter)) {
    JobState& job = *waiter->job;
    if (TornAtCursor(core, *waiter)) {
      const Ask ask = AskOf(core, *waiter);
      RefuseWaiter(core, waiter, RefusalOf(core, ask, {.verdict = Verdict::kRefused, .item = waiter->cursor_item}),
                   waiter->cursor_item);
      return true;
    }
    WriteAhead(core, *waiter);
    const bool failing = job.write_backoff >= kWriteFailuresBeforeRefusal &&
                         job.write_failure_count > waiter->write_failures && job.writing_pages == 0;
    if (!failing) return false;
    RefuseWaiter(core, waiter, WriteFailureRefusal(core, job, waiter->requested_bytes), waiter->cursor_item);
    return true;
  }
  if (waiter->op == proto::Op::kPersist) return StartManifest(core, waiter);
  if (RefuseDamaged(core, waiter)) return true;
  FinishWaiter(core, waiter, 0);
  return true;
}

}  // namespace tier::tiering
