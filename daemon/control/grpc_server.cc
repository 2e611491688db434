#include "daemon/control/grpc_server.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>

#include "daemon/base/clock.h"
#include "daemon/control/accept_loop.h"
#include "daemon/control/identity_servers.h"
#include "daemon/control/peer.h"
#include "daemon/session/packet_socket.h"
#include "daemon/session/passed_descriptors.h"
#include "daemon/session/warning_limit.h"
#include "proto/mapping.h"
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
      ::chmod(path.c_str(), mode) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    return Fail(error == EACCES || error == EPERM || error == EROFS ? Code::kDenied : Code::kInvalid,
                "cannot listen on " + path + ": " + std::strerror(error));
  }
  return fd;
}

// Lets the admin group reach the socket; where the group does not exist, its owner and root remain.
void GiveToGroup(const std::string& path, const std::string& group) {
  const struct group* record = ::getgrnam(group.c_str());  // Before any other thread runs.
  if (record != nullptr) (void)!::chown(path.c_str(), static_cast<uid_t>(-1), record->gr_gid);
}

}  // namespace

struct GrpcServer::State {
  GrpcServerOptions options;
  proto::FileDescriptor control;
  proto::FileDescriptor admin;
  proto::FileDescriptor stop;
  std::unique_ptr<IdentityServers> servers;
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
  bool AcceptOne(int listener, bool admin_socket) {
    if (closer.full()) return false;
    auto accepted = session::AcceptConnection(listener);
    if (!accepted || !*accepted) return accepted.has_value();  // Or it is gone again.
    // A connection that gRPC does not adopt is closed: its client sees that.
    if (!Hand(listener, admin_socket, &*accepted) && !session::DescriptorsRefused(accepted->get())) {
      Warn(closer.Close(std::move(*accepted)));
    }
    return true;
  }

  bool Hand(int listener, bool admin_socket, proto::FileDescriptor* socket) {
    const auto peer = PeerOf(socket->get());
    if (!peer || (admin_socket && !MayAdminister(*peer, options.admin_group))) return false;
    const Status adopted = servers->Adopt({.uid = peer->uid, .admin = admin_socket}, listener, socket);
    Warn(adopted);
    return adopted.has_value();
  }

  void Accept() {
    const std::array<int, 2> listeners = {control.get(), admin.get()};
    const auto take = [&](size_t i) { return AcceptOne(listeners[i], i == 1); };
    AcceptUntilStopped(listeners, stop.get(), {.take = take, .warn = options.on_warning});
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
  auto control = Listen(options.control_socket, options.control_socket_mode, options.descriptors_refused);
  if (!control) return std::unexpected(control.error());
  state.control = std::move(*control);
  auto admin = Listen(options.admin_socket, options.admin_socket_mode, options.descriptors_refused);
  if (!admin) return std::unexpected(admin.error());
  state.admin = std::move(*admin);
  GiveToGroup(options.admin_socket, options.admin_group);
  state.stop = proto::FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state.stop) return Fail(Code::kNoMemory, std::string("eventfd: ") + std::strerror(errno));
  state.servers = std::make_unique<IdentityServers>(api, kIdentitiesMax);
  auto thread = proto::StartThread("tierd-accept", proto::BlockedSignals::kAsynchronous, [&state] { state.Accept(); });
  if (!thread) {
    server->RemoveSockets();
    return std::unexpected(std::move(thread.error()));
  }
  state.accept_thread = std::move(*thread);
  return server;
}

void GrpcServer::SetServing(bool serving) { state_->servers->SetServing(serving); }

void GrpcServer::Stop() {
  if (!state_->accept_thread.joinable()) return;
  (void)::eventfd_write(state_->stop.get(), 1);
  state_->accept_thread.join();
  state_->servers->Stop();
  RemoveSockets();
}

void GrpcServer::RemoveSockets() {
  (void)::unlink(state_->options.control_socket.c_str());
  (void)::unlink(state_->options.admin_socket.c_str());
}

}  // namespace tier::control
