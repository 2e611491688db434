// StitchCache: one contiguous view of a tensor whose blocks lie scattered.
//
// The idea: a second mapping of the same pages, run behind run. Views are kept after their lease as long as the pieces
// stay where they are (the key is the list of runs), because mapping and filling page tables costs as much as copying
// (145 µs per scattered 2 MiB, measured 2026-11). Bounded in VMAs, and in bytes by the size of the windows, since each
// view counts in the process's resident memory (VmRSS, by which the kernel chooses the process to kill) as if it were
// memory of its own; the least recently used view is unmapped first. Threads: any. Invariant: vmas_used() == Σ runs of
// all views ≤ vmas_max; a view with users > 0 is never unmapped.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "libclient/client/window_map.h"
#include "proto/mapping.h"
#include "proto/message.h"
#include "proto/mutex.h"
#include "proto/result.h"

namespace tier::client {

struct Run {  // Contiguous bytes of one window: a span without its lease.
  uint32_t window = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  bool operator==(const Run&) const = default;
};

class StitchCache {
 public:
  struct View {
    std::vector<Run> runs;
    std::byte* reservation = nullptr;
    uint64_t reserved = 0;
    std::byte* data = nullptr;  // First byte of the first run.
    uint32_t users = 0;
  };

  // Views may take so many times the bytes of all mapped windows: pieces in RAM fill these once, ranges of one tensor
  // may overlap. Views beyond that are of pieces that have moved, and will not be requested again. Views in use may
  // take more.
  static constexpr uint64_t kViewsOfWindowsMax = 2;
  // vm.max_map_count ÷ 4, read once.
  static uint64_t DefaultVmasMax();

  StitchCache(const WindowMap& windows, uint64_t vmas_max) : windows_(windows), vmas_max_(vmas_max) {}
  ~StitchCache();
  StitchCache(const StitchCache&) = delete;
  StitchCache& operator=(const StitchCache&) = delete;

  // The view of these runs, made if need be; the caller is a user of it until Release. INVALID when inner run borders
  // are not at page borders; NO_MEMORY when views in use leave no room or the kernel refuses.
  Result<View*> Acquire(std::span<const Run> runs);
  void Release(View* view);

  // Huge pages cannot be mapped a second time from the first mapping (EINVAL in every kernel), so the descriptors of
  // their windows are kept, at most kDescriptorsMax of them; leases in later windows are not stitched. A forked child
  // does not keep them: the daemon would wait for it when a window is to go to another job.
  // The first kLowDescriptorsMax have numbers as they come; the others lie above those that select() can wait for.
  static constexpr size_t kDescriptorsMax = 4096;
  static constexpr size_t kLowDescriptorsMax = 256;
  void KeepDescriptor(uint32_t window, proto::FileDescriptor fd);
  // The window goes back to the daemon: drops every view of it. REQUIRES: none of them is in use.
  void DropWindow(uint32_t window);
  // Unmaps everything, views in use too (they stay listed until released): for the end of a session.
  void DropAll();

  uint64_t vmas_max() const { return vmas_max_; }
  uint64_t vmas_in_use() const { return vmas_in_use_.load(std::memory_order_relaxed); }  // Of views with users.
  uint64_t view_count() const;
  uint64_t vmas_used() const;
  uint64_t bytes_used() const;  // Mapped address range.

 private:
  using Order = std::list<View>;
  static uint64_t HashOf(std::span<const Run> runs);
  Result<View> Make(std::span<const Run> runs) const TIER_REQUIRES(mutex_);
  Status MapRun(const Run& run, std::byte* target, uint64_t page) const TIER_REQUIRES(mutex_);
  bool MakeRoom(uint64_t vmas, uint64_t bytes) TIER_REQUIRES(mutex_);
  void DropDescriptor(uint32_t window) TIER_REQUIRES(mutex_);
  Order::iterator Erase(Order::iterator view) TIER_REQUIRES(mutex_);

  const WindowMap& windows_;
  const uint64_t vmas_max_;
  mutable Mutex mutex_;
  Order views_ TIER_GUARDED_BY(mutex_);                                               // Most recently used first.
  std::unordered_multimap<uint64_t, Order::iterator> index_ TIER_GUARDED_BY(mutex_);  // Hash of the runs → view.
  std::map<uint32_t, proto::FileDescriptor> descriptors_ TIER_GUARDED_BY(mutex_);     // Windows of huge pages.
  uint64_t vmas_used_ TIER_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> vmas_in_use_{0};
  uint64_t bytes_used_ TIER_GUARDED_BY(mutex_) = 0;
};

}  // namespace tier::client
