// What WaitTable says of itself in wait_table.h, checked.
#include <algorithm>

#include "daemon/base/check.h"
#include "daemon/tiering/tables/wait_table.h"

namespace tier::tiering {

void WaitTable::CheckInvariants() const {
  size_t queued = 0;
  for (const Queue& queue : queues_) {
    if (queue.job == nullptr) continue;
    queued += queue.all.size();
    const uint64_t first = queue.lacking.empty() ? 0 : *queue.lacking.begin();
    TIER_CHECK(queue.shortage_waiter == first, "request {} is short, not {}", first, queue.shortage_waiter);
    TIER_CHECK(queue.listed || queue.ready.empty(), "{} requests are ready and not listed", queue.ready.size());
    TIER_CHECK(std::ranges::all_of(queue.passing, [&](const auto& each) { return queue.room.contains(each.second); }) &&
                   std::ranges::includes(queue.room, queue.lacking) && std::ranges::includes(queue.all, queue.room),
               "{} requests wait for room", queue.room.size());
  }
  TIER_CHECK(queued == entries_.size() && queued == by_session_.size(), "{} requests of {}", queued, entries_.size());
  size_t places = 0;
  StallCounts waiting{};
  for (const auto& [number, entry] : entries_) {
    if (entry.waiter.timed) ++waiting[static_cast<size_t>(entry.waiter.stall.cause())];
    TIER_CHECK(!entry.running, "request {} was left running", number);
    TIER_CHECK(QueueOf(*entry.waiter.job).all.contains(number), "request {} is in no queue", number);
    size_t own_places = 0;
    for (const Place place : entry.places) {
      if (!StandsAt(entry, place)) continue;  // Its event has come.
      ++own_places;
      const Tensor& tensor = tensors_[place.tensor];
      TIER_CHECK(tensor.job == entry.waiter.job->index && tensor.has(kAwaitedTensor), "request {} waits at tensor {}",
                 number, tensor.id);
      TIER_CHECK(place.piece == kWhole || pieces_[tensors_.PieceOf(tensor, place.piece)].has(kAwaited),
                 "request {} waits at piece {} of tensor {}", number, place.piece, tensor.id);
    }
    places += own_places;
    if (!woken_.empty()) continue;
    TIER_CHECK(entry.reads_left == 0 || entry.reads_left == own_places, "request {} waits for {} reads of {}", number,
               entry.reads_left, own_places);
    const bool waits = entry.room || entry.write || entry.listing || entry.store || own_places != 0;
    TIER_CHECK(entry.ready || entry.put_off || waits, "request {} waits for nothing", number);
  }
  TIER_CHECK(waiting == meter_.waiting(), "{} requests wait, by their causes", entries_.size());
  size_t standing = 0;
  for (const auto& [tensor, of_tensor] : places_) {
    TIER_CHECK(!of_tensor.empty(), "no request waits at tensor {}", tensors_[tensor].id);
    for (const auto& [piece, group] : of_tensor) standing += group.size();
  }
  TIER_CHECK(places == standing, "{} places of {}", places, standing);
}

}  // namespace tier::tiering
