// OwnerControl: the sockets of owners as ControlApi opens, closes and lists them.
//
// Any thread but the engine's: it waits for a disk and for the user database.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "daemon/session/control_api.h"
#include "daemon/session/engine_calls.h"
#include "daemon/session/event_log.h"
#include "daemon/session/job_service.h"
#include "daemon/session/owner_sockets.h"

namespace tier::session {

struct OwnerControlParts {
  EngineCalls& calls;
  JobService& jobs;  // Touched only in calls.
  EventLog& events;
  OwnerSockets* sockets = nullptr;  // Null: there are none, as of a private daemon.
  QuotaBook* quotas = nullptr;      // Null: there are none.
  UserDirectory* users = nullptr;   // The system's: no owner has a name of theirs. Null: it has none.
};

class OwnerControl {
 public:
  explicit OwnerControl(const OwnerControlParts& parts) : parts_(parts) {}

  // As ControlApi has them.
  Result<OwnerSocket> Open(const Caller& caller, const std::string& owner);
  Status Close(const Caller& caller, const std::string& owner, bool purge);
  Result<std::vector<OwnerSocket>> List(const Caller& caller);

 private:
  Status Check(const Caller& caller, const char* what) const;
  // INVALID: a new owner would have the name of a user. TIMEOUT: whether it would is not known.
  Status CheckName(const std::string& owner);
  // DENIED: jobs of this uid are open or reserved, or it has persisted tensors. TIMEOUT: it may have some soon.
  Status CheckUnused(uint32_t uid, const std::string& owner);
  Status CheckSettled(uint32_t uid, const std::string& owner) const;
  Status DropQuota(uint32_t uid, const std::string& owner);

  const OwnerControlParts parts_;
};

}  // namespace tier::session
