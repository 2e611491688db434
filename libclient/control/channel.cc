#include "libclient/control/channel.h"

#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace tier::control_client {
namespace {

constexpr char kCodeKey[] = "tier-code";
constexpr char kTokenKey[] = "tier-job-token";

Code CodeOf(const std::string& name, grpc::StatusCode fallback) {
  for (uint16_t i = 1; i < kCodeCount; ++i) {
    if (CodeName(static_cast<Code>(i)) == name) return static_cast<Code>(i);
  }
  switch (fallback) {
    case grpc::StatusCode::INVALID_ARGUMENT: return Code::kInvalid;
    case grpc::StatusCode::NOT_FOUND: return Code::kNotFound;
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNAUTHENTICATED: return Code::kDenied;
    case grpc::StatusCode::DEADLINE_EXCEEDED: return Code::kTimeout;
    case grpc::StatusCode::UNIMPLEMENTED: return Code::kVersion;
    case grpc::StatusCode::RESOURCE_EXHAUSTED: return Code::kNoMemory;
    default: return Code::kDisconnected;
  }
}

}  // namespace

std::vector<std::string> SocketCandidates(const char* socket) {
  if (socket != nullptr && *socket != '\0') return {socket};
  if (const char* data = std::getenv("TIERD_SOCKET"); data != nullptr && *data != '\0') {
    const std::string path(data);
    const size_t slash = path.rfind('/');
    return {(slash == std::string::npos ? std::string() : path.substr(0, slash + 1)) + "control.sock"};
  }
  std::vector<std::string> candidates;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime != '\0') {
    candidates.push_back(std::string(runtime) + "/tierd/control.sock");
  }
  candidates.emplace_back("/run/tierd/control.sock");
  return candidates;
}

Error ToError(const grpc::Status& status, const grpc::ClientContext& context, const std::string& socket) {
  std::string name;
  const auto& trailing = context.GetServerTrailingMetadata();
  if (const auto found = trailing.find(kCodeKey); found != trailing.end())
    name.assign(found->second.data(), found->second.size());
  const Code code = CodeOf(name, status.error_code());
  if (code == Code::kDisconnected) {
    return Error{code, "no answer from tierd on " + socket + ": " + status.error_message() + "; is it running?"};
  }
  return Error{code, status.error_message()};
}

Result<std::unique_ptr<Channel>> Channel::Connect(const char* socket, const char* token) {
  std::string tried;
  for (const std::string& path : SocketCandidates(socket)) {
    tried += (tried.empty() ? "" : ", ") + path;
    if (::access(path.c_str(), F_OK) != 0) continue;
    auto channel = std::make_unique<Channel>();
    channel->socket_ = path;
    const char* environment = std::getenv("TIERD_JOB_TOKEN");
    channel->token_ = token != nullptr ? token : environment != nullptr ? environment : "";
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
                     1);  // Two channels are two connections, each with its identity.
    arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "tierd");
    channel->channel_ = grpc::CreateCustomChannel("unix:" + path, grpc::InsecureChannelCredentials(), arguments);
    channel->stub_ = v1::Control::NewStub(channel->channel_);
    // A status call, and not only a connection: the admin socket hangs up on callers that it does not admit.
    v1::Status answer;
    const auto alive = channel->Call(&v1::Control::Stub::GetStatus, v1::GetStatusRequest(), &answer, kConnectTimeout);
    if (alive) return channel;
    return std::unexpected(alive.error());
  }
  return Fail(Code::kDisconnected, "no tierd control socket (tried " + tried +
                                       "); start it with `systemctl start tierd` or `tierd`, or name the socket");
}

void Channel::Prepare(grpc::ClientContext* context) const {
  if (!token_.empty()) context->AddMetadata(kTokenKey, token_);
}

}  // namespace tier::control_client
