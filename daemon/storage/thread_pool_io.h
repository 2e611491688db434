// ThreadPoolIo: DeviceIo by pread and pwrite on threads of its own, for machines where io_uring is forbidden. Same
// contract, same conformance suite; windows are never registered ("unpinned").
//
// Requests go to the threads in the order they were submitted. Invariant: queued + running + done == in flight.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/storage/completion_signal.h"
#include "daemon/storage/device_io.h"
#include "proto/mutex.h"
#include "proto/result.h"

namespace tier::storage {

struct ThreadPoolIoOptions {
  uint32_t inflight_max = 256;  // Requests at a time.
  uint32_t threads = 8;         // Requests that truly run at once; eight of 2–4 MiB keep one SSD busy.
};

class ThreadPoolIo final : public DeviceIo {
 public:
  // `device` stays the caller's and open, and `signal` lives, as long as this does. NO_MEMORY: the system does not give
  // that many threads.
  static Result<std::unique_ptr<ThreadPoolIo>> Create(const ThreadPoolIoOptions& options, int device,
                                                      const CompletionSignal& signal);
  ~ThreadPoolIo() override;  // Ends what was submitted, then joins.

  void AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin = Pin::kTry) override;
  void RemoveWindow(WindowIndex window) override { removed_.push_back(window); }
  void TakeRemoved(std::vector<WindowIndex>* windows) override;
  bool registered(WindowIndex /*window*/) const override { return false; }
  void Start(const IoRequest& request) override;
  void Submit() override;
  void Poll(std::vector<IoCompletion>* completions) override;
  void Wait() override;
  uint32_t inflight_max() const override { return options_.inflight_max; }
  const std::string& unpinned_reason() const override { return unpinned_reason_; }

 private:
  ThreadPoolIo(const ThreadPoolIoOptions& options, int device, const CompletionSignal& signal);
  void Run();
  int32_t Execute(const IoRequest& request) const;
  int32_t ExecuteUnlocked(const IoRequest& request) TIER_REQUIRES(mutex_);

  ThreadPoolIoOptions options_;
  const CompletionSignal& signal_;
  const std::string unpinned_reason_ = "the thread pool registers no memory";
  const int device_;
  std::vector<IoRequest> started_;
  std::vector<WindowIndex> removed_;
  uint32_t inflight_ = 0;

  Mutex mutex_;
  CondVar wake_;
  // inflight_max places; `head_` is the oldest of `queued_`.
  std::vector<IoRequest> ring_ TIER_GUARDED_BY(mutex_);
  size_t head_ TIER_GUARDED_BY(mutex_) = 0;
  size_t queued_ TIER_GUARDED_BY(mutex_) = 0;
  std::vector<IoCompletion> done_ TIER_GUARDED_BY(mutex_);
  bool stopping_ TIER_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tier::storage
