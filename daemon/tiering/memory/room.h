// Room: where the memory of a job comes from. First free pages in its windows, then new windows as far as the ledger
// allows, then clean pieces, least recently used first, then dirty pieces, which are written first, and at last pieces
// that were prefetched and not used yet. Engine thread only.
//
// Whole blocks lie in block windows, slots in slot windows; each kind of window is started for its own use. Room of the
// other kind is used before a request is refused: whole blocks take free blocks of slot windows, and slot windows are
// started for them where a block window does not fit any more, or would take more than the job is promised; slots take
// blocks of block windows in small pages. A slot cannot lie in huge pages. So a job that needs a slot window and may
// not have one gives an empty block window back for it; where it has none, a slot takes a whole block, so that no
// request is refused while the job has free blocks.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// While a job's use rises, windows are made ahead of need: this part of what it uses, at most kAheadBytesMax.
inline constexpr uint64_t kAheadDivisor = 8;
inline constexpr uint64_t kAheadBytesMax = 256 * kMiB;
inline constexpr uint32_t kWriteFailuresBeforeRefusal = 4;

// What a request lacks: whole blocks, and pages of slots.
struct Need {
  uint64_t blocks = 0;
  uint64_t slot_pages = 0;
  uint64_t fresh_pages = 0;  // Of these: for content of which SSD has no copy.
  uint64_t pages() const { return blocks * kPagesPerBlock + slot_pages; }
};
// The job may use so many pages more.
bool WithinLimit(const JobState& job, uint64_t pages);
// Starts windows until the free room, with the windows that are coming, has whole blocks for the blocks and pages for
// the slots. False: the job is not entitled to so many windows, or the arena has no more. It has then claimed what it
// is owed of them (Ledger::Claim), and hand-over brings that.
bool Grow(Tables& tables, JobState& job, const Need& need);
// The free pages are too scattered for the need: starts one more window, if the job may have one.
void GrowByOne(Tables& tables, JobState& job, const Need& need);
// What may be evicted for room.
enum class MayEvict : uint8_t {
  kNothing,
  kUsed,  // Clean pieces that are not kept for a use to come (PrefetchAge).
  kAll,   // Those too, the last ones prefetched first, where no write under way will make room.
};
// How a run is made room for.
struct MakeRoom {
  MayEvict may_evict = MayEvict::kNothing;
  uint64_t fresh_pages =
      0;  // Need::fresh_pages of the request: a window that it borrows must have room on SSD for all.
};
// Room for `pages` (≤ 512) at once, evicting clean pieces where that helps. Empty: there is none now; if a slot was
// asked for, a slot window is started, if something may be evicted and the job may have one.
base::PageRun TakeRun(Tables& tables, JobState& job, uint32_t pages, const MakeRoom& how);
// Takes several whole blocks and a tail at once, as one run where there is one. Evicts nothing.
bool TakeRuns(Tables& tables, JobState& job, uint32_t blocks, uint32_t tail_pages);

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

}  // namespace tier::tiering
