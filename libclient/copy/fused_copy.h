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
#include <optional>
#include <span>
#include <string_view>

#include "libclient/copy/copy_plan.h"

namespace tier::copy {

// Same types, or fp32 ↔ bf16 and fp32 ↔ fp16; bytes can be neither checked nor summed.
bool IsSupported(const CopyPlan& plan);

// Copies `elements` elements from `source` to `target`. Casts round to nearest even; a NaN stays a NaN of the same sign
// and leading payload bits, made quiet. Without a cast every bit pattern is kept, signalling NaNs included.
// Neither pointer needs any alignment. Large targets are written with streaming stores and are visible to other
// threads and devices when the call returns, as after memcpy.
// Returns nullopt, and writes nothing, for a plan that is not supported. REQUIRES: the two ranges do not overlap.
[[nodiscard]] std::optional<CopyOutcome> FusedCopy(void* target, const void* source, size_t elements,
                                                   const CopyPlan& plan);

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
