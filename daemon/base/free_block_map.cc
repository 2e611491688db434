// Bits, and the tree of run lengths over them. Invariant: every node equals what its words say; free ⊆ members.
#include "daemon/base/free_block_map.h"

#include <algorithm>
#include <bit>

#include "daemon/base/check.h"

namespace tier::base {
namespace {

constexpr uint32_t kBitsPerWord = 64;

// Calls visit(word index, mask) for the words of [first, first + count) until it returns false; whether it never did.
template <typename Visit>
bool ForEachWord(uint32_t first, uint32_t count, Visit visit) {
  while (count != 0) {
    const uint32_t bit = first % kBitsPerWord;
    const uint32_t here = std::min(count, kBitsPerWord - bit);
    if (!visit(first / kBitsPerWord, (~uint64_t{0} >> (kBitsPerWord - here)) << bit)) return false;
    first += here;
    count -= here;
  }
  return true;
}

// The length of the longest run of ones: runs of 2^k by doubling, then the lengths in between.
uint32_t LongestOnes(uint64_t word) {
  if (word == 0) return 0;
  if (word == ~uint64_t{0}) return kBitsPerWord;
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

FreeBlockMap::Node FreeBlockMap::Leaf(uint64_t word) {
  return {static_cast<uint32_t>(std::countr_one(word)), static_cast<uint32_t>(std::countl_one(word)),
          LongestOnes(word)};
}

FreeBlockMap::Node FreeBlockMap::Join(const Node& left, const Node& right, uint32_t half) {
  return {left.prefix == half ? half + right.prefix : left.prefix,
          right.suffix == half ? half + left.suffix : right.suffix,
          std::max({left.longest, right.longest, left.suffix + right.prefix})};
}

void FreeBlockMap::Refresh(uint32_t first_word, uint32_t last_word) {
  for (uint32_t w = first_word; w <= last_word; ++w) tree_[leaves_ + w] = Leaf(free_[w]);
  uint32_t half = kBitsPerWord;
  for (uint32_t l = (leaves_ + first_word) / 2, r = (leaves_ + last_word) / 2; l != 0; l /= 2, r /= 2, half *= 2) {
    bool changed = false;
    for (uint32_t i = l; i <= r; ++i) {
      const Node node = Join(Left(i), Right(i), half);
      changed |= !(node == tree_[i]);
      tree_[i] = node;
    }
    if (!changed) return;  // What lies above sees no difference.
  }
}

void FreeBlockMap::Grow(uint32_t blocks) {
  if (blocks <= blocks_) return;
  leaves_ = std::bit_ceil((blocks + kBitsPerWord - 1) / kBitsPerWord);
  blocks_ = leaves_ * kBitsPerWord;
  members_.resize(leaves_);
  free_.resize(leaves_);
  tree_.assign(size_t{2} * leaves_, Node{});
  for (uint32_t w = 0; w < leaves_; ++w) tree_[leaves_ + w] = Leaf(free_[w]);
  uint32_t half = kBitsPerWord;
  for (uint32_t level = leaves_ / 2; level != 0; level /= 2, half *= 2) {
    for (uint32_t i = level; i < 2 * level; ++i) tree_[i] = Join(Left(i), Right(i), half);
  }
}

void FreeBlockMap::AddMembers(uint32_t first, uint32_t count) {
  if (count == 0) return;
  TIER_CHECK(uint64_t{first} + count <= UINT32_MAX / 2, "first {} count {}", first, count);
  TIER_CHECK(!AnyMember(first, count), "first {} count {}", first, count);
  Grow(first + count);
  ForEachWord(first, count, [this](uint32_t w, uint64_t mask) {
    members_[w] |= mask;
    free_[w] |= mask;
    return true;
  });
  Refresh(first / kBitsPerWord, (first + count - 1) / kBitsPerWord);
  member_count_ += count;
  free_count_ += count;
}

void FreeBlockMap::RemoveMembers(uint32_t first, uint32_t count) {
  if (count == 0) return;
  TIER_CHECK(AllFree(first, count), "first {} count {}", first, count);
  ForEachWord(first, count, [this](uint32_t w, uint64_t mask) {
    members_[w] &= ~mask;
    free_[w] &= ~mask;
    return true;
  });
  Refresh(first / kBitsPerWord, (first + count - 1) / kBitsPerWord);
  member_count_ -= count;
  free_count_ -= count;
}

bool FreeBlockMap::AllFree(uint32_t first, uint32_t count) const {
  if (uint64_t{first} + count > blocks_) return false;
  return ForEachWord(first, count, [this](uint32_t w, uint64_t mask) { return (free_[w] & mask) == mask; });
}

bool FreeBlockMap::AnyMember(uint32_t first, uint32_t count) const {
  if (first >= blocks_) return false;
  const uint32_t known = std::min(count, blocks_ - first);
  return !ForEachWord(first, known, [this](uint32_t w, uint64_t mask) { return (members_[w] & mask) == 0; });
}

void FreeBlockMap::MarkUsed(uint32_t first, uint32_t count) {
  TIER_CHECK(count != 0 && AllFree(first, count), "first {} count {}", first, count);
  ForEachWord(first, count, [this](uint32_t w, uint64_t mask) {
    free_[w] &= ~mask;
    return true;
  });
  Refresh(first / kBitsPerWord, (first + count - 1) / kBitsPerWord);
  free_count_ -= count;
}

void FreeBlockMap::MarkFree(uint32_t block) {
  TIER_CHECK(IsMember(block) && !IsFree(block), "block {} member {}", block, IsMember(block));
  free_[block / kBitsPerWord] |= uint64_t{1} << (block % kBitsPerWord);
  Refresh(block / kBitsPerWord, block / kBitsPerWord);
  ++free_count_;
}

uint32_t FreeBlockMap::FindAtOrAfter(uint32_t block) const {
  if (block >= blocks_) return kNone;
  const uint32_t w = block / kBitsPerWord;
  const uint64_t here = free_[w] & (~uint64_t{0} << (block % kBitsPerWord));
  if (here != 0) return w * kBitsPerWord + static_cast<uint32_t>(std::countr_zero(here));
  // Up to the first right sibling that holds something, then down to its lowest leaf.
  uint32_t i = leaves_ + w;
  while (i > 1 && ((i & 1) != 0 || tree_[i + 1].longest == 0)) i /= 2;
  if (i <= 1) return kNone;
  ++i;
  while (i < leaves_) i = 2 * i + (Left(i).longest == 0 ? 1 : 0);
  const uint32_t found = i - leaves_;
  return found * kBitsPerWord + static_cast<uint32_t>(std::countr_zero(free_[found]));
}

uint32_t FreeBlockMap::FindRun(uint32_t count) const {
  TIER_CHECK(count != 0);
  if (longest_run() < count) return kNone;
  uint32_t i = 1;
  uint32_t first = 0;  // Of the node's span.
  uint32_t span = blocks_;
  while (i < leaves_) {
    span /= 2;
    const Node& left = Left(i);
    const Node& right = Right(i);
    if (left.longest >= count) {
      i = 2 * i;
    } else if (left.suffix + right.prefix >= count) {
      return first + span - left.suffix;
    } else {
      i = 2 * i + 1;
      first += span;
    }
  }
  return first + FindOnes(free_[i - leaves_], count);
}

void FreeBlockMap::CheckInvariants() const {
  uint64_t members = 0;
  uint64_t free = 0;
  for (uint32_t w = 0; w < leaves_; ++w) {
    TIER_CHECK((free_[w] & ~members_[w]) == 0, "word {} free {:x} members {:x}", w, free_[w], members_[w]);
    TIER_CHECK(tree_[leaves_ + w] == Leaf(free_[w]), "leaf {}", w);
    members += static_cast<uint64_t>(std::popcount(members_[w]));
    free += static_cast<uint64_t>(std::popcount(free_[w]));
  }
  TIER_CHECK(members == member_count_ && free == free_count_, "members {} of {} free {} of {}", members, member_count_,
             free, free_count_);
  uint32_t half = kBitsPerWord;
  for (uint32_t level = leaves_ / 2; level != 0; level /= 2, half *= 2) {
    for (uint32_t i = level; i < 2 * level; ++i) {
      TIER_CHECK(tree_[i] == Join(Left(i), Right(i), half), "node {} half {}", i, half);
    }
  }
}

}  // namespace tier::base
