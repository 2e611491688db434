// Random programs of SlotBlocks operations against a model that knows only, of every page of every block, which slot
// has it. Replay with RC_PARAMS="seed=<seed>".
#include "daemon/base/slot_blocks.h"

#include <algorithm>
#include <array>
#include <map>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tier::base {
namespace {

constexpr uint32_t kPages = kPagesPerBlock;
constexpr uint32_t kBlockStep = 700;  // Three blocks side by side, and three more in another group of the index.
constexpr uint32_t kBlocks = 6;

enum class Action : uint8_t { kAdd, kAllocate, kAllocateRuns, kSplit, kTake, kFree, kBind, kUnbind, kClose, kOpen };

struct Step {
  Action action;
  uint32_t first;
  uint32_t second;
};
std::ostream& operator<<(std::ostream& out, const Step& step) {
  return out << "{" << static_cast<int>(step.action) << ", " << step.first << ", " << step.second << "}";
}

struct Slot {
  PageRun run;
  bool bound = false;
};

struct Block {
  std::vector<Slot> slots;
  bool closed = false;

  std::array<bool, kPages> Used() const {
    std::array<bool, kPages> used{};
    for (const Slot& slot : slots) std::fill_n(used.begin() + slot.run.page, slot.run.pages, true);
    return used;
  }
  uint32_t free_pages() const {
    const auto used = Used();
    return static_cast<uint32_t>(std::ranges::count(used, false));
  }
  std::vector<uint32_t> Holes() const {
    std::vector<uint32_t> holes;
    bool in_hole = false;
    for (const bool used : Used()) {
      if (!used && !in_hole) holes.push_back(0);
      in_hole = !used;
      if (in_hole) ++holes.back();
    }
    return holes;
  }
  uint32_t longest_hole() const {
    const std::vector<uint32_t> holes = Holes();
    return holes.empty() ? 0 : std::ranges::max(holes);
  }
  bool IsFree(PageRun run) const {
    const auto used = Used();
    return std::all_of(used.begin() + run.page, used.begin() + run.page + run.pages, [](bool page) { return !page; });
  }
  bool bound() const { return std::ranges::any_of(slots, &Slot::bound); }
};

class Program {
 public:
  void Do(const Step& step) {
    switch (step.action) {
      case Action::kAdd: return Add(step);
      case Action::kAllocate: return Allocate(1 + step.second % (kPages - 1));
      case Action::kAllocateRuns: return AllocateRuns(1 + step.second % (kPages - 1), 1 + step.first % 6);
      case Action::kSplit: return Split(step);
      case Action::kTake: return Take(step);
      case Action::kFree: return Free(step);
      case Action::kBind: return SetBound(step, true);
      case Action::kUnbind: return SetBound(step, false);
      case Action::kClose: return SetClosed(step, true);
      case Action::kOpen: return SetClosed(step, false);
    }
  }
  void Check() const {
    slots_.CheckInvariants();
    uint64_t free = 0;
    uint64_t closed_free = 0;
    uint64_t bound_free = 0;
    uint32_t longest = 0;
    for (const auto& [number, block] : blocks_) {
      (block.closed ? closed_free : free) += block.free_pages();
      bound_free += block.bound() ? block.free_pages() : 0;
      if (!block.closed) longest = std::max(longest, block.longest_hole());
      CheckSlots(number, block);
    }
    RC_ASSERT(slots_.count() == blocks_.size());
    RC_ASSERT(slots_.free_pages() == free);
    RC_ASSERT(slots_.closed_free_pages() == closed_free);
    RC_ASSERT(slots_.bound_free_pages() == bound_free);
    RC_ASSERT(slots_.longest_hole() == longest);
    CheckSparse(false);
    CheckSparse(true);
  }

 private:
  static uint32_t NumberOf(const Step& step) { return step.first % kBlocks / 3 * kBlockStep + step.first % 3; }

  // Every open block of the kind with free pages is listed once, those with the most first in steps of 64.
  void CheckSparse(bool bound) const {
    std::vector<SparseBlock> sparse;
    slots_.ListSparse(bound, SIZE_MAX, &sparse);
    size_t expected = 0;
    for (const auto& [number, block] : blocks_) {
      expected += !block.closed && block.free_pages() != 0 && block.bound() == bound ? 1 : 0;
    }
    RC_ASSERT(sparse.size() == expected);
    for (size_t i = 0; i < sparse.size(); ++i) {
      const Block& block = blocks_.at(sparse[i].block);
      RC_ASSERT(!block.closed);
      RC_ASSERT(sparse[i].free_pages == block.free_pages());
      RC_ASSERT(block.bound() == bound);
      const auto step = [&](size_t at) { return (sparse[at].free_pages + 63) / 64; };
      RC_ASSERT((i == 0 || step(i) <= step(i - 1)));
    }
  }
  void CheckSlots(uint32_t number, const Block& block) const {
    RC_ASSERT(slots_.Contains(number));
    std::vector<PageRun> listed;
    slots_.ListSlots(number, &listed);
    std::vector<PageRun> expected;
    for (const Slot& slot : block.slots) expected.push_back(slot.run);
    std::ranges::sort(expected, {}, &PageRun::page);
    RC_ASSERT(listed == expected);
  }

  // A slot block always has a slot.
  void Add(const Step& step) {
    const uint32_t number = NumberOf(step);
    RC_ASSERT(slots_.Contains(number) == blocks_.contains(number));
    if (blocks_.contains(number)) return;
    slots_.Add(number);
    const PageRun run{number, static_cast<uint16_t>(step.second % 400), static_cast<uint16_t>(1 + step.second % 100)};
    slots_.Take(run);
    blocks_[number].slots.push_back({run});
  }
  void Allocate(uint32_t pages) {
    uint32_t tightest = kPages + 1;  // The longest hole of the block that is to be used.
    for (const auto& [number, block] : blocks_) {
      if (!block.closed && block.longest_hole() >= pages) tightest = std::min(tightest, block.longest_hole());
    }
    RC_ASSERT(slots_.CanAllocate(pages) == (tightest <= kPages));
    const PageRun run = slots_.TryAllocate(pages);
    RC_ASSERT(static_cast<bool>(run) == (tightest <= kPages));
    if (!run) return;
    Block& block = blocks_.at(run.block);
    RC_ASSERT(run.pages == pages);
    RC_ASSERT(!block.closed);
    RC_ASSERT(block.IsFree(run));
    RC_ASSERT(block.longest_hole() == tightest);
    block.slots.push_back({run});
  }
  // The longest holes, or a part of the last of them, if that many runs are enough. Else nothing.
  void AllocateRuns(uint32_t pages, size_t runs_max) {
    std::vector<uint32_t> holes;
    for (const auto& [number, block] : blocks_) {
      const std::vector<uint32_t> of_block = block.Holes();
      if (!block.closed) holes.insert(holes.end(), of_block.begin(), of_block.end());
    }
    std::ranges::sort(holes, std::ranges::greater{});
    std::vector<uint32_t> expected;
    uint32_t left = pages;
    for (size_t i = 0; i < std::min(runs_max, holes.size()) && left != 0; ++i) {
      expected.push_back(std::min(holes[i], left));
      left -= expected.back();
    }
    std::vector<PageRun> runs{PageRun{}};
    const bool taken = slots_.TryAllocateRuns(pages, runs_max, &runs);
    RC_ASSERT(taken == (left == 0));
    runs.erase(runs.begin());  // What stood there before.
    RC_ASSERT(runs.size() == (taken ? expected.size() : 0));
    for (size_t i = 0; i < runs.size(); ++i) {
      RC_ASSERT(runs[i].pages == expected[i]);
      Block& block = blocks_.at(runs[i].block);
      RC_ASSERT(!block.closed);
      RC_ASSERT(block.IsFree(runs[i]));
      block.slots.push_back({runs[i]});
    }
  }
  void Split(const Step& step) {
    Slot* slot = Pick(step);
    if (slot == nullptr || slot->bound || slot->run.pages == 1) return;
    const auto pages = static_cast<uint16_t>(1 + step.second % (slot->run.pages - 1U));
    slots_.Split(slot->run, pages);
    PageRun rest = slot->run;
    rest.page = static_cast<uint16_t>(rest.page + pages);
    rest.pages = static_cast<uint16_t>(rest.pages - pages);
    slot->run.pages = pages;
    blocks_.at(rest.block).slots.push_back({rest});
  }
  void Take(const Step& step) {
    const PageRun run{NumberOf(step), static_cast<uint16_t>(step.second % 480),
                      static_cast<uint16_t>(1 + step.second % 32)};
    const auto found = blocks_.find(run.block);
    const bool expected = found != blocks_.end() && found->second.IsFree(run);
    RC_ASSERT(slots_.IsFree(run) == expected);
    if (!expected) return;
    slots_.Take(run);
    found->second.slots.push_back({run});
  }
  Slot* Pick(const Step& step) {
    const auto found = blocks_.find(NumberOf(step));
    return found == blocks_.end() ? nullptr : &found->second.slots[step.second % found->second.slots.size()];
  }
  void Free(const Step& step) {
    const Slot* slot = Pick(step);
    if (slot == nullptr || slot->bound) return;
    const uint32_t number = slot->run.block;
    Block& block = blocks_.at(number);
    const bool last = block.slots.size() == 1;
    RC_ASSERT(slots_.Free(slot->run) == last);
    block.slots.erase(block.slots.begin() + (slot - block.slots.data()));
    if (!last) return;
    slots_.Remove(number);
    blocks_.erase(number);
  }
  void SetBound(const Step& step, bool bound) {
    Slot* slot = Pick(step);
    if (slot == nullptr || slot->bound == bound) return;
    bound ? slots_.Bind(slot->run.block) : slots_.Unbind(slot->run.block);
    slot->bound = bound;
  }
  void SetClosed(const Step& step, bool closed) {
    const auto found = blocks_.find(NumberOf(step));
    if (found == blocks_.end()) return;
    slots_.SetClosed(found->first, closed);
    found->second.closed = closed;
  }

  SlotBlocks slots_;
  std::map<uint32_t, Block> blocks_;
};

rc::Gen<std::vector<Step>> Programs() {
  const auto action = rc::gen::weightedElement<Action>({{5, Action::kAdd},
                                                        {10, Action::kAllocate},
                                                        {5, Action::kAllocateRuns},
                                                        {3, Action::kSplit},
                                                        {4, Action::kTake},
                                                        {9, Action::kFree},
                                                        {3, Action::kBind},
                                                        {3, Action::kUnbind},
                                                        {2, Action::kClose},
                                                        {2, Action::kOpen}});
  const auto number = rc::gen::inRange<uint32_t>(0, 1U << 16);
  return rc::gen::container<std::vector<Step>>(rc::gen::construct<Step>(action, number, number));
}

RC_GTEST_PROP(SlotBlocksProperty, AgreesWithASlotListModelAfterEveryStep, ()) {
  const auto steps = *rc::gen::scale(3.0, Programs());
  Program program;
  for (const Step& step : steps) {
    program.Do(step);
    program.Check();
  }
}

}  // namespace
}  // namespace tier::base
