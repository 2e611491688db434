// Room: where the memory of a job comes from. First free pages in its windows, then new windows as far as the ledger
// allows (growth.h), then clean pieces, least recently used first, then dirty pieces, which are written first, and at
// last pieces that were prefetched and not used yet. Engine thread only.
#pragma once

#include <optional>
#include <vector>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

inline constexpr uint32_t kWriteFailuresBeforeRefusal = 4;

// The job may use so many pages more.
bool WithinLimit(const Tables& tables, const JobState& job, uint64_t pages);
// What may be evicted for room.
enum class MayEvict : uint8_t {
  kNothing,
  kUsed,  // Clean pieces that are not kept for a use to come (PrefetchAge).
  kAll,   // Those too, the last ones prefetched first, where no write under way will make room.
};
// How a run is made room for.
struct MakeRoom {
  MayEvict may_evict = MayEvict::kNothing;
  bool moves_help = false;    // In RAM, once so many pages are free …
  uint64_t needed_pages = 0;  // … as the rest of the request needs: then nothing more is evicted.
  uint64_t fresh_pages =
      0;  // Need::fresh_pages of the request: a window that it borrows must have room on SSD for all.
};
// Room for a piece of `pages` (≤ 512), evicting clean pieces where that helps: appends a run, or up to kRamRunsMax for
// less than a block. False: there is none now; if a slot was asked for, a slot window is started, if something may be
// evicted and the job may have one.
bool TakeRoom(Tables& tables, JobState& job, uint32_t pages, const MakeRoom& how, std::vector<base::PageRun>* runs);
// Takes several whole blocks and a tail at once, as one run where there is one: one run for each block, and one or
// several for the tail. Evicts nothing.
bool TakeRuns(Tables& tables, JobState& job, uint32_t blocks, uint32_t tail_pages);

// The job's own operations make room, those that have begun, or others owe it memory: a write that fails need not end.
bool RoomComesWithoutWrite(const Tables& tables, const JobState& job);
// The job's own operations make room: writes, reads, frees or windows under way, or writes still to be begun.
bool OwnRoomComes(const JobState& job);
// An operation under way may free room for this job without any action of a client.
bool RoomMayCome(const Tables& tables, const JobState& job);
// Only this session of its job has leases.
bool OnlyOwnLeases(const SessionState& session);
// Only this session's leases keep the job's memory from being evicted.
bool OwnLeasesHoldRoom(const Tables& tables, const SessionState& session);

// Once a turn for each job: writes out what write-behind or a shortage asks for, evicts ahead of need, fetches what was
// announced, makes windows ahead.
void Maintain(Tables& tables, JobState& job);

// Calls the job whose turn it is to write ahead of need, once the budget of writes has room.
void CallForBudget(Tables& tables);
// When CallForBudget has something to do next. None: no job waits.
std::optional<base::TimePoint> NextCallForBudget(const Tables& tables);

}  // namespace tier::tiering
