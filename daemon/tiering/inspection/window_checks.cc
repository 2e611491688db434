// See window_checks.h.
#include "daemon/tiering/inspection/window_checks.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tier::tiering {
namespace {

// Windows that were asked back, and those that the devices still hold, against the ledger's figures of them.
void CheckLeaving(const Tables& tables) {
  struct Returning {
    uint32_t windows = 0;
    uint64_t bytes = 0;
  };
  std::unordered_map<JobIndex, Returning> returning;
  uint64_t closing_bytes = 0;
  for (uint32_t i = 0; tables.windows.Contains(WindowIndex{i}); ++i) {
    const WindowEntry& entry = tables.windows[WindowIndex{i}];
    const bool closing = entry.condition == WindowCondition::kClosing;
    TIER_CHECK(!closing || (entry.job == kNoJob && !entry.emptying), "window {} is closing", i);
    if (closing) closing_bytes += entry.shape.size;
    if (entry.condition != WindowCondition::kReturning) continue;
    ++returning[entry.job].windows;
    returning[entry.job].bytes += entry.shape.size;
  }
  const auto check = [&](const JobState& job) {
    const auto known = returning.find(job.index);
    const Returning found = known == returning.end() ? Returning{} : known->second;
    TIER_CHECK(job.windows.returning() == found.windows && tables.ledger.ReturningBy(job.entitlement) == found.bytes,
               "job {}: {} windows returning of {}, {} bytes of {}", job.key, found.windows, job.windows.returning(),
               found.bytes, tables.ledger.ReturningBy(job.entitlement));
  };
  tables.jobs.ForEach(check);
  TIER_CHECK(closing_bytes == tables.ledger.closing_bytes(), "{} bytes closing of {}", tables.ledger.closing_bytes(),
             closing_bytes);
}

// What is taken for moves in RAM, by window. Nothing moves into a window that is to go.
void CheckMoves(const Tables& tables) {
  std::vector<uint64_t> pages(tables.windows.capacity());  // By window.
  const auto take = [&](base::PageRun run) {
    const WindowIndex window = tables.windows.WindowOf(run);
    TIER_CHECK(tables.windows.Contains(window), "block {} is taken for a move, and lies in no window", run.block);
    pages[tier::Value(window)] += run.pages;
  };
  uint32_t moving = 0;
  tables.ram_moves.ForEach([&](const RamMove& move) {
    const WindowIndex target = tables.windows.WindowOf(move.to);
    TIER_CHECK(!tables.windows[target].emptying, "window {} is emptying, and {} pages move there", tier::Value(target),
               move.to.pages);
    take(move.to);
    if (move.keeps_source) take(move.from);
  });
  tables.ram_moves.ForEachCompaction([&](const Compaction& compaction) {
    moving += EmptiesWindow(compaction.goal.cause) ? 1 : 0;
    for (const base::PageRun run : compaction.kept) take(run);
  });
  TIER_CHECK(tables.hand_over.moving() == (moving != 0), "{} compactions empty windows", moving);
  for (uint32_t i = 0; tables.windows.Contains(WindowIndex{i}); ++i) {
    const uint32_t counted = tables.windows[WindowIndex{i}].move_pages;
    TIER_CHECK(counted == pages[i], "window {}: moves take {} pages of {}", i, pages[i], counted);
  }
}

// Windows that are emptying are those of the pass, and closed in the pools of their jobs.
void CheckEmptying(const Tables& tables) {
  std::unordered_map<WindowIndex, bool> chosen;
  for (const WindowIndex window : tables.hand_over.windows()) chosen[window] = true;
  tables.jobs.ForEach([&](const JobState& job) {
    uint64_t emptying = 0;
    for (const WindowIndex window : job.windows.ready()) {
      const WindowEntry& entry = tables.windows[window];
      emptying += entry.emptying ? entry.shape.size : 0;
      TIER_CHECK(!entry.emptying || chosen.contains(window), "window {} is emptying, and nothing ends that",
                 tier::Value(window));
      TIER_CHECK(entry.emptying == job.pool.IsClosed(tables.windows.FirstBlock(window)), "window {} is closed or open",
                 tier::Value(window));
      const bool empty = entry.used_pages() + entry.move_pages == 0;
      TIER_CHECK(empty == job.pool.RegionEmpty(tables.windows.FirstBlock(window)),
                 "window {}: {} pages and {} of moves", tier::Value(window), entry.used_pages(), entry.move_pages);
    }
    TIER_CHECK(emptying == job.windows.emptying_bytes(), "job {}: {} bytes of windows are emptying, counted {}",
               job.key, emptying, job.windows.emptying_bytes());
  });
}

}  // namespace

void CheckWindows(const Tables& tables) {
  CheckLeaving(tables);
  CheckMoves(tables);
  CheckEmptying(tables);
}

}  // namespace tier::tiering
