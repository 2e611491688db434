// Workers: a small fixed pool of threads for what burns CPU: prefault, zeroing, checksums. First in, first out; tasks
// must not block on anything but memory and must be short (≤ ~10 ms: longer work posts its rest again), because every
// kind of work shares the pool. Results go back through the poster's own queues.
//
// Thread-safe. Invariant: tasks queued <= kTasksQueuedMax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "proto/mutex.h"
#include "proto/result.h"
#include "proto/urgency.h"

namespace tier::base {

class Workers {
 public:
  using Task = std::move_only_function<void()>;
  static constexpr size_t kTasksQueuedMax = 16384;

  // Starts `threads` threads named "<name>-<i>", as urgent as said; asynchronous signals are blocked in them.
  // NO_MEMORY: the system does not give that many. REQUIRES: threads >= 1.
  static Result<std::unique_ptr<Workers>> Start(unsigned threads, std::string_view name,
                                                proto::Urgency urgency = proto::Urgency::kBulk);
  // Runs everything still queued, then joins. Tasks posted by such tasks run too.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // False when the queue is full: the caller does it itself, or later.
  [[nodiscard]] bool TryPost(Task task);

  unsigned threads() const { return static_cast<unsigned>(threads_.size()); }
  size_t queued() const;     // Posted and not begun.
  uint64_t refused() const;  // TryPost that returned false, since start.

 private:
  Workers();
  void Run();

  mutable Mutex mutex_;
  CondVar wake_;
  std::vector<Task> ring_ TIER_GUARDED_BY(mutex_);  // kTasksQueuedMax places; `head_` is the oldest.
  size_t head_ TIER_GUARDED_BY(mutex_) = 0;
  size_t queued_ TIER_GUARDED_BY(mutex_) = 0;
  size_t running_ TIER_GUARDED_BY(mutex_) = 0;
  uint64_t refused_ TIER_GUARDED_BY(mutex_) = 0;
  bool stopping_ TIER_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tier::base
