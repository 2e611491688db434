#include "proto/ring.h"

#include <algorithm>
#include <cstring>

namespace tier::proto {

void RingProducer::Stage(const void* source, uint32_t entries) {
  const auto* bytes = static_cast<const std::byte*>(source);
  while (entries > 0) {
    const auto index = static_cast<uint32_t>(tail_ & (ring_.entry_count - 1));
    const uint32_t run = std::min(entries, ring_.entry_count - index);
    std::memcpy(ring_.Entry(tail_), bytes, size_t{run} * kEntrySize);
    bytes += size_t{run} * kEntrySize;
    tail_ += run;
    entries -= run;
  }
}

void RingConsumer::Peek(void* target, uint32_t entries, uint32_t skip) const {
  auto* bytes = static_cast<std::byte*>(target);
  uint64_t position = head_ + skip;
  while (entries > 0) {
    const auto index = static_cast<uint32_t>(position & (ring_.entry_count - 1));
    const uint32_t run = std::min(entries, ring_.entry_count - index);
    std::memcpy(bytes, ring_.Entry(position), size_t{run} * kEntrySize);
    bytes += size_t{run} * kEntrySize;
    position += run;
    entries -= run;
  }
}

}  // namespace tier::proto
