// Room: whence a job's memory comes. First what is free in its windows, then new windows up to its share, then clean
// pieces that were not used for longest, then dirty ones, which are written first. Engine thread only.
#pragma once

#include "daemon/tiering/tables/core.h"

namespace tier::tiering {

// Windows made ahead of need while a job's use rises: this part of what it uses, at most kAheadBytesMax.
inline constexpr uint64_t kAheadDivisor = 8;
inline constexpr uint64_t kAheadBytesMax = 256 * kMiB;
inline constexpr uint32_t kWriteFailuresBeforeRefusal = 4;
inline constexpr uint64_t kLastPartDivisor = 16;  // Of the arena.
// Pieces of announced ranges that are looked at in one go: most may be in RAM already.
inline constexpr uint32_t kFetchWorkMax = 4096;

// Bytes of windows it may hold while nobody else needs them: its limit, what the arena can reach.
uint64_t ShareOf(const Core& core, const JobState& job);
// Of them, those that no other job is guaranteed: what it leases is made room for here. The rest is lent, see MayGrow.
uint64_t FirmShareOf(const Core& core, const JobState& job);
// Bytes that its leases may hold: what no other job is guaranteed. UINT64_MAX: nobody is.
uint64_t LeasableOf(const Core& core, const JobState& job);
// The least that it is entitled to: its guarantee, or an equal part of what is not guaranteed.
uint64_t GuaranteeOf(const Core& core, const JobState& job);
// What is promised to nobody: whoever comes has a share. One window at least, and of a small arena half.
uint64_t LastPartOf(const Core& core);
uint64_t WindowBytes(const Core& core, const JobState& job);  // Ready and being made.
// Whether it may have one more window, when it needs that many bytes more under leases. What others are guaranteed and
// do not use is lent, but must be free to go back: only while the job's leases fit its firm share, and SSD devices have
// room for everything dirty.
bool MayGrow(const Core& core, const JobState& job, uint64_t needed_bytes);

// What a request lacks: whole blocks, and pages of slots.
struct Need {
  uint64_t blocks = 0;
  uint64_t slot_pages = 0;
  uint64_t pages() const { return blocks * kPagesPerBlock + slot_pages; }
};
// Starts windows until there are whole blocks for the blocks, and pages of any kind for the slots, free or coming.
// False: its share or the arena does not reach that far.
bool Grow(Core& core, JobState& job, const Need& need);
// Free pages lie too scattered: one more window, if there may be one.
bool GrowByOne(Core& core, JobState& job, const Need& need);
// Room for `pages` (≤ 512) right now, evicting clean pieces where that helps. Empty: not now.
base::PageRun TakeRun(Core& core, JobState& job, uint32_t pages, bool may_evict);
// Several whole blocks and a tail in one, as a run where there is one. Evicts nothing.
bool TakeRuns(Core& core, JobState& job, uint32_t blocks, uint32_t tail_pages);

// Something under way may free room for this job without any client doing anything.
bool RoomMayCome(const Core& core, const JobState& job);
// Only this session of its job has leases.
bool OnlyOwnLeases(const SessionState& session);
// Only this session's leases keep its job's memory.
bool OwnLeasesHoldRoom(const Core& core, const SessionState& session);

// Once a turn for each job: writes out what write-behind or a shortage asks for, evicts ahead of need, fetches what was
// announced, makes windows ahead.
void Maintain(Core& core, JobState& job);

}  // namespace tier::tiering
