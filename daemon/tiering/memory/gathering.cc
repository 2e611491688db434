// See gathering.h.
#include "daemon/tiering/memory/gathering.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/tiering/memory/move_plan.h"
#include "daemon/tiering/transfers/ram_moves.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kPlacesTried = 16;  // Places that are looked at for a run to clear.

// Pieces [first, first + count) of one tensor, whole blocks that should lie side by side.
struct Group {
  const Tensor* tensor = nullptr;
  uint32_t first = 0;
  uint32_t count = 0;
};

bool IsWholeInRam(const Piece& piece) { return piece.ram && piece.ram.whole_block(); }

// All of it is in RAM, and not in one run.
bool IsScattered(const Tables& tables, const Group& group) {
  bool scattered = false;
  for (uint32_t i = 0; i < group.count; ++i) {
    const Piece& piece = tables.PieceOf(*group.tensor, group.first + i);
    if (!IsWholeInRam(piece)) return false;
    scattered = scattered || piece.ram.block != tables.PieceOf(*group.tensor, group.first).ram.block + i;
  }
  return scattered;
}

// Calls visit(group) for each group of these ranges, until it returns false.
template <typename Visit>
void ForEachGroup(const Tables& tables, std::span<const WaitItem> items, Visit visit) {
  for (const WaitItem& item : items) {
    const Tensor& tensor = tables.tensors[item.tensor.index];
    const auto whole = static_cast<uint32_t>(tensor.size / kBlockSize);  // The pieces before the tail.
    const uint32_t end = std::min(item.first_piece + item.piece_count, whole);
    for (uint32_t first = item.first_piece; first < end;) {
      const uint32_t next = std::min((first / kGroupBlocks + 1) * kGroupBlocks, end);
      if (!visit(Group{.tensor = &tensor, .first = first, .count = next - first})) return;
      first = next;
    }
  }
}

// Its runs do not lie one behind the other.
bool LiesApart(const Tables& tables, const Piece& piece) {
  const auto runs = tables.RunsOf(piece);
  return std::ranges::adjacent_find(runs, [](base::PageRun run, base::PageRun next) {
           return next.block != run.block || next.page != EndOf(run);
         }) != runs.end();
}

// Calls visit(id) for each piece of these ranges that lies in several runs, until it returns false.
template <typename Visit>
void ForEachApart(const Tables& tables, std::span<const WaitItem> items, Visit visit) {
  for (const WaitItem& item : items) {
    const Tensor& tensor = tables.tensors[item.tensor.index];
    const uint32_t last = item.first_piece + item.piece_count - 1;  // Others are whole blocks.
    if (LiesApart(tables, tables.PieceOf(tensor, last)) && !visit(tables.tensors.PieceOf(tensor, last))) return;
  }
}

// Some blocks side by side, and what lies in them.
struct Span {
  std::vector<BlockContent> blocks;
  bool usable = false;     // All of it can move, and is no other group of the tensor.
  bool exhausted = false;  // The turn has no work left to look at it.
};

bool IsOfOtherGroup(const Tables& tables, const BlockContent& block, const Group& group) {
  return std::ranges::any_of(block.parts, [&](const BlockContent::Part& part) {
    const Piece& piece = tables.pieces[part.piece];
    return &tables.tensors[piece.tensor] == group.tensor && piece.number / kGroupBlocks != group.first / kGroupBlocks;
  });
}

Span LookAtSpan(Tables& tables, const JobState& job, uint32_t first, const Group& group) {
  Span span;
  span.blocks.reserve(group.count);
  for (uint32_t block = first; block < first + group.count; ++block) {
    std::optional<BlockContent> content = ContentOf(tables, job, block);
    span.exhausted = !content;
    if (!content) return span;
    tables.work.Refund(static_cast<uint32_t>(content->parts.size()) * kMoveCost);  // Paid for when they are started.
    if (!content->all_movable() || IsOfOtherGroup(tables, *content, group)) return span;
    span.blocks.push_back(*std::move(content));
  }
  span.usable = true;
  return span;
}

// Where what lies in the span is to go. Empty: there is no room for it elsewhere, and nothing is taken.
MovePlan PlanSpan(JobState& job, const std::vector<BlockContent>& span) {
  MovePlan plan;
  // As much must be free elsewhere as is used here.
  if (job.pool.free_pages() < span.size() * kPagesPerBlock) return plan;
  std::vector<BlockContent::Part> leaving;
  for (const BlockContent& block : span) {
    KeepHoles(job, block, RunOf(block.number, 0, kPagesPerBlock), &plan);
    leaving.insert(leaving.end(), block.parts.begin(), block.parts.end());
  }
  // The largest first: small ones find a hole among what these leave.
  std::ranges::stable_sort(leaving, std::ranges::greater{}, [](const auto& part) { return part.run.pages; });
  for (const BlockContent::Part& part : leaving) {
    const base::PageRun to = job.pool.TryAllocateRun(part.run.pages);
    if (!to) {
      UndoPlan(job, &plan);
      return plan;
    }
    plan.steps.push_back({.piece = part.piece, .from = part.run, .to = to});
  }
  return plan;
}

// Places where a run is worth clearing: around the longest free runs first, then the windows with least in them, then
// all others. Calls visit(first block) until it returns false.
template <typename Visit>
void ForEachPlace(const Tables& tables, const JobState& job, uint32_t count, Visit visit) {
  for (uint32_t free = std::min(job.pool.longest_free_run(), count); free != 0; free /= 2) {
    const std::optional<uint32_t> run = job.pool.FindFreeRun(free);
    if (!run) continue;
    if (!visit(*run) || (*run + free >= count && !visit(*run + free - count))) return;
  }
  bool goes_on = true;
  const auto visit_window = [&](WindowIndex window) {
    const uint32_t first = tables.windows.FirstBlock(window);
    const uint32_t end = first + tables.windows.BlockCount(window);
    for (uint32_t at = first; goes_on && at < end; at += count) goes_on = visit(at);
    return goes_on;
  };
  tables.windows.order().ForEach(job.index, 0, WindowOrder::kRanks, visit_window);
  for (const WindowIndex window : job.windows.ready()) {
    if (!goes_on || !visit_window(window)) return;
  }
}

// Makes a run of free blocks for the group.
Compacted ClearRun(Tables& tables, JobState& job, const Group& group) {
  Compacted outcome = Compacted::kNo;
  uint32_t tried = 0;
  ForEachPlace(tables, job, group.count, [&](uint32_t first) {
    if (tried == kPlacesTried) return false;
    if (!job.pool.InOpenRegions(first, group.count)) return tables.work.TrySpend();
    const Span span = LookAtSpan(tables, job, first, group);
    // In the next turn it begins with the same places: so it gives up where some were no good.
    if (span.exhausted && tried == 0) outcome = Compacted::kNextTurn;
    if (span.exhausted) return false;
    ++tried;
    if (!span.usable) return true;
    MovePlan plan = PlanSpan(job, span.blocks);
    if (plan.steps.empty()) {
      UndoPlan(job, &plan);
      return true;
    }
    tables.work.Charge(static_cast<uint32_t>(plan.steps.size()) * kMoveCost);
    StartMoves(tables, job, {.cause = CompactionCause::kRun}, plan);
    outcome = Compacted::kStarted;
    return false;
  });
  return outcome;
}

bool AllMovable(const Tables& tables, const Group& group) {
  for (uint32_t k = group.first; k < group.first + group.count; ++k) {
    const Piece& piece = tables.PieceOf(*group.tensor, k);
    if (!IsMovable(tables, piece, piece.ram)) return false;
  }
  return true;
}

Compacted Gather(Tables& tables, JobState& job, const Group& group) {
  if (!AllMovable(tables, group)) return Compacted::kNo;
  if (!tables.work.TrySpend(group.count * (kLookUpCost + kMoveCost))) return Compacted::kNextTurn;
  std::vector<base::PageRun> runs;
  if (!job.pool.TryAllocateSideBySide(group.count, &runs)) return ClearRun(tables, job, group);
  MovePlan plan;
  for (uint32_t i = 0; i < group.count; ++i) {
    const PieceId id = tables.tensors.PieceOf(*group.tensor, group.first + i);
    plan.steps.push_back({.piece = id, .from = tables.pieces[id].ram, .to = runs[i]});
  }
  StartMoves(tables, job, {.cause = CompactionCause::kRun}, plan);
  return Compacted::kStarted;
}

// The runs of a piece, one behind the other.
Compacted Join(Tables& tables, JobState& job, PieceId id) {
  const Piece& piece = tables.pieces[id];
  const auto runs = tables.RunsOf(piece);
  const bool movable = std::ranges::all_of(runs, [&](base::PageRun run) { return IsMovable(tables, piece, run); });
  if (!movable || piece.activity != Activity::kNone) return Compacted::kNo;
  if (!tables.work.TrySpend(static_cast<uint32_t>(runs.size()) * (kLookUpCost + kMoveCost)))
    return Compacted::kNextTurn;
  base::PageRun to = job.pool.TryAllocateRun(piece.ram.pages);
  if (!to) return Compacted::kNo;
  MovePlan plan;
  for (const base::PageRun run : runs) {
    const base::PageRun part = RunOf(to.block, to.page, uint32_t{to.page} + run.pages);
    if (part.pages != to.pages) job.pool.Split(to, part.pages);
    to = RunOf(to.block, EndOf(part), EndOf(to));
    plan.steps.push_back({.piece = id, .from = run, .to = part});
  }
  StartMoves(tables, job, {.cause = CompactionCause::kRun}, plan);
  return Compacted::kStarted;
}

}  // namespace

bool LieScattered(const Tables& tables, std::span<const WaitItem> items) {
  bool scattered = false;
  ForEachGroup(tables, items, [&](const Group& group) {
    scattered = IsScattered(tables, group);
    return !scattered;
  });
  ForEachApart(tables, items, [&](PieceId) {
    scattered = true;
    return false;
  });
  return scattered;
}

uint32_t GathersMax(std::span<const WaitItem> items) {
  uint32_t groups = 4;
  for (const WaitItem& item : items) groups += item.piece_count / kGroupBlocks + 2;
  return 2 * groups;  // A run is cleared, and used.
}

Compacted GatherBlocks(Tables& tables, JobState& job, std::span<const WaitItem> items) {
  if (MustAwaitCopies(tables, job)) return Compacted::kLater;
  Compacted outcome = Compacted::kNo;
  ForEachGroup(tables, items, [&](const Group& group) {
    if (IsScattered(tables, group)) outcome = Gather(tables, job, group);
    return outcome == Compacted::kNo;
  });
  ForEachApart(tables, items, [&](PieceId id) {
    if (outcome == Compacted::kNo) outcome = Join(tables, job, id);
    return outcome == Compacted::kNo;
  });
  return outcome;
}

}  // namespace tier::tiering
