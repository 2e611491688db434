// What lies behind the opaque handles of the C interface, and how option structs of other versions are read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "libclient/client/session.h"
#include "libclient/include/tier/tier.h"
#include "libclient/swap/copy_crew.h"
#include "libclient/swap/operation.h"

struct tier_client {
  tier::client::Session* session = nullptr;    // One user.
  std::shared_ptr<tier::swap::CopyCrew> crew;  // Shared with operations that outlive tier_close.
  std::string job, token, socket;              // What tier_session hands out.
};

struct tier_op {
  tier::client::Session* session;  // Kept alive by the operation's crew.
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
// A live client, and only these flags. The failure of an earlier release, once.
Status Begin(tier_client* client, const char* call, uint32_t flags = 0, uint32_t allowed = 0);
// The same without that failure, for frees and hints: they do their work, and nobody may look at what they answer.
Status BeginAlive(tier_client* client, const char* call, uint32_t flags = 0, uint32_t allowed = 0);

// Reads an option struct of any version of this header: what the caller's lacks keeps its default. INVALID when
// struct_size was not set.
template <typename T>
Status ReadOptions(const T* given, T* options) {
  if (given == nullptr) return {};
  if (given->struct_size <= sizeof(size_t) || given->struct_size > 4096) {
    return Fail(Code::kInvalid, "struct_size is " + std::to_string(given->struct_size) +
                                    ": initialise option structs with their TIER_..._INIT macro");
  }
  std::memcpy(options, given, std::min(given->struct_size, sizeof(T)));
  options->struct_size = sizeof(T);
  return {};
}

// Fills a struct that the caller owns, as much of it as the caller's version has.
template <typename T>
Status WriteView(T filled, T* view) {
  if (view == nullptr || view->struct_size <= sizeof(size_t) || view->struct_size > 4096) {
    return Fail(Code::kInvalid, "set struct_size to the size of the struct before the call");
  }
  filled.struct_size = view->struct_size;
  std::memcpy(view, &filled, std::min(view->struct_size, sizeof(T)));
  return {};
}

}  // namespace tier::abi
