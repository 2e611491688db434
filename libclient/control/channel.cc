#include "libclient/control/channel.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "libclient/control/crowded.h"
#include "proto/handshake.h"
#include "proto/mapping.h"
#include "proto/socket_places.h"

namespace tier::control_client {
namespace {

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

// How much a failure says about what is wrong: a socket that is not there says nothing, one that no daemon listens on
// little more; but a right that lacks on one socket says less than what happened on another.
int Telling(Code code) {
  switch (code) {
    case Code::kNotFound: return 0;
    case Code::kDenied: return 1;
    case Code::kDisconnected: return 2;
    default: return 3;
  }
}

// By the path of it, of the data socket beside it, or of their directory.
std::string ControlSocketOf(const std::string& named) {
  const size_t name_at = named.rfind('/') + 1;
  if (named.substr(name_at) == "tierd.sock") return named.substr(0, name_at) + "control.sock";
  return proto::SocketIn(named, "control.sock");
}

// A daemon that was killed leaves its socket behind, and what gRPC says of that are the insides of gRPC.
bool HasListener(const std::string& path) {
  sockaddr_un address{};
  if (path.size() >= sizeof address.sun_path) return true;  // gRPC says that it is too long.
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const proto::FileDescriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const bool connected = ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  return connected || errno != ECONNREFUSED;
}

}  // namespace

Sockets SocketCandidates(const char* socket) {
  if (socket != nullptr && *socket != '\0') {
    return {.paths = {ControlSocketOf(socket)}, .named = true};
  }
  if (const char* named = std::getenv("TIERD_SOCKET"); named != nullptr && *named != '\0') {
    return {.paths = {ControlSocketOf(named)}, .named = true};
  }
  Sockets candidates;
  for (const std::string& directory : proto::SocketDirectories(std::getenv("XDG_RUNTIME_DIR"), ::geteuid()))
    candidates.paths.push_back(directory + "/control.sock");
  return candidates;
}

Error ToError(const grpc::Status& status, const grpc::ClientContext& context, const std::string& socket) {
  std::string name;
  const auto& trailing = context.GetServerTrailingMetadata();
  if (const auto found = trailing.find(kCodeKey); found != trailing.end())
    name.assign(found->second.data(), found->second.size());
  if (WasTurnedAway(status, context)) {
    return Error{Code::kTimeout, "too many calls of this user at once on " + socket + "; try again"};
  }
  const Code code = CodeOf(name, status.error_code());
  if (code == Code::kDisconnected) {
    return Error{code, "no answer from tierd on " + socket + ": " + status.error_message() + "; is it running?"};
  }
  return Error{code, status.error_message()};
}

Status Reach(const std::string& path) {
  if (auto place = proto::CheckSocketPlace(path, ::geteuid()); !place) return place;
  // Connecting needs the right to write; gRPC tells its lack from a stale socket by no code.
  if (::access(path.c_str(), W_OK) != 0) {
    const bool denied = errno == EACCES || errno == EPERM;
    return Fail(denied ? Code::kDenied : Code::kNotFound, std::strerror(errno));
  }
  struct stat about{};
  if (::stat(path.c_str(), &about) == 0 && !S_ISSOCK(about.st_mode)) return Fail(Code::kNotFound, "is no socket");
  return {};
}

std::string TokenFrom(const char* given) {
  const char* const environment = std::getenv("TIERD_JOB_TOKEN");
  return given != nullptr ? given : environment != nullptr ? environment : "";
}

// gRPC ends a process that sends anything but printable ASCII.
bool IsTokenOrNone(const std::string& text) {
  const auto digit = [](unsigned char c) { return std::isxdigit(c) != 0; };
  return text.empty() || (text.size() == proto::kTokenSize - 1 && std::ranges::all_of(text, digit));
}

Error Summary(std::span<const SocketFailure> failures, bool named) {
  Error summary{Code::kNotFound, "no tierd answers ("};
  for (const SocketFailure& failure : failures) {
    if (Telling(failure.error.code) > Telling(summary.code)) summary.code = failure.error.code;
    summary.message += failure.socket + ": " + failure.error.message + (&failure == &failures.back() ? "" : "; ");
  }
  switch (summary.code) {
    case Code::kDenied: summary.message += "): this user has no right to the socket; ask its owner, or use sudo"; break;
    case Code::kTimeout: summary.message += "): a daemon is there but does not answer in time; look at its log"; break;
    default: {
      summary.code = Code::kDisconnected;
      const std::string there = named && !failures.empty() ? proto::HowToStartAt(failures.front().socket) : "";
      summary.message += "): " + (there.empty() ? "start it with `systemctl start tierd` or `tierd`" : there);
      if (!named) summary.message += ", or name the socket";
    }
  }
  return summary;
}

Result<std::unique_ptr<Channel>> Channel::Connect(const char* socket, const char* token) {
  return ConnectToFirst(SocketCandidates(socket), token);
}

Result<std::unique_ptr<Channel>> Channel::ConnectToFirst(const Sockets& sockets, const char* token,
                                                         std::chrono::milliseconds timeout) {
  const std::string job_token = TokenFrom(token);
  if (!IsTokenOrNone(job_token)) {
    return Fail(Code::kInvalid,
                "the job token must be 64 hexadecimal digits, as `tierctl job show --show-token` prints "
                "it; it comes from --token or TIERD_JOB_TOKEN");
  }
  std::vector<SocketFailure> failures;
  for (const std::string& path : sockets.paths) {
    auto reached = Reach(path);
    if (reached) {
      auto channel = std::make_unique<Channel>();
      channel->Open(path, job_token);
      // A status call, and not only a connection: the admin socket hangs up on callers that it does not admit.
      const auto asked = channel->CallInTime(timeout, [&channel](grpc::ClientContext* context) {
        v1::GetStatusResponse answer;
        return channel->stub().GetStatus(context, v1::GetStatusRequest(), &answer);
      });
      if (asked.status) return channel;
      reached = asked.status;
      // What a daemon answers is an answer, also that it is crowded; where none does, another socket may have one.
      const bool silent = reached.error().code == Code::kDisconnected || reached.error().code == Code::kTimeout;
      if (!silent || asked.turned_away) return std::unexpected(reached.error());
      if (reached.error().code == Code::kDisconnected && !HasListener(path))
        reached = Fail(Code::kDisconnected, "nothing listens on it, as its daemon has ended");
    }
    failures.push_back({path, std::move(reached.error())});
  }
  return std::unexpected(Summary(failures, sockets.named));
}

void Channel::Open(const std::string& path, const std::string& token) {
  socket_ = path;
  token_ = token;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL,
                   1);  // Two channels are two connections, each with its identity.
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "tierd");
  channel_ = grpc::CreateCustomChannel("unix:" + path, grpc::InsecureChannelCredentials(), arguments);
  stub_ = v1::ControlService::NewStub(channel_);
}

Channel::Outcome Channel::CallInTime(std::chrono::milliseconds timeout,
                                     const std::function<grpc::Status(grpc::ClientContext*)>& call) const {
  const auto deadline = std::chrono::system_clock::now() + timeout;
  Outcome outcome;
  const Attempt last = RepeatWhileCrowded(deadline, [&] {
    grpc::ClientContext context;  // Of one call.
    Prepare(&context);
    context.set_deadline(deadline);
    Attempt made{.status = call(&context), .turned_away = false};
    made.turned_away = WasTurnedAway(made.status, context);
    outcome.status = made.status.ok() ? Status() : std::unexpected(ToError(made.status, context, socket_));
    return made;
  });
  outcome.turned_away = last.turned_away;
  return outcome;
}

void Channel::Prepare(grpc::ClientContext* context) const {
  if (!token_.empty()) context->AddMetadata(kTokenKey, token_);
}

}  // namespace tier::control_client
