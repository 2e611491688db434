// Growth: which windows a job gets. As many as it needs and the ledger allows, and some ahead of need. Engine thread
// only.
//
// Whole blocks lie in block windows, slots in slot windows; each kind of window is started for its own use. Room of the
// other kind is used before a request is refused: whole blocks take free blocks of slot windows, and slot windows are
// started for them where a block window does not fit any more, or would take more than the job is promised; slots take
// blocks of block windows in small pages. A slot cannot lie in huge pages. So a job that needs a slot window and may
// not have one gives an empty block window back for it; where it has none, a slot takes a whole block, so that no
// request is refused while the job has free blocks.
//
// Windows grow with what the job holds of their kind: a part of it, so that little of the last one can be unused, and
// a job of any size has some hundred windows for each time that it doubles. The arena says which part
// (WindowSource::wishes): where its indices run short, large jobs get larger windows. A window that does not fit what
// the job may have is halved until it does.
//
// A turn starts WorkUnits::windows of them, and one more for each call of Grow: where a job needs more, it goes on when
// those have come.
#pragma once

#include <chrono>

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// While a job's use rises, windows are made ahead of need: this part of what it uses, at most kAheadBytesMax. Those
// that it has not come to use are given back when its use has not risen for kAheadKept.
inline constexpr uint64_t kAheadDivisor = 8;
inline constexpr uint64_t kAheadBytesMax = 256 * kMiB;
inline constexpr base::Duration kAheadKept = std::chrono::seconds(1);

// What a request lacks: whole blocks, and pages of slots.
struct Need {
  uint64_t blocks = 0;
  uint64_t slot_pages = 0;
  uint64_t fresh_pages = 0;  // Of these: for content of which SSD has no copy.
  bool unpacked = false;     // There are as many free pages, and no move brings them together (Ledger::OwnBytes).
  uint64_t pages() const { return blocks * kPagesPerBlock + slot_pages; }
};

// What the windows that are free or coming are for a need.
enum class Grown : uint8_t {
  kAll,  // All that it asks for.
  // The turn may start no more of them: when these have come, more can be had. What the job is owed stays owed.
  kLater,
  // The job is not entitled to so many windows, or the arena has no more. It has then claimed what it is owed of them
  // (Ledger::Claim), and hand-over brings that.
  kShort,
};

// Starts windows until the free room, with the windows that are coming, has whole blocks for the blocks and pages for
// the slots, or until the turn may start no more and some are coming.
Grown Grow(Tables& tables, JobState& job, const Need& need);
// The free pages are too scattered for the need: starts one more window, if the job may have one.
void GrowByOne(Tables& tables, JobState& job, const Need& need);
// The job could use so many bytes of windows beyond what the arena has left. True: idle jobs are asked for them, and it
// may go on as if they were to come.
bool Borrow(Tables& tables, const JobState& job, uint64_t bytes);
// Starts windows before they are needed. Once a turn for each job.
void GrowAhead(Tables& tables, JobState& job);
// Asks clients to return windows that were made ahead for nothing.
void GiveBackAhead(Tables& tables);

// Starts a window for whole blocks. One for slots may serve too: that is how what is left of the arena, or of what the
// job is promised, is used up, where it is less than a block window. False: none is to be had.
bool StartForBlocks(Tables& tables, JobState& job, const Need& need);
// Starts a slot window. False: none is to be had, and slots take whole blocks where they find no other room
// (SlotsTakeBlocks) until memory comes.
bool TryStartForSlots(Tables& tables, JobState& job, const Need& need);
bool SlotsTakeBlocks(const Tables& tables, const JobState& job);

// Whether the job may come to hold one more window of so many bytes, now or later, when it needs that many pages more
// under leases, `fresh_pages` of them for content of which SSD has no copy.
bool MayHoldMore(const Tables& tables, const JobState& job, uint64_t window_bytes, uint64_t needed_pages,
                 uint64_t fresh_pages);
// The sizes of its windows of a kind, when it needs so many bytes more in them.
memory::WindowWishes WishesFor(const Tables& tables, const JobState& job, WindowKind kind, uint64_t needed_bytes);
// The bytes of a window that others of its kind may be merged into, and what else such a merge depends on.
uint64_t MergedBytes(const Tables& tables, const JobState& job, WindowKind kind);
MergeGrounds GroundsForMerge(const Tables& tables, const JobState& job, WindowKind kind);
// Whether the job may hold one more window of so many bytes now, within what it is promised or what no other job is,
// and there is room for it.
bool MayHoldForMerge(const Tables& tables, const JobState& job, uint64_t window_bytes);
// In windows beyond what it ever needed.
uint64_t UnneededBytes(const Tables& tables, const JobState& job);
// Of windows that are being made for it.
uint64_t BlocksComing(const JobState& job, WindowKind kind);
// Bytes of its windows of this kind, ready or being made.
uint64_t HeldIn(const Tables& tables, const JobState& job, WindowKind kind);

}  // namespace tier::tiering
