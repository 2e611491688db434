// FusedCopy: moves the bytes of a tensor once and, in that same pass, casts them, counts what is not finite and sums
// the squares. No second pass over the data and no scratch memory.
//
// The idea: one kernel per instruction set, each in its own translation unit compiled with its own -m flags; the best
// one this processor runs is chosen once (TIER_COPY_VARIANT=<name> overrides it). All kernels give the same bits: casts
// are done on bit patterns, and squares are added in double, element i into lane i mod kSumLanes, where the square of
// an fp32, bf16 or fp16 value is exact, so neither FMA nor vector width nor alignment can show.
//
// Thread-safety: every function may be called from any thread at any time. The floating-point environment is neither
// read nor changed, except that sum_squares of subnormal inputs follows the caller's DAZ bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

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
// Same types, or fp32 ↔ bf16 and fp32 ↔ fp16; bytes can be neither checked nor summed.
bool IsSupported(const CopyPlan& plan);

struct CopyOutcome {
  uint64_t non_finite_count = 0;  // NaN or ±∞ in the target as written: finite fp32 beyond the range of fp16 too.
  double sum_of_squares = 0;      // Of the source elements, before any cast. NaN or ∞ if one of them is.
};

// Copies `elements` elements from `source` to `target`. Casts round to nearest even; a NaN stays a NaN of the same sign
// and leading payload bits, made quiet. Without a cast every bit pattern is kept, signalling NaNs included.
// Neither pointer needs any alignment. Large targets are written with streaming stores and are visible to other
// threads and devices when the call returns, as after memcpy.
// REQUIRES: IsSupported(plan); the two ranges do not overlap.
CopyOutcome FusedCopy(void* target, const void* source, size_t elements, const CopyPlan& plan);

// Squares are added per lane in element order; the lanes are added pairwise at the end.
inline constexpr size_t kSumLanes = 32;

// ---- For tests and benchmarks ----

// One compiled kernel set. Variants that this processor cannot run are listed, but must not be called.
struct CopyVariant {
  std::string_view name;  // "scalar", "sse4", "avx2", "avx3"
  bool runnable = false;
  // As FusedCopy. `streaming`: whether stores bypass the cache.
  CopyOutcome (*copy)(void* target, const void* source, size_t elements, const CopyPlan& plan,
                      bool streaming) = nullptr;
};
// From the slowest to the fastest; the first is "scalar" and always runs.
std::span<const CopyVariant> CopyVariants();
// The runnable variant of that name, else the fastest runnable one.
const CopyVariant& BestVariant(std::string_view wanted);
// What FusedCopy uses in this process: BestVariant of $TIER_COPY_VARIANT.
const CopyVariant& ChosenVariant();
// Targets of at least this many bytes are written with streaming stores.
size_t StreamingThresholdBytes();

}  // namespace tier::copy
