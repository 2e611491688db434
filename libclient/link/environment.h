// What the environment says about this process: where the daemon's socket may be, and which job a launcher put it in.
//
// Reading goes through a lookup function, so that tests state an environment instead of having one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tier::link {

// Null when the variable is not set, as std::getenv.
using Lookup = std::function<const char*(const char*)>;

// The sockets to try, in order. `given` (not empty) or $TIERD_SOCKET stands alone; else the user's runtime directory,
// then the system's.
std::vector<std::string> SocketCandidates(const std::string& given, const Lookup& environment);

struct JobIdentity {
  std::string name;   // Empty: the daemon invents one.
  std::string token;  // Empty: a new job makes one. Else 64 hexadecimal digits.
  int32_t rank = -1;
  int32_t world_size = 0;
};

// Fills what the caller left open. All ranks of one launch (and of one restart of it) get the same name and token:
// from torchrun's variables, or from Slurm's. An explicit token, or $TIERD_JOB_TOKEN, outranks a derived one.
JobIdentity CompleteIdentity(JobIdentity given, uint32_t uid, const Lookup& environment);

}  // namespace tier::link
