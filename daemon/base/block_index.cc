// See block_index.h.
#include "daemon/base/block_index.h"

#include <algorithm>
#include <bit>

#include "daemon/base/check.h"

namespace tier::base {

uint32_t* BlockIndex::LinkTo(uint32_t group) {
  uint32_t* link = &buckets_[BucketOf(group)];
  while (*link != kNone && groups_[*link].group != group) link = &groups_[*link].next;
  return link;
}

void BlockIndex::AddBucket() {
  const uint32_t added = buckets_.Append();
  buckets_[added] = kNone;
  mask_ = std::bit_ceil(added + 1) - 1;
  if (added == 0) return;
  // What hashes to the new bucket was all in one, whose number is without the highest bit.
  uint32_t* kept = &buckets_[added ^ std::bit_floor(added)];
  uint32_t* moved = &buckets_[added];
  for (uint32_t at = *kept; at != kNone; at = groups_[at].next) {
    uint32_t*& end = BucketOf(groups_[at].group) == added ? moved : kept;
    *end = at;
    end = &groups_[at].next;
  }
  *kept = kNone;
  *moved = kNone;
}

void BlockIndex::Insert(uint32_t block, uint32_t number) {
  while (buckets_.size() < kBucketsPerGroup) AddBucket();
  const uint32_t group = block / kGroupBlocks;
  uint32_t at = *LinkTo(group);
  if (at == kNone) {
    at = groups_.Allocate();
    while (buckets_.size() < groups_.used() * kBucketsPerGroup) AddBucket();
    uint32_t& head = buckets_[BucketOf(group)];
    groups_[at].group = group;
    groups_[at].next = head;
    head = at;
  }
  uint32_t& place = groups_[at].numbers[block % kGroupBlocks];
  TIER_CHECK(place == kNone && number != kNone, "block {} number {}, was {}", block, number, place);
  place = number;
}

void BlockIndex::Remove(uint32_t block) {
  TIER_CHECK(Find(block) != kNone, "block {}: not there", block);
  uint32_t* link = LinkTo(block / kGroupBlocks);
  const uint32_t at = *link;
  Group& group = groups_[at];
  group.numbers[block % kGroupBlocks] = kNone;
  if (std::ranges::any_of(group.numbers, [](uint32_t number) { return number != kNone; })) return;
  *link = group.next;
  groups_.Free(at);
}

uint64_t BlockIndex::CountSteps() const {
  uint64_t steps = 0;
  for (uint32_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    uint64_t before = 0;
    for (uint32_t at = buckets_[bucket]; at != kNone; at = groups_[at].next) steps += ++before;
  }
  return steps;
}

void BlockIndex::CheckInvariants(uint64_t blocks) const {
  uint64_t blocks_seen = 0;
  uint32_t groups_seen = 0;
  for (uint32_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (uint32_t at = buckets_[bucket]; at != kNone; at = groups_[at].next) {
      const Group& group = groups_[at];
      const auto here = kGroupBlocks - std::ranges::count(group.numbers, kNone);
      TIER_CHECK(here != 0 && BucketOf(group.group) == bucket, "group {} has {} blocks, bucket {}", group.group, here,
                 bucket);
      TIER_CHECK(groups_seen < groups_.used(), "more than {} groups", groups_.used());
      blocks_seen += static_cast<uint64_t>(here);
      ++groups_seen;
    }
  }
  TIER_CHECK(blocks_seen == blocks && groups_seen == groups_.used(), "blocks {} of {}, groups {} of {}", blocks_seen,
             blocks, groups_seen, groups_.used());
  TIER_CHECK(buckets_.size() >= groups_.used() * kBucketsPerGroup, "{} buckets, {} groups", buckets_.size(),
             groups_.used());
}

}  // namespace tier::base
