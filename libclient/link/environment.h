// Reads the environment of this process: where the daemon's socket may be, and which job a launcher put it in.
//
// Reading goes through a lookup function, so that a test can pass an environment of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tier::link {

// Null when the variable is not set, as std::getenv.
using Lookup = std::function<const char*(const char*)>;

// The sockets to try, in order: `given` if it is not empty, else $TIERD_SOCKET, alone (where that is a directory, the
// socket in it); without either, those in the places of proto/socket_places.h.
std::vector<std::string> SocketCandidates(const std::string& given, const Lookup& environment);

struct JobIdentity {
  std::string name;    // Empty: the daemon invents one.
  std::string token;   // Empty: a new job makes one. Else 64 hexadecimal digits.
  std::string launch;  // Common to all ranks of this launch. Empty: no launcher, or a token is given.
  int32_t rank = -1;
  int32_t world_size = 0;
};

// Fills the fields that the caller left empty. All ranks of one launch (and of one restart of it) get the same name and
// the same `launch`, from torchrun's variables or from Slurm's, and so join one job, whose token the daemon makes. With
// a token, given or in $TIERD_JOB_TOKEN, `launch` stays empty: the token alone decides.
JobIdentity CompleteIdentity(JobIdentity given, const Lookup& environment);

}  // namespace tier::link
