// IdentityServers: one gRPC server for each identity, made when its first connection comes.
// Not thread-safe: the accept thread's own.
#pragma once

#include <cstdint>
#include <list>
#include <memory>

#include <grpcpp/grpcpp.h>

#include "daemon/control/control_service.h"
#include "daemon/session/control_api.h"

namespace tier::control {

struct Identity {
  uint32_t uid = ~0u;
  bool admin = false;
  friend bool operator==(const Identity&, const Identity&) = default;
};

class IdentityServers {
 public:
  IdentityServers(session::ControlApi& api, size_t max) : api_(api), max_(max) {}
  ~IdentityServers() { Stop(); }
  // Gives a connected socket to the server of its identity; takes ownership of the descriptor. False if gRPC refused to
  // make a server (the descriptor is closed).
  [[nodiscard]] bool Adopt(const Identity& identity, int listener_fd, int fd);
  void Stop();
  size_t count() const { return servers_.size(); }

 private:
  struct Entry {
    Identity identity;
    std::unique_ptr<ControlService> service;
    std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
    std::unique_ptr<grpc::Server> server;
  };
  Entry* Find(const Identity& identity);

  session::ControlApi& api_;
  const size_t max_;
  std::list<Entry> servers_;  // The one used last comes first.
};

}  // namespace tier::control
