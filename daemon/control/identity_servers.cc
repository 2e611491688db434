#include "daemon/control/identity_servers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/session/passed_descriptors.h"

namespace tier::control {
namespace {

constexpr auto kStopGrace = std::chrono::seconds(2);

// 0: not open (any more).
uint64_t InodeOf(int fd) {
  struct stat about{};
  return ::fstat(fd, &about) == 0 ? about.st_ino : 0;
}

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
  Entry entry{identity, {},     nullptr, std::make_unique<ControlService>(api_, identity.uid, identity.admin),
              nullptr,  nullptr};
  entry.server = MakeServer(&entry);
  if (entry.server == nullptr) return nullptr;
  servers_.push_front(std::move(entry));
  return &servers_.front();
}

std::unique_ptr<grpc::Server> IdentityServers::MakeServer(Entry* entry) {
  grpc::ResourceQuota quota("identity");
  quota.SetMaxThreads(kThreadsPerIdentityMax).Resize(kBufferBytesPerIdentityMax);
  grpc::ServerBuilder builder;
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kRequestBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, 2);
  entry->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
  builder.RegisterService(entry->service.get());
  return builder.BuildAndStart();
}

bool IdentityServers::HasRoom(Entry* entry) {
  std::erase_if(entry->connections, [](const Handed& h) { return InodeOf(h.fd) != h.inode; });
  return entry->connections.size() < kConnectionsPerIdentityMax;
}

// What gRPC is to read: the socket itself, or the relay's. Empty if there is no descriptor for a relay.
proto::FileDescriptor IdentityServers::ForServer(Entry* entry, proto::FileDescriptor* socket) {
  if (session::DescriptorsRefused(socket->get())) return std::move(*socket);
  if (entry->relay == nullptr) entry->relay = std::make_unique<StreamRelay>();
  auto relayed = entry->relay->Add(socket);
  return relayed ? std::move(*relayed) : proto::FileDescriptor();
}

bool IdentityServers::Adopt(const Identity& identity, int listener_fd, proto::FileDescriptor* socket) {
  Entry* entry = Find(identity);
  if (entry == nullptr || !HasRoom(entry)) return false;
  proto::FileDescriptor adopted = ForServer(entry, socket);
  if (!adopted) return false;
  entry->connections.push_back({adopted.get(), InodeOf(adopted.get())});
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.listener_fd = listener_fd;
  parameters.fd = adopted.Release();  // gRPC closes it.
  entry->acceptor->HandleNewConnection(&parameters);
  return true;
}

void IdentityServers::Stop() {
  const auto deadline = std::chrono::system_clock::now() + kStopGrace;
  for (Entry& entry : servers_) entry.server->Shutdown(deadline);
  servers_.clear();
}

}  // namespace tier::control
