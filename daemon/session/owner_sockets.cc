// See owner_sockets.h.
#include "daemon/session/owner_sockets.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/session/packet_socket.h"

namespace tier::session {
namespace {

std::string In(const std::string& folder, const char* socket) { return folder + "/" + socket; }

Error Starting() { return {Code::kTimeout, "tierd is starting: try again"}; }

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
  RemoveEmptyFolders(directory_);
  for (const auto& [name, owner] : table_.List()) {
    if (!owner.open) continue;
    if (Status listening = Listen(name, owner.uid); !listening) {
      failures.push_back(fmt::format("the socket of owner {} is not open: {}; then run tierctl socket open --owner {}",
                                     name, listening.error().message, name));
    }
  }
  return failures;
}

// The folder of a new owner comes first: an owner that is in the table has a folder of its own from the beginning.
Result<uint32_t> OwnerSockets::TakeName(const std::string& owner) {
  const bool fresh = !table_.UidOf(owner);
  if (fresh) {
    if (Status may = table_.MayOpen(owner); !may) return std::unexpected(may.error());
    if (Status made = MakeNewOwnerFolder(directory_, owner); !made) return std::unexpected(made.error());
  }
  auto uid = table_.Open(owner);
  if (!uid && fresh) (void)::rmdir(FolderOf(owner).c_str());  // Best effort: the next one is moved aside.
  return uid;
}

Result<OwnerSocket> OwnerSockets::Open(const std::string& owner) {
  const MutexLock lock(mutex_);
  if (!started_) return std::unexpected(Starting());
  const auto uid = TakeName(owner);
  if (!uid) return std::unexpected(uid.error());
  if (Status listening = Listen(owner, *uid); !listening) {
    (void)table_.Close(owner);  // Best effort: else it is tried again at the next start.
    return std::unexpected(listening.error());
  }
  return OwnerSocket{.owner = owner, .uid = *uid, .directory = FolderOf(owner), .open = true};
}

// Who has the folder may have removed a socket, or put something else in its place.
bool OwnerSockets::IsThere(const std::string& owner, const Listening& listening) const {
  const auto data = FileIdOf(In(FolderOf(owner), kOwnerDataSocket));
  const auto control = FileIdOf(In(FolderOf(owner), kOwnerControlSocket));
  return data && data == listening.data_file && control && control == listening.control_file;
}

Status OwnerSockets::Listen(const std::string& owner, uint32_t uid) {
  TIER_CHECK(IsOwnerUid(uid), "owner '{}' has uid {}", owner, uid);
  if (const auto open = open_.find(uid); open != open_.end()) {
    if (IsThere(owner, open->second)) return {};
    StopListening(owner, uid);
  }
  if (Status made = MakeOwnerFolder(directory_, owner); !made) return made;
  const std::string data = In(FolderOf(owner), kOwnerDataSocket);
  const std::string control = In(FolderOf(owner), kOwnerControlSocket);
  auto socket = ListenAt(data, kOwnerDataSocketMode);
  if (!socket) return std::unexpected(std::move(socket.error()));
  proto::FileDescriptor ours(::fcntl(socket->get(), F_DUPFD_CLOEXEC, 0));
  Status listening = ours ? calls_.listen_control(uid, control)
                          : Fail(Code::kNoMemory, fmt::format("no descriptor left: {}", std::strerror(errno)));
  if (!listening) {
    (void)::unlink(data.c_str());
    return listening;
  }
  open_.emplace(uid,
                Listening{.data = std::move(ours), .data_file = FileIdOf(data), .control_file = FileIdOf(control)});
  calls_.listen(uid, std::move(*socket));
  return {};
}

void OwnerSockets::StopListening(const std::string& owner, uint32_t uid) {
  const auto socket = open_.extract(uid);
  TIER_CHECK(!socket.empty(), "the socket of owner {} is not open", owner);
  (void)::unlink(In(FolderOf(owner), kOwnerDataSocket).c_str());
  (void)::shutdown(socket.mapped().data.get(), SHUT_RDWR);  // No connection from now on: the listener closes it later.
  calls_.stop(uid);
  calls_.stop_control(uid);
}

// First of all no one comes in any more, whatever becomes of the note.
Result<ClosedSocket> OwnerSockets::CloseNow(const std::string& owner) {
  if (!started_) return std::unexpected(Starting());
  const auto uid = table_.UidOf(owner);
  if (uid && open_.contains(*uid)) StopListening(owner, *uid);
  const Status closed = table_.Close(owner);
  if (!closed && !uid) return std::unexpected(closed.error());
  TIER_CHECK(uid, "owner {} has no number", owner);
  if (closed) return ClosedSocket{.uid = *uid, .rest = {}};
  return ClosedSocket{
      .uid = *uid,
      .rest = Fail(closed.error().code,
                   fmt::format("the socket of owner {} is closed, and would be open again at the next start, as that "
                               "cannot be written down: {}; close it again then",
                               owner, closed.error().message))};
}

Result<ClosedSocket> OwnerSockets::Close(const std::string& owner) {
  const MutexLock lock(mutex_);
  return CloseNow(owner);
}

// Between the look at what the owner has and the end of its name nothing may be opened for it: it is suspended. Its
// control connections end before that look: they could open a job again whenever an administrator has removed one.
Result<ClosedSocket> OwnerSockets::Purge(const std::string& owner, const std::function<Status(uint32_t uid)>& check) {
  TIER_CHECK(check != nullptr, "owner {} is purged unseen", owner);
  const MutexLock lock(mutex_);
  auto closed = CloseNow(owner);
  if (!closed || !closed->rest) return closed;
  const uint32_t uid = closed->uid;
  TIER_CHECK(!open_.contains(uid), "the socket of owner {} is open still", owner);
  table_.Suspend(uid);
  calls_.end_control(uid);
  closed->rest = check(uid);
  if (closed->rest) closed->rest = GiveUp(owner, uid);
  table_.EndSuspension(uid);
  return closed;
}

Status OwnerSockets::GiveUp(const std::string& owner, uint32_t uid) {
  TIER_CHECK(!table_.IsOwner(uid), "owner {} can open jobs while its name is given up", owner);
  if (Status moved = MoveOwnerFolderAside(directory_, owner, std::to_string(uid)); !moved) return moved;
  return table_.Remove(owner);
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
