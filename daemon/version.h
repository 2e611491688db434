// The version of this build, from CMake's project().
#pragma once

#include <string_view>

namespace tier {

inline constexpr std::string_view kVersion = TIER_VERSION;

}  // namespace tier
