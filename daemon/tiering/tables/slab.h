// Slab: records of one kind under 32-bit ids, in chunks that never move. An id is given out again, last freed first.
//
// A record has a fixed size and no pointers, and every change of one goes through Edit: there an undo
// list can keep what the record was. No allocation in steady state. Freed records keep their bytes: the owner resets
// what the next user must not see.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "daemon/base/check.h"

namespace tier::tiering {

template <typename T, typename Id, uint32_t kChunkSize = 1024>
class Slab {
  static_assert((kChunkSize & (kChunkSize - 1)) == 0);
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  static constexpr uint32_t kChunk = kChunkSize;  // Records that are made at once.

  Id Allocate() {
    if (free_.empty()) Grow();
    const uint32_t id = free_.back();
    free_.pop_back();
    return static_cast<Id>(id);
  }
  void Free(Id id) {
    TIER_CHECK(static_cast<uint32_t>(id) < capacity(), "id {} of {}", static_cast<uint32_t>(id), capacity());
    free_.push_back(static_cast<uint32_t>(id));
  }
  const T& operator[](Id id) const {
    return chunks_[static_cast<uint32_t>(id) / kChunkSize][static_cast<uint32_t>(id) % kChunkSize];
  }
  T& Edit(Id id) { return chunks_[static_cast<uint32_t>(id) / kChunkSize][static_cast<uint32_t>(id) % kChunkSize]; }
  bool Contains(Id id) const { return static_cast<uint32_t>(id) < capacity(); }  // Given out at some time.
  uint32_t capacity() const { return static_cast<uint32_t>(chunks_.size()) * kChunkSize; }
  uint32_t used() const { return capacity() - static_cast<uint32_t>(free_.size()); }

 private:
  void Grow() {
    TIER_CHECK(capacity() <= UINT32_MAX - 2 * kChunkSize, "capacity {}", capacity());
    const uint32_t first = capacity();
    chunks_.push_back(std::make_unique<T[]>(kChunkSize));
    free_.reserve(capacity());
    for (uint32_t i = kChunkSize; i-- != 0;) free_.push_back(first + i);
  }

  std::vector<std::unique_ptr<T[]>> chunks_;
  std::vector<uint32_t> free_;
};

}  // namespace tier::tiering
