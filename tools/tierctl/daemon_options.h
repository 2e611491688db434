// Which daemon a verb asks, as whom, and how it prints the answer.
#pragma once

#include <string>

#include "tools/tierctl/output.h"

namespace tier::tierctl {

struct DaemonOptions {
  std::string socket;  // Empty: admin.sock where this user may, else control.sock, of the usual places.
  std::string token;   // Empty: $TIERD_JOB_TOKEN.
  OutputOptions output;
};

}  // namespace tier::tierctl
