// Reads a page of the daemon's metrics server: one GET of HTTP/1.0, over which the server closes the connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

#include "proto/result.h"

namespace tier::tierctl {

inline constexpr size_t kPageBytesMax = size_t{16} << 20;
inline constexpr std::chrono::milliseconds kPageTimeout{5'000};

// The body. `address`: "127.0.0.1:9464" or "[::1]:9464". DISCONNECTED: it is not served there; IO_ERROR: the answer is
// none of status 200, is cut short, or is too long; TIMEOUT: `timeout` was over before the last byte.
Result<std::string> ReadPage(const std::string& address, const std::string& path,
                             std::chrono::milliseconds timeout = kPageTimeout);

}  // namespace tier::tierctl
