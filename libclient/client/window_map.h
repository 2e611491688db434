// WindowMap: the daemon's windows in this process, window i at base + i × window_size of one reserved address range.
//
// The idea: addresses follow from indices, so neighbouring windows are one contiguous range and nothing is looked up.
// What is not mapped is PROT_NONE. All of it is MADV_DONTFORK: a child never sees a window.
// Threads: any; the service thread maps and unmaps. Invariants: a window with leases > 0 is never unmapped;
//   mapped_count() == windows in state kMapped.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "proto/message.h"
#include "proto/mutex.h"
#include "proto/result.h"
#include "proto/units.h"

namespace tier::client {

class WindowMap {
 public:
  // Reserves windows_max × window_size of address range. NO_MEMORY when the process may not have that much.
  static Result<std::unique_ptr<WindowMap>> Reserve(uint32_t windows_max, uint64_t window_size);
  ~WindowMap();
  WindowMap(const WindowMap&) = delete;
  WindowMap& operator=(const WindowMap&) = delete;

  // Maps a window that the daemon sent. `fd` may be closed afterwards.
  Status Map(uint32_t window, uint32_t page_size, int fd);
  // Puts the reservation back in its place. INVALID when it is not mapped or leases lie in it.
  Status Unmap(uint32_t window);
  // All of them; for the end of a session.
  void UnmapAll();

  // Is this span inside a mapped window? Waits until `deadline` for a window whose descriptor is still on its way.
  bool Await(const proto::SpanRecord& span, std::chrono::steady_clock::time_point deadline);
  std::byte* AddressOf(uint32_t window, uint64_t offset) const { return base_ + window * window_size_ + offset; }

  void AddLease(uint32_t window) { windows_[window].leases.fetch_add(1, std::memory_order_relaxed); }
  void DropLease(uint32_t window) { windows_[window].leases.fetch_sub(1, std::memory_order_relaxed); }

  uint64_t window_size() const { return window_size_; }
  uint32_t windows_max() const { return windows_max_; }
  uint32_t page_size(uint32_t window) const { return windows_[window].page_size.load(std::memory_order_relaxed); }
  uint64_t mapped_count() const { return mapped_count_.load(std::memory_order_relaxed); }
  // A broken wait is over: nothing more will be mapped.
  void Stop();

 private:
  struct Window {
    std::atomic<bool> mapped{false};
    std::atomic<uint32_t> page_size{0};
    std::atomic<uint32_t> leases{0};
  };

  WindowMap(std::byte* reservation, uint64_t reserved, std::byte* base, uint32_t windows_max, uint64_t window_size);
  bool Contains(const proto::SpanRecord& span) const;

  std::byte* const reservation_;
  const uint64_t reserved_;
  std::byte* const base_;
  const uint32_t windows_max_;
  const uint64_t window_size_;
  std::unique_ptr<Window[]> windows_;
  std::atomic<uint64_t> mapped_count_{0};
  Mutex arrival_mutex_;  // Held while `mapped` of a window or stopped_ turns true, so that no waiter misses it.
  CondVar arrival_;
  std::atomic<bool> stopped_{false};
};

}  // namespace tier::client
