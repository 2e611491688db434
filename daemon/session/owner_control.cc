// See owner_control.h.
#include "daemon/session/owner_control.h"

#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/counted.h"
#include "daemon/session/not_admin.h"

namespace tier::session {

Status OwnerControl::Check(const Caller& caller, const char* what) const {
  if (!caller.admin) return NotAdmin(what);
  if (parts_.sockets != nullptr) return {};
  return Fail(Code::kDenied, "a private daemon serves its own user alone: it has no sockets of owners");
}

// A quota of this name could be that of either. The user database may be asked for seconds: not with a lock. Where it
// does not answer, there may be such a user.
Status OwnerControl::CheckName(const std::string& owner) {
  if (Status named = CheckOwnerName(owner); !named) return named;
  if (parts_.users == nullptr || parts_.sockets->Knows(owner)) return {};
  const auto user = parts_.users->FindUserId(owner);
  if (!user && user.error().code == Code::kNotFound) return {};
  if (!user) {
    return Fail(user.error().code, fmt::format("the socket of owner {} is not opened, as no user may have its name: {}",
                                               owner, user.error().message));
  }
  return Fail(Code::kInvalid,
              fmt::format("'{}' is a user of this system: an owner needs a name of its own, such as {}-pod", owner,
                          owner.substr(0, kOwnerNameSizeMax - 4)));
}

Result<OwnerSocket> OwnerControl::Open(const Caller& caller, const std::string& owner) {
  if (Status may = Check(caller, "open a socket for an owner"); !may) return std::unexpected(may.error());
  if (Status named = CheckName(owner); !named) return std::unexpected(named.error());
  auto socket = parts_.sockets->Open(owner);
  if (!socket) return socket;
  parts_.events.EmitForAdministrators("socket_opened",
                                      fmt::format("uid {} opened the socket of owner {} (uid {}) in {}", caller.uid,
                                                  owner, socket->uid, socket->directory),
                                      "an administrator opened the socket of an owner");
  return socket;
}

Status OwnerControl::Close(const Caller& caller, const std::string& owner, bool purge) {
  if (Status may = Check(caller, "close the socket of an owner"); !may) return may;
  const auto closed = purge ? parts_.sockets->Purge(owner, [&](uint32_t of) { return CheckUnused(of, owner); })
                            : parts_.sockets->Close(owner);
  if (!closed) return std::unexpected(closed.error());
  // Also where the name stays: no one connects from now on.
  parts_.events.EmitForAdministrators("socket_closed",
                                      fmt::format("uid {} closed the socket of owner {} (uid {}){}", caller.uid, owner,
                                                  closed->uid, purge && closed->rest ? ", and gave the name up" : ""),
                                      "an administrator closed the socket of an owner");
  if (!closed->rest) return closed->rest;
  return purge ? DropQuota(closed->uid, owner) : Status();
}

// REQUIRES: the owner is suspended: what is opened for it after this look is refused.
Status OwnerControl::CheckUnused(uint32_t uid, const std::string& owner) {
  TIER_CHECK(IsOwnerUid(uid), "owner {} has uid {}", owner, uid);
  return parts_.calls.Ask<void>([this, uid, owner]() -> Status {
    const size_t jobs = parts_.jobs.registry().CountOf(uid);
    const size_t reserved = parts_.jobs.unopened().CountOf(uid);
    const bool persisted = !parts_.jobs.engine().StoredManifests(fmt::format("{}/", uid), 1).empty();
    if (jobs == 0 && reserved == 0 && !persisted) return CheckSettled(uid, owner);
    return Fail(Code::kDenied,
                fmt::format("the socket of owner {0} is closed, and its name is not given up: it has {1}, open or "
                            "reserved{2}; remove them first (tierctl job list, tierctl job remove --purge {0}/JOB)",
                            owner, base::Counted(jobs + reserved, "job"), persisted ? ", and persisted tensors" : ""));
  });
}

// A job that is not in the registry any more may be on its way to leave a manifest. Engine thread.
Status OwnerControl::CheckSettled(uint32_t uid, const std::string& owner) const {
  const Status settled = parts_.jobs.engine().CheckSettled(fmt::format("{}/", uid));
  if (settled) return settled;
  return Fail(settled.error().code, fmt::format("the socket of owner {} is closed, and its name is not given up: {}",
                                                owner, settled.error().message));
}

// No other owner has this number: a quota of it would only take one of the places that there are for quotas.
Status OwnerControl::DropQuota(uint32_t uid, const std::string& owner) {
  if (parts_.quotas == nullptr) return {};
  Status cleared = parts_.quotas->Clear({tiering::QuotaLevel::kUser, std::to_string(uid)});
  if (cleared || cleared.error().code == Code::kNotFound) return {};
  return Fail(cleared.error().code,
              fmt::format("owner {} is no more, and its quota is still there: {}; then run tierctl "
                          "quota clear user {}",
                          owner, cleared.error().message, uid));
}

Result<std::vector<OwnerSocket>> OwnerControl::List(const Caller& caller) {
  if (!caller.admin) return std::unexpected(NotAdmin("list the sockets of owners").error());
  return parts_.sockets == nullptr ? std::vector<OwnerSocket>() : parts_.sockets->List();
}

}  // namespace tier::session
