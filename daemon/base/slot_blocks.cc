// Slot blocks and the lists they stand in.
#include "daemon/base/slot_blocks.h"

#include <algorithm>
#include <bit>

#include "daemon/base/check.h"

namespace tier::base {

unsigned SlotBlocks::ListFor(unsigned pages) const {
  unsigned word = pages / 64;
  uint64_t bits = nonempty_[word] & (~uint64_t{0} << (pages % 64));
  while (bits == 0) {
    if (++word == nonempty_.size()) return kPagesPerBlock + 1;
    bits = nonempty_[word];
  }
  return word * 64 + static_cast<unsigned>(std::countr_zero(bits));
}

unsigned SlotBlocks::longest_hole() const {
  for (size_t word = nonempty_.size(); word-- != 0;) {
    if (nonempty_[word] != 0) return static_cast<unsigned>(word * 64 + std::bit_width(nonempty_[word]) - 1);
  }
  return 0;
}

void SlotBlocks::Link(uint32_t index) {
  Entry& entry = entries_[index];
  const unsigned list = entry.longest_hole;
  entry.previous = kNone;
  entry.next = lists_[list];
  if (entry.next != kNone) entries_[entry.next].previous = index;
  lists_[list] = index;
  nonempty_[list / 64] |= uint64_t{1} << (list % 64);
}

void SlotBlocks::Unlink(uint32_t index) {
  const Entry& entry = entries_[index];
  const unsigned list = entry.longest_hole;
  if (entry.next != kNone) entries_[entry.next].previous = entry.previous;
  if (entry.previous != kNone) {
    entries_[entry.previous].next = entry.next;
    return;
  }
  lists_[list] = entry.next;
  if (entry.next == kNone) nonempty_[list / 64] &= ~(uint64_t{1} << (list % 64));
}

void SlotBlocks::SetLongest(uint32_t index, unsigned pages) {
  if (entries_[index].longest_hole == pages) return;
  const bool linked = !entries_[index].closed;
  if (linked) Unlink(index);
  entries_[index].longest_hole = static_cast<uint16_t>(pages);
  if (linked) Link(index);
}

void SlotBlocks::LinkSparse(uint32_t index) {
  Entry& entry = entries_[index];
  uint32_t& head = sparse_[SparseListOf(entry)];
  entry.previous_sparse = kNone;
  entry.next_sparse = head;
  if (head != kNone) entries_[head].previous_sparse = index;
  head = index;
}

void SlotBlocks::UnlinkSparse(uint32_t index) {
  const Entry& entry = entries_[index];
  if (entry.next_sparse != kNone) entries_[entry.next_sparse].previous_sparse = entry.previous_sparse;
  uint32_t& link =
      entry.previous_sparse == kNone ? sparse_[SparseListOf(entry)] : entries_[entry.previous_sparse].next_sparse;
  link = entry.next_sparse;
}

void SlotBlocks::SetFree(uint32_t index, unsigned pages) {
  Entry& entry = entries_[index];
  const bool stays = entry.closed || SparseList(pages, entry.bound != 0) == SparseListOf(entry);
  if (!stays) UnlinkSparse(index);
  entry.free_pages = static_cast<uint16_t>(pages);
  if (!stays) LinkSparse(index);
}

void SlotBlocks::Add(uint32_t block) {
  TIER_CHECK(!Contains(block), "block {} entry {}", block, Find(block));
  if (unused_ == kNone) unused_ = entries_.Append();
  const uint32_t index = unused_;
  unused_ = entries_[index].next;
  entries_[index] = Entry{};
  entries_[index].block = block;
  entries_[index].free_pages = kPagesPerBlock;
  entries_[index].longest_hole = kPagesPerBlock;
  index_.Insert(block, index);
  Link(index);
  LinkSparse(index);
  ++count_;
  free_pages_ += kPagesPerBlock;
}

void SlotBlocks::Remove(uint32_t block) {
  const uint32_t index = Find(block);
  TIER_CHECK(index != kNone, "block {}", block);
  Entry& entry = entries_[index];
  TIER_CHECK(entry.free_pages == kPagesPerBlock, "block {} free pages {}", block, entry.free_pages);
  TIER_CHECK(entry.bound == 0, "block {} has {} bound slots", block, unsigned{entry.bound});
  SetClosed(block, false);
  Unlink(index);
  UnlinkSparse(index);
  index_.Remove(block);
  entry.block = kNone;
  entry.next = unused_;
  unused_ = index;
  --count_;
  free_pages_ -= kPagesPerBlock;
}

void SlotBlocks::SetClosed(uint32_t block, bool closed) {
  const uint32_t index = Find(block);
  TIER_CHECK(index != kNone, "block {}", block);
  Entry& entry = entries_[index];
  if (entry.closed == closed) return;
  FreeOf(entry) -= entry.free_pages;
  entry.closed = closed;
  FreeOf(entry) += entry.free_pages;
  if (closed) {
    Unlink(index);
    UnlinkSparse(index);
    ++closed_count_;
  } else {
    Link(index);
    LinkSparse(index);
    --closed_count_;
  }
}

void SlotBlocks::Occupy(uint32_t index, SlotPages::Hole hole, unsigned page, unsigned pages) {
  Entry& entry = entries_[index];
  TIER_CHECK(page >= hole.page && page + pages <= hole.page + hole.pages, "block {} page {} pages {}: hole {} to {}",
             entry.block, page, pages, hole.page, hole.page + hole.pages);
  TIER_CHECK(entry.free_pages >= pages, "block {} free {} asked {}", entry.block, entry.free_pages, pages);
  entry.slots.Add(page, pages, &maps_);
  SetFree(index, entry.free_pages - pages);
  FreeOf(entry) -= pages;
  if (entry.bound != 0) bound_free_pages_ -= pages;
  // Only when the longest hole itself was cut can the longest have become shorter.
  if (hole.pages == entry.longest_hole) SetLongest(index, entry.slots.LongestHole(maps_, hole.pages));
}

PageRun SlotBlocks::TryAllocate(unsigned pages) {
  TIER_CHECK(pages != 0 && pages < kPagesPerBlock, "pages {}", pages);
  const unsigned list = ListFor(pages);
  if (list > kPagesPerBlock) return {};
  const uint32_t index = lists_[list];
  const SlotPages::Hole hole = entries_[index].slots.BestHole(pages, maps_);
  TIER_CHECK(hole.pages >= pages, "block {} list {} hole {}", entries_[index].block, list, hole.pages);
  Occupy(index, hole, hole.page, pages);
  return {entries_[index].block, static_cast<uint16_t>(hole.page), static_cast<uint16_t>(pages)};
}

bool SlotBlocks::TryAllocateRuns(unsigned pages, size_t runs_max, std::vector<PageRun>* runs) {
  const size_t begin = runs->size();
  unsigned left = pages;
  while (left != 0 && runs->size() - begin < runs_max) {
    const unsigned hole = longest_hole();
    if (hole == 0) break;
    runs->push_back(TryAllocate(std::min(hole, left)));
    left -= runs->back().pages;
  }
  if (left == 0) return true;
  for (; runs->size() != begin; runs->pop_back()) {
    const bool emptied = Free(runs->back());
    TIER_CHECK(!emptied, "block {} had no slots", runs->back().block);
  }
  return false;
}

void SlotBlocks::Split(PageRun run, unsigned pages) {
  const uint32_t index = Find(run.block);
  TIER_CHECK(index != kNone && pages != 0 && pages < run.pages, "block {}: {} of {} pages", run.block, pages,
             run.pages);
  SlotPages& slots = entries_[index].slots;
  TIER_CHECK(slots.Holds(run.page, run.pages, maps_), "block {} page {} pages {}: no such slot", run.block, run.page,
             run.pages);
  slots.Split(run.page, pages, &maps_);
}

bool SlotBlocks::IsFree(PageRun run) const {
  const uint32_t index = Find(run.block);
  if (index == kNone) return false;
  const SlotPages::Hole hole = entries_[index].slots.HoleAt(run.page, maps_);
  return hole.page + hole.pages >= unsigned{run.page} + run.pages;
}

void SlotBlocks::Take(PageRun run) {
  const uint32_t index = Find(run.block);
  TIER_CHECK(index != kNone, "block {} page {} pages {}: no slot block", run.block, run.page, run.pages);
  Occupy(index, entries_[index].slots.HoleAt(run.page, maps_), run.page, run.pages);
}

bool SlotBlocks::Free(PageRun run) {
  const uint32_t index = Find(run.block);
  TIER_CHECK(index != kNone, "block {} page {} pages {}: no slot block", run.block, run.page, run.pages);
  Entry& entry = entries_[index];
  SlotPages& slots = entry.slots;
  const bool held = slots.Holds(run.page, run.pages, maps_);
  TIER_CHECK(held || slots.HoleAt(run.page, maps_).pages == 0, "block {} page {} pages {}: freed twice", run.block,
             run.page, run.pages);
  TIER_CHECK(held, "block {} page {} pages {}: no such slot", run.block, run.page, run.pages);
  slots.Remove(run.page, run.pages, &maps_);
  SetFree(index, unsigned{entry.free_pages} + run.pages);
  FreeOf(entry) += run.pages;
  if (entry.bound != 0) bound_free_pages_ += run.pages;
  const unsigned hole = slots.HoleAt(run.page, maps_).pages;
  if (hole > entry.longest_hole) SetLongest(index, hole);
  return entry.free_pages == kPagesPerBlock;
}

void SlotBlocks::SetBound(uint32_t index, bool bound) {
  Entry& entry = entries_[index];
  const bool moves = !entry.closed && entry.free_pages != 0;  // Full ones have one list.
  if (moves) UnlinkSparse(index);
  entry.bound = bound ? 1 : 0;
  if (moves) LinkSparse(index);
  bound_free_pages_ = bound ? bound_free_pages_ + entry.free_pages : bound_free_pages_ - entry.free_pages;
  bound_count_ = bound ? bound_count_ + 1 : bound_count_ - 1;
}

void SlotBlocks::Bind(uint32_t block) {
  const uint32_t index = Find(block);
  TIER_CHECK(index != kNone && entries_[index].bound < kPagesPerBlock, "block {} entry {}", block, index);
  if (entries_[index].bound == 0) return SetBound(index, true);
  ++entries_[index].bound;
}

void SlotBlocks::Unbind(uint32_t block) {
  const uint32_t index = Find(block);
  TIER_CHECK(index != kNone && entries_[index].bound != 0, "block {} entry {}", block, index);
  if (entries_[index].bound == 1) return SetBound(index, false);
  --entries_[index].bound;
}

void SlotBlocks::ListSparse(bool bound, size_t most, std::vector<SparseBlock>* blocks) const {
  size_t left = most;
  for (unsigned pages = kPagesPerBlock; pages != 0; pages -= kSparseStep) {
    for (uint32_t index = sparse_[SparseList(pages, bound)]; index != kNone; index = entries_[index].next_sparse) {
      if (left-- == 0) return;
      blocks->push_back({entries_[index].block, entries_[index].free_pages});
    }
  }
}

void SlotBlocks::ListSlots(uint32_t block, std::vector<PageRun>* slots) const {
  const uint32_t index = Find(block);
  TIER_CHECK(index != kNone, "block {}", block);
  entries_[index].slots.List(block, maps_, slots);
}

void SlotBlocks::CheckInvariants() const {
  CheckEntries();
  CheckLists();
  index_.CheckInvariants(count_);
}

void SlotBlocks::CheckEntries() const {
  uint64_t seen = 0;
  uint64_t free = 0;
  uint64_t closed = 0;
  uint64_t closed_free = 0;
  uint64_t bound = 0;
  uint64_t bound_free = 0;
  uint32_t with_maps = 0;
  std::vector<PageRun> slots;
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.block == kNone) continue;
    ++seen;
    with_maps += entry.slots.has_maps() ? 1 : 0;
    closed += entry.closed ? 1 : 0;
    (entry.closed ? closed_free : free) += entry.free_pages;
    bound += entry.bound == 0 ? 0 : 1;
    bound_free += entry.bound == 0 ? 0 : entry.free_pages;
    TIER_CHECK(Find(entry.block) == i, "block {} entry {}", entry.block, i);
    entry.slots.CheckInvariants(maps_);
    slots.clear();
    entry.slots.List(entry.block, maps_, &slots);
    unsigned used = 0;
    for (const PageRun& slot : slots) used += slot.pages;
    TIER_CHECK(entry.free_pages + used == kPagesPerBlock, "block {} free {}", entry.block, entry.free_pages);
    TIER_CHECK(entry.longest_hole == entry.slots.LongestHole(maps_), "block {} longest {}", entry.block,
               entry.longest_hole);
    TIER_CHECK(entry.free_pages != kPagesPerBlock, "block {} is a slot block without slots", entry.block);
  }
  TIER_CHECK(seen == count_ && free == free_pages_, "blocks {} of {} free {} of {}", seen, count_, free, free_pages_);
  TIER_CHECK(with_maps == maps_.used(), "{} blocks have maps of {}", with_maps, maps_.used());
  TIER_CHECK(bound == bound_count_ && bound_free == bound_free_pages_, "bound {} of {}, {} of {} pages", bound,
             bound_count_, bound_free, bound_free_pages_);
  TIER_CHECK(closed == closed_count_ && closed_free == closed_free_pages_, "closed {} of {}, {} of {} pages", closed,
             closed_count_, closed_free, closed_free_pages_);
}

void SlotBlocks::CheckLists() const {
  uint64_t listed = 0;
  for (unsigned list = 0; list < lists_.size(); ++list) {
    const bool marked = (nonempty_[list / 64] >> (list % 64) & 1) != 0;
    TIER_CHECK(marked == (lists_[list] != kNone), "list {}", list);
    for (uint32_t i = lists_[list]; i != kNone; i = entries_[i].next) {
      TIER_CHECK(entries_[i].longest_hole == list && !entries_[i].closed, "entry {} list {}", i, list);
      ++listed;
    }
  }
  uint64_t sparse = 0;
  for (unsigned list = 0; list < sparse_.size(); ++list) {
    for (uint32_t i = sparse_[list]; i != kNone; i = entries_[i].next_sparse, ++sparse) {
      TIER_CHECK(SparseListOf(entries_[i]) == list, "entry {} is in sparse list {}", i, list);
    }
  }
  TIER_CHECK(listed + closed_count_ == count_ && sparse == listed, "listed {} and {} of {}, {} closed", listed, sparse,
             count_, closed_count_);
}

}  // namespace tier::base
