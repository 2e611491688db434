// FlightTable: transfers that were decided on, and the reads among them that wait for a place in the port. Engine
// thread only.
//
// Invariant: a flight that the port does not have stands in the queue once; writes are handed over at once.
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

enum class FlightSlot : uint32_t {};

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
  FlightSlot Add(const Flight& flight);
  const Flight& operator[](FlightSlot slot) const { return flights_[slot]; }
  bool IsStarted(FlightSlot slot) const { return flights_.Contains(slot) && flights_[slot].started; }
  Flight Remove(FlightSlot slot);
  // The port has it from now on; it is to be told to begin when the turn ends (TakeStarted).
  void Start(FlightSlot slot);
  bool TakeStarted() { return std::exchange(any_started_, false); }

  void Queue(FlightSlot slot) { queue_.push_back(slot); }
  // The oldest. None: the queue is empty.
  std::optional<FlightSlot> next_queued() const {
    return queue_.empty() ? std::nullopt : std::optional(queue_.front());
  }
  void TakeQueued();  // That one. REQUIRES: there is one.
  bool queue_empty() const { return queue_.empty(); }
  uint32_t writes() const { return writes_; }  // In flight.

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (uint32_t slot = 0; slot < flights_.capacity(); ++slot) {
      const Flight& flight = flights_[FlightSlot{slot}];
      if (flight.piece != kNoPiece) visit(FlightSlot{slot}, flight);
    }
  }
  void CheckInvariants() const;

 private:
  Slab<Flight, FlightSlot> flights_;
  std::deque<FlightSlot> queue_;
  uint32_t writes_ = 0;
  bool any_started_ = false;
};

}  // namespace tier::tiering
