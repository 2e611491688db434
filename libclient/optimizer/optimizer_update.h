// OptimizerUpdate: one step of Adam, AdamW or Lion over slices of parameters, in place, where torch has no kernel for
// it: moments in another element type than the values, and bf16 values that are rounded at random.
//
// The idea: everything is computed in fp32, each operation rounded to nearest by itself (no FMA), in the order of
// scalar_kernels.cc; then values and moments are rounded to their types. Random numbers are counted, not drawn: which
// one an element gets follows from seed, parameter, step and its index alone. So the result depends neither on the
// instruction set nor on slices and threads. Only which NaN a NaN is is not defined.
//
// Threads: any; slices of one call may be updated by threads of its own. The floating-point environment of the caller
// is neither read nor changed.
#pragma once

#include <span>
#include <string_view>

#include "libclient/optimizer/kernels.h"
#include "libclient/optimizer/update_plan.h"
#include "proto/result.h"

namespace tier::optimizer {

inline constexpr int kUpdateThreadsMax = 64;
// What one thread takes at a time, in elements: some 100 µs of work.
inline constexpr size_t kTaskElements = size_t{1} << 16;
static_assert(kTaskElements % kChunk == 0);

// INVALID for a plan or a slice that cannot be computed, with the reason.
Status CheckPlan(const UpdatePlan& plan);
Status CheckSlice(const UpdatePlan& plan, const UpdateSlice& slice);

UpdateFactors FactorsOf(const UpdatePlan& plan, uint32_t step);

// Updates every slice, by up to `threads` threads: fewer where there is little to do or the system gives none.
// REQUIRES: a plan and slices that have passed the checks; ranges that do not overlap.
void Update(const UpdatePlan& plan, std::span<const UpdateSlice> slices, int threads);

// ---- For tests ----

struct UpdateVariant {
  std::string_view name;  // As copy::CopyVariant's.
  bool runnable = false;
  Kernel update = nullptr;
};
// From the slowest to the fastest; the first is "scalar" and always runs. Update uses copy::ChosenVariant's.
std::span<const UpdateVariant> UpdateVariants();

}  // namespace tier::optimizer
