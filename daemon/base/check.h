// CHECK: states what only a bug of ours could break; prints the values and aborts, in release builds too.
//   TIER_CHECK(free + live == capacity, "free {} live {} capacity {}", free, live, capacity);
#pragma once

#include <cstdlib>
#include <string>

#include <fmt/format.h>

namespace tier::base {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const std::string& values) noexcept;

}  // namespace tier::base

#define TIER_CHECK(condition, ...)                                                              \
  do {                                                                                          \
    if (!(condition)) [[unlikely]]                                                              \
      ::tier::base::CheckFailed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
