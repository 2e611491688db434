// See move_plan.h.
#include "daemon/tiering/memory/move_plan.h"

#include <algorithm>

namespace tier::tiering {

bool BlockContent::all_movable() const {
  return std::ranges::none_of(parts, [](const Part& part) { return part.piece == kNoPiece; });
}

uint32_t BlockContent::used_pages() const {
  uint32_t pages = 0;
  for (const Part& part : parts) pages += part.run.pages;
  return pages;
}

std::optional<BlockContent> ContentOf(Tables& tables, const JobState& job, uint32_t number) {
  std::vector<base::PageRun> runs;
  job.pool.ListUsed(number, &runs);
  if (!tables.work.TrySpend(kListBlockCost + static_cast<uint32_t>(runs.size()) * (kLookUpCost + kMoveCost)))
    return std::nullopt;
  BlockContent block{.number = number, .parts = {}};
  block.parts.reserve(runs.size());
  for (const base::PageRun run : runs) {
    const PieceId id = tables.PieceAt(run);
    const bool movable = id != kNoPiece && IsMovable(tables, tables.pieces[id], run);
    const size_t of_piece = movable ? tables.RunsOf(tables.pieces[id]).size() : 0;
    block.parts.push_back({run, movable ? id : kNoPiece, 2 * of_piece <= kRamRunsMax});
  }
  return block;
}

void KeepHoles(JobState& job, const BlockContent& block, base::PageRun region, MovePlan* plan) {
  const uint32_t end = EndOf(region);
  uint32_t at = region.page;
  const auto keep = [&](uint32_t until) {
    if (at >= until) return;
    const base::PageRun hole = RunOf(block.number, at, until);
    TIER_CHECK(job.pool.TryTake(hole), "block {}: {} pages from {} are not free", hole.block, hole.pages, hole.page);
    plan->kept.push_back(hole);
  };
  for (const BlockContent::Part& part : block.parts) {
    if (part.run.page >= end) break;
    keep(part.run.page);
    at = std::max(at, EndOf(part.run));
  }
  keep(end);
}

bool PlanToHoles(const Tables& tables, JobState& job, const BlockContent::Part& part, MovePlan* plan) {
  const size_t runs = tables.RunsOf(tables.pieces[part.piece]).size();
  std::vector<base::PageRun> holes;
  // Each of its runs may be divided so.
  if (!job.pool.TryAllocateRunsBesideSlots(part.run.pages, kRamRunsMax / static_cast<uint32_t>(runs), &holes))
    return false;
  uint32_t at = part.run.page;
  for (const base::PageRun hole : holes) {
    plan->steps.push_back({.piece = part.piece, .from = RunOf(part.run.block, at, at + hole.pages), .to = hole});
    at += hole.pages;
  }
  return true;
}

void UndoPlan(JobState& job, MovePlan* plan) {
  for (const RamMoveStep& step : plan->steps) job.pool.Free(step.to);
  for (const base::PageRun run : plan->kept) job.pool.Free(run);
  *plan = {};
}

void StartMoves(Tables& tables, JobState& job, const CompactionGoal& goal, const MovePlan& plan) {
  const CompactionIndex compaction = StartCompaction(tables, job, goal);
  for (const base::PageRun run : plan.kept) KeepFree(tables, compaction, run);
  for (const RamMoveStep& step : plan.steps) StartRamMove(tables, step, compaction);
}

bool MustAwaitCopies(Tables& tables, const JobState& job) {
  if (tables.ram_moves.pages() < kRamMovePagesMax) return false;
  tables.ram_moves.WaitForCopies(job.id);
  return true;
}

}  // namespace tier::tiering
