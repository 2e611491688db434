// Where the sockets of daemons lie when none was named. The daemon, libtier, libtier-control and tierctl have the rule
// from here; bindings/python/tierd/places.py is the same in Python, and docs/start.md tells it to users:
//   a client looks into $XDG_RUNTIME_DIR/tierd, then the user's own directory, then /run/tierd.
// Everybody may make a file in /tmp: what lies in a user's own directory is believed only if no other user can have put
// it there. Thread-safety: functions of their arguments and of the file system.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/result.h"

namespace tier::proto {

inline constexpr char kSystemSocketDirectory[] = "/run/tierd";

// For a user without a runtime directory: /tmp/tierd-UID. Root's is for private daemons only: /run/tierd-private.
std::string UserSocketDirectory(uint32_t uid);
// Where a client of that user looks for a daemon, in this order. `runtime`: $XDG_RUNTIME_DIR; null and "" are the same.
std::vector<std::string> SocketDirectories(const char* runtime, uint32_t uid);
// Callers may name a directory in place of a socket: the socket called `name` in it, where `path` is one; else `path`.
std::string SocketIn(std::string path, const char* name);
// "start the daemon of DIR …", where that socket was named and is none of the system's daemon, which systemd would
// start elsewhere. Empty: it is the system's.
std::string HowToStartAt(const std::string& socket);
// NOT_FOUND: it is not there. DENIED: another user owns it, or may write or enter it, or it is no directory; says what
// to do.
Status CheckUserDirectory(const std::string& directory, uint32_t uid);
// CheckUserDirectory of the directory of a socket, if that is the user's own one.
Status CheckSocketPlace(const std::string& socket, uint32_t uid);

}  // namespace tier::proto
