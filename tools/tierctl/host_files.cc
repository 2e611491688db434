#include "tools/tierctl/host_files.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <deque>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "proto/mapping.h"

namespace tier::tierctl {
namespace {

constexpr char kSystemUser[] = "tierd";  // As deploy/systemd names it.
constexpr int kLinksMax = 40;            // As the kernel follows.

std::unexpected<Error> Unread(Code code, const std::string& path, const std::string& why) {
  return Fail(code, fmt::format("cannot read {}: {}", path, why));
}

// Links of procfs are the kernel's, also in a user namespace that has no name for the machine's root.
bool IsOfKernel(int fd) {
  struct statfs about{};
  return ::fstatfs(fd, &about) == 0 && about.f_type == PROC_SUPER_MAGIC;
}

// What the link that `link` stands for says, where one who is trusted made it: any other could have root read any file.
Result<std::string> ReadLink(const proto::FileDescriptor& link, const std::string& name, const std::string& path,
                             uint32_t caller) {
  struct stat about{};
  if (::fstat(link.get(), &about) != 0) return Unread(Code::kIoError, path, std::strerror(errno));
  if (about.st_uid != 0 && about.st_uid != caller && !IsOfKernel(link.get())) {
    return Unread(Code::kDenied, path,
                  fmt::format("{} is a symbolic link of uid {}, and only those of root and of uid {} are followed",
                              name, about.st_uid, caller));
  }
  std::array<char, PATH_MAX> text{};
  const ssize_t size = ::readlinkat(link.get(), "", text.data(), text.size());
  if (size < 0) return Unread(Code::kIoError, path, std::strerror(errno));
  return std::string(text.data(), static_cast<size_t>(size));
}

proto::FileDescriptor StartOf(const std::string& path) {
  return proto::FileDescriptor(::open(path.starts_with('/') ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
}

// "a" and "b" of "/a/b". A slash at the end asks for a folder, which its "." is.
std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  for (const std::filesystem::path& name : std::filesystem::path(path).relative_path())
    names.push_back(name.empty() ? "." : name.string());
  return names;
}

// What `path` leads to, not opened for reading. It is walked one name at a time, and each is held by a descriptor: who
// owns a folder may put another link in the place of one that was looked at.
Result<proto::FileDescriptor> FindHostFile(const std::string& path, uint32_t caller) {
  proto::FileDescriptor at = StartOf(path);
  const std::vector<std::string> names = NamesIn(path);
  std::deque<std::string> rest(names.begin(), names.end());
  for (int links = 0; at && !rest.empty();) {
    const std::string name = std::exchange(rest.front(), {});
    rest.pop_front();
    proto::FileDescriptor next(::openat(at.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat about{};
    if (!next || ::fstat(next.get(), &about) != 0) return Unread(Code::kNotFound, path, std::strerror(errno));
    if (!S_ISLNK(about.st_mode)) {
      at = std::move(next);
      continue;
    }
    const auto target = ReadLink(next, name, path, caller);
    if (!target) return std::unexpected(target.error());
    if (++links > kLinksMax) return Unread(Code::kDenied, path, std::strerror(ELOOP));
    const std::vector<std::string> names_of_target = NamesIn(*target);
    rest.insert(rest.begin(), names_of_target.begin(), names_of_target.end());
    if (target->starts_with('/')) at = StartOf(*target);
  }
  if (!at) return Unread(Code::kNotFound, path, std::strerror(errno));
  return at;
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

Result<std::string> ReadHostFile(const std::string& path, uint32_t caller) {
  const auto found = FindHostFile(path, caller);
  if (!found) return std::unexpected(found.error());
  struct stat about{};
  if (::fstat(found->get(), &about) != 0) return Unread(Code::kIoError, path, std::strerror(errno));
  if (!S_ISREG(about.st_mode)) return Unread(Code::kDenied, path, "it is no regular file");
  // The same file, whatever its name leads to by now.
  const std::string itself = fmt::format("/proc/self/fd/{}", found->get());
  const proto::FileDescriptor file(::open(itself.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file) return Unread(Code::kNotFound, path, std::strerror(errno));
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
