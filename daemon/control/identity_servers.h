// IdentityServers: one gRPC server for each identity, made when its first connection comes, with limits of its own on
// connections, streams, threads and bytes: an identity can exhaust only its own server. Where there are too many, the
// one that was used least recently makes room: threads that no one waits for end it, as its calls may last.
// Administrators make room for administrators alone and are counted by themselves, so that others cannot keep them out.
// Thread-safe. A call that is served may call this too, so what waits for calls holds no lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "daemon/base/workers.h"
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
inline constexpr size_t kEvictedMax = 64;                       // Servers that made room, and have not ended yet.
inline constexpr unsigned kEndingThreads = 8;                   // Started when the first of these comes.

class IdentityServers {
 public:
  // `max`: servers of administrators, and as many of others.
  IdentityServers(session::ControlApi& api, size_t max) : api_(api), max_(max) {}
  ~IdentityServers() { Stop(); }
  // Gives a connected socket to the server of its identity, through a relay if its client can send descriptors.
  // NO_MEMORY: the system gives no threads or descriptors for it, gRPC refused to make a server, kEvictedMax others
  // have not ended yet, or the identity has all the connections it may have. Then the socket stays the caller's. Waits
  // for no call: who is called may wait for a lock of the caller's.
  Status Adopt(const Identity& identity, int listener_fd, proto::FileDescriptor* socket) TIER_EXCLUDES(mutex_);
  // Ends the server of this identity with its connections, also one that made room, and waits for its calls under way.
  // Another connection would make it again. REQUIRES: the caller has no lock that a call may wait for, as for Stop.
  void End(const Identity& identity) TIER_EXCLUDES(mutex_);
  void Stop() TIER_EXCLUDES(mutex_);
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
    std::chrono::system_clock::time_point end_by;  // Of one that made room: then its calls are cancelled.
  };
  Result<Entry*> Find(const Identity& identity) TIER_REQUIRES(mutex_);
  size_t CountOf(bool admin) const TIER_REQUIRES(mutex_);
  Status Evict(bool admin) TIER_REQUIRES(mutex_);  // Of administrators or others, the one used least recently.
  void EndOneEvicted() TIER_EXCLUDES(mutex_);      // By an ending thread.
  static void Shutdown(std::list<Entry> ended);    // REQUIRES: as End.
  static void TellHealth(const Entry& entry, bool serving);
  static std::unique_ptr<grpc::Server> MakeServer(Entry* entry);
  static bool HasRoom(Entry* entry);
  static Result<proto::FileDescriptor> ForServer(Entry* entry, proto::FileDescriptor* socket);

  session::ControlApi& api_;
  const size_t max_;
  mutable Mutex mutex_;
  bool serving_ TIER_GUARDED_BY(mutex_) = true;
  std::list<Entry> servers_ TIER_GUARDED_BY(mutex_);                       // The one used last comes first.
  std::list<Entry> evicted_ TIER_GUARDED_BY(mutex_);                       // The oldest first.
  std::vector<Identity> ending_ TIER_GUARDED_BY(mutex_);                   // Of those that are being ended.
  CondVar ended_;                                                          // ending_ has fewer.
  std::unique_ptr<base::Workers> ending_threads_ TIER_GUARDED_BY(mutex_);  // Null: none was needed yet.
};

}  // namespace tier::control
