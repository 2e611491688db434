// QuotaControl: the quotas that ControlApi shows and sets. What is set is stored first; then the engine hears of it, at
// once or, where it does not answer in time, as soon as it does.
//
// Any thread but the engine's: it waits for the user database and a disk.
#pragma once

#include <functional>
#include <string>

#include "daemon/session/control_api.h"
#include "daemon/session/engine_calls.h"
#include "daemon/session/event_log.h"
#include "daemon/session/job_service.h"
#include "daemon/session/owner_table.h"
#include "daemon/session/quota_book.h"
#include "daemon/session/unanswered.h"

namespace tier::session {

struct QuotaControlParts {
  EngineCalls& calls;
  JobService& jobs;  // Touched only in calls, as are the events.
  EventLog& events;
  QuotaBook* book = nullptr;           // Null: there are none.
  const OwnerTable* owners = nullptr;  // Null: none.
  // Applies what is stored once the engine takes calls again, and tells its watchers this. May be empty.
  std::function<void(const std::string& what)> apply_later;
};

// Administrators who watch are told `what`; others that a quota was changed.
void TellOfQuotaChange(EventLog& events, const std::string& what);

class QuotaControl {
 public:
  explicit QuotaControl(QuotaControlParts parts) : parts_(std::move(parts)) {}

  // As ControlApi has them.
  Result<QuotaReport> List(const Caller& caller);
  Status Set(const Caller& caller, const QuotaTarget& target, const QuotaFields& fields);
  Status Clear(const Caller& caller, const QuotaTarget& target);

 private:
  std::string OwnerOf(uint32_t uid) const { return parts_.owners == nullptr ? "" : parts_.owners->NameOf(uid); }
  Status ApplyNow(const std::string& what);
  // The engine and the watchers hear of a change; later, where the engine does not answer now.
  Status Apply(const std::string& what);

  const QuotaControlParts parts_;
  Unanswered clears_;  // Quotas that were cleared, and may be applied later.
};

}  // namespace tier::session
