// Counts calls of operator new in the test binary that links allocation_count.cc. Any thread.
#pragma once

#include <cstdint>

namespace tier::session::testing {

uint64_t AllocationCount();

}  // namespace tier::session::testing
