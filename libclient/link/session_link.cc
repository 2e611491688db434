#include "libclient/link/session_link.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "libclient/link/packet.h"
#include "proto/ring.h"
#include "proto/socket_places.h"
#include "proto/units.h"

namespace tier::link {
namespace {

constexpr char kHowToStart[] = "start one with `tierd` or `systemctl start tierd`, or name its socket in TIERD_SOCKET";

// Text that does not fit is refused, not cut: a name that is cut is another name.
template <size_t N>
Status FillText(const std::string& text, const char* field, char (&target)[N]) {
  if (text.size() >= N) {
    return Fail(Code::kInvalid, std::string(field) + " of " + std::to_string(text.size()) +
                                    " bytes is too long: at most " + std::to_string(N - 1));
  }
  std::memcpy(target, text.data(), text.size());
  return {};
}

Result<proto::Hello> MakeHello(const AttachOptions& options) {
  proto::Hello hello{};
  hello.header = MakeHeader(proto::PacketKind::kHello, sizeof hello);
  hello.version_min = proto::kProtocolVersionMin;
  hello.mode = static_cast<uint16_t>(options.mode);
  hello.named = options.named ? 1 : 0;
  hello.numa_node = options.numa_node ? static_cast<uint16_t>(1 + *options.numa_node) : uint16_t{0};
  hello.rank = options.identity.rank;
  hello.world_size = options.identity.world_size;
  hello.pid = ::getpid();
  hello.guarantee_bytes = options.guarantee_bytes;
  hello.limit_bytes = options.limit_bytes;
  if (auto ok = FillText(options.identity.name, "the job name", hello.job); !ok) return std::unexpected(ok.error());
  if (auto ok = FillText(options.identity.token, "the job token", hello.token); !ok) return std::unexpected(ok.error());
  if (auto ok = FillText(options.identity.launch, "the launcher's run id, with its address,", hello.launch); !ok) {
    return Fail(ok.error().code, ok.error().message + "; set TIERD_JOB_TOKEN for all ranks instead");
  }
  std::snprintf(hello.client, sizeof hello.client, "libtier 0.1.0 (%.40s)", program_invocation_short_name);
  return hello;
}

Status CheckWelcome(const proto::Welcome& welcome, uint32_t descriptor_count) {
  const bool size_fits = std::has_single_bit(welcome.window_size) && welcome.window_size >= kWindowSizeMin &&
                         welcome.window_size <= kWindowSizeMax;
  const bool space_fits = welcome.address_space_size >= welcome.window_size &&
                          welcome.address_space_size <= kAddressSpaceMax &&
                          welcome.address_space_size % kBlockSize == 0;
  if (descriptor_count != 3 || !size_fits || !space_fits || welcome.windows_max == 0 ||
      welcome.windows_max > kWindowsMax || welcome.session_region_size != proto::kSessionRegionSize) {
    return Fail(Code::kVersion,
                "the daemon's welcome does not fit this libtier: window size " + std::to_string(welcome.window_size) +
                    ", address space " + std::to_string(welcome.address_space_size) + ", windows " +
                    std::to_string(welcome.windows_max) + ", session region " +
                    std::to_string(welcome.session_region_size) + ": install the libtier that came with the daemon");
  }
  return {};
}

struct Attempt {
  proto::FileDescriptor socket;
  int error = 0;  // errno of the failure
};

std::string NoAnswer(std::chrono::milliseconds waited) {
  return "the daemon has not answered within " + std::to_string(waited.count()) +
         " ms: it hangs, was stopped, or still starts; see its log";
}

// A daemon that accepts and reads nothing any more makes connect() wait once its backlog is full, as sending does.
bool LimitWaiting(int socket, std::chrono::milliseconds limit) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(limit);
  const timeval wait{seconds.count(), std::chrono::microseconds(limit - seconds).count()};
  return ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) == 0;
}

// A path that is no socket refuses connections like a socket without a daemon; it is told apart for the message.
int WhyRefused(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0 || S_ISSOCK(about.st_mode)) return ECONNREFUSED;
  return S_ISDIR(about.st_mode) ? EISDIR : ENOTSOCK;
}

Attempt Connect(const std::string& path, std::chrono::milliseconds timeout) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return {{}, ENAMETOOLONG};
  std::memcpy(address.sun_path, path.data(), path.size());
  proto::FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket || !LimitWaiting(socket.get(), timeout)) return {{}, errno};
  while (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == ECONNREFUSED) return {{}, WhyRefused(path)};
    if (errno != EINTR) return {{}, errno};
  }
  return {std::move(socket), 0};
}

Code CodeOf(int error) {
  if (error == EACCES || error == EPERM) return Code::kDenied;
  if (error == ENOENT || error == ENOTDIR) return Code::kNotFound;
  if (error == ENAMETOOLONG || error == EISDIR || error == ENOTSOCK || error == EPROTOTYPE) return Code::kInvalid;
  if (error == EAGAIN) return Code::kTimeout;
  return Code::kDisconnected;
}

const char* MeaningOf(int error) {
  if (error == EACCES || error == EPERM) return "no permission: ask for group tierd, or start a daemon of your own";
  if (error == ENOENT || error == ENOTDIR) return "no such socket";
  if (error == EISDIR) return "this is a directory, and no socket";
  if (error == ENOTSOCK) return "this is no socket: name a daemon's tierd.sock";
  if (error == EPROTOTYPE) return "this is no data socket, but like control.sock: name the tierd.sock beside it";
  if (error == ECONNREFUSED) return "no daemon listens there any more";
  if (error == EAGAIN) return "the daemon takes no connection: it hangs or was stopped; see its log";
  return std::strerror(error);
}

// The daemon's answer to Hello. A challenge before it is answered here: the kernel tells the daemon by the answer which
// process has the socket.
Status ReceiveAnswer(int socket, std::chrono::steady_clock::time_point deadline, Packet& packet) {
  if (auto got = Receive(socket, deadline, packet); !got) return got;
  if (packet.kind() != proto::PacketKind::kProcessChallenge) return {};
  auto proof = packet.As<proto::ProcessPacket>();
  proof.header = MakeHeader(proto::PacketKind::kProcessProof, sizeof proof);
  if (auto sent = Send(socket, &proof, sizeof proof); !sent) return sent;
  return Receive(socket, deadline, packet);
}

}  // namespace

Result<Attachment> Greet(proto::FileDescriptor socket, const AttachOptions& options) {
  auto hello = MakeHello(options);
  if (!hello) return std::unexpected(hello.error());
  if (auto sent = Send(socket.get(), &*hello, sizeof *hello); !sent) return std::unexpected(sent.error());
  Packet packet;
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  if (auto got = ReceiveAnswer(socket.get(), deadline, packet); !got) {
    if (got.error().code == Code::kTimeout) return Fail(Code::kTimeout, NoAnswer(options.timeout));
    return std::unexpected(got.error());
  }
  if (packet.kind() != proto::PacketKind::kWelcome) {
    return Fail(Code::kInvalid, "the daemon answered Hello with a packet of kind " +
                                    std::to_string(packet.As<proto::PacketHeader>().kind));
  }
  const auto& welcome = packet.As<proto::Welcome>();
  if (welcome.code != 0) {
    const Code code = welcome.code < kCodeCount ? static_cast<Code>(welcome.code) : Code::kInvalid;
    return Fail(code, welcome.message);
  }
  if (auto fits = CheckWelcome(welcome, packet.descriptor_count); !fits) return std::unexpected(fits.error());
  return Attachment{{},
                    std::move(socket),
                    std::move(packet.descriptors[0]),
                    std::move(packet.descriptors[1]),
                    std::move(packet.descriptors[2]),
                    welcome};
}

namespace {

// A job of that name may still be closing, or its manifest being removed: the daemon then says TIMEOUT at once, and is
// asked again, less and less often.
constexpr std::chrono::milliseconds kClosingRetryMin{20}, kClosingRetryMax{200};

Result<Attachment> ConnectAndGreet(const std::string& path, Attempt* attempt, const AttachOptions& options) {
  using std::chrono::steady_clock;
  const auto deadline = steady_clock::now() + options.timeout;
  AttachOptions left = options;
  for (auto pause = kClosingRetryMin;; pause = std::min(2 * pause, kClosingRetryMax)) {
    auto attached = Greet(std::move(attempt->socket), left);
    const bool again = !attached && attached.error().code == Code::kTimeout;
    if (!again || steady_clock::now() + pause >= deadline) return attached;
    std::this_thread::sleep_for(pause);
    left.timeout = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
    *attempt = Connect(path, left.timeout);
    if (!attempt->socket) return Fail(CodeOf(attempt->error), MeaningOf(attempt->error));
  }
}

}  // namespace

Result<Attachment> Attach(const AttachOptions& options) {
  std::string tried;
  Code code = Code::kNotFound;
  for (const std::string& path : options.sockets) {
    if (auto place = proto::CheckSocketPlace(path, ::geteuid()); !place) {
      const bool absent = place.error().code == Code::kNotFound;
      if (code == Code::kNotFound) code = place.error().code;
      tried += (tried.empty() ? "" : "; ") + path + ": " + (absent ? MeaningOf(ENOENT) : place.error().message);
      continue;
    }
    Attempt attempt = Connect(path, options.timeout);
    if (attempt.socket) {
      auto attached = ConnectAndGreet(path, &attempt, options);
      if (!attached) return Fail(attached.error().code, attached.error().message + " (socket " + path + ")");
      attached->socket_path = path;
      return attached;
    }
    // The most telling code wins: a socket that exists says more than one that does not.
    if (code == Code::kNotFound) code = CodeOf(attempt.error);
    tried += (tried.empty() ? "" : "; ") + path + ": " + MeaningOf(attempt.error);
  }
  // Several are the usual places, the system's among them; one was named.
  const std::string there = options.sockets.size() == 1 ? proto::HowToStartAt(options.sockets.front()) : "";
  return Fail(code, "no tierd daemon could be reached (tried " + tried + "): " + (there.empty() ? kHowToStart : there));
}

}  // namespace tier::link
