// How large the SSD file may be: rules over figures, so that they can be tested without a disk. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "proto/disk.h"
#include "proto/result.h"

namespace tier::storage {

inline constexpr uint64_t kDefaultFileMax = 64 * kGiB;
inline constexpr uint64_t kDefaultFileMin = kGiB;     // A smaller one is not made.
inline constexpr uint64_t kDefaultFreeDivisor = 4;    // At most this part of the free space …
inline constexpr uint64_t kLeaveFreeMin = 10 * kGiB;  // … leaving this …
inline constexpr uint64_t kLeaveFreeDivisor = 10;     // … and this part of the file system free.

struct FileSystemSpace {  // Bytes.
  uint64_t total = 0;
  uint64_t available = 0;  // To this user.
  bool read_only = false;  // As the kernel leaves one after an error.
};

// The file to make if no size is configured.
struct DefaultFile {
  uint64_t size = 0;     // Bytes, in whole blocks; 0: there is no room for one.
  std::string shortage;  // With figures, why it is smaller than a quarter of the free space; empty: it is not.
};

// `directory` is for the sentence.
DefaultFile PlanDefaultFile(FileSystemSpace space, const std::string& directory);

// Bytes of a file of the size that was asked for, in whole blocks. NO_SPACE with the figures when it does not fit;
// INVALID when it is too small to be of use.
Result<uint64_t> PlanFileSize(FileSystemSpace space, uint64_t requested, const std::string& directory);

// Bytes of a file of `size` once ssd.file_size is `requested`, in whole blocks where it grows: it never shrinks.
uint64_t GrownSize(uint64_t size, uint64_t requested);

// NO_SPACE with the figures where the file system of `directory` has no room for so many bytes more beside those that
// stay free for the index.
Status CheckGrowth(FileSystemSpace space, uint64_t more, const std::string& directory, uint64_t for_index = 0);

// That the file at `path` keeps its size where a smaller one is requested, and what makes it smaller. Empty: none is.
std::string KeptSizeNote(const std::string& path, uint64_t size, uint64_t requested);

// That the file grows so at the next start.
std::string GrowthNote(const std::string& path, uint64_t before, uint64_t after);

// What the next start makes of that file, where it is not known whether there is room. Empty: nothing.
std::string NextSizeNote(const std::string& path, uint64_t size, uint64_t requested);

}  // namespace tier::storage
