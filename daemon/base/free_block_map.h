// FreeBlockMap: which of its member blocks are free, and where runs of them lie.
//
// The idea: a tree whose leaves are 64 blocks, one bit each, and whose nodes have eight children. Each knows the free
// run at its start, at its end and the longest inside, so that the lowest run of any length is found, and any change
// entered, in O(log blocks). Only leaves with members and the nodes above them are there. So a map takes memory for its
// members and not for the blocks of others between them: 0.5 bytes a block where all are members, 60 to 250 bytes a
// leaf where they are scattered. Pure bookkeeping; not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "daemon/base/record_pool.h"

namespace tier::base {

class FreeBlockMap {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // Members come and go as wholly free ranges. REQUIRES: none (all) of the range are members.
  void AddMembers(uint32_t first, uint32_t count);
  void RemoveMembers(uint32_t first, uint32_t count);
  bool IsMember(uint32_t block) const {
    const Leaf* leaf = FindLeaf(block);
    return leaf != nullptr && (leaf->members >> (block % kLeafBlocks) & 1) != 0;
  }
  bool IsFree(uint32_t block) const {
    const Leaf* leaf = FindLeaf(block);
    return leaf != nullptr && (leaf->free >> (block % kLeafBlocks) & 1) != 0;
  }
  bool AllFree(uint32_t first, uint32_t count) const;
  bool AnyMember(uint32_t first, uint32_t count) const;

  void MarkUsed(uint32_t first, uint32_t count);  // REQUIRES: all free.
  void MarkFree(uint32_t block);                  // REQUIRES: a member, not free.

  uint64_t free_count() const { return free_count_; }
  uint64_t member_count() const { return member_count_; }
  uint32_t longest_run() const { return RunsOf(root_, height_).longest; }
  uint32_t FindAtOrAfter(uint32_t block) const;  // The lowest free block not below `block`, or kNone.
  uint32_t FindRun(uint32_t count) const;        // Where the lowest run of at least `count` begins, or kNone.
  void CheckInvariants() const;                  // O(blocks).

 private:
  static constexpr uint32_t kLeafBlocks = 64;
  static constexpr uint32_t kFanOut = 8;
  static constexpr uint32_t kHeightMax = 9;  // Of 2^31 blocks.
  struct Runs {                              // Free runs within a span of blocks.
    uint32_t prefix = 0;
    uint32_t suffix = 0;
    uint32_t longest = 0;
    friend bool operator==(const Runs&, const Runs&) = default;
  };
  struct Leaf {
    uint64_t members = 0;
    uint64_t free = 0;
    uint8_t prefix = 0;  // Runs of `free`.
    uint8_t suffix = 0;
    uint8_t longest = 0;
  };
  struct Node {
    Runs runs;
    std::array<uint32_t, kFanOut> children = {kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone};
  };

  // A child of a node at this height has 2^Shift(height) blocks. At height 1 the children are leaves, at 0 the node is
  // one itself.
  static constexpr uint32_t Shift(uint32_t height) { return 6 + 3 * (height - 1); }
  static uint32_t ChildAt(uint32_t block, uint32_t height) { return block >> Shift(height) & (kFanOut - 1); }
  bool Spans(uint32_t block) const { return uint64_t{block} >> Shift(height_ + 1) == 0; }

  const Leaf* FindLeaf(uint32_t block) const {
    uint32_t at = Spans(block) ? root_ : kNone;
    for (uint32_t height = height_; height != 0 && at != kNone; --height) {
      at = nodes_[at].children[ChildAt(block, height)];
    }
    return at == kNone ? nullptr : &leaves_[at];
  }
  Runs RunsOf(uint32_t number, uint32_t height) const {  // None: as where no block is free.
    if (number == kNone) return {};
    if (height != 0) return nodes_[number].runs;
    return RunsOf(leaves_[number]);
  }
  static Runs RunsOf(const Leaf& leaf) { return {leaf.prefix, leaf.suffix, leaf.longest}; }
  static Runs RunsIn(uint64_t free);
  Runs Join(const Node& node, uint32_t height) const;  // What the children say.
  template <typename RunsOfPart>
  static Runs JoinParts(const Node& node, uint64_t part, const RunsOfPart& runs_of);
  void MakeLeaf(uint32_t block);
  // Frees the leaf, and the nodes that have no other, if it has no members. Whether the node at `number` is gone.
  bool FreeIfEmpty(uint32_t number, uint32_t height, uint32_t block);
  // Calls change(leaf, mask) for the leaves of a range, one after the other, and brings the runs above up to date.
  // REQUIRES: the leaves are there.
  template <typename Change>
  void Edit(uint32_t first, uint32_t count, const Change& change);
  uint32_t FindAtOrAfter(uint32_t number, uint32_t height, uint32_t from) const;  // Both count from the node's begin.
  struct Counts {
    uint64_t members = 0;
    uint64_t free = 0;
    uint32_t leaves = 0;
    uint32_t nodes = 0;
  };
  void Check(uint32_t number, uint32_t height, Counts* counts) const;

  RecordPool<Leaf> leaves_;
  RecordPool<Node, 8> nodes_;
  uint32_t root_ = kNone;  // kNone: without members.
  uint32_t height_ = 0;
  uint64_t free_count_ = 0;
  uint64_t member_count_ = 0;
};

}  // namespace tier::base
