// BlockIndex: block → number, for blocks that lie anywhere.
//
// The idea: four blocks side by side share a group, as the smallest windows have four, and only groups with a block are
// there. A hash table finds them, of two buckets a group with a list each. It grows by linear hashing (Litwin, 1980):
// each more bucket divides the list of one other, so no insertion moves more than two short lists, however many blocks
// there are. (Of blocks that were chosen for it, a list may have as many groups as the root of half of all.) That is 8
// bytes a block where its neighbours are there too, and 32 where it is alone: also for the owners whose windows lie
// between those of 63 others, where a table by block number would be mostly empty.
//
// Invariants: a group has a block, and is in the list of the bucket that it hashes to; there are two buckets for each
// of the most groups that there were at a time. Pure bookkeeping; not thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "daemon/base/chunked_array.h"
#include "daemon/base/record_pool.h"

namespace tier::base {

class BlockIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  uint32_t Find(uint32_t block) const {  // Its number, or kNone.
    if (mask_ == 0) return kNone;
    const uint32_t group = block / kGroupBlocks;
    for (uint32_t at = buckets_[BucketOf(group)]; at != kNone; at = groups_[at].next) {
      if (groups_[at].group == group) return groups_[at].numbers[block % kGroupBlocks];
    }
    return kNone;
  }
  void Insert(uint32_t block, uint32_t number);  // REQUIRES: not there; number != kNone.
  void Remove(uint32_t block);                   // REQUIRES: there.

  uint32_t group_count() const { return groups_.used(); }
  // Groups that Find looks at, summed over a search for each group.
  uint64_t CountSteps() const;
  // `blocks`: so many are there. O(blocks).
  void CheckInvariants(uint64_t blocks) const;

 private:
  static constexpr uint32_t kGroupBlocks = 4;
  static constexpr uint32_t kBucketsPerGroup = 2;  // Few lists are longer than one then.
  static constexpr uint32_t kSideBySide = 16;
  struct Group {
    uint32_t group = kNone;
    uint32_t next = kNone;  // In the list of its bucket.
    std::array<uint32_t, kGroupBlocks> numbers = {kNone, kNone, kNone, kNone};
  };

  // Groups side by side have buckets side by side, which share cache lines. One multiplication alone would put groups
  // at some distances into few buckets, and the windows of an owner have such.
  static uint32_t Hash(uint32_t group) {
    uint64_t hash = group / kSideBySide * uint64_t{0x9E3779B97F4A7C15};
    hash = (hash ^ hash >> 32) * uint64_t{0xD6E8FEB86659FD93};
    return static_cast<uint32_t>(hash >> 32) + group % kSideBySide;
  }
  uint32_t BucketOf(uint32_t group) const {
    const uint32_t bucket = Hash(group) & mask_;
    return bucket < buckets_.size() ? bucket : bucket & (mask_ >> 1);  // That one is not divided yet.
  }
  // What names the group: its bucket, or the group before it. What it holds is kNone where the group is not there.
  uint32_t* LinkTo(uint32_t group);
  void AddBucket();

  ChunkedArray<uint32_t, 128> buckets_;  // The first group of each.
  uint32_t mask_ = 0;                    // Of the least power of two that is not below their number.
  RecordPool<Group> groups_;
};

}  // namespace tier::base
