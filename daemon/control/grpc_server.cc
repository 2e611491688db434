#include "daemon/control/grpc_server.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include "daemon/base/check.h"
#include "daemon/base/clock.h"
#include "daemon/control/accept_loop.h"
#include "daemon/control/identity_servers.h"
#include "daemon/control/peer.h"
#include "daemon/session/owner_table.h"
#include "daemon/session/packet_socket.h"
#include "daemon/session/passed_descriptors.h"
#include "daemon/session/warning_limit.h"
#include "proto/mapping.h"
#include "proto/mutex.h"
#include "proto/start_thread.h"

namespace tier::control {
namespace {

constexpr int kBacklog = 128;

Status PathFits(const std::string& path) {
  if (path.size() < sizeof(sockaddr_un::sun_path)) return {};
  return Fail(Code::kInvalid, "socket path too long (" + std::to_string(path.size()) + " bytes, at most " +
                                  std::to_string(sizeof(sockaddr_un::sun_path) - 1) + "): " + path);
}

Result<proto::FileDescriptor> Listen(const std::string& path, uint32_t mode, bool refuse_descriptors) {
  if (const auto fits = PathFits(path); !fits) return std::unexpected(fits.error());
  proto::FileDescriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Fail(Code::kInvalid, std::string("cannot make a socket: ") + std::strerror(errno));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (refuse_descriptors) session::RefuseDescriptors(fd.get());
  (void)::unlink(path.c_str());  // A stale one of a daemon that died; the directory's lock says that none lives.
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      !session::SetSocketMode(path, mode) || ::listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    return Fail(error == EACCES || error == EPERM || error == EROFS ? Code::kDenied : Code::kInvalid,
                "cannot listen on " + path + ": " + std::strerror(error));
  }
  return fd;
}

// One listening socket, and whom it stands for.
struct Entrance {
  proto::FileDescriptor socket;
  std::string path;
  bool admin = false;
  std::optional<uint32_t> owner;  // Each client that comes by it is this owner.
};

// The start may wait for the user database; no connection does.
std::optional<gid_t> GroupId(const std::string& name) {
  const struct group* const record = ::getgrnam(name.c_str());  // Before any other thread runs.
  return record == nullptr ? std::nullopt : std::optional<gid_t>(record->gr_gid);
}

}  // namespace

struct GrpcServer::State {
  GrpcServerOptions options;
  std::optional<gid_t> admins;  // The group's; none: only the daemon's user and root administer.
  proto::FileDescriptor wake;   // Readable: there are other entrances, or the end.
  std::atomic<bool> stopping{false};
  std::unique_ptr<IdentityServers> servers;
  Mutex handing;  // Held while an owner's connection is handed on; taken before `mutex`.
  Mutex mutex;
  std::vector<std::shared_ptr<const Entrance>> entrances TIER_GUARDED_BY(mutex);
  session::BackgroundCloser closer;  // Of sockets that are turned away and may hold descriptors.
  const base::SteadyClock clock;
  session::WarningLimit warnings;  // The accept thread's.
  std::thread accept_thread;

  void Warn(const Status& status) {
    if (status || !options.on_warning) return;
    const auto line = warnings.Pass("a control connection is not served: " + status.error().message, clock.Now());
    if (line) options.on_warning(*line);
  }

  // False: the machine has no descriptor or memory for it now.
  bool AcceptOne(const Entrance& entrance) {
    if (closer.full()) return false;
    auto accepted = session::AcceptConnection(entrance.socket.get());
    // One that was shut down is not looked at again; and a connection may be gone again.
    if (!accepted) return accepted.error().code == Code::kDisconnected;
    if (!*accepted) return true;
    // A connection that gRPC does not adopt is closed: its client sees that.
    if (!Hand(entrance, &*accepted) && !session::DescriptorsRefused(accepted->get())) {
      Warn(closer.Close(std::move(*accepted)));
    }
    return true;
  }

  bool Hand(const Entrance& entrance, proto::FileDescriptor* socket) {
    const auto peer = PeerOf(socket->get());
    if (!peer || (entrance.admin && !MayAdminister(*peer, admins))) return false;
    if (!entrance.owner && session::IsOwnerUid(peer->uid)) {
      Warn(std::unexpected(session::OwnerUidRefusal(peer->uid)));
      return false;
    }
    const Identity identity{.uid = entrance.owner.value_or(peer->uid), .admin = entrance.admin};
    if (entrance.owner) return HandToOwner(entrance, identity, socket);
    return Adopt(entrance, identity, socket);
  }

  bool Adopt(const Entrance& entrance, const Identity& identity, proto::FileDescriptor* socket) {
    const Status adopted = servers->Adopt(identity, entrance.socket.get(), socket);
    Warn(adopted);
    return adopted.has_value();
  }

  // The client may have waited in the backlog since before the socket was closed, and its owner's name given up.
  bool HandToOwner(const Entrance& entrance, const Identity& identity, proto::FileDescriptor* socket)
      TIER_EXCLUDES(handing, mutex) {
    const MutexLock lock(handing);
    const auto is_this = [&entrance](const auto& each) { return each.get() == &entrance; };
    return std::ranges::any_of(Entrances(), is_this) && Adopt(entrance, identity, socket);
  }

  // No connection of this owner is handed on from now on, whose socket was taken away before.
  void EndFor(uint32_t owner) TIER_EXCLUDES(handing) {
    {
      const MutexLock lock(handing);
    }
    servers->End({.uid = owner, .admin = false});
  }

  Status Add(Entrance entrance, uint32_t mode) TIER_EXCLUDES(mutex) {
    auto socket = Listen(entrance.path, mode, options.descriptors_refused);
    if (!socket) return std::unexpected(socket.error());
    entrance.socket = std::move(*socket);
    const MutexLock lock(mutex);
    entrances.push_back(std::make_shared<const Entrance>(std::move(entrance)));
    return {};
  }

  void Accept() {
    for (;;) {
      eventfd_t ignored = 0;
      (void)::eventfd_read(wake.get(), &ignored);
      if (stopping) return;
      // Copies: one that is taken away meanwhile stays open until it is looked at no more.
      const auto present = Entrances();
      std::vector<int> listeners;
      for (const auto& entrance : present) listeners.push_back(entrance->socket.get());
      const auto take = [&](size_t i) { return AcceptOne(*present[i]); };
      AcceptUntilStopped(listeners, wake.get(), {.take = take, .warn = options.on_warning});
    }
  }

  std::vector<std::shared_ptr<const Entrance>> Entrances() TIER_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    return entrances;
  }
};

GrpcServer::GrpcServer() : state_(std::make_unique<State>()) {}
GrpcServer::~GrpcServer() { Stop(); }

Result<std::unique_ptr<GrpcServer>> GrpcServer::Start(const GrpcServerOptions& options, session::ControlApi& api) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  std::unique_ptr<GrpcServer> server(new GrpcServer());
  State& state = *server->state_;
  state.options = options;
  state.wake = proto::FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state.wake) return Fail(Code::kNoMemory, std::string("eventfd: ") + std::strerror(errno));
  Status listening = state.Add({.socket = {}, .path = options.control_socket, .admin = false, .owner = {}},
                               options.control_socket_mode);
  if (listening) {
    listening =
        state.Add({.socket = {}, .path = options.admin_socket, .admin = true, .owner = {}}, options.admin_socket_mode);
  }
  if (!listening) return std::unexpected(listening.error());
  state.admins = GroupId(options.admin_group);
  // Refused where this process is not in that group, which the caller can see by the socket's.
  if (state.admins) (void)!::chown(options.admin_socket.c_str(), static_cast<uid_t>(-1), *state.admins);
  state.servers = std::make_unique<IdentityServers>(api, options.identities_max);
  auto thread = proto::StartThread("tierd-accept", proto::BlockedSignals::kAsynchronous, [&state] { state.Accept(); });
  if (!thread) {
    server->RemoveSockets();
    return std::unexpected(std::move(thread.error()));
  }
  state.accept_thread = std::move(*thread);
  return server;
}

void GrpcServer::SetServing(bool serving) { state_->servers->SetServing(serving); }

Status GrpcServer::ListenFor(uint32_t owner, const std::string& path) {
  TIER_CHECK(session::IsOwnerUid(owner), "{} is no owner's uid", owner);
  if (Status added = state_->Add({.socket = {}, .path = path, .admin = false, .owner = owner}, kOwnerSocketMode);
      !added)
    return added;
  (void)::eventfd_write(state_->wake.get(), 1);
  return {};
}

void GrpcServer::StopFor(uint32_t owner) {
  std::shared_ptr<const Entrance> gone;
  {
    const MutexLock lock(state_->mutex);
    const auto is_owners = [owner](const auto& entrance) { return entrance->owner == owner; };
    const auto found = std::ranges::find_if(state_->entrances, is_owners);
    if (found == state_->entrances.end()) return;
    gone = *found;
    state_->entrances.erase(found);
  }
  (void)::unlink(gone->path.c_str());
  (void)::shutdown(gone->socket.get(), SHUT_RDWR);  // No connection from now on, though it is closed a little later.
  (void)::eventfd_write(state_->wake.get(), 1);
}

void GrpcServer::EndFor(uint32_t owner) {
  TIER_CHECK(session::IsOwnerUid(owner), "{} is no owner's uid", owner);
  state_->EndFor(owner);
}

void GrpcServer::Stop() {
  if (!state_->accept_thread.joinable()) return;
  state_->stopping = true;
  (void)::eventfd_write(state_->wake.get(), 1);
  state_->accept_thread.join();
  state_->servers->Stop();
  RemoveSockets();
}

void GrpcServer::RemoveSockets() {
  for (const auto& entrance : state_->Entrances()) (void)::unlink(entrance->path.c_str());
}

}  // namespace tier::control
