// A map from start address; see the header.
#include "libclient/cuda/window_registry.h"

#include <algorithm>
#include <string>

#include "libclient/cuda/gpu.h"

namespace tier::cuda {
namespace {

uintptr_t Number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

}  // namespace

Result<bool> WindowRegistry::Known(const void* address, uint64_t size_bytes) const {
  const uintptr_t start = Number(address);
  const MutexLock lock(mutex_);
  if (size_bytes == 0 || start == 0 || start + size_bytes < start) {
    return Fail(Code::kInvalid, "a window of " + std::to_string(size_bytes) + " bytes cannot be registered");
  }
  const auto exact = windows_.find(start);
  if (exact != windows_.end() && exact->second.size_bytes == size_bytes) return true;
  const auto after = windows_.lower_bound(start + size_bytes);
  if (after != windows_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.size_bytes > start) {
      return Fail(Code::kInvalid, "the window of " + std::to_string(size_bytes) +
                                      " bytes overlaps a registered one of " +
                                      std::to_string(before->second.size_bytes) + " bytes: unregister that first");
    }
  }
  if (windows_.size() >= kRegisteredWindowsMax) {
    return Fail(Code::kNoMemory,
                "all " + std::to_string(kRegisteredWindowsMax) + " places for registered windows are taken");
  }
  return false;
}

void WindowRegistry::Add(const void* address, const RegisteredWindow& window) {
  const MutexLock lock(mutex_);
  windows_.emplace(Number(address), window);
}

std::optional<RegisteredWindow> WindowRegistry::Find(const void* address) const {
  const MutexLock lock(mutex_);
  const auto found = windows_.find(Number(address));
  return found == windows_.end() ? std::nullopt : std::optional(found->second);
}

void WindowRegistry::Remove(const void* address) {
  const MutexLock lock(mutex_);
  windows_.erase(Number(address));
}

uint64_t WindowRegistry::own_count() const {
  const MutexLock lock(mutex_);
  return static_cast<uint64_t>(
      std::count_if(windows_.begin(), windows_.end(), [](const auto& entry) { return entry.second.own; }));
}

std::vector<void*> WindowRegistry::OwnAddresses() const {
  const MutexLock lock(mutex_);
  std::vector<void*> addresses;
  for (const auto& [start, window] : windows_) {
    if (window.own) addresses.push_back(reinterpret_cast<void*>(start));  // NOLINT(performance-no-int-to-ptr)
  }
  return addresses;
}

size_t WindowRegistry::PartBytes(const void* host, size_t bytes) const {
  const uintptr_t start = Number(host);
  const MutexLock lock(mutex_);
  const auto after = windows_.upper_bound(start);
  if (after != windows_.begin()) {
    const auto& [first, window] = *std::prev(after);
    const uintptr_t end = first + window.size_bytes;
    if (start < end) return std::min<size_t>(bytes, end - start);
  }
  return after == windows_.end() ? bytes : std::min<size_t>(bytes, after->first - start);
}

}  // namespace tier::cuda
