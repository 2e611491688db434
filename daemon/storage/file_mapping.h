// FindMapping: where this process has a file mapped, for a library that maps it and does not say where. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/result.h"

namespace tier::storage {

// The mapping of this file that begins with the file's first byte and has at least `size` bytes. It touches none of
// them. NOT_FOUND: there is none, or /proc does not say.
Result<std::span<const std::byte>> FindMapping(int fd, uint64_t size);

}  // namespace tier::storage
