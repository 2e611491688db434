// What a file takes of its file system, by stat(2): holes take nothing, and what was allocated ahead counts.
#pragma once

#include <cstdint>

#include <sys/stat.h>

namespace tier::base {

inline uint64_t AllocatedBytes(const struct stat& about) {
  constexpr uint64_t kStatBlock = 512;  // Whatever the blocks of the file system are.
  return static_cast<uint64_t>(about.st_blocks) * kStatBlock;
}

}  // namespace tier::base
