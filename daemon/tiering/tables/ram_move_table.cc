// See ram_move_table.h.
#include "daemon/tiering/tables/ram_move_table.h"

#include <utility>

#include "daemon/base/check.h"

namespace tier::tiering {

CompactionIndex RamMoveTable::AddCompaction(JobIndex job, const CompactionGoal& goal) {
  if (free_compactions_.empty()) {
    free_compactions_.push_back(static_cast<uint32_t>(compactions_.size()));
    compactions_.emplace_back();
  }
  const uint32_t index = free_compactions_.back();
  free_compactions_.pop_back();
  Compaction& compaction = compactions_[index];
  TIER_CHECK(compaction.job == kNoJob && job != kNoJob, "compaction {} of job {}", index, Value(job));
  compaction.job = job;
  compaction.goal = goal;
  return CompactionIndex{index};
}

std::vector<base::PageRun> RamMoveTable::RemoveCompaction(CompactionIndex index) {
  Compaction& compaction = Edit(index);
  TIER_CHECK(compaction.job != kNoJob && compaction.moves == 0, "compaction {} has {} moves",
             static_cast<uint32_t>(index), compaction.moves);
  free_compactions_.push_back(static_cast<uint32_t>(index));
  return std::exchange(compaction, {}).kept;
}

RamMoveIndex RamMoveTable::Add(const RamMove& move) {
  TIER_CHECK(move.piece != kNoPiece && move.to && move.to.pages == move.from.pages, "piece {}: {} pages to {}",
             Value(move.piece), move.from.pages, move.to.pages);
  const RamMoveIndex index = moves_.Allocate();
  moves_.Edit(index) = move;
  const bool fresh = by_source_.emplace(KeyOf(move.from), index).second;
  TIER_CHECK(fresh, "piece {} moves twice", Value(move.piece));
  ++Edit(move.compaction).moves;
  pages_ += move.to.pages;
  return index;
}

RamMove RamMoveTable::Remove(RamMoveIndex index) {
  const RamMove move = std::exchange(moves_.Edit(index), {});
  TIER_CHECK(move.to && by_source_.erase(KeyOf(move.from)) == 1, "copy {} ended twice", static_cast<uint32_t>(index));
  Compaction& compaction = Edit(move.compaction);
  TIER_CHECK(compaction.moves != 0 && pages_ >= move.to.pages, "{} moves, {} pages of {}", compaction.moves,
             move.to.pages, pages_);
  --compaction.moves;
  pages_ -= move.to.pages;
  moves_.Free(index);
  return move;
}

bool RamMoveTable::Moves(base::PageRun run) const {
  const auto found = by_source_.find(KeyOf(run));
  return found != by_source_.end() && moves_[found->second].piece != kNoPiece;
}

void RamMoveTable::Cancel(base::PageRun run) {
  const auto found = by_source_.find(KeyOf(run));
  TIER_CHECK(found != by_source_.end() && moves_[found->second].piece != kNoPiece, "block {} page {} does not move",
             run.block, run.page);
  RamMove& move = moves_.Edit(found->second);
  move.piece = kNoPiece;
  Compaction& compaction = Edit(move.compaction);
  ++compaction.cancelled;
  ++EditFigures(compaction.goal.cause).cancelled;
}

bool RamMoveTable::KeepSource(base::PageRun run) {
  if (by_source_.empty()) return false;
  const auto found = by_source_.find(KeyOf(run));
  if (found == by_source_.end()) return false;
  RamMove& move = moves_.Edit(found->second);
  TIER_CHECK(move.piece == kNoPiece && !move.keeps_source && move.from == run, "piece {} leaves block {} page {}",
             Value(move.piece), run.block, run.page);
  move.keeps_source = true;
  return true;
}

void RamMoveTable::CheckInvariants() const {
  uint64_t pages = 0;
  uint32_t moves = 0;
  std::vector<uint32_t> of_compaction(compactions_.size());
  ForEach([&](const RamMove& move) {
    ++moves;
    pages += move.to.pages;
    ++of_compaction[static_cast<uint32_t>(move.compaction)];
    TIER_CHECK(moves_[by_source_.at(KeyOf(move.from))].to == move.to, "a move from block {} page {} is not found",
               move.from.block, move.from.page);
    TIER_CHECK((*this)[move.compaction].job == move.job, "a move of job {} in a compaction of another",
               Value(move.job));
    TIER_CHECK(!move.keeps_source || move.piece == kNoPiece, "piece {} has left its run and moves", Value(move.piece));
  });
  TIER_CHECK(pages == pages_ && moves == moves_.used() && moves == by_source_.size(),
             "{} pages of {}, {} moves of {} and {}", pages, pages_, moves, moves_.used(), by_source_.size());
  for (uint32_t i = 0; i < compactions_.size(); ++i) {
    TIER_CHECK(compactions_[i].moves == of_compaction[i], "compaction {}: {} moves of {}", i, of_compaction[i],
               compactions_[i].moves);
    TIER_CHECK((compactions_[i].job == kNoJob) == (of_compaction[i] == 0), "compaction {} is over", i);
  }
}

}  // namespace tier::tiering
