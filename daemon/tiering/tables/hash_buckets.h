// HashBuckets: finds records of a slab by a 64-bit hash of each, in expected O(1). It is an index: it holds nothing
// that is not in the records, and can be rebuilt from them.
//
// Linear hashing (Litwin, 1980): when there are as many records as buckets, an addition splits one bucket in two, so no
// addition takes longer the more records there are. The records of a bucket are chained by index. Engine thread only.
// ShrinkSome takes some buckets back when they are more than four times the records, and what is kept by index for
// indices that are gone. No allocation in steady state. Invariant: size() <= buckets; each record is in the bucket of
// its hash, once; `next_` of an index without a record is kUnused.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "daemon/base/check.h"

namespace tier::tiering {

template <typename Index>
class HashBuckets {
 public:
  static constexpr Index kNone{UINT32_MAX};

  uint64_t size() const { return size_; }
  uint64_t bytes() const { return (buckets_.size() + next_.size()) * sizeof(uint32_t); }

  bool can_shrink() const {
    const uint64_t kept = std::max(kKept, 4 * size_);
    return buckets_.size() > kept || (next_.size() > kept && next_.back() == kUnused);
  }
  // Looks at 2 × kShrunkAtOnce places. False: there is nothing to take back.
  bool ShrinkSome() {
    if (!can_shrink()) return false;
    const uint64_t kept = std::max(kKept, 4 * size_);
    for (uint64_t i = 0; i < kShrunkAtOnce && buckets_.size() > kept; ++i) MergeLast();
    for (uint64_t i = 0; i < kShrunkAtOnce && next_.size() > kept && next_.back() == kUnused; ++i) next_.pop_back();
    return true;
  }

  // The first record in the bucket of the hash that matches; kNone: there is none. Records of other hashes may be in
  // the same bucket.
  template <typename Matches>
  Index Find(uint64_t hash, const Matches& matches) const {
    if (buckets_.empty()) return kNone;
    for (uint32_t at = buckets_[BucketOf(hash)]; at != kEnd; at = next_[at]) {
      if (matches(Index{at})) return Index{at};
    }
    return kNone;
  }

  // `hash_of`: the hash of each record that is in already. REQUIRES: this one is not.
  template <typename HashOf>
  void Add(Index index, uint64_t hash, const HashOf& hash_of) {
    const auto at = static_cast<uint32_t>(index);
    TIER_CHECK(at < kUnused, "hash {:#x} of no record, among {}", hash, size_);
    if (size_ == buckets_.size()) SplitNext(hash_of);
    if (at >= next_.size()) next_.resize(size_t{at} + 1, kUnused);
    uint32_t& head = buckets_[BucketOf(hash)];
    next_[at] = head;
    head = at;
    ++size_;
  }

  // REQUIRES: added with that hash.
  void Remove(Index index, uint64_t hash) {
    const auto at = static_cast<uint32_t>(index);
    TIER_CHECK(!buckets_.empty(), "record {} is not among {}", at, size_);
    uint32_t* link = &buckets_[BucketOf(hash)];
    while (*link != at) {
      TIER_CHECK(*link != kEnd, "record {} is not in the bucket of hash {:#x}", at, hash);
      link = &next_[*link];
    }
    *link = next_[at];
    next_[at] = kUnused;
    --size_;
  }

  template <typename HashOf>
  void CheckInvariants(const HashOf& hash_of) const {  // O(buckets).
    uint64_t found = 0;
    for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      for (uint32_t at = buckets_[bucket]; at != kEnd; at = next_[at], ++found) {
        TIER_CHECK(BucketOf(hash_of(Index{at})) == bucket, "record {} is in bucket {}", at, bucket);
      }
    }
    TIER_CHECK(found == size_ && size_ <= buckets_.size(), "{} records of {} in {} buckets", found, size_,
               buckets_.size());
  }

 private:
  static constexpr uint32_t kEnd = UINT32_MAX;
  static constexpr uint32_t kUnused = UINT32_MAX - 1;
  static constexpr uint64_t kKept = 1024;  // Buckets, and places by index, that are always kept.
  static constexpr uint64_t kShrunkAtOnce = 1024;

  // Buckets below n = 2^k + s exist. Those below s, and those from 2^k on, are of one more bit of the hash.
  size_t BucketOf(uint64_t hash) const {
    const uint64_t low = std::bit_floor(buckets_.size());
    const uint64_t bucket = hash & (2 * low - 1);
    return bucket < buckets_.size() ? bucket : bucket & (low - 1);
  }

  template <typename HashOf>
  void SplitNext(const HashOf& hash_of) {
    const size_t added = buckets_.size();
    buckets_.push_back(kEnd);
    if (added == 0) return;
    uint32_t at = buckets_[added - std::bit_floor(added)];
    buckets_[added - std::bit_floor(added)] = kEnd;
    while (at != kEnd) {
      const uint32_t next = next_[at];
      uint32_t& head = buckets_[BucketOf(hash_of(Index{at}))];
      next_[at] = head;
      head = at;
      at = next;
    }
  }

  // The inverse of SplitNext: the records of the last bucket go to the one that they came from.
  void MergeLast() {
    uint32_t at = buckets_.back();
    buckets_.pop_back();
    uint32_t& head = buckets_[buckets_.size() - std::bit_floor(buckets_.size())];
    while (at != kEnd) {
      const uint32_t next = next_[at];
      next_[at] = head;
      head = at;
      at = next;
    }
  }

  std::deque<uint32_t> buckets_;  // The first record of each.
  std::deque<uint32_t> next_;     // In its bucket, by index.
  uint64_t size_ = 0;
};

}  // namespace tier::tiering
