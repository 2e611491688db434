// A trainer's own memory, as swaps through the SSD copy from and to: a buffer for each tensor under way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tier::bench {

// Several tensors under way at a time, as a trainer that swaps layer after layer has: 128 MiB of them, like the deepest
// of fio's shapes, and at least 4.
inline constexpr size_t kOpsInFlightMin = 4;
inline constexpr uint64_t kBytesInFlight = 128 << 20;

class UserMemory {
 public:
  // Full of what does not compress.
  explicit UserMemory(uint64_t tensor_bytes) : tensor_bytes_(tensor_bytes) {
    buffers_.resize(std::max<size_t>(kOpsInFlightMin, kBytesInFlight / tensor_bytes));
    uint64_t state = 1;
    for (auto& buffer : buffers_) {
      buffer.resize(tensor_bytes);
      for (size_t i = 0; i < buffer.size(); i += 8) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        std::memcpy(&buffer[i], &state, std::min<size_t>(8, buffer.size() - i));
      }
    }
  }
  size_t count() const { return buffers_.size(); }
  std::vector<char>& Of(uint64_t tensor) { return buffers_[tensor % buffers_.size()]; }
  // Byte `at` of all tensors one behind the other.
  char* At(uint64_t at) { return Of(at / tensor_bytes_).data() + at % tensor_bytes_; }

 private:
  const uint64_t tensor_bytes_;
  std::vector<std::vector<char>> buffers_;
};

}  // namespace tier::bench
