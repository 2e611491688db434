// StoredControl: closes jobs and removes what they persisted, and lists that, and reservations that are not open, as
// ControlApi has it. What is persisted may be that of an open job, of one that ended, or of several users under one
// name.
//
// Any thread but the engine's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/session/control_api.h"
#include "daemon/session/engine_calls.h"
#include "daemon/session/job_service.h"
#include "daemon/session/owner_table.h"

namespace tier::session {

struct StoredControlParts {
  EngineCalls& calls;
  JobService& jobs;                    // Touched only in calls.
  const OwnerTable* owners = nullptr;  // Null: none.
};

class StoredControl {
 public:
  explicit StoredControl(const StoredControlParts& parts) : parts_(parts) {}

  // As ControlApi has them.
  Status Close(const Caller& caller, const std::string& name, const JobClosing& closing);
  Result<std::vector<StoredManifestDescription>> List(const Caller& caller, const std::string& after, size_t max);
  Result<std::vector<UnopenedReservationDescription>> ListUnopened(const Caller& caller, const std::string& after,
                                                                   size_t max);

 private:
  // Engine thread, as the others.
  std::vector<StoredManifestDescription> For(const Caller& caller, size_t max);
  std::vector<StoredManifestDescription> Named(const Caller& caller, const std::string& name);
  Status CheckPurge(const Job& job, const std::string& name, const std::vector<StoredManifestDescription>& stored);
  // `absent`: why no open job is meant.
  Status RemoveStored(const Caller& caller, const std::string& name,
                      const std::vector<StoredManifestDescription>& stored, bool purge, const Error& absent);
  bool DropReservation(const Caller& caller, const std::string& name);
  std::string OwnerOf(uint32_t uid) const { return parts_.owners == nullptr ? "" : parts_.owners->NameOf(uid); }

  const StoredControlParts parts_;
};

}  // namespace tier::session
