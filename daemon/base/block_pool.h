// BlockPool: hands out whole 2 MiB blocks and runs of 4 KiB pages ("slots") from regions of blocks. Serves both the
// windows of one owner and the data area of one SSD device. Pure bookkeeping: touches no memory, no file.
//
// The idea: large things take whole blocks, which may be scattered, so nothing between them can ever be too small;
// small things and tails share *slot blocks*, tracked page by page. Slots prefer the fullest slot block that
// fits; a slot block whose last slot is freed becomes a whole block again. Runs of consecutive blocks are preferred,
// never required. A region says whom its blocks are for first (RegionUse): whole blocks and slots then meet in one
// region only where the other regions are full. Nothing new is placed in a closed region, which is to be emptied; what
// lies there can be freed.
//
// Invariant: free_pages + closed_free_pages + used_pages == 512 × blocks in regions. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daemon/base/page_run.h"
#include "daemon/base/slot_blocks.h"

namespace tier::base {

enum class RegionUse : uint8_t {
  kBlocksOnly,   // Whole blocks only: hugetlb windows.
  kBlocksFirst,  // Slots too, where no block is free that is for slots first.
  kSlotsFirst,   // Whole blocks too, where no other block is free.
};
inline constexpr size_t kRegionUses = 3;

// Of the pages in slot blocks, what may be free before slots are put into two holes each; and half a block beside that.
// Slots of fewer pages find a hole among what others leave.
inline constexpr uint32_t kUnusedPart = 1024;
inline constexpr uint32_t kDividedPagesMin = 16;

class BlockPool {
 public:
  BlockPool();
  ~BlockPool();
  BlockPool(BlockPool&&) noexcept;
  BlockPool& operator=(BlockPool&&) noexcept;

  // Adds blocks [first, first + count). REQUIRES: disjoint from the regions present. Regions are removed as they were
  // added.
  void AddRegion(uint32_t first, uint32_t count, RegionUse use);
  // REQUIRES: RegionEmpty(first).
  void RemoveRegion(uint32_t first);
  bool RegionEmpty(uint32_t first) const;
  // The first block of the highest region that begins below `block`. None: there is none. To remove the highest region
  // moves no other.
  std::optional<uint32_t> RegionBelow(uint32_t block) const;
  // Closes a region, or opens it again. REQUIRES: it was added as one that begins at `first`. O(its blocks).
  void SetClosed(uint32_t first, bool closed);
  bool IsClosed(uint32_t first) const;
  // The lowest run of so many free blocks of one use, in open regions: its first block. None: there is none.
  std::optional<uint32_t> FindFreeRun(uint32_t blocks) const;
  bool InOpenRegions(uint32_t first, uint32_t count) const;  // All of these blocks are.

  // Appends `blocks` whole blocks in ascending order (runs preferred), then one slot of `tail_pages` pages if that is
  // not 0 (right behind the run where that costs no whole block). All or nothing: false leaves everything as it was.
  // `tail_runs_max`: the slot may be so many runs, as in TryAllocateRuns. REQUIRES: tail_pages < 512.
  [[nodiscard]] bool TryAllocate(uint32_t blocks, uint32_t tail_pages, std::vector<PageRun>* runs,
                                 uint32_t tail_runs_max = 1);
  // One run of 1 … 512 pages. A block that must be broken into is the lowest free one at or after block `near` (else
  // the lowest of all): a stream that passes its last block stays sequential.
  [[nodiscard]] PageRun TryAllocateRun(uint32_t pages, uint32_t near = 0);
  // One run of 1 … 511 pages in a block that holds slots already. Empty: none of them has such a hole.
  [[nodiscard]] PageRun TryAllocateBesideSlots(uint32_t pages);
  // Appends runs of 1 … 511 pages in all, as one where there is such a hole or a free block. `runs_max`: the most that
  // they may be. Two or more come from blocks with slots, where no other room is free or where more than a small part
  // of such blocks would be left unused (kUnusedPart).
  [[nodiscard]] bool TryAllocateRuns(uint32_t pages, uint32_t runs_max, std::vector<PageRun>* runs);
  // The same of blocks that hold slots already.
  [[nodiscard]] bool TryAllocateRunsBesideSlots(uint32_t pages, uint32_t runs_max, std::vector<PageRun>* runs);
  // A slot that was handed out becomes two, of `pages` and of the rest, each to be freed by itself. REQUIRES: it is not
  // bound.
  void Split(PageRun run, uint32_t pages);
  // Appends so many whole blocks, side by side. False: no free run is so long, and nothing is taken.
  [[nodiscard]] bool TryAllocateSideBySide(uint32_t blocks, std::vector<PageRun>* runs);
  // The first pages of a free block, which holds slots from then on. Empty: no block where slots may lie is free.
  [[nodiscard]] PageRun TryAllocateInFreeBlock(uint32_t pages);
  // Marks a given run used, in a closed region too. False if any page is outside the regions or already used.
  [[nodiscard]] bool TryTake(PageRun run);
  void Free(PageRun run);  // REQUIRES: exactly a run that was handed out and not freed since.

  // The run cannot be moved, until Unbind: what is free beside it serves slots only. REQUIRES: each run once at a time.
  void Bind(PageRun run);
  void Unbind(PageRun run);

  // Blocks with slots and free pages, either with a bound slot or without, and the slots of one (SlotBlocks).
  void ListSparseBlocks(bool bound, size_t most, std::vector<SparseBlock>* blocks) const;
  void ListSlots(uint32_t block, std::vector<PageRun>* slots) const;
  // Appends what is handed out of a block: the block, or its slots. REQUIRES: in a region.
  void ListUsed(uint32_t block, std::vector<PageRun>* runs) const;

  uint64_t free_pages() const;             // All of them in open regions.
  uint64_t closed_free_pages() const;      // Those in closed regions.
  uint64_t free_block_count() const;       // Wholly free blocks of open regions.
  uint64_t free_slot_block_count() const;  // Of them, those where slots may lie.
  uint64_t used_pages() const;
  uint64_t slot_block_count() const;      // Blocks that hold at least one slot.
  uint64_t bound_block_count() const;     // Of them, those with a bound slot.
  bool HoldsBound(uint32_t block) const;  // REQUIRES: a block with slots.
  uint32_t longest_hole() const;          // Pages of the longest free run of these.
  uint64_t bound_free_pages() const;      // Free pages of blocks that hold a bound slot.
  void CheckInvariants() const;           // Aborts with figures if the books do not balance. O(blocks).

  uint32_t longest_free_run() const;          // Blocks of the longest run of wholly free ones of one use.
  uint64_t block_count(RegionUse use) const;  // Blocks of the regions of this use.

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tier::base
