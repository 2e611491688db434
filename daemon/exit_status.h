// What the process ends with. systemd starts a daemon again whatever it ends with, except where only a person can help:
// RestartPreventExitStatus=2 78 in tierd.service. docs/start.md lists the statuses for operators.
#pragma once

#include <sysexits.h>

#include "proto/result.h"

namespace tier {

inline constexpr int kExitFailure = 1;         // Another try may succeed.
inline constexpr int kExitUsage = 2;           // The command line makes no sense; nothing else ends so.
inline constexpr int kExitConfig = EX_CONFIG;  // The configuration, or what it names on this host, is to be changed.

// Of a start that was refused with this code. What another process holds, a lack of memory or an error of a device may
// pass. All else stays as it is until the configuration, or the host it names, is changed.
constexpr int ExitStatusOfRefusal(Code code) {
  switch (code) {
    case Code::kInvalid:
    case Code::kNotFound:
    case Code::kDenied:
    case Code::kNoSpace:
    case Code::kCorrupt:
    case Code::kVersion: return kExitConfig;
    default: return kExitFailure;
  }
}

}  // namespace tier
