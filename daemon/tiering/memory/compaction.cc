// See compaction.h.
#include "daemon/tiering/memory/compaction.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/tiering/memory/move_plan.h"
#include "daemon/tiering/memory/room.h"

namespace tier::tiering {
namespace {

constexpr size_t kListedMax = 64;           // Sparse blocks of each kind that are looked at, …
constexpr size_t kListedAlone = 1024;       // … where no SSD can serve …
constexpr uint32_t kTriedMax = 8;           // … and those of them for which a plan is made, where one can.
constexpr uint8_t kHolesMax = 8;            // Made in a row for what cannot be divided.
constexpr uint32_t kFailuresInARowMax = 4;  // Then the request is served in another way, once.

CompactionCause CauseOf(uint32_t pages) {
  return pages == kPagesPerBlock ? CompactionCause::kBlock : CompactionCause::kSlot;
}

// What a slot in a region costs: its pages, and much more where only one hole takes it.
uint32_t CostOf(const BlockContent::Part& slot) {
  return slot.run.pages + (slot.divisible ? 0U : static_cast<uint32_t>(kPagesPerBlock));
}

// The region of `pages` with fewest pages in slots that lie in it, not all of it free, and none that stays. It begins
// at the start of the block or at the end of a slot, or ends at the start of a slot or at the end of the block: any
// other meets no fewer. Empty: there is none.
base::PageRun ChooseRegion(const BlockContent& block, uint32_t pages) {
  const std::vector<BlockContent::Part>& slots = block.parts;
  std::vector<uint32_t> starts = {0, static_cast<uint32_t>(kPagesPerBlock) - pages};
  for (const BlockContent::Part& slot : slots) {
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
      cost += CostOf(slots[end]);
      fixed += slots[end].piece == kNoPiece ? 1 : 0;
    }
    for (; first < end && EndOf(slots[first].run) <= start; ++first) {
      cost -= CostOf(slots[first]);
      fixed -= slots[first].piece == kNoPiece ? 1 : 0;
    }
    if (fixed != 0 || cost == 0 || cost >= best_cost) continue;
    best_cost = cost;
    best = RunOf(block.number, start, start + pages);
  }
  return best;
}

bool Meets(base::PageRun slot, base::PageRun region) { return slot.page < EndOf(region) && region.page < EndOf(slot); }

// False: no hole takes one of its slots, and nothing is taken.
bool PlanRegion(const Tables& tables, JobState& job, const BlockContent& block, base::PageRun region, MovePlan* plan) {
  KeepHoles(job, block, region, plan);
  std::vector<BlockContent::Part> leaving;
  std::ranges::copy_if(block.parts, std::back_inserter(leaving),
                       [&](const BlockContent::Part& slot) { return Meets(slot.run, region); });
  // What goes to one hole each, then the largest first: small ones find a hole among what these leave.
  std::ranges::stable_sort(leaving, {}, [](const BlockContent::Part& slot) {
    return std::pair(slot.divisible, kPagesPerBlock - slot.run.pages);
  });
  for (const BlockContent::Part& slot : leaving) {
    if (!PlanToHoles(tables, job, slot, plan)) {
      UndoPlan(job, plan);
      return false;
    }
  }
  return true;
}

// Of the slots that leave the region, the pages of those that go to one hole each.
uint32_t IndivisiblePages(const BlockContent& block, base::PageRun region) {
  uint32_t pages = 0;
  for (const BlockContent::Part& slot : block.parts) {
    if (!slot.divisible && Meets(slot.run, region)) pages += slot.run.pages;
  }
  return pages;
}

void Start(Tables& tables, JobState& job, uint32_t pages, const MovePlan& plan) {
  StartMoves(tables, job, {.cause = CauseOf(pages), .pages = pages}, plan);
}

// Those with most free pages first. All that have a leased slot come behind: no whole block can be cleared there, but
// room for other slots beside it.
std::vector<base::SparseBlock> ListSparse(const Tables& tables, const JobState& job, uint32_t pages) {
  std::vector<base::SparseBlock> blocks;
  const size_t most = tables.ports.extents.HasBlock() ? kListedMax : kListedAlone;
  job.pool.ListSparseBlocks(false, most, &blocks);
  const auto others = static_cast<ptrdiff_t>(blocks.size());
  if (pages != kPagesPerBlock) job.pool.ListSparseBlocks(true, most, &blocks);
  const auto sort = [](auto begin, auto end) {
    std::ranges::stable_sort(begin, end, std::ranges::greater{}, &base::SparseBlock::free_pages);
  };
  sort(blocks.begin(), blocks.begin() + others);
  sort(blocks.begin() + others, blocks.end());
  return blocks;
}

void RefundMoves(Tables& tables, size_t slots) { tables.work.Refund(static_cast<uint32_t>(slots) * kMoveCost); }

// Blocks of which all slots can be packed into one.
struct PackedBlocks {
  std::vector<BlockContent> blocks;
  bool exhausted = false;  // The turn had no work left to look at more of them.
};

// So that the block that they are packed into has a hole of `hole` pages.
PackedBlocks ChoosePacked(Tables& tables, const JobState& job, uint32_t hole) {
  PackedBlocks chosen;
  uint64_t pages = 0;
  for (const base::SparseBlock& sparse : ListSparse(tables, job, kPagesPerBlock)) {
    const uint64_t used = kPagesPerBlock - sparse.free_pages;
    if (pages + used + hole > kPagesPerBlock) continue;
    if (chosen.blocks.size() == kTriedMax) break;
    std::optional<BlockContent> block = ContentOf(tables, job, sparse.block);
    chosen.exhausted = !block;
    if (!block) break;
    if (!block->all_movable()) {
      RefundMoves(tables, block->parts.size());
      continue;
    }
    pages += used;
    chosen.blocks.push_back(*std::move(block));
  }
  return chosen;
}

// Makes a free run of so many pages, in a block other than the one that it is for.
Compacted ClearRegion(Tables& tables, JobState& job, uint32_t pages, SparseSearch* search) {
  const std::vector<base::SparseBlock> blocks = ListSparse(tables, job, pages);
  // Where nothing can be evicted, room is made here or not at all.
  const size_t tried_max = tables.ports.extents.HasBlock() ? kTriedMax : blocks.size();
  for (; search->passed < blocks.size() && search->tried < tried_max; ++search->passed) {
    const uint32_t number = blocks[search->passed].block;
    if (search->for_hole && number == search->hole_for) continue;
    const std::optional<BlockContent> block = ContentOf(tables, job, number);
    if (!block) return Compacted::kNextTurn;
    const base::PageRun region = ChooseRegion(*block, pages);
    MovePlan plan;
    const bool planned = region && PlanRegion(tables, job, *block, region, &plan);
    RefundMoves(tables, block->parts.size() - std::min(plan.steps.size(), block->parts.size()));
    if (planned) {
      Start(tables, job, pages, plan);
      return Compacted::kStarted;
    }
    if (!region) continue;
    ++search->tried;
    if (search->for_hole || search->hole_pages != 0) continue;
    search->hole_pages = IndivisiblePages(*block, region);
    search->hole_for = number;
  }
  return Compacted::kNo;
}

}  // namespace

bool MayCompact(const Tables& tables, const JobState& job, uint64_t pages) {
  return tables.ports.copier != nullptr && job.pool.free_pages() >= pages && WithinLimit(tables, job, pages) &&
         job.moves.failures_in_a_row() < kFailuresInARowMax;
}

Compacted Compact(Tables& tables, JobState& job, uint32_t pages, SparseSearch* search) {
  if (MustAwaitCopies(tables, job)) return Compacted::kLater;
  if (!search->for_hole) {
    const Compacted made = ClearRegion(tables, job, pages, search);
    if (made == Compacted::kStarted) *search = {};
    const bool helps = search->hole_pages != 0 && search->hole_pages < pages && search->holes < kHolesMax;
    if (made != Compacted::kNo || !helps) return made;
    search->for_hole = true;
    search->passed = search->tried = 0;
  }
  const Compacted made = ClearRegion(tables, job, search->hole_pages, search);
  // Behind the moves the block is looked at again.
  if (made == Compacted::kStarted) *search = {.holes = static_cast<uint8_t>(search->holes + 1)};
  return made;
}

Compacted CompactIntoFreeBlock(Tables& tables, JobState& job, uint32_t pages) {
  if (MustAwaitCopies(tables, job)) return Compacted::kLater;
  if (job.pool.free_slot_block_count() == 0) return Compacted::kNo;
  const bool whole = pages == kPagesPerBlock;
  const auto [blocks, exhausted] = ChoosePacked(tables, job, whole ? 1 : pages);
  if (blocks.size() < (whole ? 2U : 1U)) return exhausted ? Compacted::kNextTurn : Compacted::kNo;
  const base::PageRun first = job.pool.TryAllocateInFreeBlock(1);
  TIER_CHECK(first, "none of {} free blocks takes slots", job.pool.free_slot_block_count());
  job.pool.Free(first);
  MovePlan plan;
  uint32_t at = 0;
  const auto take = [&](uint32_t end) {
    const base::PageRun run = RunOf(first.block, std::exchange(at, end), end);
    TIER_CHECK(job.pool.TryTake(run), "block {} page {} is not free", run.block, run.page);
    return run;
  };
  for (const BlockContent& block : blocks) {
    KeepHoles(job, block, RunOf(block.number, 0, kPagesPerBlock), &plan);
    for (const BlockContent::Part& slot : block.parts) {
      plan.steps.push_back({.piece = slot.piece, .from = slot.run, .to = take(at + slot.run.pages)});
    }
  }
  if (!whole) plan.kept.push_back(take(kPagesPerBlock));  // The hole is what the moves are for.
  Start(tables, job, pages, plan);
  return Compacted::kStarted;
}

}  // namespace tier::tiering
