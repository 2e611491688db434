// See flight_table.h.
#include "daemon/tiering/tables/flight_table.h"

#include <unordered_set>
#include <utility>

#include "daemon/base/check.h"

namespace tier::tiering {

FlightIndex FlightTable::Add(const Flight& flight) {
  TIER_CHECK(flight.piece != kNoPiece, "a transfer of no piece, extent on device {}", flight.extent.device);
  const FlightIndex index = flights_.Allocate();
  flights_.Edit(index) = flight;
  writes_ += flight.direction == storage::Direction::kWrite ? 1 : 0;
  return index;
}

Flight FlightTable::Remove(FlightIndex index) {
  const Flight flight = std::exchange(flights_.Edit(index), {});
  TIER_CHECK(flight.piece != kNoPiece, "transfer {} ended twice", static_cast<uint32_t>(index));
  if (flight.direction == storage::Direction::kWrite) {
    TIER_CHECK(writes_ != 0, "transfer {} is one of no writes", static_cast<uint32_t>(index));
    --writes_;
  }
  flights_.Free(index);
  return flight;
}

void FlightTable::Start(FlightIndex index) {
  TIER_CHECK(!flights_[index].started, "transfer {} started twice", static_cast<uint32_t>(index));
  flights_.Edit(index).started = true;
  any_started_ = true;
}

void FlightTable::TakeQueued() {
  TIER_CHECK(!queue_.empty(), "nothing is queued");
  queue_.pop_front();
}

void FlightTable::CheckInvariants() const {
  std::unordered_set<uint32_t> queued;
  for (const FlightIndex index : queue_) {
    TIER_CHECK(queued.insert(static_cast<uint32_t>(index)).second && !flights_[index].started,
               "transfer {} queued twice", static_cast<uint32_t>(index));
  }
  uint32_t writes = 0;
  ForEach([&](FlightIndex index, const Flight& flight) {
    TIER_CHECK(flight.started != queued.contains(static_cast<uint32_t>(index)),
               "transfer {} is neither queued nor started", static_cast<uint32_t>(index));
    writes += flight.direction == storage::Direction::kWrite ? 1 : 0;
  });
  TIER_CHECK(writes == writes_, "{} writes of {}", writes, writes_);
}

}  // namespace tier::tiering
