// See owner_sockets.h.
#include "daemon/session/owner_sockets.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/session/packet_socket.h"

namespace tier::session {
namespace {

constexpr const char* kDataSocket = "/tierd.sock";
constexpr const char* kControlSocket = "/control.sock";

// Makes the directory where it is not there, as this user's own and with this mode. What another user has put there in
// its place, a link among it, is refused.
Status MakeDirectory(const std::string& path, unsigned mode) {
  const auto failed = [&path](const char* what) {
    return Fail(errno == EACCES || errno == EPERM || errno == EROFS ? Code::kDenied : Code::kIoError,
                fmt::format("cannot {} {}: {}", what, path, std::strerror(errno)));
  };
  if (::mkdir(path.c_str(), mode) != 0 && errno != EEXIST) return failed("make the directory");
  const proto::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about{};
  if (!fd || ::fstat(fd.get(), &about) != 0) return failed("open the directory");
  if (about.st_uid != ::geteuid()) {
    return Fail(Code::kDenied, fmt::format("{} belongs to uid {}, and tierd runs as uid {}: remove it", path,
                                           about.st_uid, ::geteuid()));
  }
  // The mask of new files has closed it too far.
  return ::fchmod(fd.get(), mode) == 0 ? Status() : Status(failed("set the mode of"));
}

}  // namespace

OwnerSockets::~OwnerSockets() {
  const MutexLock lock(mutex_);
  for (const auto& [name, owner] : table_.List()) {
    if (open_.contains(owner.uid)) StopListening(name, owner.uid);
  }
}

std::vector<std::string> OwnerSockets::Reopen() {
  std::vector<std::string> failures;
  const MutexLock lock(mutex_);
  started_ = true;
  for (const auto& [name, owner] : table_.List()) {
    if (!owner.open) continue;
    if (Status listening = Listen(name, owner.uid); !listening) {
      failures.push_back(fmt::format("the socket of owner {} is not open: {}; then run tierctl socket open --owner {}",
                                     name, listening.error().message, name));
    }
  }
  return failures;
}

Result<OwnerSocket> OwnerSockets::Open(const std::string& owner) {
  const MutexLock lock(mutex_);
  if (!started_) return Fail(Code::kTimeout, "tierd is starting: try again");
  const auto uid = table_.Open(owner);
  if (!uid) return std::unexpected(uid.error());
  if (Status listening = Listen(owner, *uid); !listening) {
    (void)table_.Close(owner);  // Best effort: else it is tried again at the next start.
    return std::unexpected(listening.error());
  }
  return OwnerSocket{.owner = owner, .uid = *uid, .directory = FolderOf(owner), .open = true};
}

Status OwnerSockets::Listen(const std::string& owner, uint32_t uid) {
  TIER_CHECK(IsOwnerUid(uid) && owner.find('/') == std::string::npos, "owner '{}' has uid {}", owner, uid);
  const std::string data = FolderOf(owner) + kDataSocket;
  if (open_.contains(uid)) {
    if (::access(data.c_str(), F_OK) == 0) return {};
    StopListening(owner, uid);  // Who has the folder has removed it.
  }
  if (Status made = MakeDirectory(directory_, kOwnersDirectoryMode); !made) return made;
  if (Status made = MakeDirectory(FolderOf(owner), kOwnerFolderMode); !made) return made;
  auto socket = ListenAt(data, kOwnerDataSocketMode);
  if (!socket) return std::unexpected(std::move(socket.error()));
  proto::FileDescriptor ours(::fcntl(socket->get(), F_DUPFD_CLOEXEC, 0));
  Status listening = ours ? calls_.listen_control(uid, FolderOf(owner) + kControlSocket)
                          : Fail(Code::kNoMemory, fmt::format("no descriptor left: {}", std::strerror(errno)));
  if (!listening) {
    (void)::unlink(data.c_str());
    return listening;
  }
  open_.emplace(uid, std::move(ours));
  calls_.listen(uid, std::move(*socket));
  return {};
}

void OwnerSockets::StopListening(const std::string& owner, uint32_t uid) {
  const auto socket = open_.extract(uid);
  TIER_CHECK(!socket.empty(), "the socket of owner {} is not open", owner);
  (void)::unlink((FolderOf(owner) + kDataSocket).c_str());
  (void)::shutdown(socket.mapped().get(), SHUT_RDWR);  // No connection from now on: the listener closes it later.
  calls_.stop(uid);
  calls_.stop_control(uid);
}

Result<uint32_t> OwnerSockets::CloseNow(const std::string& owner) {
  const auto uid = table_.UidOf(owner);
  if (Status closed = table_.Close(owner); !closed) return std::unexpected(closed.error());
  TIER_CHECK(uid, "owner {} has no number", owner);
  if (open_.contains(*uid)) StopListening(owner, *uid);
  return *uid;
}

Result<uint32_t> OwnerSockets::Close(const std::string& owner) {
  const MutexLock lock(mutex_);
  return CloseNow(owner);
}

Status OwnerSockets::Remove(const std::string& owner) {
  const MutexLock lock(mutex_);
  if (const auto closed = CloseNow(owner); !closed) return std::unexpected(closed.error());
  if (Status removed = table_.Remove(owner); !removed) return removed;
  (void)::rmdir(FolderOf(owner).c_str());  // Best effort: what a pod has put there stays.
  return {};
}

std::vector<OwnerSocket> OwnerSockets::List() const {
  const MutexLock lock(mutex_);
  std::vector<OwnerSocket> listed;
  for (const auto& [name, owner] : table_.List()) {
    listed.push_back({.owner = name, .uid = owner.uid, .directory = FolderOf(name), .open = open_.contains(owner.uid)});
  }
  return listed;
}

}  // namespace tier::session
