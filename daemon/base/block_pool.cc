// BlockPool over one map of whole blocks for each use of a region, and the slot blocks. A block is in exactly one of
// four conditions: free in its map; a slot block; handed out whole; no member. Blocks of closed regions have a map of
// their own, in which nothing is looked for.
#include "daemon/base/block_pool.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/base/free_block_map.h"

namespace tier::base {
namespace {

constexpr uint32_t kNone = FreeBlockMap::kNone;

// Where each is looked for, in this order: what is left then serves the most requests.
constexpr std::array kForBlocks = {RegionUse::kBlocksOnly, RegionUse::kBlocksFirst, RegionUse::kSlotsFirst};
constexpr std::array kForSlots = {RegionUse::kSlotsFirst, RegionUse::kBlocksFirst};
constexpr std::array kForRunsWithTails = {RegionUse::kBlocksFirst, RegionUse::kSlotsFirst};

PageRun WholeBlock(uint32_t block) { return {block, 0, static_cast<uint16_t>(kPagesPerBlock)}; }

}  // namespace

struct BlockPool::State {
  struct Region {
    uint32_t first = 0;
    uint32_t count = 0;
    RegionUse use = RegionUse::kSlotsFirst;
    bool closed = false;
  };

  // By first block. An owner has one for each of its windows, which may be of few blocks: so they stand side by side,
  // and to add one moves those behind it, up to 100 KB of 8,192 windows.
  std::vector<Region> regions;
  std::array<FreeBlockMap, kRegionUses> maps;
  FreeBlockMap closed;
  std::array<uint64_t, kRegionUses> closed_blocks{};  // By the use of their regions.
  SlotBlocks slots;

  FreeBlockMap& Of(RegionUse use) { return maps[static_cast<size_t>(use)]; }
  const FreeBlockMap& Of(RegionUse use) const { return maps[static_cast<size_t>(use)]; }
  FreeBlockMap& Of(const Region& region) { return region.closed ? closed : Of(region.use); }
  const FreeBlockMap& Of(const Region& region) const { return region.closed ? closed : Of(region.use); }
  FreeBlockMap* MapOf(uint32_t block) {
    for (FreeBlockMap& map : maps) {
      if (map.IsMember(block)) return &map;
    }
    return closed.IsMember(block) ? &closed : nullptr;
  }
  using RegionIterator = std::vector<Region>::iterator;
  RegionIterator FirstRegionBehind(uint32_t block) {
    return std::upper_bound(regions.begin(), regions.end(), block,
                            [](uint32_t wanted, const Region& region) { return wanted < region.first; });
  }
  RegionIterator RegionAt(uint32_t first) {
    const RegionIterator behind = FirstRegionBehind(first);
    TIER_CHECK(behind != regions.begin() && std::prev(behind)->first == first, "first {}", first);
    return std::prev(behind);
  }
  void InsertRegion(const Region& region) {
    // Room for some more at a time, where a vector by itself would take as much as all of them again.
    if (regions.size() == regions.capacity()) regions.reserve(regions.size() + regions.size() / 8 + 4);
    regions.insert(FirstRegionBehind(region.first), region);
  }
  uint64_t members() const {
    uint64_t blocks = closed.member_count();
    for (const FreeBlockMap& map : maps) blocks += map.member_count();
    return blocks;
  }
  uint64_t free_slot_blocks() const {
    return Of(RegionUse::kBlocksFirst).free_count() + Of(RegionUse::kSlotsFirst).free_count();
  }
  uint64_t free_blocks() const { return Of(RegionUse::kBlocksOnly).free_count() + free_slot_blocks(); }

  void TakeRun(FreeBlockMap* map, uint32_t first, uint32_t count, std::vector<PageRun>* runs);
  // Takes `blocks` blocks as few runs, longest first. REQUIRES: that many are free in `map`.
  void TakeScattered(FreeBlockMap* map, uint32_t blocks, std::vector<PageRun>* runs);
  bool TakeSlotBehind(uint32_t last_block, uint32_t pages, std::vector<PageRun>* runs);
  bool TryTakeBlocksWithNewSlotBlock(uint32_t blocks, uint32_t tail_pages, std::vector<PageRun>* runs);
  void TakeBlocks(uint32_t blocks, std::vector<PageRun>* runs);
  // A slot of so many pages would open a block although the holes of others are more than may be left unused.
  bool WouldWaste(uint32_t pages) const;
  bool TryTakeBlocksAndSlot(uint32_t blocks, uint32_t tail_pages, std::vector<PageRun>* runs);
  PageRun TryTakeSlot(uint32_t pages, uint32_t near);
  PageRun TryTakeBlock(uint32_t near);
  void TurnIntoSlotBlock(uint32_t block);  // If it is free, and slots may lie there.
};

void BlockPool::State::TakeRun(FreeBlockMap* map, uint32_t first, uint32_t count, std::vector<PageRun>* runs) {
  map->MarkUsed(first, count);
  for (uint32_t i = 0; i < count; ++i) runs->push_back(WholeBlock(first + i));
}

void BlockPool::State::TakeScattered(FreeBlockMap* map, uint32_t blocks, std::vector<PageRun>* runs) {
  while (blocks != 0) {
    const uint32_t count = std::min(blocks, map->longest_run());
    TIER_CHECK(count != 0, "{} blocks short", blocks);
    TakeRun(map, map->FindRun(count), count, runs);
    blocks -= count;
  }
}

// A run from the first map that has one, but from no map behind one that has enough blocks: what lies there serves
// others better. Else scattered blocks, map by map.
void BlockPool::State::TakeBlocks(uint32_t blocks, std::vector<PageRun>* runs) {
  const size_t begin = runs->size();
  for (const RegionUse use : kForBlocks) {
    FreeBlockMap& map = Of(use);
    const uint32_t first = map.FindRun(blocks);
    if (first != kNone) return TakeRun(&map, first, blocks, runs);
    if (map.free_count() >= blocks) break;
  }
  for (const RegionUse use : kForBlocks) {
    const auto here = static_cast<uint32_t>(std::min<uint64_t>(blocks, Of(use).free_count()));
    TakeScattered(&Of(use), here, runs);
    blocks -= here;
  }
  std::sort(runs->begin() + static_cast<ptrdiff_t>(begin), runs->end(),
            [](const PageRun& a, const PageRun& b) { return a.block < b.block; });
}

// When the slot needs a new slot block anyhow: the one behind the run, if there is such a run. False: nothing done.
bool BlockPool::State::TryTakeBlocksWithNewSlotBlock(uint32_t blocks, uint32_t tail_pages, std::vector<PageRun>* runs) {
  for (const RegionUse use : blocks == 0 ? kForSlots : kForRunsWithTails) {
    FreeBlockMap& map = Of(use);
    const uint32_t first = map.FindRun(blocks + 1);
    if (first == kNone) {
      if (blocks != 0 && map.free_count() >= blocks) return false;
      continue;
    }
    const uint32_t behind = first + blocks;
    if (blocks != 0) TakeRun(&map, first, blocks, runs);
    map.MarkUsed(behind, 1);
    slots.Add(behind);
    const PageRun tail{behind, 0, static_cast<uint16_t>(tail_pages)};
    slots.Take(tail);
    runs->push_back(tail);
    return true;
  }
  return false;
}

bool BlockPool::State::WouldWaste(uint32_t pages) const {
  const uint64_t tolerated = kPagesPerBlock / 2 + slots.count() * kPagesPerBlock / kUnusedPart;
  return pages >= kDividedPagesMin && slots.free_pages() > tolerated && !slots.CanAllocate(pages);
}

bool BlockPool::State::TakeSlotBehind(uint32_t last_block, uint32_t pages, std::vector<PageRun>* runs) {
  const PageRun behind{last_block + 1, 0, static_cast<uint16_t>(pages)};
  if (!slots.IsFree(behind) || closed.IsMember(behind.block)) return false;
  slots.Take(behind);
  runs->push_back(behind);
  return true;
}

PageRun BlockPool::State::TryTakeSlot(uint32_t pages, uint32_t near) {
  const PageRun run = slots.TryAllocate(pages);
  if (run) return run;
  for (const RegionUse use : kForSlots) {
    FreeBlockMap& map = Of(use);
    uint32_t block = map.FindAtOrAfter(near);
    if (block == kNone) block = map.FindAtOrAfter(0);
    if (block == kNone) continue;
    map.MarkUsed(block, 1);
    slots.Add(block);
    return slots.TryAllocate(pages);
  }
  return {};
}

PageRun BlockPool::State::TryTakeBlock(uint32_t near) {
  for (const RegionUse use : kForBlocks) {
    FreeBlockMap& map = Of(use);
    uint32_t block = map.FindAtOrAfter(near);
    if (block == kNone) block = map.FindAtOrAfter(0);
    if (block == kNone) continue;
    map.MarkUsed(block, 1);
    return WholeBlock(block);
  }
  return {};
}

void BlockPool::State::TurnIntoSlotBlock(uint32_t block) {
  FreeBlockMap* map = MapOf(block);
  if (map == nullptr || !map->IsFree(block)) return;
  if (std::prev(FirstRegionBehind(block))->use == RegionUse::kBlocksOnly) return;
  map->MarkUsed(block, 1);
  slots.Add(block);
  slots.SetClosed(block, map == &closed);
}

bool BlockPool::State::TryTakeBlocksAndSlot(uint32_t blocks, uint32_t tail_pages, std::vector<PageRun>* runs) {
  const bool slot_at_hand = tail_pages == 0 || slots.CanAllocate(tail_pages);
  const uint64_t needed = uint64_t{blocks} + (slot_at_hand ? 0 : 1);
  if (needed > free_blocks() || (!slot_at_hand && free_slot_blocks() == 0)) return false;

  runs->reserve(runs->size() + blocks + 1);
  if (!slot_at_hand) {
    // Not while blocks that can hold no slots could serve: contiguity is a wish, room for slots a promise.
    const bool slots_anywhere = Of(RegionUse::kBlocksOnly).free_count() == 0;
    if (slots_anywhere && TryTakeBlocksWithNewSlotBlock(blocks, tail_pages, runs)) return true;
    // The slot first, so that the blocks cannot take the last block that could hold it.
    const PageRun tail = TryTakeSlot(tail_pages, 0);
    TIER_CHECK(tail, "tail {} free blocks {}", tail_pages, free_blocks());
    if (blocks != 0) TakeBlocks(blocks, runs);
    runs->push_back(tail);
    return true;
  }
  if (blocks != 0) TakeBlocks(blocks, runs);
  if (tail_pages == 0 || (blocks != 0 && TakeSlotBehind(runs->back().block, tail_pages, runs))) return true;
  runs->push_back(slots.TryAllocate(tail_pages));
  TIER_CHECK(runs->back(), "tail {}", tail_pages);
  return true;
}

BlockPool::BlockPool() : state_(std::make_unique<State>()) {}
BlockPool::~BlockPool() = default;
BlockPool::BlockPool(BlockPool&&) noexcept = default;
BlockPool& BlockPool::operator=(BlockPool&&) noexcept = default;

void BlockPool::AddRegion(uint32_t first, uint32_t count, RegionUse use) {
  State& s = *state_;
  for (const FreeBlockMap& map : s.maps) {
    TIER_CHECK(count != 0 && !map.AnyMember(first, count), "first {} count {}", first, count);
  }
  TIER_CHECK(!s.closed.AnyMember(first, count), "first {} count {}", first, count);
  s.Of(use).AddMembers(first, count);
  s.InsertRegion({.first = first, .count = count, .use = use});
}

void BlockPool::RemoveRegion(uint32_t first) {
  const auto region = state_->RegionAt(first);
  state_->Of(*region).RemoveMembers(first, region->count);
  if (region->closed) state_->closed_blocks[static_cast<size_t>(region->use)] -= region->count;
  state_->regions.erase(region);
}

bool BlockPool::RegionEmpty(uint32_t first) const {
  const State::Region& region = *state_->RegionAt(first);
  return state_->Of(region).AllFree(first, region.count);
}

std::optional<uint32_t> BlockPool::RegionBelow(uint32_t block) const {
  if (block == 0) return std::nullopt;
  const auto behind = state_->FirstRegionBehind(block - 1);
  if (behind == state_->regions.begin()) return std::nullopt;
  return std::prev(behind)->first;
}

bool BlockPool::IsClosed(uint32_t first) const { return state_->RegionAt(first)->closed; }

std::optional<uint32_t> BlockPool::FindFreeRun(uint32_t blocks) const {
  for (const RegionUse use : kForBlocks) {
    const uint32_t first = state_->Of(use).FindRun(blocks);
    if (first != kNone) return first;
  }
  return std::nullopt;
}

bool BlockPool::InOpenRegions(uint32_t first, uint32_t count) const {
  for (uint32_t at = first; at < first + count;) {
    const auto behind = state_->FirstRegionBehind(at);
    if (behind == state_->regions.begin()) return false;
    const State::Region& region = *std::prev(behind);
    if (region.closed || at >= region.first + region.count) return false;
    at = region.first + region.count;
  }
  return true;
}

// Members come and go as wholly free ranges: what is used of the region is marked so in the map that it comes to.
void BlockPool::SetClosed(uint32_t first, bool closed) {
  State& s = *state_;
  State::Region& region = *s.RegionAt(first);
  if (region.closed == closed) return;
  FreeBlockMap& from = s.Of(region);
  region.closed = closed;
  FreeBlockMap& to = s.Of(region);
  to.AddMembers(first, region.count);
  for (uint32_t block = first; block < first + region.count; ++block) {
    if (from.IsFree(block)) continue;
    from.MarkFree(block);
    to.MarkUsed(block, 1);
    if (s.slots.Contains(block)) s.slots.SetClosed(block, closed);
  }
  from.RemoveMembers(first, region.count);
  uint64_t& blocks = s.closed_blocks[static_cast<size_t>(region.use)];
  blocks = closed ? blocks + region.count : blocks - region.count;
}

bool BlockPool::TryAllocate(uint32_t blocks, uint32_t tail_pages, std::vector<PageRun>* runs, uint32_t tail_runs_max) {
  State& s = *state_;
  TIER_CHECK(tail_pages < kPagesPerBlock, "tail {}", tail_pages);
  const bool in_one_run = tail_runs_max < 2 || !s.WouldWaste(tail_pages);
  if (in_one_run && s.TryTakeBlocksAndSlot(blocks, tail_pages, runs)) return true;
  if (tail_runs_max < 2 || tail_pages == 0 || blocks > s.free_blocks()) return false;
  const size_t begin = runs->size();
  if (blocks != 0) s.TakeBlocks(blocks, runs);
  if (TryAllocateRuns(tail_pages, tail_runs_max, runs)) return true;
  for (; runs->size() != begin; runs->pop_back()) Free(runs->back());
  return !in_one_run && s.TryTakeBlocksAndSlot(blocks, tail_pages, runs);  // The slot first, in the block it needs.
}

PageRun BlockPool::TryAllocateRun(uint32_t pages, uint32_t near) {
  TIER_CHECK(pages != 0 && pages <= kPagesPerBlock, "pages {}", pages);
  return pages == kPagesPerBlock ? state_->TryTakeBlock(near) : state_->TryTakeSlot(pages, near);
}

bool BlockPool::TryAllocateRuns(uint32_t pages, uint32_t runs_max, std::vector<PageRun>* runs) {
  State& s = *state_;
  TIER_CHECK(pages != 0 && pages < kPagesPerBlock && runs_max != 0, "{} pages in {} runs", pages, runs_max);
  const uint32_t longest = s.slots.longest_hole();
  if (runs_max >= 2 && s.WouldWaste(pages)) {
    if (s.slots.TryAllocateRuns(pages, 2, runs)) return true;
    if (longest >= kDividedPagesMin && s.free_slot_blocks() != 0) {
      runs->push_back(s.slots.TryAllocate(longest));
      runs->push_back(s.TryTakeSlot(pages - longest, runs->back().block));
      TIER_CHECK(runs->back(), "{} pages, {} blocks free", pages - longest, s.free_slot_blocks());
      return true;
    }
  }
  if (const PageRun run = s.TryTakeSlot(pages, 0)) {
    runs->push_back(run);
    return true;
  }
  return s.slots.TryAllocateRuns(pages, runs_max, runs);
}

bool BlockPool::TryAllocateRunsBesideSlots(uint32_t pages, uint32_t runs_max, std::vector<PageRun>* runs) {
  TIER_CHECK(pages != 0 && pages < kPagesPerBlock, "{} pages in {} runs", pages, runs_max);
  return state_->slots.TryAllocateRuns(pages, runs_max, runs);
}

void BlockPool::Split(PageRun run, uint32_t pages) {
  TIER_CHECK(!run.whole_block(), "block {} into {} pages and the rest", run.block, pages);
  state_->slots.Split(run, pages);
}

bool BlockPool::TryAllocateSideBySide(uint32_t blocks, std::vector<PageRun>* runs) {
  const std::optional<uint32_t> first = FindFreeRun(blocks);
  if (first) state_->TakeRun(state_->MapOf(*first), *first, blocks, runs);
  return first.has_value();
}

PageRun BlockPool::TryAllocateBesideSlots(uint32_t pages) { return state_->slots.TryAllocate(pages); }

PageRun BlockPool::TryAllocateInFreeBlock(uint32_t pages) {
  State& s = *state_;
  TIER_CHECK(pages != 0 && pages < kPagesPerBlock, "pages {}", pages);
  for (const RegionUse use : kForSlots) {
    const uint32_t block = s.Of(use).FindAtOrAfter(0);
    if (block == kNone) continue;
    s.Of(use).MarkUsed(block, 1);
    s.slots.Add(block);
    const PageRun run{block, 0, static_cast<uint16_t>(pages)};
    s.slots.Take(run);
    return run;
  }
  return {};
}

void BlockPool::ListSparseBlocks(bool bound, size_t most, std::vector<SparseBlock>* blocks) const {
  state_->slots.ListSparse(bound, most, blocks);
}

void BlockPool::ListSlots(uint32_t block, std::vector<PageRun>* slots) const { state_->slots.ListSlots(block, slots); }

void BlockPool::ListUsed(uint32_t block, std::vector<PageRun>* runs) const {
  if (state_->slots.Contains(block)) return ListSlots(block, runs);
  const FreeBlockMap* map = state_->MapOf(block);
  TIER_CHECK(map != nullptr, "block {}", block);
  if (!map->IsFree(block)) runs->push_back(WholeBlock(block));
}

bool BlockPool::TryTake(PageRun run) {
  State& s = *state_;
  if (run.pages == 0 || unsigned{run.page} + run.pages > kPagesPerBlock) return false;
  if (run.whole_block()) {
    FreeBlockMap* map = s.MapOf(run.block);
    if (map == nullptr || !map->IsFree(run.block)) return false;
    map->MarkUsed(run.block, 1);
    return true;
  }
  s.TurnIntoSlotBlock(run.block);
  if (!s.slots.IsFree(run)) return false;
  s.slots.Take(run);
  return true;
}

void BlockPool::Free(PageRun run) {
  State& s = *state_;
  TIER_CHECK(run && unsigned{run.page} + run.pages <= kPagesPerBlock, "block {} page {} pages {}", run.block, run.page,
             run.pages);
  if (run.whole_block()) {
    FreeBlockMap* map = s.MapOf(run.block);
    TIER_CHECK(map != nullptr && !s.slots.Contains(run.block), "block {}", run.block);
    map->MarkFree(run.block);
    return;
  }
  if (!s.slots.Free(run)) return;
  s.slots.Remove(run.block);
  s.MapOf(run.block)->MarkFree(run.block);
}

void BlockPool::Bind(PageRun run) {
  if (!run.whole_block()) state_->slots.Bind(run.block);
}

void BlockPool::Unbind(PageRun run) {
  if (!run.whole_block()) state_->slots.Unbind(run.block);
}

uint64_t BlockPool::free_pages() const { return state_->free_blocks() * kPagesPerBlock + state_->slots.free_pages(); }

uint64_t BlockPool::closed_free_pages() const {
  return state_->closed.free_count() * kPagesPerBlock + state_->slots.closed_free_pages();
}

uint64_t BlockPool::free_block_count() const { return state_->free_blocks(); }

uint64_t BlockPool::free_slot_block_count() const { return state_->free_slot_blocks(); }

uint64_t BlockPool::used_pages() const {
  return state_->members() * kPagesPerBlock - free_pages() - closed_free_pages();
}

uint64_t BlockPool::slot_block_count() const { return state_->slots.count(); }

uint32_t BlockPool::longest_hole() const { return state_->slots.longest_hole(); }

uint64_t BlockPool::bound_block_count() const { return state_->slots.bound_count(); }
bool BlockPool::HoldsBound(uint32_t block) const { return state_->slots.HoldsBound(block); }
uint64_t BlockPool::bound_free_pages() const { return state_->slots.bound_free_pages(); }

uint32_t BlockPool::longest_free_run() const {
  uint32_t longest = 0;
  for (const FreeBlockMap& map : state_->maps) longest = std::max(longest, map.longest_run());
  return longest;
}

uint64_t BlockPool::block_count(RegionUse use) const {
  return state_->Of(use).member_count() + state_->closed_blocks[static_cast<size_t>(use)];
}

void BlockPool::CheckInvariants() const {
  const State& s = *state_;
  for (const FreeBlockMap& map : s.maps) map.CheckInvariants();
  s.closed.CheckInvariants();
  s.slots.CheckInvariants();
  uint64_t members = 0;
  uint64_t closed = 0;
  uint64_t slot_blocks = 0;
  uint32_t end = 0;  // Of the region before.
  for (const State::Region& region : s.regions) {
    TIER_CHECK(region.count != 0 && region.first >= end, "region {} of {} behind {}", region.first, region.count, end);
    end = region.first + region.count;
    members += region.count;
    closed += region.closed ? region.count : 0;
    const FreeBlockMap& map = s.Of(region);
    for (uint32_t block = region.first; block < end; ++block) {
      TIER_CHECK(map.IsMember(block), "block {}", block);
      if (!s.slots.Contains(block)) continue;
      ++slot_blocks;
      TIER_CHECK(region.use != RegionUse::kBlocksOnly && !map.IsFree(block), "block {}", block);
    }
  }
  TIER_CHECK(slot_blocks == s.slots.count(), "slot blocks {} of {}", slot_blocks, s.slots.count());
  TIER_CHECK(members == s.members() && closed == s.closed.member_count(), "blocks {} of {}, closed {} of {}", members,
             s.members(), closed, s.closed.member_count());
  uint64_t closed_blocks = 0;
  for (const uint64_t blocks : s.closed_blocks) closed_blocks += blocks;
  TIER_CHECK(closed_blocks == closed, "blocks {} of {} closed", closed_blocks, closed);
}

}  // namespace tier::base
