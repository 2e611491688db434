// See pool.h.
#include "daemon/tiering/inspection/pool.h"

#include <algorithm>
#include <vector>

#include "daemon/tiering/memory/growth.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

PoolCondition ConditionOf(const WindowEntry& entry) {
  switch (entry.condition) {
    case WindowCondition::kNone:
    case WindowCondition::kMaking: return PoolCondition::kMaking;
    case WindowCondition::kReady: return entry.emptying ? PoolCondition::kEmptying : PoolCondition::kReady;
    case WindowCondition::kReturning: return entry.overdue ? PoolCondition::kOverdue : PoolCondition::kReturning;
    case WindowCondition::kClosing: return PoolCondition::kClosing;
  }
  return PoolCondition::kClosing;
}

template <typename Visit>
void ForEachWindow(const Tables& tables, Visit visit) {
  for (uint32_t i = 0; i < tables.windows.capacity(); ++i) {
    const WindowEntry& entry = tables.windows[WindowIndex{i}];
    if (entry.condition != WindowCondition::kNone) visit(WindowIndex{i}, entry);
  }
}

uint64_t LargestRun(const base::BlockPool& pool) {
  const uint64_t blocks = pool.longest_free_run();
  return blocks != 0 ? blocks * kBlockSize : uint64_t{pool.longest_hole()} * kPageSize;
}

}  // namespace

PoolFigures PoolOf(const Tables& tables, const JobState& job) {
  PoolFigures figures;
  figures.requested_bytes = job.requested.bytes();
  for (const WindowKind kind : {WindowKind::kBlock, WindowKind::kSlot}) {
    figures.held_bytes[static_cast<size_t>(kind)] = HeldIn(tables, job, kind);
  }
  figures.free_bytes = (job.pool.free_pages() + job.pool.closed_free_pages()) * kPageSize;
  figures.largest_run_bytes = LargestRun(job.pool);
  figures.borrowed_bytes = tables.ledger.Surplus(job.entitlement);
  figures.owed_bytes = tables.ledger.OwedTo(job.entitlement);
  figures.emptying_bytes = job.windows.emptying_bytes();
  figures.returning_bytes = tables.ledger.ReturningBy(job.entitlement);
  figures.kept_bytes = tables.ledger.KeptBy(job.entitlement);
  return figures;
}

std::array<uint64_t, kPoolConditions> CountConditions(const Tables& tables) {
  std::array<uint64_t, kPoolConditions> counts{};
  ForEachWindow(tables,
                [&](WindowIndex, const WindowEntry& entry) { ++counts[static_cast<size_t>(ConditionOf(entry))]; });
  return counts;
}

// A job is found by its owner number: the index of one that has ended may be another one's now.
PoolView ViewPool(const Tables& tables) {
  PoolView view;
  view.arena_bytes = tables.ports.windows.arena_bytes();
  view.arena_max_bytes = tables.ports.windows.arena_max_bytes();
  view.stock_bytes = tables.ports.windows.stock_bytes();
  view.kept_bytes = tables.forced_returns.kept_bytes();
  for (const JobState* job : tables.jobs.open()) view.jobs.push_back({job->id, PoolOf(tables, *job)});
  std::ranges::sort(view.jobs, {}, [](const PoolJob& job) { return static_cast<uint64_t>(job.id); });
  view.windows.reserve(tables.windows.capacity());
  memory::OwnerId owner{};
  JobId id{};
  ForEachWindow(tables, [&](WindowIndex index, const WindowEntry& entry) {
    if (entry.owner != owner) {
      const JobState* job = tables.jobs.FindByOwner(entry.owner);
      owner = entry.owner;
      id = job == nullptr ? JobId{} : job->id;
    }
    const PoolCondition condition = ConditionOf(entry);
    view.windows.push_back({.index = index,
                            .kind = entry.shape.kind,
                            .condition = condition,
                            .job = condition == PoolCondition::kClosing ? JobId{} : id,
                            .size = entry.shape.size,
                            .place = entry.shape.place,
                            .node = entry.shape.node,
                            .used_pages = entry.pages});
  });
  return view;
}

void CheckPool(const Tables& tables) {
  std::vector<ByRamClass<uint32_t>> pages(tables.windows.capacity());  // By window.
  std::vector<ByRamClass<uint64_t>> bytes(tables.jobs.capacity());     // By job.
  tables.pieces.ForEachUsed([&](PieceId, const Piece& piece) {
    if (!piece.ram) return;
    const Tensor& tensor = tables.tensors[piece.tensor];
    const auto its = static_cast<size_t>(ClassOf(tensor, piece.ram));
    for (const base::PageRun run : tables.RunsOf(piece)) {
      pages[tier::Value(tables.windows.WindowOf(run))][its] += run.pages;
    }
    TIER_CHECK(Value(tensor.job) < bytes.size(), "tensor {} of job {}", tensor.id, Value(tensor.job));
    bytes[Value(tensor.job)][its] += tensor.piece_length(piece.number);
  });
  ForEachWindow(tables, [&](WindowIndex index, const WindowEntry& entry) {
    TIER_CHECK(entry.pages == pages[tier::Value(index)], "window {}: {} pages of blocks, {} of tails, {} of slots",
               tier::Value(index), entry.pages[0], entry.pages[1], entry.pages[2]);
  });
  tables.jobs.ForEach([&](const JobState& job) {
    const ByRamClass<uint64_t>& requested = job.requested.bytes();
    TIER_CHECK(requested == bytes[Value(job.index)], "job {}: {} bytes of blocks, {} of tails, {} of slots", job.key,
               requested[0], requested[1], requested[2]);
    const PoolFigures figures = PoolOf(tables, job);
    TIER_CHECK(figures.requested() <= figures.held(), "job {}: {} bytes requested, {} held", job.key,
               figures.requested(), figures.held());
  });
}

}  // namespace tier::tiering
