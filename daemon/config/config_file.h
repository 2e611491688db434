// The text of the configuration file. It is read at the start, and again by a daemon that serves jobs: what is no file,
// or does not end, must not hold it up.
#pragma once

#include <cstddef>
#include <string>

#include "proto/result.h"

namespace tier::config {

inline constexpr size_t kConfigFileBytesMax = 1 << 20;

// A symbolic link is followed. NOT_FOUND or DENIED: it cannot be read; INVALID: it is no regular file, or has more than
// kConfigFileBytesMax. Each names the path.
Result<std::string> ReadConfigFile(const std::string& path);

}  // namespace tier::config
