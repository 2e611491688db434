// Random programs of SlotPages operations on two blocks with one pool of maps, against a model that knows only, of
// every page, whether it is used and whether a slot begins there. Replay with RC_PARAMS="seed=<seed>".
#include "daemon/base/slot_pages.h"

#include <algorithm>
#include <array>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tier::base {
namespace {

constexpr unsigned kPages = kPagesPerBlock;

enum class Action : uint8_t { kAdd, kRemove, kRemoveMost, kSplit };

struct Step {
  Action action;
  uint32_t block;
  uint32_t page;
  uint32_t pages;
};
std::ostream& operator<<(std::ostream& out, const Step& step) {
  return out << "{" << static_cast<int>(step.action) << ", " << step.block << ", " << step.page << ", " << step.pages
             << "}";
}

struct Model {
  std::array<bool, kPages> used{};
  std::array<bool, kPages> starts{};

  unsigned EndOfSlot(unsigned page) const {
    unsigned end = page + 1;
    while (end < kPages && used[end] && !starts[end]) ++end;
    return end;
  }
  SlotPages::Hole HoleAt(unsigned page) const {
    if (used[page]) return {page, 0};
    unsigned begin = page;
    while (begin != 0 && !used[begin - 1]) --begin;
    unsigned end = page;
    while (end < kPages && !used[end]) ++end;
    return {begin, end - begin};
  }
  std::vector<SlotPages::Hole> Holes() const {
    std::vector<SlotPages::Hole> holes;
    for (unsigned page = 0; page < kPages; ++page) {
      if (!used[page] && (page == 0 || used[page - 1])) holes.push_back(HoleAt(page));
    }
    return holes;
  }
  std::vector<PageRun> Slots(uint32_t block) const {
    std::vector<PageRun> slots;
    for (unsigned page = 0; page < kPages; ++page) {
      if (!starts[page]) continue;
      slots.push_back({block, static_cast<uint16_t>(page), static_cast<uint16_t>(EndOfSlot(page) - page)});
    }
    return slots;
  }
};

class Program {
 public:
  void Do(const Step& step) {
    const bool had_maps = slots_[step.block].has_maps();
    switch (step.action) {
      case Action::kAdd: Add(step); break;
      case Action::kRemove: RemoveUntil(step, models_[step.block].Slots(step.block).size() - 1); break;
      case Action::kRemoveMost: RemoveUntil(step, step.pages % (2 * SlotPages::kListedMax)); break;
      case Action::kSplit: Split(step); break;
    }
    if (had_maps != slots_[step.block].has_maps()) ++(had_maps ? lists_made_ : maps_made_);
  }
  void Check() const {
    uint32_t with_maps = 0;
    for (uint32_t block = 0; block < kBlocks; ++block) {
      CheckBlock(block);
      with_maps += slots_[block].has_maps() ? 1 : 0;
    }
    RC_ASSERT(maps_.used() == with_maps);
  }
  unsigned maps_made() const { return maps_made_; }
  unsigned lists_made() const { return lists_made_; }

 private:
  static constexpr uint32_t kBlocks = 2;

  void Add(const Step& step) {
    Model& model = models_[step.block];
    const unsigned page = step.page % kPages;
    const SlotPages::Hole hole = model.HoleAt(page);
    if (hole.pages == 0) return;
    // Often no more than a page, so that there come to be many slots.
    const unsigned room = hole.page + hole.pages - page;
    const unsigned pages = std::min(room, step.pages % 3 == 0 ? 1 + step.pages % 60 : 1);
    slots_[step.block].Add(page, pages, &maps_);
    std::fill_n(model.used.begin() + page, pages, true);
    model.starts[page] = true;
  }
  void RemoveUntil(const Step& step, size_t left) {
    Model& model = models_[step.block];
    for (std::vector<PageRun> live = model.Slots(step.block); !live.empty() && live.size() > left;) {
      const size_t at = step.page % live.size();
      const PageRun slot = live[at];
      slots_[step.block].Remove(slot.page, slot.pages, &maps_);
      std::fill_n(model.used.begin() + slot.page, slot.pages, false);
      model.starts[slot.page] = false;
      live.erase(live.begin() + static_cast<ptrdiff_t>(at));
    }
  }
  void Split(const Step& step) {
    const std::vector<PageRun> live = models_[step.block].Slots(step.block);
    if (live.empty()) return;
    const PageRun slot = live[step.page % live.size()];
    if (slot.pages == 1) return;
    const unsigned pages = 1 + step.pages % (slot.pages - 1U);
    slots_[step.block].Split(slot.page, pages, &maps_);
    models_[step.block].starts[slot.page + pages] = true;
  }
  void CheckBlock(uint32_t block) const {
    const SlotPages& slots = slots_[block];
    const Model& model = models_[block];
    slots.CheckInvariants(maps_);
    std::vector<PageRun> listed;
    slots.List(block, maps_, &listed);
    const std::vector<PageRun> live = model.Slots(block);
    RC_ASSERT(listed == live);
    RC_ASSERT(slots.count() == live.size());
    RC_ASSERT((live.size() <= SlotPages::kListedMax || slots.has_maps()));
    RC_ASSERT((live.size() > SlotPages::kListedAgain || !slots.has_maps()));
    for (unsigned page = 0; page < kPages; ++page) {
      const SlotPages::Hole hole = slots.HoleAt(page, maps_);
      const SlotPages::Hole expected = model.HoleAt(page);
      RC_ASSERT(hole.page == expected.page);
      RC_ASSERT(hole.pages == expected.pages);
      const unsigned end = model.EndOfSlot(page);
      RC_ASSERT(slots.Holds(page, end - page, maps_) == model.starts[page]);
      RC_ASSERT((end == kPages || !slots.Holds(page, end - page + 1, maps_)));
      RC_ASSERT((end == page + 1 || !slots.Holds(page, end - page - 1, maps_)));
    }
    CheckHoles(slots, model.Holes());
  }
  void CheckHoles(const SlotPages& slots, const std::vector<SlotPages::Hole>& holes) const {
    unsigned longest = 0;
    for (const SlotPages::Hole& hole : holes) longest = std::max(longest, hole.pages);
    RC_ASSERT(slots.LongestHole(maps_) == longest);
    RC_ASSERT(slots.LongestHole(maps_, longest) == longest);
    for (unsigned pages = 1; pages <= kPages; ++pages) {
      SlotPages::Hole expected;
      for (const SlotPages::Hole& hole : holes) {
        if (hole.pages >= pages && (expected.pages == 0 || hole.pages < expected.pages)) expected = hole;
      }
      const SlotPages::Hole found = slots.BestHole(pages, maps_);
      RC_ASSERT(found.pages == expected.pages);
      RC_ASSERT((found.pages == 0 || found.page == expected.page));
    }
  }

  SlotMapsPool maps_;
  std::array<SlotPages, kBlocks> slots_;
  std::array<Model, kBlocks> models_;
  unsigned maps_made_ = 0;
  unsigned lists_made_ = 0;
};

rc::Gen<std::vector<Step>> Programs() {
  const auto action = rc::gen::weightedElement<Action>(
      {{10, Action::kAdd}, {5, Action::kRemove}, {1, Action::kRemoveMost}, {3, Action::kSplit}});
  const auto number = rc::gen::inRange<uint32_t>(0, 1U << 16);
  return rc::gen::container<std::vector<Step>>(
      rc::gen::construct<Step>(action, rc::gen::inRange<uint32_t>(0, 2), number, number));
}

RC_GTEST_PROP(SlotPagesProperty, AgreesWithAModelOfSinglePagesAfterEveryStep, ()) {
  const auto steps = *rc::gen::scale(2.0, Programs());
  Program program;
  for (const Step& step : steps) {
    program.Do(step);
    program.Check();
  }
  RC_CLASSIFY(program.maps_made() != 0, "lists became maps");
  RC_CLASSIFY(program.lists_made() != 0, "maps became lists");
}

}  // namespace
}  // namespace tier::base
