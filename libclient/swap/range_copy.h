// How the bytes of one range move between memory and the segments of its lease: cast, checked and summed on the way.
//
// Squares are summed by *cell*, a fixed number of the tensor's elements counted from its first: one kernel call
// computes the sum of a cell, and adding these sums in tensor order gives the same bits wherever the blocks lie and
// however the swap was cut into ranges. Blocks, and so ranges, hold whole cells. Pure: no threads, no I/O.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "libclient/swap/copy_request.h"
#include "proto/units.h"

namespace tier::swap {

inline constexpr uint64_t kCellElements = uint64_t{1} << 19;  // Enough that the kernels store past the cache.
inline constexpr uint64_t kCellBytesMin = kCellElements * copy::ElementSize(copy::ElementType::kFp16);
inline constexpr uint64_t kCellBytesMax = kCellElements * copy::ElementSize(copy::ElementType::kFp32);
inline constexpr uint64_t kCellsPerRangeMax = kRangeBytesMax / kCellBytesMin;
static_assert(kBlockSize % kCellBytesMax == 0 && kCellBytesMax % kCellBytesMin == 0);

struct Segment {  // Contiguous bytes of a lease.
  std::byte* data = nullptr;
  uint64_t length = 0;
};

struct RangeOutcome {
  uint64_t non_finite_count = 0;
  std::array<double, kCellsPerRangeMax> sums{};  // Of squares, for each cell that the range touches, in order.
  uint32_t cell_count = 0;                       // 0 unless sums were asked for.

  std::span<const double> cell_sums() const { return {sums.data(), cell_count}; }
};

// Copies one range of the request: `segments` are its bytes of the tensor from `offset` on, `memory` is the address of
// its first element. Segments may end within a cell; such a cell costs a second pass. REQUIRES: a plan that
// copy::IsSupported; whole elements in each segment; a range as NextRange cuts them, of at most kRangeBytesMax.
RangeOutcome CopyRange(const CopyRequest& request, uint64_t offset, std::byte* memory,
                       std::span<const Segment> segments);

}  // namespace tier::swap
