// See owner_control.h.
#include "daemon/session/owner_control.h"

#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/session/not_admin.h"

namespace tier::session {

Status OwnerControl::Check(const Caller& caller, const char* what) const {
  if (!caller.admin) return NotAdmin(what);
  if (parts_.sockets != nullptr) return {};
  return Fail(Code::kDenied, "a private daemon serves its own user alone: it has no sockets of owners");
}

// Best effort: who lists the sockets sees it too.
void OwnerControl::TellWatchers(const char* kind, const std::string& what) {
  (void)parts_.calls.Ask<void>([this, kind, what]() -> Status {
    parts_.events.Emit(kind, nullptr, what);
    return {};
  });
}

Result<OwnerSocket> OwnerControl::Open(const Caller& caller, const std::string& owner) {
  if (Status may = Check(caller, "open a socket for an owner"); !may) return std::unexpected(may.error());
  auto socket = parts_.sockets->Open(owner);
  if (!socket) return socket;
  TellWatchers("socket_opened", fmt::format("uid {} opened the socket of owner {} (uid {}) in {}", caller.uid, owner,
                                            socket->uid, socket->directory));
  return socket;
}

Status OwnerControl::Close(const Caller& caller, const std::string& owner, bool purge) {
  if (Status may = Check(caller, "close the socket of an owner"); !may) return may;
  const auto uid = parts_.sockets->Close(owner);
  if (!uid) return std::unexpected(uid.error());
  if (purge) {
    if (Status unused = CheckUnused(*uid, owner); !unused) return unused;
    if (Status removed = parts_.sockets->Remove(owner); !removed) return removed;
  }
  TellWatchers("socket_closed", fmt::format("uid {} closed the socket of owner {} (uid {}){}", caller.uid, owner, *uid,
                                            purge ? ", and gave the name up" : ""));
  return {};
}

Status OwnerControl::CheckUnused(uint32_t uid, const std::string& owner) {
  TIER_CHECK(IsOwnerUid(uid), "owner {} has uid {}", owner, uid);
  return parts_.calls.Ask<void>([this, uid, owner]() -> Status {
    const size_t jobs = parts_.jobs.registry().CountOf(uid);
    const bool persisted = !parts_.jobs.engine().StoredManifests(fmt::format("{}/", uid), 1).empty();
    if (jobs == 0 && !persisted) return {};
    return Fail(Code::kDenied,
                fmt::format("the socket of owner {0} is closed, and its name is not given up: it has {1} open jobs{2}; "
                            "remove them first (tierctl job list, tierctl job remove --purge {3}/JOB)",
                            owner, jobs, persisted ? ", and persisted tensors" : "", uid));
  });
}

Result<std::vector<OwnerSocket>> OwnerControl::List(const Caller& caller) {
  if (!caller.admin) return std::unexpected(NotAdmin("list the sockets of owners").error());
  return parts_.sockets == nullptr ? std::vector<OwnerSocket>() : parts_.sockets->List();
}

}  // namespace tier::session
