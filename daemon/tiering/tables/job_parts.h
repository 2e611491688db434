// What a job holds and has under way, each kind with one owner: its attached sessions, its resume, its windows, its
// transfers and the writes that failed, pages of its tensors, frees and prefetches that a turn did not reach. All of it
// is rebuilt from records. Engine thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/memory/window_source.h"
#include "daemon/tiering/tables/tensor.h"
#include "proto/result.h"

namespace tier::tiering {

class SessionState;
struct ManifestReplay;

// Its sessions that are attached, in the order of their arrival: those in teardown are not among them.
class JobSessions {
 public:
  bool empty() const { return sessions_.empty(); }
  size_t size() const { return sessions_.size(); }
  auto begin() const { return sessions_.begin(); }
  auto end() const { return sessions_.end(); }
  const std::vector<SessionState*>& list() const { return sessions_; }

  void Attach(SessionState& session) { sessions_.push_back(&session); }
  void Detach(const SessionState& session) {
    TIER_CHECK(std::erase(sessions_, &session) == 1, "the session is none of {} that are attached", sessions_.size());
  }

 private:
  std::vector<SessionState*> sessions_;
};

// Its resume: from the load of its manifest until all of that is put back, or until the job is closed.
class JobReplay {
 public:
  bool under_way() const { return replay_ != nullptr; }
  ManifestReplay& operator*() const {
    TIER_CHECK(under_way(), "use count {}", replay_.use_count());
    return *replay_;
  }

  void Start(std::shared_ptr<ManifestReplay> replay) {
    TIER_CHECK(!under_way() && replay != nullptr, "use counts {} and {}", replay_.use_count(), replay.use_count());
    replay_ = std::move(replay);
  }
  std::shared_ptr<ManifestReplay> End() {
    TIER_CHECK(under_way(), "use count {}", replay_.use_count());
    return std::exchange(replay_, nullptr);
  }

 private:
  std::shared_ptr<ManifestReplay> replay_;
};

// Its windows, from the request for one until it was settled.
class JobWindows {
 public:
  const std::vector<WindowIndex>& ready() const { return ready_; }  // In its pool.
  uint32_t returning() const { return returning_; }                 // Out of the pool; sessions still map them.
  uint32_t making(WindowKind kind) const { return making_[static_cast<size_t>(kind)]; }
  bool makes_any() const { return making(WindowKind::kBlock) + making(WindowKind::kSlot) != 0; }

  void StartMaking(WindowKind kind) { ++making_[static_cast<size_t>(kind)]; }
  void EndMaking(WindowKind kind) {
    TIER_CHECK(making(kind) != 0, "no window of kind {} is being made", static_cast<int>(kind));
    --making_[static_cast<size_t>(kind)];
  }
  void Add(WindowIndex window) { ready_.push_back(window); }
  void StartReturn(WindowIndex window) {
    TIER_CHECK(std::erase(ready_, window) == 1, "window {} is not ready", tier::Value(window));
    ++returning_;
  }
  void EndReturn() {
    TIER_CHECK(returning_ != 0, "{} windows are ready, none is returning", ready_.size());
    --returning_;
  }
  void ClearReady() { ready_.clear(); }

  // A slot takes a whole block where it finds no other room: the last slot window that was needed could not be had, and
  // no memory has come since. `gain`: WindowLedger::memory_gain now.
  bool slots_take_blocks(uint64_t gain) const { return slots_take_blocks_since_ == gain; }
  void SetSlotsTakeBlocks(bool take, uint64_t gain) { slots_take_blocks_since_ = take ? gain : 0; }

 private:
  std::vector<WindowIndex> ready_;
  std::array<uint32_t, kWindowKinds> making_{};
  uint32_t returning_ = 0;
  uint64_t slots_take_blocks_since_ = 0;  // 0: they do not.
};

// What is on its way to and from devices, in pages of RAM.
class JobTransfers {
 public:
  uint64_t count() const { return count_; }
  uint32_t writes() const { return writes_; }
  uint64_t writing_pages() const { return writing_pages_; }  // Of dirty pieces.
  uint64_t reading_pages() const { return reading_pages_; }
  uint64_t prefetching_pages() const { return prefetching_pages_; }  // Of those.

  void StartRead(uint32_t pages, bool prefetch) {
    ++count_;
    reading_pages_ += pages;
    if (prefetch) prefetching_pages_ += pages;
  }
  void EndRead(uint32_t pages, bool prefetch) {
    TIER_CHECK(count_ != 0 && reading_pages_ >= pages, "{} pages of {} in {} transfers", pages, reading_pages_, count_);
    TIER_CHECK(!prefetch || prefetching_pages_ >= pages, "{} pages of {}", pages, prefetching_pages_);
    --count_;
    reading_pages_ -= pages;
    if (prefetch) prefetching_pages_ -= pages;
  }
  void StartWrite(uint32_t dirty_pages) {
    ++count_;
    ++writes_;
    writing_pages_ += dirty_pages;
  }
  void EndWrite(uint32_t dirty_pages) {
    TIER_CHECK(count_ != 0 && writes_ != 0 && writing_pages_ >= dirty_pages, "{} pages of {} in {} writes", dirty_pages,
               writing_pages_, writes_);
    --count_;
    --writes_;
    writing_pages_ -= dirty_pages;
  }

 private:
  uint64_t count_ = 0;
  uint32_t writes_ = 0;
  uint64_t writing_pages_ = 0;
  uint64_t reading_pages_ = 0;
  uint64_t prefetching_pages_ = 0;
};

// Why the last write of its bytes failed, for refusals.
struct WriteFailure {
  Code code = Code::kOk;
  uint64_t tensor = 0;
  std::string message;
};

class WriteFailures {
 public:
  uint64_t count() const { return count_; }
  uint32_t in_a_row() const { return in_a_row_; }
  const WriteFailure& last() const { return last_; }

  void Note(WriteFailure failure) {
    ++count_;
    ++in_a_row_;
    last_ = std::move(failure);
  }
  void NoteSuccess() { in_a_row_ = 0; }

 private:
  uint64_t count_ = 0;
  uint32_t in_a_row_ = 0;
  WriteFailure last_;
};

// Pages of its tensors: of their sizes, rounded up to pages for each piece, and of what is where.
class TensorPages {
 public:
  uint64_t logical() const { return logical_; }  // Of all that have their name.
  uint64_t unnamed() const { return unnamed_; }  // Of those that wait to take another's place.
  uint64_t dirty() const { return dirty_; }      // Sealed, in RAM only.
  uint64_t ssd() const { return ssd_; }

  void AddUnnamed(uint64_t pages) { unnamed_ += pages; }
  void RemoveUnnamed(uint64_t pages) { Remove(&unnamed_, pages); }
  void AddLogical(uint64_t pages) { logical_ += pages; }
  void RemoveLogical(uint64_t pages) { Remove(&logical_, pages); }
  void AddDirty(uint64_t pages) { dirty_ += pages; }
  void RemoveDirty(uint64_t pages) { Remove(&dirty_, pages); }
  void AddSsd(uint64_t pages) { ssd_ += pages; }
  void RemoveSsd(uint64_t pages) { Remove(&ssd_, pages); }

 private:
  static void Remove(uint64_t* sum, uint64_t pages) {
    TIER_CHECK(*sum >= pages, "{} pages of {}", pages, *sum);
    *sum -= pages;
  }
  uint64_t logical_ = 0;
  uint64_t unnamed_ = 0;
  uint64_t dirty_ = 0;
  uint64_t ssd_ = 0;
};

// What of it is still to be freed.
class PendingFrees {
 public:
  // The tensors of a namespace that is gone (deferred_free.h).
  struct Namespace {
    TensorIndex head = kNoTensor;
    uint64_t space = 0;
  };

  bool any() const { return any_frees() || teardowns_ != 0; }
  bool any_frees() const { return !namespaces_.empty() || !tensors_.empty(); }

  void AddNamespace(TensorIndex head, uint64_t space) { namespaces_.push_back({head, space}); }
  bool any_namespace() const { return !namespaces_.empty(); }
  // REQUIRES, for these three: there is one.
  const Namespace& newest_namespace() const {
    CheckAny(namespaces_.size());
    return namespaces_.back();
  }
  void SetNewestHead(TensorIndex head) {
    CheckAny(namespaces_.size());
    namespaces_.back().head = head;
  }
  void EndNewestNamespace() {
    CheckAny(namespaces_.size());
    namespaces_.pop_back();
  }

  // Detached, without leases, with pieces that are still to be freed; oldest first.
  const std::deque<TensorIndex>& tensors() const { return tensors_; }
  void AddTensor(TensorIndex tensor) { tensors_.push_back(tensor); }
  void EndOldestTensor() {
    CheckAny(tensors_.size());
    tensors_.pop_front();
  }

  // Sessions that are gone, with leases left.
  void StartTeardown() { ++teardowns_; }
  void EndTeardown() {
    TIER_CHECK(teardowns_ != 0, "{} namespaces, no teardown", namespaces_.size());
    --teardowns_;
  }

 private:
  void CheckAny(size_t size) const {
    TIER_CHECK(size != 0, "{} namespaces, {} tensors and {} teardowns are left", namespaces_.size(), tensors_.size(),
               teardowns_);
  }

  std::vector<Namespace> namespaces_;
  std::deque<TensorIndex> tensors_;
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

  bool empty() const { return items_.empty(); }
  bool TryAdd(const Item& item) {  // False: it is full. A hint may be dropped.
    if (items_.size() >= kItemsMax) return false;
    items_.push_back(item);
    return true;
  }
  const Item& oldest() const { return items_.front(); }  // REQUIRES, for these three: not empty.
  void EndOldestPiece() {
    TIER_CHECK(!empty() && oldest().next_piece < oldest().end_piece, "{} ranges", items_.size());
    ++items_.front().next_piece;
  }
  void EndOldest() {
    TIER_CHECK(!empty(), "{} ranges", items_.size());
    items_.pop_front();
  }
  void Clear() { items_.clear(); }

 private:
  std::deque<Item> items_;
};

}  // namespace tier::tiering
