// The structs behind the opaque handles of the C interface, and the checks at the start of its calls.
#pragma once

#include <memory>
#include <string>

#include "libclient/abi/struct_size.h"
#include "libclient/client/session.h"
#include "libclient/include/tier/tier.h"
#include "libclient/swap/copy_scheduler.h"
#include "libclient/swap/operation.h"

struct tier_client {
  tier::client::Session* session = nullptr;              // The client is one of its users.
  std::shared_ptr<tier::swap::CopyScheduler> scheduler;  // Shared with operations that outlive tier_close.
  std::string job, token, socket;                        // The strings of tier_session.
};

struct tier_op {
  tier::client::Session* session;  // Kept alive by the operation's scheduler.
  std::shared_ptr<tier::swap::Operation> operation;
  bool forked() const { return session->forked(); }
};

namespace tier::abi {

// tier_lease is a name only: the pointer is that of the Lease.
inline client::Lease* Unwrap(tier_lease* lease) { return reinterpret_cast<client::Lease*>(lease); }
inline tier_lease* Wrap(client::Lease* lease) { return reinterpret_cast<tier_lease*>(lease); }

Status CheckClient(const tier_client* client);
// INVALID naming the call when `flags` has bits outside `allowed`: the daemon would end the session for them.
Status CheckFlags(const char* call, uint32_t flags, uint32_t allowed);
// Checks that the client is live and that only these flags are set; returns the failure of an earlier release, once.
Status Begin(tier_client* client, const char* call, uint32_t flags = 0, uint32_t allowed = 0);
// The same checks without that failure, for frees and hints: they do their work, and their answer is not used.
Status BeginAlive(tier_client* client, const char* call, uint32_t flags = 0, uint32_t allowed = 0);

}  // namespace tier::abi
