// PageCopyPort: copies pages from one place of the arena to another, for the engine. PageCopier is the real one, on
// worker threads; the simulator's copies at scripted times.
//
// Engine thread only. A started copy always ends in exactly one result; until then neither place is given up, and the
// target is written by no one else. What is read meanwhile may change: then the caller throws the copy away.
//
// The engine thread copies nothing itself: copies for which the workers' queue has no room wait in order for a later
// turn. That comes soon, because whatever fills the queue has results for the engine.
//
// Either place may vanish, because a client punched a hole in its window: a copy runs under the fault guard, and its
// result says which side could not be touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "daemon/base/workers.h"
#include "proto/units.h"

namespace tier::memory {

struct PageCopy {
  uint64_t cookie = 0;  // Comes back in the result.
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  uint32_t length = 0;  // Bytes. The two places do not overlap.
};

enum class CopyOutcome : uint8_t { kDone, kSourceFault, kTargetFault };

struct PageCopyResult {
  uint64_t cookie = 0;
  CopyOutcome outcome = CopyOutcome::kDone;
};

class PageCopyPort {
 public:
  virtual ~PageCopyPort() = default;
  virtual void Start(const PageCopy& copy) = 0;
  // Hands everything started since the last call to workers: called at most once in an engine turn, as its last step,
  // and in each turn while copies are under way. What the workers had no room for is handed to them again then.
  virtual void Submit() = 0;
  virtual void Poll(std::vector<PageCopyResult>* results) = 0;  // Appends what has ended; never blocks.
  virtual uint32_t inflight() const = 0;                        // Started and not yet polled.
};

class PageCopier final : public PageCopyPort {
 public:
  // Bytes of one task of a worker, about: some 100 µs.
  static constexpr uint64_t kTaskBytes = 512 * kKiB;

  // `on_finished` is called by a worker after something has become ready for Poll; it must not block. May be null.
  PageCopier(base::Workers* workers, std::function<void()> on_finished);
  ~PageCopier() override;  // Waits for copies under way: the memory may be given up then.

  void Start(const PageCopy& copy) override { started_.push_back(copy); }
  void Submit() override;
  void Poll(std::vector<PageCopyResult>* results) override;
  uint32_t inflight() const override { return inflight_; }

 private:
  struct Shared;
  using Task = std::shared_ptr<const std::vector<PageCopy>>;
  void AddTask(std::vector<PageCopy> copies);
  bool TryPost(const Task& task);

  base::Workers* workers_;
  std::shared_ptr<Shared> shared_;
  std::vector<PageCopy> started_;
  std::deque<Task> waiting_;  // For room in the workers' queue, the oldest first.
  uint32_t inflight_ = 0;
};

// Copies under the fault guard.
CopyOutcome CopyGuarded(const PageCopy& copy);

}  // namespace tier::memory
