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
    const JobState* job = tables.jobs.Find(keeper.job);
    if (job != nullptr) tables.ledger.SetKept(job->entitlement, keeper.bytes);
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

void EndRefilling(Tables& tables, const KeptWindow& window) {
  for (const uint64_t id : window.sessions) {
    SessionState* const session = tables.sessions.Find(SessionId{id});
    if (session == nullptr) continue;
    tables.forced_returns.Count(ForcedReturnKind::kRefill);
    EndSession(tables, *session,
               {Code::kRevoked,
                fmt::format("{} were found in an empty window that this session was asked to return and did not, "
                            "again after they had been taken out: unmap it when it is asked for, as libtier does",
                            FormatBytes(window.refilled_bytes))});
  }
}

void Kill(Tables& tables, const KeptWindow& window) {
  for (const uint64_t id : window.sessions) {
    if (!tables.forced_returns.NoteKilled(SessionId{id})) continue;
    tables.forced_returns.Count(ForcedReturnKind::kProcess);
    tables.replies.EndProcess(
        SessionId{id},
        fmt::format(
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
    if (tables.options.kills_keepers && IsLongKept(tables, window)) Kill(tables, window);
  }
}

}  // namespace tier::tiering
