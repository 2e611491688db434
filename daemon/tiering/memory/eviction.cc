// See eviction.h.
#include "daemon/tiering/memory/eviction.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "daemon/tiering/memory/growth.h"
#include "daemon/tiering/memory/move_plan.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kSearchMax = 64;       // Pieces that are looked at from the cold end,
constexpr uint32_t kBlocksTriedMax = 8;   // and blocks of theirs.
constexpr uint32_t kEndPrefetchCost = 4;  // Its place among the clean pieces is sought.

// Whether evicting the piece makes room for a run of so many pages. 0: any room is welcome.
bool MakesRoom(const Tables& tables, const JobState& job, const Piece& piece, uint32_t pages) {
  if (pages == 0) return true;
  if (pages == kPagesPerBlock) return piece.ram.whole_block();
  return SlotsTakeBlocks(tables, job) || tables.windows.HoldsSlots(piece.ram);
}

// Calls visit(id) for the first pieces of an order that may go, from its cold end (prefetched ones: from the hot end,
// since what was announced first is used first), until it returns false.
template <typename Visit>
void ForEachToGo(Tables& tables, JobState& job, EvictionOrder order, bool for_room, Visit visit) {
  const EvictionPolicy& policy = *job.policy;
  const bool from_hot = order == EvictionOrder::kKept;
  uint32_t seen = 0;
  for (PieceId at = from_hot ? policy.Hottest(order) : policy.Coldest(order); at != kNoPiece && seen < kSearchMax;) {
    const PieceId next = from_hot ? policy.Colder(at) : policy.Warmer(at);
    const Piece& piece = tables.pieces[at];
    if (piece.pins != 0) {
      TakeOutOfOrder(tables, at);
    } else if (StaysForNow(tables, piece)) {
      tables.jobs.WantPort(job);  // It is looked at again when that is over.
      ++seen;
    } else if (for_room && tables.windows[tables.windows.WindowOf(piece.ram)].emptying) {
      ++seen;  // Its room goes to another job.
    } else if (!visit(at)) {
      return;
    } else {
      ++seen;
    }
    at = next;
  }
}

// The pieces whose runs fill the block, if all of them can go. Empty: some stay.
std::vector<PieceId> PiecesOf(Tables& tables, const JobState& job, uint32_t block, EvictionOrder order) {
  std::vector<base::PageRun> runs;
  job.pool.ListUsed(block, &runs);
  tables.work.Charge(kListBlockCost + static_cast<uint32_t>(runs.size()) * kLookUpCost);
  std::vector<PieceId> pieces;
  pieces.reserve(runs.size());
  for (const base::PageRun run : runs) {
    const PieceId id = tables.PieceAt(run);
    if (id == kNoPiece || !CanBeEvicted(tables, tables.pieces[id])) return {};
    if (order != EvictionOrder::kKept && tables.pieces[id].has(kPrefetched)) return {};
    pieces.push_back(id);
  }
  return pieces;
}

// Of the first of these blocks of which all slots can go: all of them. False: there is none.
bool EvictTogether(Tables& tables, JobState& job, EvictionOrder order, std::span<const PieceId> slots) {
  std::array<uint32_t, kBlocksTriedMax> tried{};
  uint32_t count = 0;
  for (const PieceId slot : slots) {
    const uint32_t block = tables.pieces[slot].ram.block;
    const auto end = tried.begin() + count;
    if (job.pool.HoldsBound(block) || std::find(tried.begin(), end, block) != end) continue;
    if (count == kBlocksTriedMax) return false;
    tried[count++] = block;
    const std::vector<PieceId> pieces = PiecesOf(tables, job, block, order);
    if (pieces.empty()) continue;
    for (const PieceId id : pieces) {
      if (tables.pieces[id].ram) (void)Evict(tables, id);  // It may have had two runs there.
    }
    return true;
  }
  return false;
}

// The slot that goes by itself although that makes no block: one of a block in which none is bound to its place, if
// there are any such.
PieceId FirstSlot(const Tables& tables, const JobState& job, std::span<const PieceId> slots) {
  if (slots.empty() || job.pool.bound_block_count() == job.pool.slot_block_count()) return kNoPiece;
  const auto free =
      std::ranges::find_if(slots, [&](PieceId id) { return !job.pool.HoldsBound(tables.pieces[id].ram.block); });
  return free != slots.end() ? *free : slots.front();
}

}  // namespace

void TakeOutOfOrder(Tables& tables, PieceId id) {
  tables.work.Charge(1);
  Delist(tables, id);
}

void EndOldPrefetches(Tables& tables, JobState& job) {
  job.prefetch_age.EpochAt(tables.turn.now());
  for (bool first = true;; first = false) {
    const PieceId oldest = job.policy->Coldest(EvictionOrder::kKept);
    if (oldest == kNoPiece || !job.prefetch_age.IsOver(tables.pieces[oldest].prefetched_at)) return;
    if (first && job.policy->count(EvictionOrder::kClean) == 0) {  // Needed now, however little of the turn is left.
      tables.work.Charge(kEndPrefetchCost);
    } else if (!tables.work.TrySpend(kEndPrefetchCost)) {
      return;
    }
    EndPrefetch(tables, oldest);
  }
}

bool EvictFirst(Tables& tables, JobState& job, EvictionOrder order, const RoomWanted& wanted) {
  const bool together = wanted.together || wanted.pages == kPagesPerBlock;
  for (;;) {
    PieceId id = kNoPiece;
    std::array<PieceId, kSearchMax> slots;
    size_t count = 0;
    ForEachToGo(tables, job, order, wanted.pages != 0, [&](PieceId at) {
      const Piece& piece = tables.pieces[at];
      if (MakesRoom(tables, job, piece, wanted.pages) && (!together || piece.ram.whole_block())) {
        id = at;
        return false;
      }
      if (!piece.ram.whole_block()) slots[count++] = at;
      return true;
    });
    if (id == kNoPiece && together) {
      const auto found = std::span<const PieceId>(slots).first(count);
      if (EvictTogether(tables, job, order, found)) {
        tables.turn.NoteProgress();
        return true;
      }
      if (wanted.one_by_one) id = FirstSlot(tables, job, found);
    }
    if (id == kNoPiece) return false;
    tables.turn.NoteProgress();
    if (Evict(tables, id)) return true;
    if (!tables.work.TrySpend()) return false;
  }
}

}  // namespace tier::tiering
