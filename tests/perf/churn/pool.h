// The daemon's own pool (daemon/base/block_pool.h): whole blocks of 2 MiB wherever they are free, and slots of pages
// for what is smaller and for tails. `tails` false: a tail takes a whole block, as with blocks alone.
#pragma once

#include <memory>

#include "tests/perf/churn/allocator.h"

namespace tier::churn {

std::unique_ptr<Allocator> MakePool(uint64_t arena_pages, bool tails);

}  // namespace tier::churn
