// SegregatedFit: two-level segregated fit (Masmano, Ripoll, Crespo, Real: "TLSF: a new dynamic memory allocator for
// real-time systems", ECRTS 2004). Free ranges stand in classes: a power of two, divided into 32 equal parts. A request
// is rounded up to the next class, so that any range found in it is large enough, and the last one added is taken.
#pragma once

#include <memory>

#include "tests/perf/churn/allocator.h"

namespace tier::churn {

std::unique_ptr<Allocator> MakeSegregatedFit(uint64_t arena_pages);

}  // namespace tier::churn
