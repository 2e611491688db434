// How large the default SSD file may be: a rule over figures, so that it can be tested without a disk. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "proto/disk.h"
#include "proto/result.h"

namespace tier::storage {

inline constexpr uint64_t kDefaultFileMax = 64 * kGiB;
inline constexpr uint64_t kDefaultFreeDivisor = 4;    // At most this part of the free space …
inline constexpr uint64_t kLeaveFreeMin = 10 * kGiB;  // … leaving this …
inline constexpr uint64_t kLeaveFreeDivisor = 10;     // … and this part of the file system free.

struct FileSystemSpace {  // Bytes.
  uint64_t total = 0;
  uint64_t available = 0;  // To this user.
};

// Bytes of the file to make in `directory` (for the message): `requested`, or by the rule if that is 0, in whole
// blocks. NO_SPACE with the figures when the rule cannot be kept; INVALID when `requested` is too small to be of use.
Result<uint64_t> PlanFileSize(FileSystemSpace space, uint64_t requested, const std::string& directory);

}  // namespace tier::storage
