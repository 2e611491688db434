// FlightTable: transfers that were decided on, and the reads among them that wait for a place in the port. Engine
// thread only.
//
// Invariant: a flight that the port does not have is in the queue once; writes are handed to the port at once.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "daemon/storage/extent.h"
#include "daemon/storage/transfer.h"
#include "daemon/tiering/tables/piece.h"
#include "daemon/tiering/tables/slab.h"

namespace tier::tiering {

enum class FlightIndex : uint32_t {};

// A transfer that was decided on: queued until the port takes it, then in flight until its result.
struct Flight {
  PieceId piece = kNoPiece;
  storage::Extent extent;
  storage::Direction direction = storage::Direction::kWrite;
  bool started = false;  // The port has it.
  bool prefetch = false;
};

class FlightTable {
 public:
  FlightIndex Add(const Flight& flight);
  const Flight& operator[](FlightIndex index) const { return flights_[index]; }
  bool IsStarted(FlightIndex index) const { return flights_.Contains(index) && flights_[index].started; }
  Flight Remove(FlightIndex index);
  // The port has the transfer from now on, and is told to begin with it when the turn ends (TakeStarted).
  void Start(FlightIndex index);
  bool TakeStarted() { return std::exchange(any_started_, false); }

  void Queue(FlightIndex index) { queue_.push_back(index); }
  // The oldest queued read. None: the queue is empty.
  std::optional<FlightIndex> next_queued() const {
    return queue_.empty() ? std::nullopt : std::optional(queue_.front());
  }
  void TakeQueued();  // Removes next_queued(). REQUIRES: there is one.
  bool queue_empty() const { return queue_.empty(); }
  uint32_t writes() const { return writes_; }  // In flight.

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (uint32_t index = 0; index < flights_.capacity(); ++index) {
      const Flight& flight = flights_[FlightIndex{index}];
      if (flight.piece != kNoPiece) visit(FlightIndex{index}, flight);
    }
  }
  void CheckInvariants() const;

 private:
  Slab<Flight, FlightIndex> flights_;
  std::deque<FlightIndex> queue_;
  uint32_t writes_ = 0;
  bool any_started_ = false;
};

}  // namespace tier::tiering
