// What tierctl reads of this machine because a daemon names it. Any user may make a socket, answer as a daemon, and
// name a file that only root may read, a pipe that never ends, or an address: so it is read only where a trusted user's
// process answers, no file further than one of settings goes, and no link is followed that another user made.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/result.h"

namespace tier::tierctl {

inline constexpr size_t kHostFileBytesMax = size_t{1} << 20;

// The text of a regular file; it never waits. Symbolic links are followed, in any part of the path, that root or the
// user `caller` made. NOT_FOUND: it cannot be opened. DENIED: a link of another user leads to it, it is no regular
// file, or links lead round in a circle. NO_MEMORY: it is longer than kHostFileBytesMax.
Result<std::string> ReadHostFile(const std::string& path, uint32_t caller = ::geteuid());

// The users whose processes listen at the other ends of the Unix sockets that this process has connected, as the kernel
// says. Sockets that it was started with are not among them.
std::vector<uint32_t> PeersOfOwnSockets();
// The user that the system's daemon runs as; none: this machine has none.
std::optional<uint32_t> SystemUser();
// OK: all of the peers are root, the system's user, or the caller itself, and there is one. DENIED says who answers.
Status CheckPeers(const std::vector<uint32_t>& peers, uint32_t caller, std::optional<uint32_t> system);

}  // namespace tier::tierctl
