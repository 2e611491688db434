// kSanitizerDivisor: by how much tests of random programs, and of great numbers, do less under a sanitizer, which makes
// them some ten times as slow. What the other programs would find there the release build finds, which runs all of
// them; what only a sanitizer sees lies in code that the first ones pass through too.
#pragma once

#include <cstdint>

namespace tier::tiering::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr uint32_t kSanitizerDivisor = 4;
#else
inline constexpr uint32_t kSanitizerDivisor = 1;
#endif

}  // namespace tier::tiering::testing
