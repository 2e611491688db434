// How soon a read from a device is needed, the most urgent first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tier::tiering {

enum class ReadPriority : uint8_t {
  kDemand,      // A request waits for the bytes.
  kPrefetch,    // A session of the job has announced that it will need them.
  kBackground,  // The daemon itself moves the piece, from a device that is drained.
};
inline constexpr std::array kReadPriorities{ReadPriority::kDemand, ReadPriority::kPrefetch, ReadPriority::kBackground};

template <typename T>
using ByReadPriority = std::array<T, kReadPriorities.size()>;
constexpr size_t Value(ReadPriority priority) { return static_cast<size_t>(priority); }

}  // namespace tier::tiering
