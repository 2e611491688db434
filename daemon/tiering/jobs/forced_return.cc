// See forced_return.h.
#include "daemon/tiering/jobs/forced_return.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/tiering/jobs/teardown.h"
#include "daemon/tiering/leases/bound_windows.h"

namespace tier::tiering {
namespace {

using base::FormatBytes;

double Seconds(base::Duration duration) { return std::chrono::duration<double>(duration).count(); }

void Observe(Tables& tables) {
  const base::TimePoint now = tables.turn.now();
  std::vector<OwedJob>& owed = tables.forced_returns.jobs();
  for (const EntitlementIndex job : tables.ledger.claims()) {
    if (!tables.ledger.LacksWindow(job)) continue;
    const JobId id = tables.ledger.IdOf(job);
    auto entry = std::ranges::find(owed, id, &OwedJob::id);
    if (entry == owed.end()) entry = owed.insert(owed.end(), {.id = id, .since = now});
    entry->seen = now;
    entry->held = tables.ledger.HeldBy(job);
  }
  std::erase_if(owed, [&](const OwedJob& entry) {
    if (entry.seen == now) return false;
    const JobState* job = tables.jobs.Find(entry.id);
    // It ended, asked no more, or got what it asked for.
    return job == nullptr || now - entry.seen > kOwedGapMax || tables.ledger.HeldBy(job->entitlement) > entry.held;
  });
}

// The job that has been owed for the longest time, if that is the deadline.
const OwedJob* FindOverdue(Tables& tables) {
  const OwedJob* longest = nullptr;
  for (const OwedJob& entry : tables.forced_returns.jobs()) {
    if (entry.seen == tables.turn.now() && (longest == nullptr || entry.since < longest->since)) longest = &entry;
  }
  const bool overdue = longest != nullptr && tables.turn.now() - longest->since >= tables.options.reclaim_deadline;
  return overdue ? longest : nullptr;
}

struct Excess {
  SessionState* session = nullptr;
  uint64_t bound_bytes = 0;  // Of windows that its leases keep for its job …
  uint64_t bytes = 0;        // … and of these, what lies beyond its part.
};

// Jobs that bind more windows than they are promised. A job that holds no more cannot.
std::vector<std::pair<const JobState*, BoundWindows>> FindBinders(Tables& tables) {
  std::vector<std::pair<const JobState*, BoundWindows>> binders;
  for (const JobState* job : tables.jobs.open()) {
    tables.work.Charge(1);
    if (job->sessions.empty() || tables.ledger.Surplus(job->entitlement) == 0) continue;
    const BoundWindows bound = BoundWindowsOf(tables, *job);
    if (BindsBeyondPromise(tables, *job, bound)) binders.emplace_back(job, bound);
  }
  return binders;
}

Excess FindLargestExcess(Tables& tables) {
  const auto binders = FindBinders(tables);
  size_t sessions = 0;
  for (const auto& [job, bound] : binders) sessions += job->sessions.size();
  Excess largest;
  for (const auto& [job, bound] : binders) {
    const uint64_t part = tables.ledger.PromisedTo(job->entitlement) / job->sessions.size();
    for (SessionState* session : job->sessions) {
      const uint64_t bytes = BytesBoundBy(tables, *session, bound, static_cast<uint32_t>(kLeasedPiecesMax / sessions));
      if (bytes > part && bytes - part > largest.bytes) largest = {session, bytes, bytes - part};
    }
  }
  return largest;
}

std::string Sentence(const Tables& tables, const OwedJob& owed, const Excess& excess) {
  const SessionState& session = *excess.session;
  const JobState& creditor = *tables.jobs.Find(owed.id);
  const JobState& job = *session.job;
  const Ledger& ledger = tables.ledger;
  return fmt::format(
      "job {} has been owed {} for {:.1f} s (jobs.reclaim_deadline is {:.1f} s): it is promised {} and holds {}; job "
      "{} leases {} and is promised {}; what this session leases, {}, lies in windows of {}, the most beyond its part, "
      "and a window goes only whole; release leases sooner, or have this job guaranteed more",
      creditor.key, FormatBytes(ledger.ClaimedBy(creditor.entitlement)), Seconds(tables.turn.now() - owed.since),
      Seconds(tables.options.reclaim_deadline), FormatBytes(ledger.PromisedTo(creditor.entitlement)),
      FormatBytes(ledger.HeldBy(creditor.entitlement)), job.key, FormatBytes(ledger.LeasedBy(job.entitlement)),
      FormatBytes(ledger.PromisedTo(job.entitlement)), FormatBytes(session.record.leased_bytes),
      FormatBytes(excess.bound_bytes));
}

}  // namespace

void ForceReturns(Tables& tables) {
  ForcedReturnState& state = tables.forced_returns;
  if (!state.any() && !tables.ledger.anybody_owed()) return;
  Observe(tables);
  const base::TimePoint now = tables.turn.now();
  if (now < state.next_at()) return;
  const OwedJob* owed = FindOverdue(tables);
  // What is on its way already may be enough.
  if (owed == nullptr || tables.ledger.BytesToAskBack() == 0) return;
  state.SetNextAt(now + kCheckInterval);
  const Excess largest = FindLargestExcess(tables);
  if (largest.session == nullptr) return;
  state.SetNextAt(now + kNextReturnAfter);
  state.Count(ForcedReturnKind::kSession);
  EndSession(tables, *largest.session, {Code::kRevoked, Sentence(tables, *owed, largest)});
}

}  // namespace tier::tiering
