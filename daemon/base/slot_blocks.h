// SlotBlocks: the blocks that are shared by slots (runs of fewer than 512 pages), and the pages of each.
//
// The idea: every slot block stands in the list of its longest hole; a request takes the first block of the shortest
// list that can hold it, so the block with least room to spare fills up first and the others get a chance to empty.
// Those that compaction could empty are found by a second list, of the free pages in steps of 64. Blocks with a bound
// slot stand in such lists of their own: however many they are, who looks for others does not meet them. 72 bytes a
// slot block, 8 of them for the index that finds it (BlockIndex; 32 if it is alone); 128 more for one with many slots
// (SlotPages). Records of the most that there were at a time are kept for the next: no allocation in steady state. A
// closed block is in neither list: nothing new is placed there.
//
// Invariants: an open block of list n has a longest hole of exactly n pages; one of sparse list n has 64n - 63 to 64n
// free pages; full ones are in sparse list 0, bound or not. Pure bookkeeping; not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/base/block_index.h"
#include "daemon/base/chunked_array.h"
#include "daemon/base/page_run.h"
#include "daemon/base/slot_pages.h"

namespace tier::base {

// A block that holds slots, for who wants to move these elsewhere.
struct SparseBlock {
  uint32_t block = 0;
  uint32_t free_pages = 0;
};

class SlotBlocks {
 public:
  bool Contains(uint32_t block) const { return Find(block) != kNone; }
  uint64_t count() const { return count_; }
  uint64_t free_pages() const { return free_pages_; }                // Of open blocks.
  uint64_t closed_free_pages() const { return closed_free_pages_; }  // Of closed ones.

  void Add(uint32_t block);     // As a slot block without slots. REQUIRES: not contained.
  void Remove(uint32_t block);  // REQUIRES: contained, without slots.
  // A closed block keeps its slots, and they can be freed. REQUIRES: contained.
  void SetClosed(uint32_t block, bool closed);

  bool CanAllocate(unsigned pages) const { return ListFor(pages) <= kPagesPerBlock; }
  unsigned longest_hole() const;  // Pages; 0: every page is taken.
  PageRun TryAllocate(unsigned pages);
  // Whether exactly this run could be taken: its block is contained, be it closed, and its pages are free.
  bool IsFree(PageRun run) const;
  // Appends runs of so many pages in all, the longest holes first. False: more than `runs_max` would be needed, or the
  // pages are not free; then nothing is taken.
  [[nodiscard]] bool TryAllocateRuns(unsigned pages, size_t runs_max, std::vector<PageRun>* runs);
  // A run that was handed out becomes two, of `pages` and of the rest.
  void Split(PageRun run, unsigned pages);
  void Take(PageRun run);  // REQUIRES: IsFree(run).
  // Gives back exactly a run that was handed out; returns whether its block is without slots now.
  bool Free(PageRun run);

  // A slot of the block is bound to its place, until Unbind. REQUIRES: contained; each slot once at a time.
  void Bind(uint32_t block);
  void Unbind(uint32_t block);
  bool HoldsBound(uint32_t block) const { return entries_[Find(block)].bound != 0; }  // REQUIRES: contained.
  uint64_t bound_count() const { return bound_count_; }                               // Blocks with a bound slot.
  uint64_t bound_free_pages() const { return bound_free_pages_; }  // Free pages of blocks with a bound slot.

  // Appends `most` open blocks with free pages at most, of those with a bound slot or of those without: those with the
  // most free pages first, in steps of 64.
  void ListSparse(bool bound, size_t most, std::vector<SparseBlock>* blocks) const;
  // Appends the slots of a block, in the order of their pages. REQUIRES: contained.
  void ListSlots(uint32_t block, std::vector<PageRun>* slots) const;

  void CheckInvariants() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr unsigned kSparseStep = 64;  // Pages.
  static constexpr unsigned kSparseSteps = kPagesPerBlock / kSparseStep;

  struct alignas(64) Entry {  // One cache line.
    uint32_t block = kNone;
    uint32_t next = kNone;  // In its list, or in the list of unused entries.
    uint32_t previous = kNone;
    uint32_t next_sparse = kNone;  // In its list by free pages.
    uint32_t previous_sparse = kNone;
    uint16_t free_pages = 0;
    uint16_t longest_hole = 0;
    uint16_t bound : 15 = 0;  // Slots.
    bool closed : 1 = false;
    SlotPages slots;
  };
  static_assert(sizeof(Entry) == 64);

  uint32_t Find(uint32_t block) const { return index_.Find(block); }
  unsigned ListFor(unsigned pages) const;  // The shortest list whose blocks can hold `pages`; > 512: none.
  void Link(uint32_t index);
  void Unlink(uint32_t index);
  void Occupy(uint32_t index, SlotPages::Hole hole, unsigned page, unsigned pages);
  void SetLongest(uint32_t index, unsigned pages);
  static unsigned SparseList(unsigned free_pages, bool bound) {
    const unsigned step = (free_pages + kSparseStep - 1) / kSparseStep;
    return step != 0 && bound ? kSparseSteps + step : step;
  }
  static unsigned SparseListOf(const Entry& entry) { return SparseList(entry.free_pages, entry.bound != 0); }
  void LinkSparse(uint32_t index);
  void UnlinkSparse(uint32_t index);
  void SetFree(uint32_t index, unsigned pages);
  void SetBound(uint32_t index, bool bound);  // Its first slot is bound, or its last one is no longer.
  uint64_t& FreeOf(const Entry& entry) { return entry.closed ? closed_free_pages_ : free_pages_; }
  void CheckEntries() const;
  void CheckLists() const;

  ChunkedArray<Entry> entries_;
  BlockIndex index_;   // Block → number in entries_.
  SlotMapsPool maps_;  // Of blocks with many slots.
  uint32_t unused_ = kNone;
  std::array<uint32_t, kPagesPerBlock + 1> lists_ = Filled<kPagesPerBlock + 1>();  // By longest hole.
  std::array<uint64_t, kPagesPerBlock / 64 + 1> nonempty_{};                       // Bit n: list n has a block.
  // The full ones, those without a bound slot by step, those with one by step.
  std::array<uint32_t, 2 * kSparseSteps + 1> sparse_ = Filled<2 * kSparseSteps + 1>();
  uint64_t count_ = 0;
  uint64_t closed_count_ = 0;
  uint64_t bound_count_ = 0;
  uint64_t free_pages_ = 0;
  uint64_t closed_free_pages_ = 0;
  uint64_t bound_free_pages_ = 0;

  template <size_t kCount>
  static constexpr std::array<uint32_t, kCount> Filled() {
    std::array<uint32_t, kCount> lists{};
    lists.fill(kNone);
    return lists;
  }
};

}  // namespace tier::base
