// What calls of ControlApi carry that is no description of a job or of the daemon.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/base/time.h"
#include "daemon/tiering/api/stalls.h"

namespace tier::session {

// How a job is closed.
struct JobClosing {
  bool purge = false;            // With what a named job persisted, also where the job is not open.
  bool unless_attached = false;  // DENIED while processes are attached to it.
};

struct StallReport {
  tiering::StallList list;
  base::TimePoint now;  // As of then, by the engine's clock and by that of the wall.
  int64_t now_unix_ms = 0;
};

// A socket whose clients are one user, its owner, whatever their uid.
struct OwnerSocket {
  std::string owner;
  uint32_t uid = 0;       // The owner's own, which no user of the system has.
  std::string directory;  // Of its tierd.sock and control.sock, for a pod.
  bool open = false;      // False: it was closed. Its jobs, and what they persisted, are there still.
};

// What a drain has done.
struct Drained {
  bool stays_in_ram = false;  // There is no SSD tier: nothing was written.
  std::string unmarked{};     // Why a crash would end the drain of the node. Empty: it would not.
};

}  // namespace tier::session
