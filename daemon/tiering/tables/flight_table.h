// FlightTable: transfers that were decided on, and the reads among them that wait for a place in the port. Engine
// thread only.
//
// Queued reads go to the port by priority; within one, jobs take turns, a block's worth each; within one job, the
// oldest first. A read that a request comes to wait for moves to the demand reads (Promote).
//
// Invariants: a flight that the port does not have is in the queue of its job and priority once; writes are handed to
// the port at once. The queue is rebuilt from the flights.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/storage/extent.h"
#include "daemon/storage/transfer.h"
#include "daemon/tiering/tables/piece.h"
#include "daemon/tiering/tables/read_priority.h"
#include "daemon/tiering/tables/slab.h"
#include "daemon/tiering/tables/tensor.h"

namespace tier::tiering {

enum class FlightIndex : uint32_t {};
inline constexpr FlightIndex kNoFlight{UINT32_MAX};

// A transfer that was decided on: queued until the port takes it, then in flight until its result.
struct Flight {
  PieceId piece = kNoPiece;
  storage::Extent extent;
  storage::Direction direction = storage::Direction::kWrite;
  bool started = false;  // The port has it.
  ReadPriority priority = ReadPriority::kDemand;
  storage::Purpose write_purpose = storage::Purpose::kDemand;  // Of a write.
  JobIndex job = kNoJob;
  FlightIndex older = kNoFlight;  // Its neighbours in the queue.
  FlightIndex newer = kNoFlight;
};

class FlightTable {
 public:
  FlightIndex Add(const Flight& flight);
  const Flight& operator[](FlightIndex index) const { return flights_[index]; }
  bool IsStarted(FlightIndex index) const { return flights_.Contains(index) && flights_[index].started; }
  Flight Remove(FlightIndex index);
  // The port has the transfer from now on, and is told to begin with it when the turn ends (TakeStarted).
  void Start(FlightIndex index);
  void NoteStarted() { any_started_ = true; }  // So has it one that is of no piece.
  bool TakeStarted() { return std::exchange(any_started_, false); }

  void Queue(FlightIndex index);  // REQUIRES: a read of a job, not started.
  // The read of this priority whose turn it is. None: none is queued.
  std::optional<FlightIndex> NextQueued(ReadPriority priority);
  void TakeQueued(FlightIndex index);  // REQUIRES: it is the next of its priority.
  // If a read of the piece is queued and is not a demand read, it becomes one, and what it was is returned.
  std::optional<ReadPriority> Promote(PieceId piece);
  bool queue_empty() const { return queued_ == 0; }
  uint32_t writes() const { return writes_; }                      // In flight.
  uint64_t reading_ahead_pages() const { return reading_ahead_; }  // In the port, of reads that no request waited for.

  uint64_t bytes() const { return flights_.bytes(); }
  bool can_shrink() const { return flights_.can_shrink(); }
  bool ShrinkOne() { return flights_.ShrinkOne(); }
  template <typename Visit>
  void ForEach(Visit visit) const {
    flights_.ForEachUsed(visit);
  }
  void CheckInvariants() const;

 private:
  // Queued reads of one job and priority.
  struct JobReads {
    FlightIndex oldest = kNoFlight;
    FlightIndex newest = kNoFlight;
    uint32_t taken_pages = 0;  // In its present turn.
    bool has_turn = false;     // It is in `turns_`.
  };

  JobReads& ReadsOf(const Flight& flight);
  void Unlink(FlightIndex index);
  static bool ReadsAhead(const Flight& flight) {
    return flight.direction == storage::Direction::kRead && flight.priority != ReadPriority::kDemand;
  }

  Slab<Flight, FlightIndex> flights_;
  std::vector<ByReadPriority<JobReads>> reads_;      // By job.
  ByReadPriority<std::deque<JobIndex>> turns_;       // Jobs with queued reads; some may have none any more.
  std::unordered_map<uint32_t, FlightIndex> ahead_;  // Queued reads that can be promoted, by piece.
  uint64_t queued_ = 0;
  uint64_t reading_ahead_ = 0;
  uint32_t writes_ = 0;
  bool any_started_ = false;
};

}  // namespace tier::tiering
