// Random programs of FreeBlockMap operations against a model that keeps one word for each block: what is a member, and
// what of that is free. Replay with RC_PARAMS="seed=<seed>".
#include "daemon/base/free_block_map.h"

#include <algorithm>
#include <array>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace tier::base {
namespace {

constexpr uint32_t kBlocks = 700;  // Several words of bits, and no whole number of them.
// Of the map, where the blocks of the model begin: they lie in the first node of the tree, or in two of each height.
constexpr std::array<uint32_t, 3> kFirsts = {0, 8 * 8 * 8 * 64 - 350, (1U << 30) - 350};

enum class Action : uint8_t { kAdd, kRemove, kUse, kFree };
enum class Block : uint8_t { kNoMember, kFree, kUsed };

struct Step {
  Action action;
  uint32_t first;
  uint32_t count;
};
std::ostream& operator<<(std::ostream& out, const Step& step) {
  return out << "{" << static_cast<int>(step.action) << ", " << step.first << ", " << step.count << "}";
}

class Program {
 public:
  explicit Program(uint32_t first) : first_(first) {}
  void Do(const Step& step) {
    const uint32_t first = step.first % kBlocks;
    const uint32_t count = std::min(1 + step.count % 150, kBlocks - first);
    switch (step.action) {
      case Action::kAdd: return Add(first, count);
      case Action::kRemove: return Remove(first, count);
      case Action::kUse: return Use(first, step.count % 4 == 0 ? count : std::min(count, 3U));
      case Action::kFree: return Free(first, count);
    }
  }
  void Check() const {
    map_.CheckInvariants();
    RC_ASSERT(map_.member_count() == kBlocks - Count(Block::kNoMember));
    RC_ASSERT(map_.free_count() == Count(Block::kFree));
    uint32_t longest = 0;
    uint32_t run = 0;
    std::array<uint32_t, kBlocks + 1> lowest{};  // By length: where the lowest run of at least so many begins.
    lowest.fill(FreeBlockMap::kNone);
    for (uint32_t block = 0; block < kBlocks; ++block) {
      RC_ASSERT(map_.IsMember(first_ + block) == (blocks_[block] != Block::kNoMember));
      RC_ASSERT(map_.IsFree(first_ + block) == (blocks_[block] == Block::kFree));
      run = blocks_[block] == Block::kFree ? run + 1 : 0;
      if (run > longest) lowest[run] = block + 1 - run;
      longest = std::max(longest, run);
    }
    RC_ASSERT(map_.longest_run() == longest);
    for (uint32_t count = 1; count <= std::min(longest + 1, kBlocks); ++count) {
      RC_ASSERT(map_.FindRun(count) == InMap(lowest[count]));
    }
    CheckFind();
  }

 private:
  uint32_t InMap(uint32_t block) const { return block == FreeBlockMap::kNone ? block : first_ + block; }
  uint64_t Count(Block wanted) const { return static_cast<uint64_t>(std::ranges::count(blocks_, wanted)); }
  bool All(uint32_t first, uint32_t count, Block wanted) const {
    return std::all_of(blocks_.begin() + first, blocks_.begin() + first + count,
                       [&](Block block) { return block == wanted; });
  }
  void Set(uint32_t first, uint32_t count, Block to) { std::fill_n(blocks_.begin() + first, count, to); }
  void CheckFind() const {
    uint32_t next = FreeBlockMap::kNone;  // The lowest free block from `block` on.
    for (uint32_t block = kBlocks; block-- != 0;) {
      if (blocks_[block] == Block::kFree) next = block;
      RC_ASSERT(map_.FindAtOrAfter(first_ + block) == InMap(next));
    }
    RC_ASSERT(map_.FindAtOrAfter(0) == InMap(next));
    RC_ASSERT(map_.FindAtOrAfter(first_ + kBlocks) == FreeBlockMap::kNone);
  }

  void Add(uint32_t first, uint32_t count) {
    const bool none = All(first, count, Block::kNoMember);
    RC_ASSERT(map_.AnyMember(first_ + first, count) == !none);
    if (!none) return;
    map_.AddMembers(first_ + first, count);
    Set(first, count, Block::kFree);
  }
  void Remove(uint32_t first, uint32_t count) {
    const bool free = All(first, count, Block::kFree);
    RC_ASSERT(map_.AllFree(first_ + first, count) == free);
    if (!free) return;
    map_.RemoveMembers(first_ + first, count);
    Set(first, count, Block::kNoMember);
  }
  void Use(uint32_t first, uint32_t count) {
    if (!All(first, count, Block::kFree)) return;
    map_.MarkUsed(first_ + first, count);
    Set(first, count, Block::kUsed);
  }
  void Free(uint32_t first, uint32_t count) {
    for (uint32_t block = first; block < first + count; ++block) {
      if (blocks_[block] != Block::kUsed) continue;
      map_.MarkFree(first_ + block);
      blocks_[block] = Block::kFree;
    }
  }

  const uint32_t first_;
  FreeBlockMap map_;
  std::array<Block, kBlocks> blocks_{};
};

rc::Gen<std::vector<Step>> Programs() {
  const auto action = rc::gen::weightedElement<Action>(
      {{4, Action::kAdd}, {2, Action::kRemove}, {8, Action::kUse}, {3, Action::kFree}});
  const auto number = rc::gen::inRange<uint32_t>(0, 1U << 16);
  return rc::gen::container<std::vector<Step>>(rc::gen::construct<Step>(action, number, number));
}

RC_GTEST_PROP(FreeBlockMapProperty, AgreesWithAnArrayAfterEveryStep, ()) {
  const auto first = *rc::gen::elementOf(kFirsts);
  const auto steps = *Programs();
  Program program(first);
  for (const Step& step : steps) {
    program.Do(step);
    program.Check();
  }
}

}  // namespace
}  // namespace tier::base
