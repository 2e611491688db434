// RecordPool: records under 32-bit numbers, which stay where they are until they are freed and are then used for the
// next. A free record holds the number of another one, so the pool takes no memory beside its records, and neither
// Allocate nor Free allocates once there were as many records as there will be. Not thread-safe.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "daemon/base/check.h"
#include "daemon/base/chunked_array.h"

namespace tier::base {

template <typename T, uint32_t kChunk = 32>  // So many records at a time come from the heap.
class RecordPool {
 public:
  uint32_t Allocate() {  // A record as T{} makes it.
    ++used_;
    if (unused_ == kNone) return records_.Append();
    const uint32_t number = unused_;
    std::memcpy(&unused_, &records_[number], sizeof unused_);
    records_[number] = T{};
    return number;
  }
  void Free(uint32_t number) {  // REQUIRES: in use.
    TIER_CHECK(number < records_.size() && used_ != 0, "record {} of {}, {} in use", number, records_.size(), used_);
    std::memcpy(static_cast<void*>(&records_[number]), &unused_, sizeof unused_);
    unused_ = number;
    --used_;
  }
  T& operator[](uint32_t number) { return records_[number]; }
  const T& operator[](uint32_t number) const { return records_[number]; }
  uint32_t used() const { return used_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) >= sizeof(uint32_t));

  ChunkedArray<T, kChunk> records_;
  uint32_t unused_ = kNone;
  uint32_t used_ = 0;
};

}  // namespace tier::base
