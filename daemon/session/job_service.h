// JobService: opens and closes jobs in both places that know of them, the registry (whose they are) and the engine
// (what they hold), so that neither ever has one that the other lacks. Engine thread only.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/session/event_log.h"
#include "daemon/session/job_registry.h"
#include "daemon/session/kept_terms.h"
#include "daemon/session/owner_table.h"
#include "daemon/session/quota_book.h"
#include "daemon/session/reservation_file.h"
#include "daemon/session/unopened_reservations.h"
#include "daemon/tiering/api/engine_port.h"

namespace tier::session {

struct LeavingSession {
  tiering::JobId job{};
  tiering::SessionId session{};
  bool announced = true;  // Events have told of it.
  // REVOKED: it was ended by force: its process did not ask for it, and goes on.
  Code code = Code::kDisconnected;
};

// A reservation that an administrator asked for, and that could not be stored.
struct UnstoredReservation {
  tiering::JobId job{};
  uint32_t uid = 0;
  std::string name;
  std::optional<Reservation> before;  // What was reserved, and not open, when it was made.
};

enum class GivenUp {
  kTakenBack,     // It is no more, and what was reserved before is again.
  kFirstRunCame,  // There is nothing to take back: the job runs.
  kClosed,        // It was closed meanwhile, by its first run or by request; nothing else was changed.
};

class JobService {
 public:
  // `quotas`: what users may have; null: the defaults of the registry and the engine. `owners`: of sockets; null: there
  // are none. Both outlive this.
  JobService(tiering::EnginePort& engine, JobRegistry& registry, EventLog& events, const QuotaBook* quotas = nullptr,
             const OwnerTable* owners = nullptr)
      : engine_(engine), registry_(registry), events_(events), quotas_(quotas), owners_(owners) {}

  // Opens or joins a job; with a session, that session becomes its member, and is known to the engine unless the job is
  // being resumed: who asks for the session then tells the engine of it WhenOpen.
  // Refusals: those of JobRegistry::Admit and of Engine::OpenJob; DISCONNECTED once it drains for good; DENIED while
  // admission is closed, and for the number of an owner that is none any more; NO_MEMORY where kReservationsMax jobs
  // are reserved. All or nothing, but that a resume closes the named or reserved job without sessions that it opens
  // again. Its terms are kept for the resume, which the engine refuses until it has closed the job; and what was
  // reserved is open again where the resume does not come within kReservationRetry.
  Result<const Job*> Open(uint32_t uid, const OpenJobRequest& request, std::optional<tiering::SessionId> session,
                          base::TimePoint now);
  bool IsOpening(tiering::JobId job) const { return opening_.contains(job); }
  // Calls `done` once the job is open: now, or when it has been resumed. An error: it could not be, or was closed.
  using Opened = std::function<void(const Status&)>;
  void WhenOpen(tiering::JobId job, Opened done);
  // The engine has resumed the job, or says why it could not.
  void OnJobOpened(tiering::JobId job, const Status& status);
  // Ends a session, in its job and in the engine. An ephemeral job ends with its last session.
  void Leave(const LeavingSession& leaving, const std::string& reason);
  // Ends its sessions and frees everything; `purge`: deletes a named job's manifest too.
  void Close(tiering::JobId job, const std::string& reason, bool purge);
  // Begins to remove what a job that is not open persisted. Refusals: those of Engine::DeleteStoredManifest.
  Status DeleteStoredManifest(uint32_t uid, const std::string& name, const std::string& reason);
  // As Engine::PurgeDevice; these jobs' terms are dropped, and events tell of it.
  Status PurgeDevice(const std::string& uuid, const std::string& reason, tiering::EnginePort::Purged done);
  // What is due: closes the ephemeral jobs to which no session has attached in time, and tries to open reserved jobs
  // that are not open.
  void CloseExpired(base::TimePoint now);
  std::optional<base::TimePoint> NextExpiry() const;

  // No job is opened and none is joined until admission is open again; who comes is told `reason`. Jobs that are open
  // go on as they are.
  void CloseAdmission(const std::string& reason);
  void OpenAdmission() { closed_reason_.reset(); }
  // DENIED while admission is closed, DISCONNECTED before the end.
  Status CheckAdmission() const;
  // Before the end: nothing is opened or joined from now on, and the engine drains; a client that comes is told
  // `reason`.
  void StartDrain(const std::string& reason);

  // Quotas were changed: what holds for users with jobs is told to the engine. That the book knows them is the caller's
  // to see to (QuotaBook::Learn).
  void ApplyQuotas();
  std::set<uint32_t> Owners() const;  // Of open jobs.

  // Changes the terms of a job. Refusals: those of Engine::SetJob.
  Status SetJob(tiering::JobId job, const tiering::TermsChange& change);

  // The jobs that wait for their owners' first runs, with the terms that they have now; by uid and name. A look at each
  // job, where the version says whether it is needed.
  ReservationList Reservations() const;
  uint64_t reservations_version() const {  // Rises with each change of the list.
    return registry_.reserved_version() + unopened_.version() + reserved_terms_version_;
  }
  // At the start: opens a job that was reserved before. An error: it is not open, and is reserved all the same.
  Status Restore(const Reservation& reservation, base::TimePoint now);
  // What is reserved and not open is no more. False: there is no such reservation.
  bool DropReservation(uint32_t uid, const std::string& name) { return unopened_.Remove(uid, name); }
  // Takes back a reservation, unless its first run has come or it is closed; says which.
  GivenUp GiveUpReservation(const UnstoredReservation& unstored, base::TimePoint now);
  const UnopenedReservations& unopened() const { return unopened_; }

  // For those who serve control calls on the engine thread.
  tiering::EnginePort& engine() { return engine_; }
  const JobRegistry& registry() const { return registry_; }
  EventLog& events() { return events_; }

 private:
  Status CheckOwner(uint32_t uid) const;
  Status CheckRoomToReserve(uint32_t uid, const std::string& name) const;
  OpenJobRequest AsReserved(uint32_t uid, const OpenJobRequest& request) const;
  Result<const Job*> OpenAs(uint32_t uid, const OpenJobRequest& request, std::optional<tiering::SessionId> session,
                            base::TimePoint now);
  Reservation ReservationOf(const Job& job) const;
  void OpenReservationsAgain(base::TimePoint now);
  Status CheckReservation(const Job& job, const OpenJobRequest& request) const;
  bool HasManifest(const Job& job) const;
  Status OpenInEngine(const Admission& admission, const OpenJobRequest& request,
                      const std::optional<ResolvedQuota>& quota);
  Result<const Job*> Reopen(uint32_t uid, const OpenJobRequest& request, const Job& old,
                            std::optional<tiering::SessionId> session, base::TimePoint now);

  void EmitClosed(const Job& job, const std::string& reason);
  void EndOpening(tiering::JobId job, const Status& status);
  void NoteOpened(const Job& job);

  tiering::EnginePort& engine_;
  JobRegistry& registry_;
  EventLog& events_;
  const QuotaBook* const quotas_;
  const OwnerTable* const owners_;
  std::map<tiering::JobId, std::vector<Opened>> opening_;  // Jobs that are being resumed, and who waits for them.
  KeptTerms kept_;
  UnopenedReservations unopened_;
  uint64_t reserved_terms_version_ = 0;  // Rises when a reserved job gets other terms.
  std::optional<std::string> closed_reason_;
  std::optional<std::string> drain_reason_;
};

}  // namespace tier::session
