// How error sentences name a tensor: as the daemon's do, so that a binding can find the id in both and replace it by
// the caller's own name. Threads: any.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <string>

namespace tier::client {

// "tensor 0x2a"
inline std::string TensorName(uint64_t tensor) {
  std::array<char, 16> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), tensor, 16).ptr;
  return "tensor 0x" + std::string(digits.data(), end);
}

}  // namespace tier::client
