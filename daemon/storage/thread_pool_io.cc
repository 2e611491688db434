// See thread_pool_io.h. The mutex is held to move requests in and results out, never across a read or a write.
#include "daemon/storage/thread_pool_io.h"

#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "daemon/base/check.h"
#include "proto/start_thread.h"

namespace tier::storage {

ThreadPoolIo::ThreadPoolIo(const ThreadPoolIoOptions& options, int device, const CompletionSignal& signal)
    : options_(options), signal_(signal), device_(device), ring_(options.inflight_max) {
  TIER_CHECK(options.inflight_max != 0 && options.threads != 0, "{} in flight, {} threads", options.inflight_max,
             options.threads);
  started_.reserve(options.inflight_max);
  done_.reserve(options.inflight_max);
  threads_.reserve(options.threads);
}

Result<std::unique_ptr<ThreadPoolIo>> ThreadPoolIo::Create(const ThreadPoolIoOptions& options, int device,
                                                           const CompletionSignal& signal) {
  std::unique_ptr<ThreadPoolIo> pool(new ThreadPoolIo(options, device, signal));
  for (uint32_t i = 0; i < options.threads; ++i) {
    auto thread = proto::StartThread(fmt::format("tier-io-{}", i), proto::BlockedSignals::kAll,
                                     [raw = pool.get()] { raw->Run(); });
    if (!thread) return std::unexpected(std::move(thread.error()));
    pool->threads_.push_back(std::move(*thread));
  }
  return pool;
}

ThreadPoolIo::~ThreadPoolIo() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPoolIo::AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin /*pin*/) {
  TIER_CHECK(address != nullptr && size != 0, "window {} of {} bytes", Value(window), size);
}

void ThreadPoolIo::TakeRemoved(std::vector<WindowIndex>* windows) {
  windows->insert(windows->end(), removed_.begin(), removed_.end());
  removed_.clear();
}

void ThreadPoolIo::Start(const IoRequest& request) {
  TIER_CHECK(inflight_ < options_.inflight_max, "{} in flight", inflight_);
  TIER_CHECK(request.length != 0, "{} bytes", request.length);
  started_.push_back(request);
  ++inflight_;
}

void ThreadPoolIo::Submit() {
  if (started_.empty()) return;
  {
    const MutexLock lock(mutex_);
    TIER_CHECK(queued_ + started_.size() <= ring_.size(), "{} queued + {}", queued_, started_.size());
    for (const IoRequest& request : started_) ring_[(head_ + queued_++) % ring_.size()] = request;
  }
  if (started_.size() == 1) {
    wake_.NotifyOne();
  } else {
    wake_.NotifyAll();
  }
  started_.clear();
}

// Here the signal is cleared: Poll, and a look for other work, come after it and see what it was rung for.
void ThreadPoolIo::Wait() {
  if (removed_.empty()) signal_.Wait();
}

void ThreadPoolIo::Poll(std::vector<IoCompletion>* completions) {
  if (inflight_ == 0) return;
  const MutexLock lock(mutex_);
  completions->insert(completions->end(), done_.begin(), done_.end());
  TIER_CHECK(done_.size() <= inflight_, "{} done, {} in flight", done_.size(), inflight_);
  inflight_ -= static_cast<uint32_t>(done_.size());
  done_.clear();
}

int32_t ThreadPoolIo::Execute(const IoRequest& request) const {
  const auto offset = static_cast<off_t>(request.offset);
  const ssize_t moved = request.direction == Direction::kRead
                            ? ::pread(device_, request.memory, request.length, offset)
                            : ::pwrite(device_, request.memory, request.length, offset);
  return moved >= 0 ? static_cast<int32_t>(moved) : -errno;
}

int32_t ThreadPoolIo::ExecuteUnlocked(const IoRequest& request) {
  const MutexUnlock unlocked(mutex_);
  return Execute(request);
}

void ThreadPoolIo::Run() {
  const MutexLock lock(mutex_);
  for (;;) {
    while (queued_ == 0 && !stopping_) wake_.Wait(mutex_);
    if (queued_ == 0) return;
    const IoRequest request = ring_[head_];
    head_ = (head_ + 1) % ring_.size();
    --queued_;
    const int32_t result = ExecuteUnlocked(request);
    const bool first = done_.empty();
    done_.push_back({request.token, result});
    if (!first) continue;
    const MutexUnlock unlocked(mutex_);
    signal_.Signal();
  }
}

}  // namespace tier::storage
