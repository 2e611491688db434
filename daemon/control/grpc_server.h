// GrpcServer: the control sockets and the gRPC servers behind them.
//
// gRPC does not tell a handler who called, so each identity gets a gRPC server of its own: the accept thread reads
// SO_PEERCRED, picks (or makes) the server of that uid, and hands it the connection. Calls on the admin socket go to
// one server whose callers may administer; others are turned away at accept. Any stock client works, health and
// reflection included.
//
// Who comes by the socket of an owner is that owner, whatever its uid; and a client of another socket that has an
// owner's uid is turned away.
//
// Threads: one accept thread, gRPC's own, and those of IdentityServers. Start and Stop from one thread; the other calls
// from any, between the two.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/session/control_api.h"
#include "proto/result.h"

namespace tier::control {

inline constexpr uint32_t kOwnerSocketMode = 0666;  // Any uid: to have the folder is to be the owner.
inline constexpr size_t kIdentitiesMax = 256;       // Uids with a server, and administrators with one.

struct GrpcServerOptions {
  std::string control_socket;  // For every user: the kernel's uid and the job's token decide.
  std::string admin_socket;    // For root, the daemon's own user and `admin_group`.
  std::string admin_group = "tierd";
  uint32_t control_socket_mode = 0666;
  uint32_t admin_socket_mode = 0660;
  size_t identities_max = kIdentitiesMax;  // Fewer for tests.
  bool descriptors_refused = true;  // False: as with a kernel before 6.16, which lets clients send some. For tests.
  // Called by the accept thread when it can accept no connection, once until it can again, and for connections that it
  // turns away, so many a minute. May be empty.
  std::function<void(const std::string&)> on_warning;
};

class GrpcServer {
 public:
  // Binds both sockets and serves at once. Stale socket files are replaced: the caller holds the directory's lock.
  // INVALID or DENIED name the path; NO_MEMORY: the system gives no thread or descriptor. `api` must outlive the
  // server.
  static Result<std::unique_ptr<GrpcServer>> Start(const GrpcServerOptions& options, session::ControlApi& api);
  ~GrpcServer();  // Stop().
  // What the health service says of the daemon and of tier.v1.ControlService: SERVING from the start. Any thread.
  void SetServing(bool serving);
  // A socket at `path` as well, whose callers are `owner`. Fails as Start does.
  Status ListenFor(uint32_t owner, const std::string& path);
  // Nothing connects there when it returns; what is connected goes on. Does nothing where it does not listen.
  void StopFor(uint32_t owner);
  // Ends the connections of this owner, and waits for its calls under way. REQUIRES: StopFor was called since.
  void EndFor(uint32_t owner);
  // Refuses new calls, cancels streams, waits for calls under way (≤ 2 s), removes the socket files.
  void Stop();

 private:
  GrpcServer();
  void RemoveSockets();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tier::control
