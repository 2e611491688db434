// FreeBlockMap: which of its member blocks are free, and where runs of them lie.
//
// The idea: one bit a block, and over the words of 64 blocks a binary tree whose node knows the free run at its start,
// at its end and the longest inside, so that the lowest run of any length is found, and any change entered, in
// O(log blocks). About 0.6 bytes a block. Pure bookkeeping; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tier::base {

class FreeBlockMap {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // Members come and go as wholly free ranges. REQUIRES: none (all) of the range are members.
  void AddMembers(uint32_t first, uint32_t count);
  void RemoveMembers(uint32_t first, uint32_t count);
  bool IsMember(uint32_t block) const { return block < blocks_ && Bit(members_, block); }
  bool IsFree(uint32_t block) const { return block < blocks_ && Bit(free_, block); }
  bool AllFree(uint32_t first, uint32_t count) const;
  bool AnyMember(uint32_t first, uint32_t count) const;

  void MarkUsed(uint32_t first, uint32_t count);  // REQUIRES: all free.
  void MarkFree(uint32_t block);                  // REQUIRES: a member, not free.

  uint64_t free_count() const { return free_count_; }
  uint64_t member_count() const { return member_count_; }
  uint32_t longest_run() const { return tree_.empty() ? 0 : tree_[1].longest; }
  uint32_t FindAtOrAfter(uint32_t block) const;  // The lowest free block not below `block`, or kNone.
  uint32_t FindRun(uint32_t count) const;        // Where the lowest run of at least `count` begins, or kNone.
  void CheckInvariants() const;                  // O(blocks).

 private:
  using Words = std::vector<uint64_t>;
  struct Node {  // Free runs within the node's span of blocks.
    uint32_t prefix = 0;
    uint32_t suffix = 0;
    uint32_t longest = 0;
    friend bool operator==(const Node&, const Node&) = default;
  };

  static bool Bit(const Words& words, uint32_t block) { return (words[block / 64] >> (block % 64) & 1) != 0; }
  void Grow(uint32_t blocks);
  static Node Leaf(uint64_t word);
  static Node Join(const Node& left, const Node& right, uint32_t half);
  void Refresh(uint32_t first_word, uint32_t last_word);
  const Node& Left(uint32_t i) const { return tree_[size_t{2} * i]; }
  const Node& Right(uint32_t i) const { return tree_[size_t{2} * i + 1]; }

  Words members_;
  Words free_;
  std::vector<Node> tree_;  // tree_[1] is the root; the leaf of word w is tree_[leaves_ + w].
  uint32_t leaves_ = 0;     // A power of two; 0 before the first member.
  uint32_t blocks_ = 0;     // leaves_ × 64.
  uint64_t free_count_ = 0;
  uint64_t member_count_ = 0;
};

}  // namespace tier::base
