// Buddy: the binary buddy system (Knowlton, "A fast storage allocator", CACM 1965). A request takes a power of two of
// pages; the arena is the powers of two that it is the sum of.
#pragma once

#include <memory>

#include "tests/perf/churn/allocator.h"

namespace tier::churn {

std::unique_ptr<Allocator> MakeBuddy(uint64_t arena_pages);

}  // namespace tier::churn
