// See compaction.h.
#include "daemon/tiering/memory/compaction.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/transfers/ram_moves.h"

namespace tier::tiering {
namespace {

constexpr size_t kListedMax = 64;           // Sparse blocks that are considered, those with most free pages first …
constexpr uint32_t kTriedMax = 8;           // … and those of them whose slots are looked up.
constexpr uint32_t kListCost = 16;          // Units of work to list the slots of one,
constexpr uint32_t kSlotCost = 3;           // to look a slot up,
constexpr uint32_t kMoveCost = 6;           // and to move it.
constexpr uint32_t kFailuresInARowMax = 4;  // Then the request is served in another way, once.

struct Slot {
  base::PageRun run;
  PieceId piece = kNoPiece;  // kNoPiece: it stays.
};

// One block, its slots in the order of their pages.
struct Block {
  uint32_t number = 0;
  std::vector<Slot> slots;
};

// What is to move where, and what stays free meanwhile. All runs are taken in the pool.
struct Plan {
  struct Step {
    PieceId piece = kNoPiece;
    base::PageRun to;
  };
  std::vector<Step> steps;
  std::vector<base::PageRun> kept;
};

CompactionCause CauseOf(uint32_t pages) {
  return pages == kPagesPerBlock ? CompactionCause::kBlock : CompactionCause::kSlot;
}

base::PageRun RunOf(uint32_t block, uint32_t page, uint32_t end) {
  return {block, static_cast<uint16_t>(page), static_cast<uint16_t>(end - page)};
}

uint32_t EndOf(base::PageRun run) { return uint32_t{run.page} + run.pages; }

// It is paid for as if all slots were moved. Nothing: the turn has not so much work left.
std::optional<Block> LookAt(Tables& tables, const JobState& job, uint32_t number) {
  std::vector<base::PageRun> runs;
  job.pool.ListSlots(number, &runs);
  if (!tables.work.TrySpend(kListCost + static_cast<uint32_t>(runs.size()) * (kSlotCost + kMoveCost)))
    return std::nullopt;
  Block block{.number = number, .slots = {}};
  block.slots.reserve(runs.size());
  for (const base::PageRun run : runs) {
    const PieceId id = tables.residents.At(run);
    const bool movable = id != kNoPiece && IsMovable(tables, tables.pieces[id]);
    block.slots.push_back({run, movable ? id : kNoPiece});
  }
  return block;
}

bool AllMovable(const Block& block) {
  return std::ranges::none_of(block.slots, [](const Slot& slot) { return slot.piece == kNoPiece; });
}

// The region of `pages` with fewest pages in slots that lie in it, not all of it free, and none that stays. It begins
// at the start of the block or at the end of a slot, or ends at the start of a slot or at the end of the block: any
// other meets no fewer. Empty: there is none.
base::PageRun ChooseRegion(const Block& block, uint32_t pages) {
  const std::vector<Slot>& slots = block.slots;
  std::vector<uint32_t> starts = {0, static_cast<uint32_t>(kPagesPerBlock) - pages};
  for (const Slot& slot : slots) {
    if (EndOf(slot.run) + pages <= kPagesPerBlock) starts.push_back(EndOf(slot.run));
    if (slot.run.page >= pages) starts.push_back(slot.run.page - pages);
  }
  std::ranges::sort(starts);
  base::PageRun best;
  uint32_t best_cost = UINT32_MAX;
  size_t first = 0;  // The slots from here on end behind the start; those before `end` begin before the region's end.
  size_t end = 0;
  uint32_t cost = 0;
  uint32_t fixed = 0;
  for (const uint32_t start : starts) {
    for (; end < slots.size() && slots[end].run.page < start + pages; ++end) {
      cost += slots[end].run.pages;
      fixed += slots[end].piece == kNoPiece ? 1 : 0;
    }
    for (; first < end && EndOf(slots[first].run) <= start; ++first) {
      cost -= slots[first].run.pages;
      fixed -= slots[first].piece == kNoPiece ? 1 : 0;
    }
    if (fixed != 0 || cost == 0 || cost >= best_cost) continue;
    best_cost = cost;
    best = RunOf(block.number, start, start + pages);
  }
  return best;
}

bool Meets(base::PageRun slot, base::PageRun region) { return slot.page < EndOf(region) && region.page < EndOf(slot); }

// Takes what is free in the region, so that nothing new lies there.
void KeepHoles(JobState& job, const Block& block, base::PageRun region, Plan* plan) {
  const uint32_t end = EndOf(region);
  uint32_t at = region.page;
  const auto keep = [&](uint32_t until) {
    if (at >= until) return;
    const base::PageRun hole = RunOf(block.number, at, until);
    TIER_CHECK(job.pool.TryTake(hole), "block {}: {} pages from {} are not free", hole.block, hole.pages, hole.page);
    plan->kept.push_back(hole);
  };
  for (const Slot& slot : block.slots) {
    if (slot.run.page >= end) break;
    keep(slot.run.page);
    at = std::max(at, EndOf(slot.run));
  }
  keep(end);
}

void Undo(JobState& job, Plan* plan) {
  for (const Plan::Step& step : plan->steps) job.pool.Free(step.to);
  for (const base::PageRun run : plan->kept) job.pool.Free(run);
  *plan = {};
}

// False: no hole takes one of its slots, and nothing is taken.
bool PlanRegion(JobState& job, const Block& block, base::PageRun region, Plan* plan) {
  KeepHoles(job, block, region, plan);
  std::vector<Slot> leaving;
  std::ranges::copy_if(block.slots, std::back_inserter(leaving),
                       [&](const Slot& slot) { return Meets(slot.run, region); });
  // The largest first: small ones find a hole among what these leave.
  std::ranges::stable_sort(leaving, std::ranges::greater{}, [](const Slot& slot) { return slot.run.pages; });
  for (const Slot& slot : leaving) {
    const base::PageRun to = job.pool.TryAllocateBesideSlots(slot.run.pages);
    if (!to) {
      Undo(job, plan);
      return false;
    }
    plan->steps.push_back({slot.piece, to});
  }
  return true;
}

void Start(Tables& tables, JobState& job, uint32_t pages, const Plan& plan) {
  const CompactionIndex compaction = StartCompaction(tables, job, {.cause = CauseOf(pages), .pages = pages});
  for (const base::PageRun run : plan.kept) KeepFree(tables, compaction, run);
  for (const Plan::Step& step : plan.steps) StartRamMove(tables, step.piece, step.to, compaction);
}

Compacted AfterCopies(Tables& tables, const JobState& job) {
  tables.ram_moves.WaitForCopies(job.id);
  return Compacted::kLater;
}

std::vector<base::SparseBlock> ListSparse(const JobState& job, uint32_t pages) {
  std::vector<base::SparseBlock> blocks;
  job.pool.ListSparseBlocks(kListedMax, &blocks);
  // A whole block is to be cleared: no leased slot may lie in it.
  if (pages == kPagesPerBlock) std::erase_if(blocks, &base::SparseBlock::bound);
  std::ranges::stable_sort(blocks, std::ranges::greater{}, &base::SparseBlock::free_pages);
  return blocks;
}

// The blocks of which all slots can be packed into one block so that it has a hole of `hole` pages.
std::vector<Block> ChoosePacked(Tables& tables, const JobState& job, uint32_t hole) {
  std::vector<Block> chosen;
  uint64_t pages = 0;
  uint32_t tried = 0;
  for (const base::SparseBlock& sparse : ListSparse(job, kPagesPerBlock)) {
    const uint64_t used = kPagesPerBlock - sparse.free_pages;
    if (pages + used + hole > kPagesPerBlock) continue;
    if (++tried > kTriedMax) break;
    std::optional<Block> block = LookAt(tables, job, sparse.block);
    if (!block) break;
    if (!AllMovable(*block)) continue;
    pages += used;
    chosen.push_back(*std::move(block));
  }
  return chosen;
}

}  // namespace

bool MayCompact(const Tables& tables, const JobState& job, uint64_t pages) {
  return tables.ports.copier != nullptr && job.pool.free_pages() >= pages && WithinLimit(job, pages) &&
         job.moves.failures_in_a_row() < kFailuresInARowMax;
}

Compacted Compact(Tables& tables, JobState& job, uint32_t pages) {
  if (tables.ram_moves.pages() >= kRamMovePagesMax) return AfterCopies(tables, job);
  uint32_t tried = 0;
  for (const base::SparseBlock& sparse : ListSparse(job, pages)) {
    if (tried == kTriedMax) break;
    const std::optional<Block> block = LookAt(tables, job, sparse.block);
    // In the next turn it begins with the same blocks: so it gives up where some were no good.
    if (!block) return tried == 0 ? Compacted::kNextTurn : Compacted::kNo;
    ++tried;
    const base::PageRun region = ChooseRegion(*block, pages);
    Plan plan;
    const bool planned = region && PlanRegion(job, *block, region, &plan);
    tables.work.Refund(static_cast<uint32_t>(block->slots.size() - plan.steps.size()) * kMoveCost);
    if (!planned) continue;
    Start(tables, job, pages, plan);
    return Compacted::kStarted;
  }
  return Compacted::kNo;
}

Compacted CompactIntoFreeBlock(Tables& tables, JobState& job, uint32_t pages) {
  if (tables.ram_moves.pages() >= kRamMovePagesMax) return AfterCopies(tables, job);
  const bool whole = pages == kPagesPerBlock;
  const std::vector<Block> blocks = ChoosePacked(tables, job, whole ? 1 : pages);
  if (blocks.size() < (whole ? 2U : 1U)) return Compacted::kNo;
  const base::PageRun first = job.pool.TryAllocateInFreeBlock(1);
  if (!first) return Compacted::kNo;
  job.pool.Free(first);
  Plan plan;
  uint32_t at = 0;
  const auto take = [&](uint32_t end) {
    const base::PageRun run = RunOf(first.block, std::exchange(at, end), end);
    TIER_CHECK(job.pool.TryTake(run), "block {} page {} is not free", run.block, run.page);
    return run;
  };
  for (const Block& block : blocks) {
    KeepHoles(job, block, RunOf(block.number, 0, kPagesPerBlock), &plan);
    for (const Slot& slot : block.slots) plan.steps.push_back({slot.piece, take(at + slot.run.pages)});
  }
  if (!whole) plan.kept.push_back(take(kPagesPerBlock));  // The hole is what the moves are for.
  Start(tables, job, pages, plan);
  return Compacted::kStarted;
}

}  // namespace tier::tiering
