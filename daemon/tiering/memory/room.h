// Room: where the memory of a job comes from. First what is free in its windows, then new windows as far as the ledger
// allows, then clean pieces that were not used for longest, then dirty ones, which are written first. Engine thread
// only.
//
// Whole blocks lie in block windows, slots in slot windows; each kind of window is started for what it is for. Room of
// the other kind is used before anything is refused: whole blocks take free blocks of slot windows, also of such as are
// started where a block window does not fit any more, or would take more than the job is promised; slots take blocks of
// block windows in small pages. In huge pages no slot can lie. So a job that needs a slot window and may not have one
// gives an empty block window back for it; where it has none, a slot takes a whole block, so that nothing is refused
// while the job has free blocks.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Windows made ahead of need while a job's use rises: this part of what it uses, at most kAheadBytesMax.
inline constexpr uint64_t kAheadDivisor = 8;
inline constexpr uint64_t kAheadBytesMax = 256 * kMiB;
inline constexpr uint32_t kWriteFailuresBeforeRefusal = 4;

// What a request lacks: whole blocks, and pages of slots.
struct Need {
  uint64_t blocks = 0;
  uint64_t slot_pages = 0;
  uint64_t pages() const { return blocks * kPagesPerBlock + slot_pages; }
};
// Starts windows until there are whole blocks for the blocks, and pages where slots may lie for the slots, free or
// coming. False: it is not entitled to so many, or the arena has no more. What it is owed of them it has then claimed
// (Ledger::Claim), and hand-over brings it.
bool Grow(Tables& tables, JobState& job, const Need& need);
// What is free lies too scattered for the need: one more window, if there may be one.
void GrowByOne(Tables& tables, JobState& job, const Need& need);
// Room for `pages` (≤ 512) right now, evicting clean pieces where that helps. Empty: not now; for a slot that may evict
// a slot window comes then, if there may be one.
base::PageRun TakeRun(Tables& tables, JobState& job, uint32_t pages, bool may_evict);
// Several whole blocks and a tail in one, as a run where there is one. Evicts nothing.
bool TakeRuns(Tables& tables, JobState& job, uint32_t blocks, uint32_t tail_pages);

// Something under way may free room for this job without any client doing anything.
bool RoomMayCome(const Tables& tables, const JobState& job);
// Only this session of its job has leases.
bool OnlyOwnLeases(const SessionState& session);
// Only this session's leases keep its job's memory.
bool OwnLeasesHoldRoom(const Tables& tables, const SessionState& session);

// Once a turn for each job: writes out what write-behind or a shortage asks for, evicts ahead of need, fetches what was
// announced, makes windows ahead.
void Maintain(Tables& tables, JobState& job);

}  // namespace tier::tiering
