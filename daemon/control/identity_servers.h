// IdentityServers: one gRPC server for each identity, made when its first connection comes, with limits of its own on
// connections, streams, threads and bytes: an identity can exhaust only its own server.
// Thread-safe. A call that is served may call this too, so what waits for calls holds no lock.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "daemon/control/control_service.h"
#include "daemon/control/stream_relay.h"
#include "daemon/session/control_api.h"
#include "proto/mapping.h"
#include "proto/mutex.h"

namespace tier::control {

struct Identity {
  uint32_t uid = ~0u;
  bool admin = false;
  friend bool operator==(const Identity&, const Identity&) = default;
};

inline constexpr size_t kConnectionsPerIdentityMax = 64;
inline constexpr int kStreamsPerConnectionMax = 32;             // Calls at a time; the client's gRPC queues more.
inline constexpr int kThreadsPerIdentityMax = 16;               // A call beyond them is RESOURCE_EXHAUSTED.
inline constexpr size_t kBufferBytesPerIdentityMax = 32 << 20;  // What gRPC may hold for it.
inline constexpr int kRequestBytesMax = 64 << 10;               // The largest request holds names and a token.

class IdentityServers {
 public:
  IdentityServers(session::ControlApi& api, size_t max) : api_(api), max_(max) {}
  ~IdentityServers() { Stop(); }
  // Gives a connected socket to the server of its identity, through a relay if its client can send descriptors.
  // NO_MEMORY: the system gives no threads or descriptors for it, gRPC refused to make a server, or the identity has
  // all the connections it may have. Then the socket stays the caller's. Waits for no call: who is called may wait for
  // a lock of the caller's.
  Status Adopt(const Identity& identity, int listener_fd, proto::FileDescriptor* socket);
  // Ends the servers in whose place Adopt made others, and waits for their calls under way. REQUIRES: the caller has no
  // lock that a call may wait for, as for the next two.
  void EndEvicted();
  // Ends the server of this identity with its connections, and waits for its calls under way. Another connection would
  // make it again.
  void End(const Identity& identity);
  void Stop();
  // What the health service says, of servers to come as well: true from the start.
  void SetServing(bool serving);
  size_t count() const;

 private:
  // A socket that gRPC owns. Its inode identifies it while it is open; its number may be reused.
  struct Handed {
    int fd = -1;
    uint64_t inode = 0;
  };
  struct Entry {
    Identity identity;
    std::vector<Handed> connections;
    std::unique_ptr<StreamRelay> relay;  // Made when first needed. Outlives the server, whose sockets it feeds.
    std::unique_ptr<ControlService> service;
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
    std::unique_ptr<grpc::Server> server;
  };
  Result<Entry*> Find(const Identity& identity) TIER_REQUIRES(mutex_);
  static void Shutdown(std::list<Entry> ended);  // REQUIRES: as EndEvicted.
  static void TellHealth(const Entry& entry, bool serving);
  static std::unique_ptr<grpc::Server> MakeServer(Entry* entry);
  static bool HasRoom(Entry* entry);
  static Result<proto::FileDescriptor> ForServer(Entry* entry, proto::FileDescriptor* socket);

  session::ControlApi& api_;
  const size_t max_;
  mutable Mutex mutex_;
  bool serving_ TIER_GUARDED_BY(mutex_) = true;
  std::list<Entry> servers_ TIER_GUARDED_BY(mutex_);  // The one used last comes first.
  std::list<Entry> evicted_ TIER_GUARDED_BY(mutex_);
};

}  // namespace tier::control
