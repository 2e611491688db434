// CopyPlan and CopyOutcome: what a copy does besides moving bytes, and what it found. Plain data.
//
// Included by every kernel's translation unit, so it must stay free of inline functions that are not constexpr.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tier::copy {

// The numbers are those of the C interface (TIER_BYTES …).
enum class ElementType : uint8_t {
  kBytes = 0,
  kFp32 = 1,
  kBf16 = 2,
  kFp16 = 3,
  kFp64 = 4,  // No casts; not offered by the C interface.
};
constexpr size_t ElementSize(ElementType type) {
  constexpr size_t kSizes[] = {1, 4, 2, 2, 8};
  return kSizes[static_cast<size_t>(type)];
}

struct CopyPlan {
  ElementType source_type = ElementType::kBytes;
  ElementType target_type = ElementType::kBytes;
  bool check_finite = false;
  bool sum_squares = false;
};

struct CopyOutcome {
  uint64_t non_finite_count = 0;  // NaN or ±∞ in the target as written: finite fp32 beyond the range of fp16 too.
  double sum_of_squares = 0;      // Of the source elements, before any cast. NaN or ∞ if one of them is.
};

// Squares are added per lane in element order; the lanes are added pairwise at the end.
inline constexpr size_t kSumLanes = 32;

}  // namespace tier::copy
