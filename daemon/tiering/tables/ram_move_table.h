// RamMoveTable: pieces whose bytes are on their way to another run in RAM, and the compactions that they move for.
// Engine thread only.
//
// The idea: a piece that moves stays where it is until its copy is complete, so whatever comes meanwhile (a lease, a
// free, the end of its job) cancels the move and goes on at once. The copy ends by itself, and its result is thrown
// away. Until then its two runs stay taken in the job's pool, so that no window goes whose memory a worker touches.
//
// A compaction clears a region of one block, moves several blocks together, or empties a block of a window that is to
// go. Free pages that it wants to keep free are taken in the pool meanwhile; all of them are given back when its last
// move ends.
//
// Invariants: the target of a move, and the source of a cancelled one that its piece has left, belong to no piece and
// are taken in the pool of its job, as are the runs that a compaction keeps; JobMoves counts their pages. A move that
// is not cancelled is found by the run of its piece.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/base/page_run.h"
#include "daemon/tiering/api/snapshot.h"
#include "daemon/tiering/tables/piece.h"
#include "daemon/tiering/tables/slab.h"
#include "daemon/tiering/tables/tensor.h"
#include "proto/units.h"

namespace tier::tiering {

enum class RamMoveIndex : uint32_t {};
inline constexpr RamMoveIndex kNoRamMove{UINT32_MAX};
enum class CompactionIndex : uint32_t {};

// In flight at a time, of all jobs: some milliseconds of two workers.
inline constexpr uint64_t kRamMovePagesMax = 4096;

struct RamMove {
  PieceId piece = kNoPiece;  // kNoPiece: the move was cancelled.
  base::PageRun from;        // All of the piece, or one of its runs.
  base::PageRun to;
  JobIndex job = kNoJob;
  CompactionIndex compaction{};
  bool keeps_source = false;  // Cancelled, and its piece has left `from`, which goes back when the copy ends.
};

// What moves are for.
struct CompactionGoal {
  CompactionCause cause = CompactionCause::kBlock;
  uint64_t pages = 0;    // Of room that the job gets.
  WindowIndex window{};  // EmptiesWindow: that is to be empty.
};

struct Compaction {
  JobIndex job = kNoJob;
  CompactionGoal goal;
  uint32_t moves = 0;      // Copies under way.
  uint32_t cancelled = 0;  // Of all its moves.
  std::vector<base::PageRun> kept;
};

class RamMoveTable {
 public:
  bool empty() const { return moves_.used() == 0; }
  uint64_t pages() const { return pages_; }  // Being copied.
  const CompactionFigures& figures(CompactionCause cause) const { return figures_[static_cast<size_t>(cause)]; }
  CompactionFigures& EditFigures(CompactionCause cause) { return figures_[static_cast<size_t>(cause)]; }

  CompactionIndex AddCompaction(JobIndex job, const CompactionGoal& goal);
  const Compaction& operator[](CompactionIndex index) const { return compactions_[static_cast<uint32_t>(index)]; }
  Compaction& Edit(CompactionIndex index) { return compactions_[static_cast<uint32_t>(index)]; }
  // REQUIRES: no move of it is under way. Returns what it kept.
  std::vector<base::PageRun> RemoveCompaction(CompactionIndex index);

  RamMoveIndex Add(const RamMove& move);
  const RamMove& operator[](RamMoveIndex index) const { return moves_[index]; }
  RamMove Remove(RamMoveIndex index);
  // A copy reads this run, whether its move was cancelled or not.
  bool Reads(base::PageRun run) const { return !by_source_.empty() && by_source_.contains(KeyOf(run)); }
  // The run is on its way to another place, and its move was not cancelled.
  bool Moves(base::PageRun run) const;
  // The move of the piece that has this run will not be made. REQUIRES: Moves(run).
  void Cancel(base::PageRun run);
  // The piece leaves the run. False: no copy reads it. REQUIRES: its move was cancelled.
  bool KeepSource(base::PageRun run);

  // Requests that lack a run while their job has the pages, in the order in which they came to want one.
  struct Wanted {
    JobId job{};
    uint64_t waiter = 0;
  };
  void Want(Wanted wanted) { wanted_.push_back(wanted); }
  bool any_wanted() const { return !wanted_.empty(); }
  std::vector<Wanted> TakeWanted() { return std::exchange(wanted_, {}); }
  // Requests that are looked at again when copies have ended.
  void AwaitEnd(Wanted request) { for_end_.push_back(request); }
  std::vector<Wanted> TakeForEnd() { return std::exchange(for_end_, {}); }
  // Jobs for which others' copies must end first.
  void WaitForCopies(JobId job) { for_copies_.push_back(job); }
  std::vector<JobId> TakeForCopies() { return std::exchange(for_copies_, {}); }

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (uint32_t i = 0; i < moves_.capacity(); ++i) {
      if (moves_[RamMoveIndex{i}].to) visit(moves_[RamMoveIndex{i}]);
    }
  }
  template <typename Visit>
  void ForEachCompaction(Visit visit) const {
    for (const Compaction& compaction : compactions_) {
      if (compaction.job != kNoJob) visit(compaction);
    }
  }
  void CheckInvariants() const;

 private:
  static uint64_t KeyOf(base::PageRun run) { return uint64_t{run.block} * kPagesPerBlock + run.page; }

  Slab<RamMove, RamMoveIndex> moves_;
  std::unordered_map<uint64_t, RamMoveIndex> by_source_;
  std::vector<Compaction> compactions_;
  std::vector<uint32_t> free_compactions_;
  std::vector<Wanted> wanted_;
  std::vector<Wanted> for_end_;
  std::vector<JobId> for_copies_;
  uint64_t pages_ = 0;
  std::array<CompactionFigures, kCompactionCauses> figures_{};
};

}  // namespace tier::tiering
