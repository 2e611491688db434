#include "proto/ring.h"

#include <algorithm>
#include <cstring>

namespace tier::proto {

void RingProducer::Stage(const void* source, uint32_t slots) {
  const auto* bytes = static_cast<const std::byte*>(source);
  while (slots > 0) {
    const auto index = static_cast<uint32_t>(tail_ & (ring_.slot_count - 1));
    const uint32_t run = std::min(slots, ring_.slot_count - index);
    std::memcpy(ring_.Slot(tail_), bytes, size_t{run} * kSlotSize);
    bytes += size_t{run} * kSlotSize;
    tail_ += run;
    slots -= run;
  }
}

void RingConsumer::Peek(void* target, uint32_t slots, uint32_t skip) const {
  auto* bytes = static_cast<std::byte*>(target);
  uint64_t position = head_ + skip;
  while (slots > 0) {
    const auto index = static_cast<uint32_t>(position & (ring_.slot_count - 1));
    const uint32_t run = std::min(slots, ring_.slot_count - index);
    std::memcpy(bytes, ring_.Slot(position), size_t{run} * kSlotSize);
    bytes += size_t{run} * kSlotSize;
    position += run;
    slots -= run;
  }
}

}  // namespace tier::proto
