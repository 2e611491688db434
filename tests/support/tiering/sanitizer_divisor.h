// kSanitizerDivisor: by how much tests of random programs, and of great numbers, do less under a sanitizer, which makes
// them some ten times as slow. The release build runs all of them. A fault that only a sanitizer sees, in an order of
// events that only one of the others has, is left to the long runs (`tools/dev test --only simulation`).
#pragma once

#include <cstdint>

namespace tier::tiering::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr uint32_t kSanitizerDivisor = 4;
#else
inline constexpr uint32_t kSanitizerDivisor = 1;
#endif

}  // namespace tier::tiering::testing
