// Random programs of BlockPool operations against a model that knows only, of every page, which allocation has it.
// A failure prints RapidCheck's seed and the shrunken program; replay with RC_PARAMS="seed=<seed>".
#include "daemon/base/block_pool.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <ostream>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tier::base {
namespace {

constexpr uint32_t kRegionBlocks = 5;
constexpr uint32_t kRegions = 8;
constexpr uint16_t kWhole = kPagesPerBlock;
constexpr uint32_t kRunsMax = 4;

enum class Action : uint8_t {
  kAllocate,
  kRun,
  kBesideSlots,
  kInFreeBlock,
  kScattered,
  kRuns,
  kSplit,
  kFree,
  kTake,
  kAddRegion,
  kRemoveRegion,
  kClose,
  kOpen,
};

struct Step {
  Action action;
  uint32_t first;
  uint32_t second;
};
std::ostream& operator<<(std::ostream& out, const Step& step) {
  return out << "{" << static_cast<int>(step.action) << ", " << step.first << ", " << step.second << "}";
}

// Of every page of every region: 0 free, else the number of its allocation.
class Model {
 public:
  struct Block {
    bool slots_allowed = false;
    bool closed = false;
    std::array<uint32_t, kWhole> owner{};
    bool whole = false;  // Handed out as one block.
    unsigned used() const {
      unsigned count = 0;
      for (const uint32_t page : owner) count += page != 0;
      return count;
    }
    unsigned longest_hole() const {
      unsigned longest = 0;
      unsigned length = 0;
      for (const uint32_t page : owner) {
        length = page == 0 ? length + 1 : 0;
        longest = std::max(longest, length);
      }
      return longest;
    }
    bool IsSlotBlock() const { return !whole && used() != 0; }
  };

  std::map<uint32_t, Block> blocks;

  uint64_t free_pages(bool closed) const {
    uint64_t pages = 0;
    for (const auto& [number, block] : blocks) pages += block.closed == closed ? kWhole - block.used() : 0;
    return pages;
  }
  uint64_t free_blocks(bool slotable_only) const {
    uint64_t count = 0;
    for (const auto& [number, block] : blocks) {
      count += block.used() == 0 && !block.closed && (block.slots_allowed || !slotable_only);
    }
    return count;
  }
  uint64_t slot_blocks() const {
    uint64_t count = 0;
    for (const auto& [number, block] : blocks) count += block.IsSlotBlock();
    return count;
  }
  bool SlotFits(uint32_t pages) const {
    for (const auto& [number, block] : blocks) {
      if (block.IsSlotBlock() && !block.closed && block.longest_hole() >= pages) return true;
    }
    return false;
  }
  bool Fits(uint64_t whole, uint32_t tail) const {
    if (tail == 0 || SlotFits(tail)) return whole <= free_blocks(false);
    return free_blocks(true) >= 1 && whole + 1 <= free_blocks(false);
  }
  // In so many holes of slot blocks.
  bool RunsFit(uint32_t pages, size_t runs_max) const {
    std::vector<uint32_t> holes;
    for (const auto& [number, block] : blocks) {
      if (!block.IsSlotBlock() || block.closed) continue;
      bool in_hole = false;
      for (const uint32_t page : block.owner) {
        if (page == 0 && !in_hole) holes.push_back(0);
        in_hole = page == 0;
        if (in_hole) ++holes.back();
      }
    }
    std::ranges::sort(holes, std::ranges::greater{});
    holes.resize(std::min(holes.size(), runs_max));
    return std::accumulate(holes.begin(), holes.end(), 0U) >= pages;
  }
  bool CanTake(PageRun run) const {
    const auto found = blocks.find(run.block);
    if (found == blocks.end() || run.pages == 0 || run.page + run.pages > kWhole) return false;
    if (run.pages != kWhole && !found->second.slots_allowed) return false;
    for (unsigned page = run.page; page < unsigned{run.page} + run.pages; ++page) {
      if (found->second.owner[page] != 0) return false;
    }
    return true;
  }
  void Mark(PageRun run, uint32_t owner) {
    Block& block = blocks.at(run.block);
    for (unsigned page = run.page; page < unsigned{run.page} + run.pages; ++page) {
      RC_ASSERT((block.owner[page] == 0) != (owner == 0));
      block.owner[page] = owner;
    }
    if (run.whole_block()) block.whole = owner != 0;
    RC_ASSERT(run.whole_block() || block.slots_allowed);
  }
};

class Program {
 public:
  void Do(const Step& step) {
    switch (step.action) {
      case Action::kAllocate: return Allocate(step.first % 12, step.second % 512);
      case Action::kRun: return AllocateRun(step.first % 4 == 0 ? kWhole : 1 + step.second % 511, step.second % 64);
      case Action::kBesideSlots: return AllocateBesideSlots(1 + step.second % 511);
      case Action::kInFreeBlock: return AllocateInFreeBlock(1 + step.second % 511);
      case Action::kScattered: return AllocateScattered(step.first % 12, 1 + step.second % 511);
      case Action::kRuns: return AllocateScattered(0, 1 + step.second % 511);
      case Action::kSplit: return Split(step);
      case Action::kFree: return Free(step.first);
      case Action::kTake: return Take(step);
      case Action::kAddRegion:
        return AddRegion(step.first % kRegions, static_cast<RegionUse>(step.second % kRegionUses));
      case Action::kRemoveRegion: return RemoveRegion(step.first % kRegions);
      case Action::kClose: return SetClosed(step.first % kRegions, true);
      case Action::kOpen: return SetClosed(step.first % kRegions, false);
    }
  }
  void Check() const {
    pool_.CheckInvariants();
    RC_ASSERT(pool_.free_pages() == model_.free_pages(false));
    RC_ASSERT(pool_.closed_free_pages() == model_.free_pages(true));
    RC_ASSERT(pool_.free_block_count() == model_.free_blocks(false));
    RC_ASSERT(pool_.free_slot_block_count() == model_.free_blocks(true));
    RC_ASSERT(pool_.used_pages() == model_.blocks.size() * kWhole - model_.free_pages(false) - model_.free_pages(true));
    RC_ASSERT(pool_.slot_block_count() == model_.slot_blocks());
    CheckSparse();
    CheckUsed();
  }
  // Every slot block with free pages is listed, those with the most first in steps of 64; its slots are the live runs.
  void CheckSparse() const {
    std::vector<SparseBlock> sparse;
    pool_.ListSparseBlocks(false, SIZE_MAX, &sparse);
    size_t expected = 0;
    for (const auto& [number, block] : model_.blocks) {
      expected += block.IsSlotBlock() && !block.closed && block.used() < kWhole;
    }
    RC_ASSERT(sparse.size() == expected);
    for (size_t i = 0; i < sparse.size(); ++i) {
      RC_ASSERT(sparse[i].free_pages == kWhole - model_.blocks.at(sparse[i].block).used());
      const auto list = [&](size_t at) { return (sparse[at].free_pages + 63) / 64; };
      RC_ASSERT((i == 0 || list(i) <= list(i - 1)));
      std::vector<PageRun> slots;
      pool_.ListSlots(sparse[i].block, &slots);
      std::vector<PageRun> live;
      for (const PageRun run : live_) {
        if (run.block == sparse[i].block) live.push_back(run);
      }
      std::ranges::sort(live, {}, &PageRun::page);
      RC_ASSERT(std::ranges::equal(slots, live));
    }
    std::vector<SparseBlock> first;
    pool_.ListSparseBlocks(false, 2, &first);
    RC_ASSERT(first.size() == std::min<size_t>(2, sparse.size()));
  }
  // What is handed out of a block, open or closed, are the live runs that lie there.
  void CheckUsed() const {
    std::map<uint32_t, std::vector<PageRun>> live;
    for (const PageRun run : live_) live[run.block].push_back(run);
    for (const auto& [number, block] : model_.blocks) {
      std::vector<PageRun> used;
      pool_.ListUsed(number, &used);
      std::ranges::sort(live[number], {}, &PageRun::page);
      RC_ASSERT(used == live[number]);
    }
  }
  void FreeAll() {
    while (!live_.empty()) Free(0);
    Check();
    RC_ASSERT(pool_.used_pages() == 0U);
  }

 private:
  void Keep(PageRun run) {
    model_.Mark(run, next_++);
    live_.push_back(run);
  }
  void Allocate(uint32_t blocks, uint32_t tail) {
    std::vector<PageRun> runs;
    const bool expected = model_.Fits(blocks, tail);
    RC_ASSERT(pool_.TryAllocate(blocks, tail, &runs) == expected);
    RC_ASSERT(runs.size() == (expected ? blocks + (tail != 0) : 0U));
    for (size_t i = 0; i < runs.size(); ++i) {
      RC_ASSERT(runs[i].pages == (i < blocks ? kWhole : tail));
      const bool ascends = i == 0 || i == blocks || runs[i - 1].block < runs[i].block;
      RC_ASSERT(ascends);  // Not inside: the macro's operators do not short-circuit.
      Keep(runs[i]);
    }
  }
  void AllocateScattered(uint32_t blocks, uint32_t tail) {
    std::vector<PageRun> runs;
    const bool scattered = blocks <= model_.free_blocks(false) && model_.RunsFit(tail, kRunsMax);
    const bool expected = model_.Fits(blocks, tail) || scattered;
    const bool taken = blocks == 0 && next_ % 2 == 0 ? pool_.TryAllocateRuns(tail, kRunsMax, &runs)
                                                     : pool_.TryAllocate(blocks, tail, &runs, kRunsMax);
    RC_ASSERT(taken == expected);
    RC_ASSERT(runs.size() <= (taken ? blocks + kRunsMax : 0U));
    uint32_t pages = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      RC_ASSERT((i >= blocks || runs[i].pages == kWhole));
      pages += runs[i].pages;
      Keep(runs[i]);
    }
    RC_ASSERT(pages == (taken ? blocks * kWhole + tail : 0U));
  }
  void Split(const Step& step) {
    if (live_.empty()) return;
    PageRun& run = live_[step.first % live_.size()];
    if (run.whole_block() || run.pages == 1) return;
    const auto pages = static_cast<uint16_t>(1 + step.second % (run.pages - 1U));
    pool_.Split(run, pages);
    PageRun rest = run;
    rest.page = static_cast<uint16_t>(rest.page + pages);
    rest.pages = static_cast<uint16_t>(rest.pages - pages);
    run.pages = pages;
    live_.push_back(rest);
  }
  void AllocateRun(uint32_t pages, uint32_t near) {
    const bool expected = pages == kWhole ? model_.Fits(1, 0) : model_.Fits(0, pages);
    const PageRun run = pool_.TryAllocateRun(pages, near);
    RC_ASSERT(static_cast<bool>(run) == expected);
    if (!run) return;
    RC_ASSERT(run.pages == pages);
    Keep(run);
  }
  void AllocateBesideSlots(uint32_t pages) {
    const bool expected = model_.SlotFits(pages);
    const PageRun run = pool_.TryAllocateBesideSlots(pages);
    RC_ASSERT(static_cast<bool>(run) == expected);
    if (run) Keep(run);
  }
  void AllocateInFreeBlock(uint32_t pages) {
    const bool expected = model_.free_blocks(true) != 0;
    const PageRun run = pool_.TryAllocateInFreeBlock(pages);
    RC_ASSERT(static_cast<bool>(run) == expected);
    if (!run) return;
    RC_ASSERT(run.page == 0U);
    RC_ASSERT(run.pages == pages);
    RC_ASSERT(model_.blocks.at(run.block).used() == 0U);
    Keep(run);
  }
  void Free(uint32_t which) {
    if (live_.empty()) return;
    const size_t at = which % live_.size();
    pool_.Free(live_[at]);
    model_.Mark(live_[at], 0);
    live_.erase(live_.begin() + static_cast<ptrdiff_t>(at));
  }
  void Take(const Step& step) {
    const PageRun run{step.first % (kRegions * kRegionBlocks + 2), static_cast<uint16_t>(step.second % 512),
                      static_cast<uint16_t>(step.second % 7 == 0 ? 512 : step.second % 40)};
    const PageRun wanted = run.pages == kWhole ? PageRun{run.block, 0, run.pages} : run;
    const bool expected = model_.CanTake(wanted);
    RC_ASSERT(pool_.TryTake(wanted) == expected);
    if (expected) Keep(wanted);
  }
  void AddRegion(uint32_t region, RegionUse use) {
    if (regions_[region]) return;
    regions_[region] = true;
    pool_.AddRegion(region * kRegionBlocks, kRegionBlocks, use);
    const uint32_t first = region * kRegionBlocks;
    const bool slots_allowed = use != RegionUse::kBlocksOnly;
    for (uint32_t i = 0; i < kRegionBlocks; ++i) model_.blocks[first + i] = {.slots_allowed = slots_allowed};
  }
  void RemoveRegion(uint32_t region) {
    if (!regions_[region]) return;
    bool empty = true;
    for (uint32_t i = 0; i < kRegionBlocks; ++i) empty &= model_.blocks[region * kRegionBlocks + i].used() == 0;
    RC_ASSERT(pool_.RegionEmpty(region * kRegionBlocks) == empty);
    if (!empty) return;
    pool_.RemoveRegion(region * kRegionBlocks);
    regions_[region] = false;
    for (uint32_t i = 0; i < kRegionBlocks; ++i) model_.blocks.erase(region * kRegionBlocks + i);
  }

  void SetClosed(uint32_t region, bool closed) {
    if (!regions_[region]) return;
    pool_.SetClosed(region * kRegionBlocks, closed);
    RC_ASSERT(pool_.IsClosed(region * kRegionBlocks) == closed);
    for (uint32_t i = 0; i < kRegionBlocks; ++i) model_.blocks[region * kRegionBlocks + i].closed = closed;
  }

  BlockPool pool_;
  Model model_;
  std::vector<PageRun> live_;
  std::array<bool, kRegions> regions_{};
  uint32_t next_ = 1;
};

rc::Gen<std::vector<Step>> Programs() {
  const auto action = rc::gen::weightedElement<Action>({{6, Action::kAllocate},
                                                        {10, Action::kRun},
                                                        {4, Action::kBesideSlots},
                                                        {2, Action::kInFreeBlock},
                                                        {6, Action::kScattered},
                                                        {6, Action::kRuns},
                                                        {3, Action::kSplit},
                                                        {10, Action::kFree},
                                                        {3, Action::kTake},
                                                        {2, Action::kAddRegion},
                                                        {1, Action::kRemoveRegion},
                                                        {1, Action::kClose},
                                                        {1, Action::kOpen}});
  const auto number = rc::gen::inRange<uint32_t>(0, 1U << 16);
  return rc::gen::container<std::vector<Step>>(rc::gen::construct<Step>(action, number, number));
}

RC_GTEST_PROP(BlockPoolProperty, AgreesWithAPageOwnerModelAfterEveryStep, ()) {
  const auto steps = *rc::gen::scale(3.0, Programs());
  Program program;
  program.Do({Action::kAddRegion, 0, 1});
  program.Do({Action::kAddRegion, 1, 1});
  for (const Step& step : steps) {
    program.Do(step);
    program.Check();
  }
  program.FreeAll();
}

}  // namespace
}  // namespace tier::base
