#include "tools/tierctl/host_files.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "proto/mapping.h"

namespace tier::tierctl {
namespace {

constexpr char kSystemUser[] = "tierd";  // As deploy/systemd names it.

std::unexpected<Error> Unread(Code code, const std::string& path, const std::string& why) {
  return Fail(code, fmt::format("cannot read {}: {}", path, why));
}

// The user at the other end of a Unix socket that this process has made; none: it is no such socket. gRPC makes its own
// close-on-exec; what this process was started with cannot be.
std::optional<uint32_t> PeerOf(int fd) {
  const int flags = ::fcntl(fd, F_GETFD);
  if (flags < 0 || (flags & FD_CLOEXEC) == 0) return std::nullopt;
  int domain = 0;
  socklen_t size = sizeof domain;
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_UNIX) return std::nullopt;
  sockaddr_storage address{};
  size = sizeof address;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  ucred credentials{};
  size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  return credentials.uid;
}

}  // namespace

Result<std::string> ReadHostFile(const std::string& path) {
  const proto::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ELOOP) return Unread(Code::kDenied, path, "it is a symbolic link");
  if (!file) return Unread(Code::kNotFound, path, std::strerror(errno));
  struct stat about{};
  if (::fstat(file.get(), &about) != 0) return Unread(Code::kIoError, path, std::strerror(errno));
  if (!S_ISREG(about.st_mode)) return Unread(Code::kDenied, path, "it is no regular file");
  std::string text;
  for (std::array<char, 65536> buffer;;) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Unread(Code::kIoError, path, std::strerror(errno));
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(got));
    if (text.size() > kHostFileBytesMax)
      return Unread(Code::kNoMemory, path, fmt::format("it is longer than {} bytes", kHostFileBytesMax));
  }
}

std::vector<uint32_t> PeersOfOwnSockets() {
  std::vector<uint32_t> peers;
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error); !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    int fd = -1;
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec != std::errc()) continue;
    if (const auto peer = PeerOf(fd)) peers.push_back(*peer);
  }
  return peers;
}

std::optional<uint32_t> SystemUser() {
  std::array<char, 16384> texts{};
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(kSystemUser, &entry, texts.data(), texts.size(), &found) != 0 || found == nullptr)
    return std::nullopt;
  return entry.pw_uid;
}

Status CheckPeers(const std::vector<uint32_t>& peers, uint32_t caller, std::optional<uint32_t> system) {
  if (peers.empty()) return Fail(Code::kDenied, "the kernel does not say which user's daemon answers");
  for (const uint32_t peer : peers) {
    if (peer == 0 || peer == caller || peer == system) continue;
    return Fail(Code::kDenied, fmt::format("uid {0} answers here, and what it names is not read for uid {1}: run "
                                           "tierctl report as uid {0}",
                                           peer, caller));
  }
  return {};
}

}  // namespace tier::tierctl
