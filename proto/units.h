// Sizes and indices that cross processes. Byte counts are uint64_t with a name that ends in _bytes, offset or length;
// things that must not be mixed up are distinct types.
#pragma once

#include <cstdint>

namespace tier {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

inline constexpr uint64_t kPageSize = 4 * kKiB;   // The grain of slots and of extents.
inline constexpr uint64_t kBlockSize = 2 * kMiB;  // The grain of large tensors; pieces are at most this long.
inline constexpr uint32_t kPagesPerBlock = kBlockSize / kPageSize;
inline constexpr uint64_t kWindowSizeMin = kBlockSize;
inline constexpr uint64_t kWindowSizeMax = kGiB;
inline constexpr uint32_t kWindowsMax = 16384;  // io_uring's limit on registered buffers.

// Number of a window of the daemon's arena: dense from 0, reused only after the window that had it is closed.
enum class WindowIndex : uint32_t {};
constexpr uint32_t Value(WindowIndex w) { return static_cast<uint32_t>(w); }

constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}
constexpr uint64_t PagesFor(uint64_t bytes) { return (bytes + kPageSize - 1) / kPageSize; }

}  // namespace tier
