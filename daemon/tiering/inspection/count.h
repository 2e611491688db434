// What CheckInvariants adds up from the pieces, the leases and the transfers, to compare it with the books. Tests check
// after each turn: nothing here allocates for a piece of which there is nothing to count. Engine thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// What the pieces of a job add up to.
struct JobCount {
  uint64_t ram_pages = 0;
  uint64_t ssd_pages = 0;
  uint64_t dirty_pages = 0;
  uint64_t rewriting_pages = 0;
  uint64_t held_pages = 0;
  uint64_t listed = 0;
  uint64_t leases = 0;
  uint64_t leased_bytes = 0;
  uint64_t logical_pages = 0;
  uint64_t unnamed_pages = 0;
  uint64_t extra_pages = 0;  // In RAM, of no piece.
  uint64_t coming_pages = 0;
  struct Slots {
    uint32_t block = 0;
    uint64_t pages = 0;
    bool leased = false;
  };
  std::vector<Slots> slots;  // A block may stand here several times.

  void AddSlot(base::PageRun run, bool leased) {
    if (slots.empty() || slots.back().block != run.block) slots.push_back({.block = run.block});
    slots.back().pages += run.pages;
    slots.back().leased |= leased;
  }
  // Free pages of blocks with a leased slot.
  uint64_t BoundFreePages() {
    std::ranges::sort(slots, {}, &Slots::block);
    uint64_t bound = 0;
    for (auto first = slots.begin(); first != slots.end();) {
      const auto end =
          std::find_if(first, slots.end(), [&](const Slots& other) { return other.block != first->block; });
      uint64_t free = kPagesPerBlock;
      for (auto at = first; at != end; ++at) free -= at->pages;
      if (std::any_of(first, end, [](const Slots& block) { return block.leased; })) bound += free;
      first = end;
    }
    return bound;
  }
};

// Pages that are taken, no page twice. Tests check after each turn, and most of what is counted comes in its order: a
// list that is seldom sorted takes a tenth of the time of a tree.
class TakenPages {
 public:
  void Add(uint64_t first, uint64_t pages) { runs_.push_back({first, pages}); }
  uint64_t Check() {  // Returns how many they are.
    if (!std::ranges::is_sorted(runs_, {}, &Run::first)) std::ranges::sort(runs_, {}, &Run::first);
    uint64_t pages = 0;
    uint64_t end = 0;
    for (const Run& run : runs_) {
      TIER_CHECK(end <= run.first, "pages {} + {} meet those before, which end at {}", run.first, run.pages, end);
      end = run.first + run.pages;
      pages += run.pages;
    }
    return pages;
  }

 private:
  struct Run {
    uint64_t first = 0;
    uint64_t pages = 0;
  };
  std::vector<Run> runs_;
};

using WindowCounts = std::vector<std::array<uint32_t, kWindowUses>>;  // By window.
using SparseCounts = std::unordered_map<uint32_t, uint32_t>;          // None: 0.

struct Count {
  explicit Count(const Tables& tables) : uses(tables.windows.capacity()), jobs(tables.jobs.capacity()) {}
  JobCount& Job(JobIndex index) {
    TIER_CHECK(Value(index) < jobs.size(), "job {} of {}", Value(index), jobs.size());
    return jobs[Value(index)];
  }

  WindowCounts uses;
  std::vector<JobCount> jobs;  // By index.
  SparseCounts read_leases;    // By piece.
  SparseCounts write_leases;   // By piece.
  SparseCounts tensor_leases;
  SparseCounts flights;    // By piece.
  SparseCounts torn;       // By tensor.
  uint64_t moving = 0;     // Runs of pieces.
  uint64_t residents = 0;  // Pieces in one run,
  uint64_t scattered = 0;  // and in several.
  TakenPages ram, ssd;
};

inline uint32_t CountAt(const SparseCounts& counts, uint32_t key) {
  if (counts.empty()) return 0;
  const auto found = counts.find(key);
  return found == counts.end() ? 0 : found->second;
}

}  // namespace tier::tiering
