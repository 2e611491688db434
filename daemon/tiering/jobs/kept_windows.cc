// See kept_windows.h.
#include "daemon/tiering/jobs/kept_windows.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/tiering/jobs/teardown.h"

namespace tier::tiering {
namespace {

using base::FormatBytes;
using memory::KeptWindow;

double Seconds(base::Duration duration) { return std::chrono::duration<double>(duration).count(); }

// It was taken from its job another deadline ago.
bool IsLongKept(const Tables& tables, const KeptWindow& window) {
  return tables.turn.now() >= window.since + tables.options.reclaim_deadline;
}

void Charge(Tables& tables, const std::vector<KeptWindow>& windows) {
  std::vector<Keeper>& keepers = tables.forced_returns.keepers();
  for (Keeper& keeper : keepers) keeper.bytes = keeper.long_bytes = 0;
  uint64_t bytes = 0;
  uint64_t refilled = 0;
  for (const KeptWindow& window : windows) {
    bytes += window.bytes;
    refilled += window.refilled_bytes;
    const JobState* job = tables.jobs.FindByOwner(window.owner);
    if (job == nullptr) continue;  // Its processes have what no job has any more.
    auto keeper = std::ranges::find(keepers, job->id, &Keeper::job);
    if (keeper == keepers.end()) keeper = keepers.insert(keepers.end(), {.job = job->id});
    keeper->bytes += window.bytes;
    if (IsLongKept(tables, window)) keeper->long_bytes += window.bytes;
  }
  tables.forced_returns.SetKept(bytes, refilled);
  for (const Keeper& keeper : keepers) {
    JobState* job = tables.jobs.Find(keeper.job);
    if (job == nullptr) continue;
    const bool less = keeper.bytes < tables.ledger.KeptBy(job->entitlement);
    tables.ledger.SetKept(job->entitlement, keeper.bytes);
    if (less) tables.waits.OnRoom(*job);  // It may hold more again.
  }
  std::erase_if(keepers, [](const Keeper& keeper) { return keeper.bytes == 0; });
}

void Tell(Tables& tables) {
  for (Keeper& keeper : tables.forced_returns.keepers()) {
    const JobState* job = tables.jobs.Find(keeper.job);
    if (job == nullptr || keeper.long_bytes == 0 || std::exchange(keeper.told, true)) continue;
    tables.replies.ForcedReturn(
        job->id, fmt::format("processes of job {} have kept {} of windows for {:.1f} s since these were taken from it, "
                             "and may have pinned some of that memory: it counts as held by the job until they unmap "
                             "it or end",
                             job->key, FormatBytes(keeper.long_bytes), Seconds(tables.options.reclaim_deadline)));
  }
}

// Who has it, of those that did not return it and have not done so since (StrikeUnreturned). One whose session lives
// has it for certain. Of a process whose session has ended nothing more will be heard: it is not blamed for what
// another has for certain.
std::vector<SessionId> KeepersOf(const Tables& tables, const KeptWindow& window) {
  std::vector<SessionId> certain;
  std::vector<SessionId> ended;
  for (const uint64_t id : window.sessions) {
    const SessionState* const session = tables.sessions.Find(SessionId{id});
    if (session == nullptr) ended.push_back(SessionId{id});
    if (session != nullptr && session->windows.any_taken()) certain.push_back(SessionId{id});
  }
  return certain.empty() ? ended : certain;
}

void EndRefilling(Tables& tables, SessionId id, const KeptWindow& window) {
  SessionState* const session = tables.sessions.Find(id);
  if (session == nullptr) return;
  tables.forced_returns.Count(ForcedReturnKind::kRefill);
  EndSession(tables, *session,
             {Code::kRevoked,
              fmt::format("{} were found in an empty window that this session was asked to return, again after they "
                          "had been taken out: unmap it when it is asked for, as libtier does",
                          FormatBytes(window.refilled_bytes))});
}

// Where all have returned it, one of them has mapped it twice, and only they know which.
void EndRefilling(Tables& tables, const KeptWindow& window) {
  const std::vector<SessionId> keepers = KeepersOf(tables, window);
  for (const SessionId id : keepers) EndRefilling(tables, id, window);
  if (!keepers.empty()) return;
  for (const uint64_t id : window.asked) EndRefilling(tables, SessionId{id}, window);
}

// A job has been owed memory within its promise for a deadline, as of the last turn.
bool IsOwedForLong(const Tables& tables) {
  return std::ranges::any_of(tables.forced_returns.jobs(), [&](const OwedJob& owed) {
    return owed.seen - owed.since >= tables.options.reclaim_deadline;
  });
}

// A process is killed for what another job is owed, and for nothing less. What a job that is gone has left was asked of
// no session and counts for no job: for that it is killed once some job has waited as long as for a forced return.
bool MayKillFor(const Tables& tables, const KeptWindow& window) {
  if (!tables.options.kills_keepers || !IsLongKept(tables, window)) return false;
  return window.owed || (tables.jobs.FindByOwner(window.owner) == nullptr && IsOwedForLong(tables));
}

void Kill(Tables& tables, const KeptWindow& window) {
  for (const SessionId id : KeepersOf(tables, window)) {
    if (!tables.forced_returns.NoteKilled(id)) continue;
    tables.forced_returns.Count(ForcedReturnKind::kProcess);
    tables.replies.EndProcess(
        id, fmt::format(
                "it has kept {} of a window for {:.1f} s since that was taken from it (jobs.on_unreturned is \"kill\", "
                "jobs.reclaim_deadline {:.1f} s)",
                FormatBytes(window.bytes), Seconds(tables.turn.now() - window.since),
                Seconds(tables.options.reclaim_deadline)));
  }
}

}  // namespace

void CheckKeptWindows(Tables& tables) {
  std::vector<KeptWindow>& windows = tables.scratch.kept_windows;
  if (!tables.ports.windows.TakeKept(&windows)) return;
  Charge(tables, windows);
  Tell(tables);
  for (const KeptWindow& window : windows) {
    if (window.refilled_bytes != 0 && window.refills >= kRefillsMax) EndRefilling(tables, window);
    if (MayKillFor(tables, window)) Kill(tables, window);
  }
}

}  // namespace tier::tiering
