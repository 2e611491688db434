// Small files of /proc and /sys as text and numbers. Nothing here trusts that a file is there, complete, or as short as
// it should be. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tier::memory {

// A longer file is not one of the kernel's: memory.stat, the longest, has 2 KiB.
inline constexpr size_t kKernelTextMax = 256 << 10;

// Empty: the file is not there, cannot be read, or is longer than kKernelTextMax.
std::optional<std::string> ReadText(const std::string& path);
// The decimal number at the beginning, after blanks. Empty: there is none, or it exceeds 64 bits.
std::optional<uint64_t> ParseNumber(std::string_view text);
// The number behind `key` at the start of a line: "MemTotal:   24 kB", "inactive_file 8192".
std::optional<uint64_t> Field(std::string_view text, std::string_view key);

}  // namespace tier::memory
