// See flight_table.h.
#include "daemon/tiering/tables/flight_table.h"

#include <utility>

#include "daemon/base/check.h"

namespace tier::tiering {

using storage::Direction;

FlightIndex FlightTable::Add(const Flight& flight) {
  TIER_CHECK(flight.piece != kNoPiece, "a transfer of no piece, extent on device {}", flight.extent.device);
  const FlightIndex index = flights_.Allocate();
  flights_.Edit(index) = flight;
  writes_ += flight.direction == Direction::kWrite ? 1 : 0;
  return index;
}

Flight FlightTable::Remove(FlightIndex index) {
  const Flight flight = std::exchange(flights_.Edit(index), {});
  TIER_CHECK(flight.piece != kNoPiece, "transfer {} ended twice", static_cast<uint32_t>(index));
  if (flight.direction == Direction::kWrite) {
    TIER_CHECK(writes_ != 0, "transfer {} is one of no writes", static_cast<uint32_t>(index));
    --writes_;
  }
  if (flight.started && ReadsAhead(flight)) reading_ahead_ -= flight.extent.run.pages;
  flights_.Free(index);
  return flight;
}

void FlightTable::Start(FlightIndex index) {
  Flight& flight = flights_.Edit(index);
  TIER_CHECK(!flight.started, "transfer {} started twice", static_cast<uint32_t>(index));
  flight.started = true;
  if (ReadsAhead(flight)) reading_ahead_ += flight.extent.run.pages;
  any_started_ = true;
}

FlightTable::JobReads& FlightTable::ReadsOf(const Flight& flight) {
  const size_t job = Value(flight.job);
  if (job >= reads_.size()) reads_.resize(job + 1);
  return reads_[job][Value(flight.priority)];
}

void FlightTable::Queue(FlightIndex index) {
  Flight& flight = flights_.Edit(index);
  TIER_CHECK(flight.direction == Direction::kRead && !flight.started && flight.job != kNoJob, "transfer {} of job {}",
             static_cast<uint32_t>(index), Value(flight.job));
  JobReads& reads = ReadsOf(flight);
  flight.older = reads.newest;
  flight.newer = kNoFlight;
  (reads.newest == kNoFlight ? reads.oldest : flights_.Edit(reads.newest).newer) = index;
  reads.newest = index;
  if (!std::exchange(reads.has_turn, true)) turns_[Value(flight.priority)].push_back(flight.job);
  if (ReadsAhead(flight)) ahead_.emplace(Value(flight.piece), index);
  ++queued_;
}

void FlightTable::Unlink(FlightIndex index) {
  Flight& flight = flights_.Edit(index);
  JobReads& reads = ReadsOf(flight);
  (flight.older == kNoFlight ? reads.oldest : flights_.Edit(flight.older).newer) = flight.newer;
  (flight.newer == kNoFlight ? reads.newest : flights_.Edit(flight.newer).older) = flight.older;
  flight.older = kNoFlight;
  flight.newer = kNoFlight;
  if (ReadsAhead(flight)) ahead_.erase(Value(flight.piece));
  --queued_;
}

std::optional<FlightIndex> FlightTable::NextQueued(ReadPriority priority) {
  std::deque<JobIndex>& turns = turns_[Value(priority)];
  while (!turns.empty()) {
    JobReads& reads = reads_[Value(turns.front())][Value(priority)];
    if (reads.oldest != kNoFlight) return reads.oldest;
    reads = {};
    turns.pop_front();
  }
  return std::nullopt;
}

void FlightTable::TakeQueued(FlightIndex index) {
  const Flight& flight = flights_[index];
  std::deque<JobIndex>& turns = turns_[Value(flight.priority)];
  JobReads& reads = ReadsOf(flight);
  TIER_CHECK(!turns.empty() && turns.front() == flight.job && reads.oldest == index,
             "it is not the turn of transfer {}", static_cast<uint32_t>(index));
  Unlink(index);
  reads.taken_pages += flight.extent.run.pages;
  if (reads.taken_pages < kPagesPerBlock) return;
  reads.taken_pages = 0;
  turns.pop_front();
  turns.push_back(flight.job);
}

std::optional<ReadPriority> FlightTable::Promote(PieceId piece) {
  if (ahead_.empty()) return std::nullopt;
  const auto found = ahead_.find(Value(piece));
  if (found == ahead_.end()) return std::nullopt;
  const FlightIndex index = found->second;
  const ReadPriority before = flights_[index].priority;
  Unlink(index);
  flights_.Edit(index).priority = ReadPriority::kDemand;
  Queue(index);
  return before;
}

void FlightTable::CheckInvariants() const {
  uint64_t queued = 0;
  uint64_t ahead = 0;
  for (const ByReadPriority<JobReads>& job : reads_) {
    for (const JobReads& reads : job) {
      FlightIndex older = kNoFlight;
      for (FlightIndex at = reads.oldest; at != kNoFlight; at = flights_[at].newer) {
        const Flight& flight = flights_[at];
        TIER_CHECK(!flight.started && flight.older == older && &job == &reads_[Value(flight.job)] &&
                       &reads == &job[Value(flight.priority)],
                   "transfer {} is queued in a wrong place", static_cast<uint32_t>(at));
        ++queued;
        if (ReadsAhead(flight)) ++ahead;
        TIER_CHECK(!ReadsAhead(flight) || ahead_.at(Value(flight.piece)) == at, "transfer {} cannot be promoted",
                   static_cast<uint32_t>(at));
        older = at;
      }
      TIER_CHECK(reads.newest == older && (reads.has_turn || older == kNoFlight), "transfer {} has no turn",
                 static_cast<uint32_t>(older));
    }
  }
  uint32_t writes = 0;
  uint64_t reading_ahead = 0;
  uint64_t waiting = 0;
  ForEach([&](FlightIndex, const Flight& flight) {
    writes += flight.direction == Direction::kWrite ? 1 : 0;
    waiting += flight.started ? 0 : 1;
    if (flight.started && ReadsAhead(flight)) reading_ahead += flight.extent.run.pages;
  });
  TIER_CHECK(queued == queued_ && waiting == queued_ && ahead == ahead_.size(),
             "{} queued of {} and {}, {} of {} ahead", queued, queued_, waiting, ahead, ahead_.size());
  TIER_CHECK(writes == writes_ && reading_ahead == reading_ahead_, "{} writes of {}, {} pages ahead of {}", writes,
             writes_, reading_ahead, reading_ahead_);
}

}  // namespace tier::tiering
