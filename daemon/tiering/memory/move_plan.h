// MovePlan: which pieces leave some blocks, where to, and what stays free there meanwhile. Engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/tiering/tables/tables.h"
#include "daemon/tiering/transfers/ram_moves.h"

namespace tier::tiering {

inline constexpr uint32_t kListBlockCost = 16;  // Units of work to list what lies in a block,
inline constexpr uint32_t kLookUpCost = 3;      // to look one of its pieces up,
inline constexpr uint32_t kMoveCost = 6;        // and to move it.

inline base::PageRun RunOf(uint32_t block, uint32_t page, uint32_t end) {
  return {block, static_cast<uint16_t>(page), static_cast<uint16_t>(end - page)};
}
inline uint32_t EndOf(base::PageRun run) { return uint32_t{run.page} + run.pages; }

// What is handed out of one block, in the order of pages: its slots, or all of it.
struct BlockContent {
  struct Part {
    base::PageRun run;
    PieceId piece = kNoPiece;  // kNoPiece: it stays.
    bool divisible = true;     // It may go to more than one hole.
  };
  uint32_t number = 0;
  std::vector<Part> parts;

  bool all_movable() const;
  uint32_t used_pages() const;
};

// It is paid for as if all parts were moved. None: the turn has not so much work left. REQUIRES: the block is the
// job's.
std::optional<BlockContent> ContentOf(Tables& tables, const JobState& job, uint32_t number);

// All runs of a plan are taken in the pool of its job.
struct MovePlan {
  std::vector<RamMoveStep> steps;
  std::vector<base::PageRun> kept;  // Free until the moves end.
};

// Takes what is free in this part of the block, so that nothing new lies there.
void KeepHoles(JobState& job, const BlockContent& block, base::PageRun region, MovePlan* plan);
// Plans that the part goes to one hole of blocks with slots or, where none takes it, to several: its piece lies in more
// runs then. False: neither is to be had.
bool PlanToHoles(const Tables& tables, JobState& job, const BlockContent::Part& part, MovePlan* plan);
// Frees what the plan has taken, and empties it.
void UndoPlan(JobState& job, MovePlan* plan);
void StartMoves(Tables& tables, JobState& job, const CompactionGoal& goal, const MovePlan& plan);
// Other copies must end before more are started: then the requests of the job are looked at again. False: it may start
// some now.
bool MustAwaitCopies(Tables& tables, const JobState& job);

}  // namespace tier::tiering
