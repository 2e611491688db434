// See forced_return.h.
#include "daemon/tiering/jobs/forced_return.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/tiering/jobs/teardown.h"
#include "daemon/tiering/leases/bound_windows.h"
#include "daemon/tiering/memory/quota_parts.h"

namespace tier::tiering {
namespace {

using base::FormatBytes;

constexpr size_t kLookedForMax = 4;  // Owed jobs, at a time.

double Seconds(base::Duration duration) { return std::chrono::duration<double>(duration).count(); }

void Observe(Tables& tables) {
  const base::TimePoint now = tables.turn.now();
  std::vector<OwedJob>& owed = tables.forced_returns.jobs();
  const auto note = [&](EntitlementIndex job, bool within_user, bool of_leases) {
    if (!of_leases && !tables.ledger.LacksWindow(job)) return;
    const JobId id = tables.ledger.IdOf(job);
    auto entry = std::ranges::find(owed, id, &OwedJob::id);
    if (entry == owed.end()) entry = owed.insert(owed.end(), {.id = id, .since = now});
    entry->seen = now;
    entry->held = tables.ledger.HeldBy(job);
    entry->within_user = within_user;
    entry->of_leases = of_leases;
  };
  for (const EntitlementIndex job : tables.ledger.claims()) {
    if (!tables.ledger.ClaimLeft(job)) note(job, false, false);  // Else what came would come to no request.
  }
  for (const JobState* job : tables.waits.short_jobs()) {
    if (QuotaTaken(tables, *job)) note(job->entitlement, true, false);
  }
  for (const JobState* job : tables.waits.jobs_owed_leases()) note(job->entitlement, false, true);
  std::erase_if(owed, [&](const OwedJob& entry) {
    if (entry.seen == now) return false;
    const JobState* job = tables.jobs.Find(entry.id);
    // It ended, asked no more, or got what it asked for.
    return job == nullptr || now - entry.seen > kOwedGapMax || tables.ledger.HeldBy(job->entitlement) > entry.held;
  });
}

bool IsOverdue(const Tables& tables, const OwedJob& owed) {
  return owed.seen == tables.turn.now() && tables.turn.now() - owed.since >= tables.options.reclaim_deadline;
}

// What is on its way to jobs may be enough for those that claim it. What a user's quota keeps from a job is not, nor
// are leases.
bool MayEndSessionsFor(const Tables& tables, const OwedJob& owed) {
  return IsOverdue(tables, owed) && (owed.within_user || owed.of_leases || tables.ledger.BytesToAskBack() != 0);
}

// It binds more windows than it is promised. A job that holds no more cannot.
bool BindsTooMany(Tables& tables, const JobState& job) {
  if (job.sessions.empty() || tables.ledger.Surplus(job.entitlement) == 0) return false;
  return BindsBeyondPromise(tables, job, BoundWindowsOf(tables, job));
}

// It keeps what the other one is owed. Within a user only a job does that has more than its part of the quota.
bool KeepsFrom(Tables& tables, const OwedJob& owed, const JobState& job) {
  if (!owed.within_user) return BindsTooMany(tables, job);
  const JobState& creditor = *tables.jobs.Find(owed.id);
  return job.record.uid == creditor.record.uid && tables.ledger.BeyondQuota(job.entitlement) != 0 &&
         BindsTooMany(tables, job);
}

std::vector<SessionId> FindBinders(Tables& tables, const OwedJob& owed) {
  std::vector<SessionId> binders;
  for (const JobState* job : tables.jobs.open()) {
    tables.work.Charge(1);
    if (!KeepsFrom(tables, owed, *job)) continue;
    for (const SessionState* session : job->sessions) binders.push_back(session->id);
  }
  return binders;
}

// The job for which sessions are counted: the one that has been owed for longest of those that were not tried for
// longer. One for which none could be ended must not keep others from their turn. None: there is nothing to count.
OwedJob* BeginOrGoOn(Tables& tables) {
  ForcedReturnState& state = tables.forced_returns;
  std::vector<OwedJob*> overdue;
  for (OwedJob& entry : state.jobs()) {
    if (!MayEndSessionsFor(tables, entry)) continue;
    if (state.bound_count().under_way() && entry.id == state.counted_for()) return &entry;
    overdue.push_back(&entry);
  }
  state.bound_count().Stop();
  std::ranges::sort(overdue, {}, [](const OwedJob* entry) { return std::pair(entry->tried, entry->since); });
  if (overdue.size() > kLookedForMax) overdue.resize(kLookedForMax);
  for (OwedJob* entry : overdue) {
    std::vector<SessionId> binders = FindBinders(tables, *entry);
    if (!binders.empty()) {
      state.BeginCount(entry->id, std::move(binders));
      return entry;
    }
    entry->tried = tables.turn.now();
    state.SetNextAt(tables.turn.now() + kCheckInterval);
  }
  return nullptr;
}

// True: all sessions were counted.
bool ContinueCount(Tables& tables, BoundCount* count) {
  tables.work.Enter(tables.work.units().count);
  while (!count->all_counted()) {
    const SessionState* session = tables.sessions.Find(count->session());
    if (session == nullptr || session->ending()) {
      count->SkipSession();
      continue;
    }
    if (!CountSession(tables, *session, count)) return false;
    count->EndSession(tables.ledger.PromisedTo(session->job->entitlement) / session->job->sessions.size());
  }
  return true;
}

// A job that waits within its user, or for leases alone, claims nothing of others.
uint64_t OwedTo(const Ledger& ledger, const OwedJob& owed, const JobState& creditor) {
  if (owed.of_leases) {
    const uint64_t promised = ledger.PromisedTo(creditor.entitlement);
    return promised - std::min(promised, ledger.LeasedBy(creditor.entitlement));
  }
  return owed.within_user ? ledger.Deficit(creditor.entitlement) : ledger.ClaimedBy(creditor.entitlement);
}

std::string Sentence(const Tables& tables, const OwedJob& owed, const SessionState& session, uint64_t bound_bytes) {
  const JobState& creditor = *tables.jobs.Find(owed.id);
  const JobState& job = *session.job;
  const Ledger& ledger = tables.ledger;
  const EntitledUser& user = ledger.UserOf(creditor.entitlement);
  const std::string quota = owed.within_user ? fmt::format(" (both are of user {}, who may have {} of RAM)", user.uid,
                                                           FormatBytes(user.quota.ram.most))
                                             : "";
  return fmt::format(
      "job {} has been owed {} for {:.1f} s (jobs.reclaim_deadline is {:.1f} s): it is promised {} and {} {}; job "
      "{} leases {} and is promised {}{}; what this session leases, {}, lies in windows of {}, the most beyond its "
      "part, and a window goes only whole; release leases sooner, or have this job guaranteed more",
      creditor.key, FormatBytes(OwedTo(ledger, owed, creditor)), Seconds(tables.turn.now() - owed.since),
      Seconds(tables.options.reclaim_deadline), FormatBytes(ledger.PromisedTo(creditor.entitlement)),
      owed.of_leases ? "leases" : "holds",
      FormatBytes(owed.of_leases ? ledger.LeasedBy(creditor.entitlement) : ledger.HeldBy(creditor.entitlement)),
      job.key, FormatBytes(ledger.LeasedBy(job.entitlement)), FormatBytes(ledger.PromisedTo(job.entitlement)), quota,
      FormatBytes(session.record.leased_bytes), FormatBytes(bound_bytes));
}

}  // namespace

void ForceReturns(Tables& tables) {
  ForcedReturnState& state = tables.forced_returns;
  const bool any_owed = tables.ledger.anybody_owed() || !tables.waits.jobs_owed_leases().empty();
  if (!state.any() && !any_owed && !tables.hand_over.within_users()) return;
  Observe(tables);
  const base::TimePoint now = tables.turn.now();
  BoundCount& count = state.bound_count();
  if (tables.ledger.host_debt() != 0) {
    // No job grows: what is taken from one job would not come to another. Afterwards hand-over has its time first.
    count.Stop();
    state.SetNextAt(now + kNextReturnAfter);
  }
  if (now < state.next_at()) return;
  OwedJob* const owed = BeginOrGoOn(tables);
  if (owed == nullptr) return count.Stop();
  state.SetNextAt(now + kCountInterval);
  if (!ContinueCount(tables, &count)) return;
  state.SetNextAt(now + kCheckInterval);
  const BoundMost most = count.most();
  count.Stop();
  owed->tried = now;
  SessionState* session = most.beyond_bytes == 0 ? nullptr : tables.sessions.Find(most.session);
  // The others may have ended leases while it was counted, and its job, too.
  if (session == nullptr || session->ending() || !KeepsFrom(tables, *owed, *session->job)) return;
  state.SetNextAt(now + kNextReturnAfter);
  state.Count(ForcedReturnKind::kSession);
  EndSession(tables, *session, {Code::kRevoked, Sentence(tables, *owed, *session, most.bound_bytes)});
}

}  // namespace tier::tiering
