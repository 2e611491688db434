// CHECK: states what only a bug of ours could break; prints the values and aborts, in release builds too.
//   TIER_CHECK(free + live == capacity, "free {} live {} capacity {}", free, live, capacity);
#pragma once

#include <cstdlib>
#include <string>

#include <fmt/format.h>

namespace tier::base {

[[noreturn]] void CheckFailed(const char* file, int line, const char* condition, const std::string& values) noexcept;

// Not inlined, and with the values themselves: a function that checks has a comparison and a call for it, and no
// strings or references to its variables in its frame. Under the sanitizers, which watch each of those, that is a
// quarter of the time.
template <typename... Values>
[[noreturn, gnu::cold, gnu::noinline]] void CheckFailedWith(const char* file, int line, const char* condition,
                                                            fmt::format_string<Values...> format,
                                                            Values... values) noexcept {
  CheckFailed(file, line, condition, fmt::vformat(format, fmt::make_format_args(values...)));
}

}  // namespace tier::base

#define TIER_CHECK(condition, ...)                                                   \
  do {                                                                               \
    if (!(condition)) [[unlikely]]                                                   \
      ::tier::base::CheckFailedWith(__FILE__, __LINE__, #condition, "" __VA_ARGS__); \
  } while (false)
