// The lock that says which daemon has a device: flock, because it belongs to the open file description and so lives as
// long as the last request that the kernel still runs on it. Thread-safe.
#pragma once

#include <string>

#include "proto/result.h"

namespace tier::storage {

// Takes the lock, at once or not at all. ALREADY_EXISTS names `path` and, where /proc tells, the process.
Status LockDevice(int fd, const std::string& path);
void UnlockDevice(int fd);

}  // namespace tier::storage
