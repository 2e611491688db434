#include "libclient/client/pinned_windows.h"

namespace tier::client {

Status PinnedWindows::Pin(cuda::Gpu& gpu, std::span<const Run> runs) {
  const MutexLock lock(mutex_);
  gpu_ = &gpu;
  for (const Run& run : runs) {
    if (pinned_.contains(run.window)) continue;
    auto outcome = gpu.RegisterWindow(windows_.AddressOf(run.window, 0), windows_.size(run.window));
    if (!outcome) return std::unexpected(outcome.error());
    if (*outcome != cuda::RegisterOutcome::kNoContext) pinned_.insert(run.window);
  }
  return {};
}

Status PinnedWindows::Unpin(uint32_t window) {
  const MutexLock lock(mutex_);
  if (pinned_.erase(window) == 0) return {};
  return gpu_->UnregisterWindow(windows_.AddressOf(window, 0));
}

void PinnedWindows::UnpinAll() {
  const MutexLock lock(mutex_);
  // A driver that refuses is one that is already shutting down; it undoes its registrations itself.
  for (const uint32_t window : pinned_) (void)gpu_->UnregisterWindow(windows_.AddressOf(window, 0));
  pinned_.clear();
}

uint64_t PinnedWindows::count() const {
  const MutexLock lock(mutex_);
  return pinned_.size();
}

}  // namespace tier::client
