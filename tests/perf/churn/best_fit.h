// BestFit: the smallest free range that is large enough, of these the one with the lowest address; neighbours are
// joined.
#pragma once

#include <memory>

#include "tests/perf/churn/allocator.h"

namespace tier::churn {

std::unique_ptr<Allocator> MakeBestFit(uint64_t arena_pages);

}  // namespace tier::churn
