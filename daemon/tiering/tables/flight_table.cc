// See flight_table.h.
#include "daemon/tiering/tables/flight_table.h"

#include <unordered_set>
#include <utility>

#include "daemon/base/check.h"

namespace tier::tiering {

FlightSlot FlightTable::Add(const Flight& flight) {
  TIER_CHECK(flight.piece != kNoPiece, "a transfer of no piece, extent on device {}", flight.extent.device);
  const FlightSlot slot = flights_.Allocate();
  flights_.Edit(slot) = flight;
  writes_ += flight.direction == storage::Direction::kWrite ? 1 : 0;
  return slot;
}

Flight FlightTable::Remove(FlightSlot slot) {
  const Flight flight = std::exchange(flights_.Edit(slot), {});
  TIER_CHECK(flight.piece != kNoPiece, "transfer {} ended twice", static_cast<uint32_t>(slot));
  if (flight.direction == storage::Direction::kWrite) {
    TIER_CHECK(writes_ != 0, "transfer {} is one of no writes", static_cast<uint32_t>(slot));
    --writes_;
  }
  flights_.Free(slot);
  return flight;
}

void FlightTable::Start(FlightSlot slot) {
  TIER_CHECK(!flights_[slot].started, "transfer {} started twice", static_cast<uint32_t>(slot));
  flights_.Edit(slot).started = true;
  any_started_ = true;
}

void FlightTable::TakeQueued() {
  TIER_CHECK(!queue_.empty(), "nothing is queued");
  queue_.pop_front();
}

void FlightTable::CheckInvariants() const {
  std::unordered_set<uint32_t> queued;
  for (const FlightSlot slot : queue_) {
    TIER_CHECK(queued.insert(static_cast<uint32_t>(slot)).second && !flights_[slot].started, "transfer {} queued twice",
               static_cast<uint32_t>(slot));
  }
  uint32_t writes = 0;
  ForEach([&](FlightSlot slot, const Flight& flight) {
    TIER_CHECK(flight.started != queued.contains(static_cast<uint32_t>(slot)),
               "transfer {} is neither queued nor started", static_cast<uint32_t>(slot));
    writes += flight.direction == storage::Direction::kWrite ? 1 : 0;
  });
  TIER_CHECK(writes == writes_, "{} writes of {}", writes, writes_);
}

}  // namespace tier::tiering
