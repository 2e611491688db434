// Bits, and the tree of run lengths over them. Invariant: every node equals what its children say, every leaf what its
// bits say; free ⊆ members; every leaf has a member, and every node a child.
#include "daemon/base/free_block_map.h"

#include <algorithm>
#include <bit>

#include "daemon/base/check.h"

namespace tier::base {
namespace {

constexpr uint64_t Mask(uint32_t first, uint32_t count) { return (~uint64_t{0} >> (64 - count)) << first; }

// Calls visit(first, count) for the parts of a range, each in one span of 2^shift blocks, until it returns false;
// whether it never did.
template <typename Visit>
bool ForEachPart(uint32_t first, uint32_t count, uint32_t shift, Visit visit) {
  while (count != 0) {
    const uint32_t here = std::min(count, (1U << shift) - (first & ((1U << shift) - 1)));
    if (!visit(first, here)) return false;
    first += here;
    count -= here;
  }
  return true;
}

// The length of the longest run of ones: runs of 2^k by doubling, then the lengths in between.
uint32_t LongestOnes(uint64_t word) {
  if (word == 0) return 0;
  if (word == ~uint64_t{0}) return 64;
  uint64_t starts[6];  // starts[k]: bits where a run of 2^k begins.
  int k = 0;
  starts[0] = word;
  while (k < 5 && (starts[k] & (starts[k] >> (1U << k))) != 0) {
    starts[k + 1] = starts[k] & (starts[k] >> (1U << k));
    ++k;
  }
  uint32_t length = 1U << k;
  uint64_t here = starts[k];
  for (--k; k >= 0; --k) {
    const uint64_t longer = here & (starts[k] >> length);
    if (longer == 0) continue;
    here = longer;
    length += 1U << k;
  }
  return length;
}

// The lowest bit at which `count` (1 … 64) ones begin. REQUIRES: there is one.
uint32_t FindOnes(uint64_t word, uint32_t count) {
  for (uint32_t have = 1; have < count;) {
    const uint32_t shift = std::min(have, count - have);
    word &= word >> shift;
    have += shift;
  }
  TIER_CHECK(word != 0, "no run of {}", count);
  return static_cast<uint32_t>(std::countr_zero(word));
}

}  // namespace

FreeBlockMap::Runs FreeBlockMap::RunsIn(uint64_t free) {
  return {static_cast<uint32_t>(std::countr_one(free)), static_cast<uint32_t>(std::countl_one(free)),
          LongestOnes(free)};
}

// The runs of a span from those of its parts, of `part` blocks each, in their order.
template <typename RunsOfPart>
FreeBlockMap::Runs FreeBlockMap::JoinParts(const Node& node, uint64_t part, const RunsOfPart& runs_of) {
  Runs all;
  for (uint32_t i = 0; i < kFanOut; ++i) {
    const uint32_t child = node.children[i];
    if (child == kNone) {
      all.suffix = 0;
      continue;
    }
    const Runs its = runs_of(child);
    if (all.prefix == i * part) all.prefix += its.prefix;
    all.longest = std::max({all.longest, its.longest, all.suffix + its.prefix});
    all.suffix = its.suffix == part ? all.suffix + its.suffix : its.suffix;
  }
  return all;
}

FreeBlockMap::Runs FreeBlockMap::Join(const Node& node, uint32_t height) const {
  if (height == 1) return JoinParts(node, kLeafBlocks, [this](uint32_t child) { return RunsOf(leaves_[child]); });
  return JoinParts(node, uint64_t{1} << Shift(height), [this](uint32_t child) { return nodes_[child].runs; });
}

template <typename Change>
void FreeBlockMap::Edit(uint32_t first, uint32_t count, const Change& change) {
  ForEachPart(first, count, Shift(1), [&](uint32_t at, uint32_t here) {
    std::array<uint32_t, kHeightMax + 1> path;  // The node at each height.
    path[height_] = root_;
    for (uint32_t height = height_; height != 0; --height) {
      TIER_CHECK(path[height] != kNone, "no members at {}, {} of {} blocks", at, first, count);
      path[height - 1] = nodes_[path[height]].children[ChildAt(at, height)];
    }
    TIER_CHECK(path[0] != kNone, "no members at {}, {} of {} blocks", at, first, count);
    Leaf& leaf = leaves_[path[0]];
    change(&leaf, Mask(at % kLeafBlocks, here));
    Runs before = RunsOf(leaf);
    Runs after = RunsIn(leaf.free);
    leaf.prefix = static_cast<uint8_t>(after.prefix);
    leaf.suffix = static_cast<uint8_t>(after.suffix);
    leaf.longest = static_cast<uint8_t>(after.longest);
    for (uint32_t height = 1; height <= height_ && !(before == after); ++height) {
      Node& node = nodes_[path[height]];
      // A change between the ends of a child, where a longer run lies elsewhere, makes no difference to the node.
      const bool inside = before.prefix == after.prefix && before.suffix == after.suffix;
      if (inside && before.longest < node.runs.longest && after.longest <= node.runs.longest) break;
      before = node.runs;
      node.runs = after = Join(node, height);
    }
    return true;
  });
}

void FreeBlockMap::MakeLeaf(uint32_t block) {
  while (!Spans(block)) {
    ++height_;
    if (root_ == kNone) continue;
    const uint32_t below = root_;
    root_ = nodes_.Allocate();
    nodes_[root_].children[0] = below;
    nodes_[root_].runs = Join(nodes_[root_], height_);
  }
  uint32_t* at = &root_;
  for (uint32_t height = height_; height != 0; --height) {
    if (*at == kNone) *at = nodes_.Allocate();
    at = &nodes_[*at].children[ChildAt(block, height)];
  }
  if (*at == kNone) *at = leaves_.Allocate();
}

bool FreeBlockMap::FreeIfEmpty(uint32_t number, uint32_t height, uint32_t block) {
  if (height == 0) {
    if (leaves_[number].members != 0) return false;
    leaves_.Free(number);
    return true;
  }
  Node& node = nodes_[number];
  uint32_t& child = node.children[ChildAt(block, height)];
  if (!FreeIfEmpty(child, height - 1, block)) return false;
  child = kNone;
  if (std::ranges::any_of(node.children, [](uint32_t its) { return its != kNone; })) return false;
  nodes_.Free(number);
  return true;
}

void FreeBlockMap::AddMembers(uint32_t first, uint32_t count) {
  if (count == 0) return;
  TIER_CHECK(uint64_t{first} + count <= UINT32_MAX / 2, "first {} count {}", first, count);
  ForEachPart(first, count, Shift(1), [this](uint32_t at, uint32_t) {
    MakeLeaf(at);
    return true;
  });
  Edit(first, count, [&](Leaf* leaf, uint64_t mask) {
    TIER_CHECK((leaf->members & mask) == 0, "first {} count {}", first, count);
    leaf->members |= mask;
    leaf->free |= mask;
  });
  member_count_ += count;
  free_count_ += count;
}

void FreeBlockMap::RemoveMembers(uint32_t first, uint32_t count) {
  if (count == 0) return;
  TIER_CHECK(AllFree(first, count), "first {} count {}", first, count);
  Edit(first, count, [](Leaf* leaf, uint64_t mask) {
    leaf->members &= ~mask;
    leaf->free &= ~mask;
  });
  ForEachPart(first, count, Shift(1), [this](uint32_t at, uint32_t) {
    if (FreeIfEmpty(root_, height_, at)) root_ = kNone;
    return true;
  });
  member_count_ -= count;
  free_count_ -= count;
}

bool FreeBlockMap::AllFree(uint32_t first, uint32_t count) const {
  return ForEachPart(first, count, Shift(1), [this](uint32_t at, uint32_t here) {
    const Leaf* leaf = FindLeaf(at);
    const uint64_t mask = Mask(at % kLeafBlocks, here);
    return leaf != nullptr && (leaf->free & mask) == mask;
  });
}

bool FreeBlockMap::AnyMember(uint32_t first, uint32_t count) const {
  if (root_ == kNone) return false;
  return !ForEachPart(first, count, Shift(1), [this](uint32_t at, uint32_t here) {
    const Leaf* leaf = FindLeaf(at);
    return leaf == nullptr || (leaf->members & Mask(at % kLeafBlocks, here)) == 0;
  });
}

void FreeBlockMap::MarkUsed(uint32_t first, uint32_t count) {
  TIER_CHECK(count != 0 && count <= free_count_ && first <= UINT32_MAX / 2 && Spans(first + count - 1),
             "first {} count {} of {} free", first, count, free_count_);
  Edit(first, count, [&](Leaf* leaf, uint64_t mask) {
    TIER_CHECK((leaf->free & mask) == mask, "first {} count {}", first, count);
    leaf->free &= ~mask;
  });
  free_count_ -= count;
}

void FreeBlockMap::MarkFree(uint32_t block) {
  TIER_CHECK(Spans(block), "block {}", block);
  Edit(block, 1, [&](Leaf* leaf, uint64_t mask) {
    TIER_CHECK((leaf->members & ~leaf->free & mask) != 0, "block {} member {}", block, (leaf->members & mask) != 0);
    leaf->free |= mask;
  });
  ++free_count_;
}

uint32_t FreeBlockMap::FindAtOrAfter(uint32_t block) const {
  return Spans(block) ? FindAtOrAfter(root_, height_, block) : kNone;
}

uint32_t FreeBlockMap::FindAtOrAfter(uint32_t number, uint32_t height, uint32_t from) const {
  if (RunsOf(number, height).longest == 0) return kNone;
  if (height == 0) {
    const uint64_t here = leaves_[number].free & (~uint64_t{0} << from);
    return here == 0 ? kNone : static_cast<uint32_t>(std::countr_zero(here));
  }
  // What lies behind `from` in its own child, else the lowest of the next child that holds something.
  const uint32_t shift = Shift(height);
  from &= (uint32_t{kFanOut} << shift) - 1;
  uint32_t in_child = from & ((1U << shift) - 1);
  for (uint32_t i = from >> shift; i < kFanOut; ++i, in_child = 0) {
    const uint32_t found = FindAtOrAfter(nodes_[number].children[i], height - 1, in_child);
    if (found != kNone) return (i << shift) + found;
  }
  return kNone;
}

uint32_t FreeBlockMap::FindRun(uint32_t count) const {
  TIER_CHECK(count != 0);
  if (longest_run() < count) return kNone;
  uint32_t at = root_;
  uint32_t first = 0;  // Of the node.
  for (uint32_t height = height_; height != 0; --height) {
    const uint32_t span = 1U << Shift(height);
    uint32_t before = 0;  // Free blocks right before the child.
    for (uint32_t i = 0;; ++i, first += span) {
      TIER_CHECK(i < kFanOut, "no run of {} below {} at height {}", count, first, height);
      const uint32_t child = nodes_[at].children[i];
      const Runs its = RunsOf(child, height - 1);
      if (before + its.prefix >= count) return first - before;
      if (its.longest >= count) {
        at = child;
        break;
      }
      before = its.suffix == span ? before + span : its.suffix;
    }
  }
  return first + FindOnes(leaves_[at].free, count);
}

void FreeBlockMap::Check(uint32_t number, uint32_t height, Counts* counts) const {
  if (height == 0) {
    const Leaf& leaf = leaves_[number];
    TIER_CHECK(leaf.members != 0 && (leaf.free & ~leaf.members) == 0, "leaf {} free {:x} members {:x}", number,
               leaf.free, leaf.members);
    TIER_CHECK(RunsOf(number, 0) == RunsIn(leaf.free), "leaf {}", number);
    counts->members += static_cast<uint64_t>(std::popcount(leaf.members));
    counts->free += static_cast<uint64_t>(std::popcount(leaf.free));
    ++counts->leaves;
    return;
  }
  const Node& node = nodes_[number];
  TIER_CHECK(node.runs == Join(node, height), "node {} height {}", number, height);
  uint32_t children = 0;
  for (const uint32_t child : node.children) {
    if (child == kNone) continue;
    Check(child, height - 1, counts);
    ++children;
  }
  TIER_CHECK(children != 0, "node {} height {}", number, height);
  ++counts->nodes;
}

void FreeBlockMap::CheckInvariants() const {
  Counts counts;
  if (root_ != kNone) Check(root_, height_, &counts);
  TIER_CHECK(counts.members == member_count_ && counts.free == free_count_, "members {} of {} free {} of {}",
             counts.members, member_count_, counts.free, free_count_);
  TIER_CHECK(counts.leaves == leaves_.used() && counts.nodes == nodes_.used(), "leaves {} of {} nodes {} of {}",
             counts.leaves, leaves_.used(), counts.nodes, nodes_.used());
}

}  // namespace tier::base
