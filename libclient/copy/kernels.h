// What a kernel set shows to the rest of the program: one function per instruction set, the same signature for all.
// Included by every kernel's translation unit, so it must stay free of inline functions.
#pragma once

#include <cstddef>

#include "libclient/copy/copy_plan.h"

namespace tier::copy {

// As FusedCopy, with the way of storing chosen by the caller.
using Kernel = CopyOutcome (*)(void* target, const void* source, size_t elements, const CopyPlan& plan, bool streaming);

// Defined by the translation units that CMake compiles for this architecture; TIER_COPY_HAVE_… says which exist.
CopyOutcome CopyScalar(void* target, const void* source, size_t elements, const CopyPlan& plan, bool streaming);
CopyOutcome CopySse4(void* target, const void* source, size_t elements, const CopyPlan& plan, bool streaming);
CopyOutcome CopyAvx2(void* target, const void* source, size_t elements, const CopyPlan& plan, bool streaming);
CopyOutcome CopyAvx3(void* target, const void* source, size_t elements, const CopyPlan& plan, bool streaming);
CopyOutcome CopyNative(void* target, const void* source, size_t elements, const CopyPlan& plan, bool streaming);

}  // namespace tier::copy
