// HandoffQueue: what one thread hands to another that may be asleep. One producer, one consumer; bounded, nothing is
// allocated after construction.
//
// Push: the producer. Take: the consumer, who learns of new items by a signal that the producer rings when Push says
// so. Invariant: while items wait that the consumer has not been told of, a Push is about to say that it must be.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include <boost/lockfree/spsc_queue.hpp>

#include "daemon/base/check.h"

namespace tier::storage {

template <typename Item>
class HandoffQueue {
 public:
  explicit HandoffQueue(size_t capacity) : items_(capacity) {}

  // All of them become visible at once. True: ring the consumer's signal. REQUIRES: there is room.
  [[nodiscard]] bool Push(std::span<const Item> items) {
    if (items.empty()) return false;
    const size_t pushed = items_.push(items.data(), items.size());
    TIER_CHECK(pushed == items.size(), "{} of {} items handed over", pushed, items.size());
    return !told_.exchange(true, std::memory_order_acq_rel);
  }
  // Appends what was pushed.
  void Take(std::vector<Item>* items) {
    if (!told_.load(std::memory_order_relaxed)) return;
    told_.exchange(false, std::memory_order_acq_rel);  // A later Push says to ring.
    items_.consume_all([items](const Item& item) { items->push_back(item); });
  }
  bool empty() const { return !told_.load(std::memory_order_relaxed); }  // The consumer: Take would give nothing.

 private:
  boost::lockfree::spsc_queue<Item> items_;
  alignas(64) std::atomic<bool> told_{false};  // Of items that Take has not fetched.
};

}  // namespace tier::storage
