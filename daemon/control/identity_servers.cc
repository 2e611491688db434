#include "daemon/control/identity_servers.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace tier::control {
namespace {

constexpr int kMessageBytesMax = 4 << 20;
constexpr auto kStopGrace = std::chrono::seconds(2);

}  // namespace

IdentityServers::Entry* IdentityServers::Find(const Identity& identity) {
  const auto found =
      std::find_if(servers_.begin(), servers_.end(), [&](const Entry& e) { return e.identity == identity; });
  if (found != servers_.end()) {
    servers_.splice(servers_.begin(), servers_, found);
    return &servers_.front();
  }
  if (servers_.size() >= max_) {
    servers_.back().server->Shutdown(std::chrono::system_clock::now() + kStopGrace);
    servers_.pop_back();
  }
  Entry entry{identity, std::make_unique<ControlService>(api_, identity.uid, identity.admin), nullptr, nullptr};
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 2);
  entry.acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
  builder.RegisterService(entry.service.get());
  entry.server = builder.BuildAndStart();
  if (entry.server == nullptr) return nullptr;
  servers_.push_front(std::move(entry));
  return &servers_.front();
}

bool IdentityServers::Adopt(const Identity& identity, int listener_fd, int fd) {
  Entry* entry = Find(identity);
  if (entry == nullptr) {
    ::close(fd);
    return false;
  }
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = listener_fd;
  parameters.fd = fd;  // gRPC closes it.
  entry->acceptor->HandleNewConnection(&parameters);
  return true;
}

void IdentityServers::Stop() {
  const auto deadline = std::chrono::system_clock::now() + kStopGrace;
  for (Entry& entry : servers_) entry.server->Shutdown(deadline);
  servers_.clear();
}

}  // namespace tier::control
