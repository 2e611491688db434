// CopyRequest: one swap as the caller asked for it, its checks, and how it is cut into ranges.
//
// Ranges end at multiples of the range size within the tensor, so they consist of whole blocks except at the ends.
// Pure: no threads, no I/O.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libclient/copy/fused_copy.h"
#include "proto/result.h"
#include "proto/units.h"

namespace tier::swap {

enum class Direction { kOut, kIn };  // From the caller's memory into the tensor; back.

struct CopyRequest {
  Direction direction = Direction::kOut;
  uint64_t tensor = 0;
  uint32_t flags = 0;           // kFlagShared, kFlagSharded, kFlagDiscard, kFlagNoWait, kFlagFreeAfter
  std::byte* memory = nullptr;  // The caller's; only read when swapping out.
  uint64_t size = 0;            // Bytes at `memory`.
  copy::ElementType memory_type = copy::ElementType::kBytes;
  copy::ElementType tensor_type = copy::ElementType::kBytes;
  bool check_finite = false;
  bool sum_squares = false;
  uint64_t offset = 0;      // First byte within the tensor.
  bool whole = true;        // The tensor is as long as this request: created, replaced, or checked.
  uint32_t timeout_ms = 0;  // Of each range.
  void* stream = nullptr;   // CUstream, for device memory.

  uint64_t tensor_bytes() const { return size / copy::ElementSize(memory_type) * copy::ElementSize(tensor_type); }
  // Where in the caller's memory a byte of the tensor lies. REQUIRES: an element border.
  std::byte* MemoryAt(uint64_t tensor_offset) const {
    return memory + (tensor_offset - offset) / copy::ElementSize(tensor_type) * copy::ElementSize(memory_type);
  }
  copy::CopyPlan plan() const;
};

// INVALID with the reason: zero size, odd sizes, casts that do not exist, an offset with `whole`.
Status CheckRequest(const CopyRequest& request);

inline constexpr uint64_t kRangeBytesMax = 8 * kMiB;
struct Range {
  uint64_t offset = 0;  // In the tensor.
  uint64_t length = 0;
  bool discard = false;  // Every block it touches is written whole: the old bytes need not be read.
};
// The range that starts at `from`. `range_bytes` is a multiple of the block size. REQUIRES: from < offset +
// tensor_bytes.
Range NextRange(const CopyRequest& request, uint64_t from, uint64_t range_bytes);

}  // namespace tier::swap
