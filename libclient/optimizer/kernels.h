// What a kernel set shows to the rest of the program: one function per instruction set, the same signature for all.
// Included by every kernel's translation unit, so it must stay free of inline functions.
#pragma once

#include "libclient/optimizer/update_plan.h"

namespace tier::optimizer {

// Updates one slice in the calling thread. REQUIRES: a plan that CheckPlan has passed, and the default floating-point
// environment.
using Kernel = void (*)(const UpdatePlan& plan, const UpdateFactors& factors, const UpdateSlice& slice);

// Defined by the translation units that CMake compiles for this architecture; TIER_OPTIMIZER_HAVE_… says which exist.
void UpdateScalar(const UpdatePlan& plan, const UpdateFactors& factors, const UpdateSlice& slice);
void UpdateSse4(const UpdatePlan& plan, const UpdateFactors& factors, const UpdateSlice& slice);
void UpdateAvx2(const UpdatePlan& plan, const UpdateFactors& factors, const UpdateSlice& slice);
void UpdateAvx3(const UpdatePlan& plan, const UpdateFactors& factors, const UpdateSlice& slice);
void UpdateNative(const UpdatePlan& plan, const UpdateFactors& factors, const UpdateSlice& slice);

}  // namespace tier::optimizer
