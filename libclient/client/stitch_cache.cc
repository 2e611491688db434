#include "libclient/client/stitch_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "libclient/client/fork_guard.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tier::client {

namespace {

uint64_t BytesOf(std::span<const Run> runs) {
  uint64_t bytes = 0;
  for (const Run& run : runs) bytes += run.length;
  return bytes;
}

// The same file under a number beyond those that select() can wait for, which the program may need. Empty: the limit of
// open files allows none.
proto::FileDescriptor MovedHigh(proto::FileDescriptor fd) {
  constexpr rlim_t kWanted = FD_SETSIZE + StitchCache::kDescriptorsMax;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < kWanted) {
    limit.rlim_cur = std::min(kWanted, limit.rlim_max);
    (void)::setrlimit(RLIMIT_NOFILE, &limit);  // Else what is there is enough, or the next call fails.
  }
  return proto::FileDescriptor(::fcntl(fd.get(), F_DUPFD_CLOEXEC, FD_SETSIZE));
}

}  // namespace

uint64_t StitchCache::DefaultVmasMax() {
  unsigned long long maps = 65530;  // The kernel's default.
  if (std::FILE* file = std::fopen("/proc/sys/vm/max_map_count", "re"); file != nullptr) {
    if (std::fscanf(file, "%llu", &maps) != 1) maps = 65530;
    std::fclose(file);
  }
  return maps / 4;
}

StitchCache::~StitchCache() { DropAll(); }

uint64_t StitchCache::HashOf(std::span<const Run> runs) {
  uint64_t hash = 0x9e3779b97f4a7c15;
  for (const Run& run : runs) {
    for (const uint64_t word : {uint64_t{run.window}, run.offset, run.length}) {
      hash = (hash ^ word) * 0xff51afd7ed558ccd;
      hash ^= hash >> 32;
    }
  }
  return hash;
}

Result<StitchCache::View*> StitchCache::Acquire(std::span<const Run> runs) {
  const MutexLock lock(mutex_);
  const uint64_t hash = HashOf(runs);
  const auto [first, last] = index_.equal_range(hash);
  for (auto entry = first; entry != last; ++entry) {
    View& view = *entry->second;
    if (!std::ranges::equal(view.runs, runs)) continue;
    if (view.users++ == 0) vmas_in_use_ += runs.size();
    views_.splice(views_.begin(), views_, entry->second);
    return &view;
  }
  const uint64_t bytes = BytesOf(runs);
  if (!MakeRoom(runs.size(), bytes)) {
    return Fail(Code::kNoMemory,
                "a contiguous view of " + std::to_string(runs.size()) + " scattered runs does not fit beside " +
                    std::to_string(vmas_used_) + " runs in use (limit " + std::to_string(vmas_max_) +
                    ", a quarter of vm.max_map_count): read the lease by segments, or by shorter ranges");
  }
  auto made = Make(runs);
  if (!made) return std::unexpected(made.error());
  views_.push_front(std::move(*made));
  views_.front().users = 1;
  index_.emplace(hash, views_.begin());
  vmas_used_ += runs.size();
  vmas_in_use_ += runs.size();
  bytes_used_ += bytes;
  return &views_.front();
}

void StitchCache::Release(View* view) {
  const MutexLock lock(mutex_);
  if (--view->users > 0) return;
  vmas_in_use_ -= view->runs.size();
  if (view->reservation != nullptr) return;
  views_.remove_if([view](const View& candidate) { return &candidate == view; });  // What DropAll left behind.
}

bool StitchCache::MakeRoom(uint64_t vmas, uint64_t bytes) {
  const uint64_t bytes_max = kViewsOfWindowsMax * windows_.mapped_bytes();
  for (auto view = views_.end(); view != views_.begin();) {
    if (vmas_used_ + vmas <= vmas_max_ && bytes_used_ + bytes <= bytes_max) break;
    --view;
    if (view->users == 0) view = Erase(view);
  }
  return vmas_used_ + vmas <= vmas_max_;
}

StitchCache::Order::iterator StitchCache::Erase(Order::iterator view) {
  const auto [first, last] = index_.equal_range(HashOf(view->runs));
  const auto entry = std::find_if(first, last, [&](const auto& candidate) { return candidate.second == view; });
  if (entry != last) index_.erase(entry);
  if (view->reservation != nullptr) ::munmap(view->reservation, view->reserved);
  vmas_used_ -= view->runs.size();
  bytes_used_ -= BytesOf(view->runs);
  return views_.erase(view);
}

Result<StitchCache::View> StitchCache::Make(std::span<const Run> runs) const {
  uint64_t page = kPageSize;
  for (const Run& run : runs) page = std::max<uint64_t>(page, windows_.page_size(run.window));
  const uint64_t length = BytesOf(runs);
  // A block that lies at its own place in a huge page is mapped by one entry and not by 512: a hundred µs less each.
  const uint64_t alignment = std::max(page, length >= kBlockSize ? kBlockSize : 0);
  const uint64_t lead = runs.front().offset % alignment;
  View view;
  view.runs.assign(runs.begin(), runs.end());
  view.reserved = AlignUp(lead + length, page) + alignment;
  void* const address = ::mmap(nullptr, view.reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return Fail(Code::kNoMemory,
                std::string("cannot reserve addresses for a contiguous view: ") + std::strerror(errno));
  }
  view.reservation = static_cast<std::byte*>(address);
  std::byte* const start =
      view.reservation + (alignment - reinterpret_cast<uintptr_t>(address) % alignment) % alignment;
  view.data = start + lead;
  std::byte* target = view.data;
  for (const Run& run : runs) {
    if (auto mapped = MapRun(run, target, page); !mapped) {
      ::munmap(view.reservation, view.reserved);
      return std::unexpected(mapped.error());
    }
    target += run.length;
  }
  return view;
}

Status StitchCache::MapRun(const Run& run, std::byte* target, uint64_t page) const {
  const uint64_t grain = std::min<uint64_t>(page, windows_.page_size(run.window));
  const uint64_t lead = run.offset % grain;
  std::byte* const at = target - lead;
  if (reinterpret_cast<uintptr_t>(at) % grain != 0) {
    return Fail(Code::kInvalid, "scattered runs do not meet at page borders: read the lease by segments");
  }
  const uint64_t length = AlignUp(lead + run.length, grain);
  void* mapped = MAP_FAILED;
  if (grain == kPageSize) {
    // Old size 0: a second mapping of the same shared pages, no descriptor needed.
    mapped = ::mremap(windows_.AddressOf(run.window, run.offset - lead), 0, length, MREMAP_MAYMOVE | MREMAP_FIXED, at);
  } else if (const auto kept = descriptors_.find(run.window); kept != descriptors_.end()) {
    mapped = ::mmap(at, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, kept->second.get(),
                    static_cast<off_t>(run.offset - lead));
  } else {
    errno = EMFILE;
  }
  if (mapped == MAP_FAILED) {
    return Fail(Code::kNoMemory, std::string("cannot map a contiguous view of scattered blocks (") +
                                     std::strerror(errno) + "): read the lease by segments");
  }
  // DONTFORK comes along with mremap, not with mmap. Populating is an optimisation, as in WindowMap.
  (void)::madvise(at, length, MADV_DONTFORK);
  (void)::madvise(at, length, MADV_POPULATE_WRITE);
  return {};
}

void StitchCache::DropDescriptor(uint32_t window) {
  const auto kept = descriptors_.find(window);
  if (kept == descriptors_.end()) return;
  ForkGuard::Release(kept->second.get());
  descriptors_.erase(kept);
}

void StitchCache::KeepDescriptor(uint32_t window, proto::FileDescriptor fd) {
  const MutexLock lock(mutex_);
  if (descriptors_.size() >= kDescriptorsMax) return;
  if (descriptors_.size() >= kLowDescriptorsMax) fd = MovedHigh(std::move(fd));
  if (!fd) return;
  DropDescriptor(window);
  ForkGuard::CloseInChild(fd.get());
  descriptors_[window] = std::move(fd);
}

void StitchCache::DropWindow(uint32_t window) {
  const MutexLock lock(mutex_);
  DropDescriptor(window);
  for (auto view = views_.begin(); view != views_.end();) {
    const bool touches = std::ranges::any_of(view->runs, [&](const Run& run) { return run.window == window; });
    view = touches && view->users == 0 ? Erase(view) : std::next(view);
  }
}

void StitchCache::DropAll() {
  const MutexLock lock(mutex_);
  for (auto view = views_.begin(); view != views_.end();) {
    if (view->users == 0) {
      view = Erase(view);
      continue;
    }
    ::munmap(view->reservation, view->reserved);
    view->reservation = nullptr;
    ++view;
  }
  index_.clear();
  while (!descriptors_.empty()) DropDescriptor(descriptors_.begin()->first);
}

uint64_t StitchCache::view_count() const {
  const MutexLock lock(mutex_);
  return views_.size();
}

uint64_t StitchCache::vmas_used() const {
  const MutexLock lock(mutex_);
  return vmas_used_;
}

uint64_t StitchCache::bytes_used() const {
  const MutexLock lock(mutex_);
  return bytes_used_;
}

}  // namespace tier::client
