// SessionLink: finds the daemon's socket, sends Hello and returns the attachment that Welcome gives.
//
// Blocks until the daemon has answered, three times the timeout at most. One call makes one session; it tries again
// only while the daemon says that the job is still being closed.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libclient/link/environment.h"
#include "proto/handshake.h"
#include "proto/mapping.h"
#include "proto/result.h"

namespace tier::link {

struct AttachOptions {
  std::vector<std::string> sockets;  // Tried in order; the first that a daemon answers on is used.
  JobIdentity identity;
  proto::OpenMode mode = proto::OpenMode::kAttach;
  bool named = false;
  uint64_t guarantee_bytes = 0;
  uint64_t limit_bytes = 0;
  std::optional<uint16_t> numa_node;  // That memory should come from; empty: any.
  std::chrono::milliseconds timeout{
      30'000};  // For the connection, and for the answer: a daemon may be prefaulting its arena.
};

struct Attachment {
  std::string socket_path;
  proto::FileDescriptor socket;
  proto::FileDescriptor session_region;
  proto::FileDescriptor engine_page;
  proto::FileDescriptor doorbell;
  proto::Welcome welcome;
};

// NOT_FOUND, DENIED or DISCONNECTED name every socket tried and say how to start a daemon. VERSION for another
// protocol. TIMEOUT for a daemon that does not accept or does not answer. A refusal of the daemon comes back with its
// code and its sentence.
Result<Attachment> Attach(const AttachOptions& options);

// One attempt on one connected socket, the second half of Attach. For tests that own the other end.
Result<Attachment> Greet(proto::FileDescriptor socket, const AttachOptions& options);

}  // namespace tier::link
