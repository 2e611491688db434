// ChunkedArray: records by number that never move, in chunks: it takes at most a chunk more than its records do, and
// becoming longer copies none of them. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace tier::base {

template <typename T, uint32_t kChunk = 32>
class ChunkedArray {
 public:
  T& operator[](uint32_t number) { return (*chunks_[number / kChunk])[number % kChunk]; }
  const T& operator[](uint32_t number) const { return (*chunks_[number / kChunk])[number % kChunk]; }
  uint32_t size() const { return size_; }
  // A new record behind the last: its number.
  uint32_t Append() {
    if (size_ % kChunk == 0) chunks_.push_back(std::make_unique<std::array<T, kChunk>>());
    return size_++;
  }

 private:
  std::vector<std::unique_ptr<std::array<T, kChunk>>> chunks_;
  uint32_t size_ = 0;
};

}  // namespace tier::base
