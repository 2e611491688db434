// What turns did not reach of a job's frees and prefetches, and how long what was prefetched is kept. All of it is
// rebuilt from records. Engine thread only.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "daemon/base/check.h"
#include "daemon/base/time.h"
#include "daemon/tiering/tables/tensor.h"

namespace tier::tiering {

// What of it is still to be freed.
class PendingFrees {
 public:
  // The tensors of a namespace that is gone (deferred_free.h).
  struct Namespace {
    TensorIndex head = kNoTensor;
    uint64_t space = 0;
  };

  bool any() const { return any_frees() || teardowns_ != 0; }
  bool any_frees() const { return !namespaces_.empty() || !tensors_.empty() || !updates_.empty(); }

  // REQUIRES: none of that space is pending.
  void AddNamespace(TensorIndex head, uint64_t space) {
    TIER_CHECK(namespaces_.emplace(space, head).second, "the tensors of space {} are freed twice", space);
  }
  bool any_namespace() const { return !namespaces_.empty(); }
  Namespace next_namespace() const {  // REQUIRES: there is one.
    CheckAny(namespaces_.size());
    return {.head = namespaces_.begin()->second, .space = namespaces_.begin()->first};
  }
  // Its first tensor is gone: by its turn here, or because a request that was there before frees it. False: no
  // namespace of that space is pending.
  bool SetHead(uint64_t space, TensorIndex head) {
    const auto found = namespaces_.find(space);
    if (found == namespaces_.end()) return false;
    found->second = head;
    return true;
  }
  void EndNamespace(uint64_t space) { TIER_CHECK(namespaces_.erase(space) == 1, "no tensors of space {}", space); }

  // Detached, without leases, with pieces that are still to be freed; oldest first.
  const std::deque<TensorIndex>& tensors() const { return tensors_; }
  void AddTensor(TensorIndex tensor) { tensors_.push_back(tensor); }
  void EndOldestTensor() {
    CheckAny(tensors_.size());
    tensors_.pop_front();
  }

  // Lists of updates that have ended, with records that are still to be removed; oldest first.
  const std::deque<UpdateListIndex>& updates() const { return updates_; }
  void AddUpdates(UpdateListIndex list) { updates_.push_back(list); }
  void EndOldestUpdates() {
    CheckAny(updates_.size());
    updates_.pop_front();
  }

  // Sessions that are gone, with leases left.
  void StartTeardown() { ++teardowns_; }
  void EndTeardown() {
    TIER_CHECK(teardowns_ != 0, "{} namespaces, no teardown", namespaces_.size());
    --teardowns_;
  }

 private:
  void CheckAny(size_t size) const {
    TIER_CHECK(size != 0, "{} namespaces, {} tensors, {} lists of updates and {} teardowns are left",
               namespaces_.size(), tensors_.size(), updates_.size(), teardowns_);
  }

  std::map<uint64_t, TensorIndex> namespaces_;  // By space: their first tensors.
  std::deque<TensorIndex> tensors_;
  std::deque<UpdateListIndex> updates_;
  uint32_t teardowns_ = 0;
};

// Ranges that its sessions asked to have in RAM soon, oldest first.
class PrefetchQueue {
 public:
  static constexpr size_t kItemsMax = 1u << 16;
  struct Item {
    TensorRef tensor;
    uint32_t next_piece = 0;
    uint32_t end_piece = 0;
  };

  // `total`: ranges in the queues of all jobs, counted here.
  explicit PrefetchQueue(uint64_t& total) : total_(total) {}
  PrefetchQueue(const PrefetchQueue&) = delete;
  PrefetchQueue& operator=(const PrefetchQueue&) = delete;
  ~PrefetchQueue() { Clear(); }

  bool empty() const { return items_.empty(); }
  size_t size() const { return items_.size(); }
  bool TryAdd(const Item& item) {  // False: it is full. A hint may be dropped.
    if (items_.size() >= kItemsMax) return false;
    items_.push_back(item);
    ++total_;
    return true;
  }
  const Item& oldest() const { return items_.front(); }  // REQUIRES, for these three: not empty.
  void EndOldestPiece() {
    TIER_CHECK(!empty() && oldest().next_piece < oldest().end_piece, "{} ranges", items_.size());
    ++items_.front().next_piece;
  }
  void EndOldest() {
    TIER_CHECK(!empty() && total_ != 0, "{} ranges of {}", items_.size(), total_);
    items_.pop_front();
    --total_;
  }
  void Clear() {
    total_ -= items_.size();
    items_.clear();
  }

 private:
  uint64_t& total_;
  std::deque<Item> items_;
};

// How long a prefetched piece is kept for its first use: until the next step of its job begins, or for kKept, whichever
// comes first. Time is counted in epochs; one ends with a step, or after a second.
class PrefetchAge {
 public:
  static constexpr base::Duration kKept = std::chrono::seconds(10);

  uint32_t EpochAt(base::TimePoint now) {
    const auto passed = std::chrono::duration_cast<std::chrono::seconds>(now - epoch_began_);
    epoch_began_ = epoch_began_ + passed;
    epoch_ += static_cast<uint32_t>(passed.count());
    return epoch_;
  }
  // A session has marked the end of the step of this number: the first marker of each number begins the next step.
  void EndStep(uint64_t number) {
    if (number == last_step_) return;
    last_step_ = number;
    kept_from_ = ++epoch_;
  }
  // Of a piece that was prefetched in that epoch. REQUIRES: EpochAt was called in this turn.
  bool IsOver(uint32_t prefetched_at) const {
    const uint32_t age = epoch_ - prefetched_at;
    return age > epoch_ - kept_from_ || age > std::chrono::duration_cast<std::chrono::seconds>(kKept).count();
  }

 private:
  uint32_t epoch_ = 0;
  uint32_t kept_from_ = 0;
  uint64_t last_step_ = UINT64_MAX;
  base::TimePoint epoch_began_;
};

}  // namespace tier::tiering
