#include "libclient/client/window_map.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tier::client {
namespace {

// Hugetlb windows map at multiples of 2 MiB only; 1 GiB lets large windows of large pages use large page tables.
uint64_t AlignmentFor(uint64_t window_size) { return window_size; }

}  // namespace

Result<std::unique_ptr<WindowMap>> WindowMap::Reserve(uint32_t windows_max, uint64_t window_size) {
  const uint64_t alignment = AlignmentFor(window_size);
  const uint64_t wanted = windows_max * window_size + alignment;
  void* const address = ::mmap(nullptr, wanted, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return Fail(Code::kNoMemory, "cannot reserve " + std::to_string(wanted >> 20) + " MiB of address range for " +
                                     std::to_string(windows_max) + " windows (" + std::strerror(errno) +
                                     "): raise the limit on virtual memory (ulimit -v)");
  }
  (void)::madvise(address, wanted, MADV_DONTFORK);  // Best effort: an empty reservation in a child does no harm.
  auto* const start = static_cast<std::byte*>(address);
  const uint64_t misfit = reinterpret_cast<uintptr_t>(start) % alignment;
  std::byte* const base = start + (misfit == 0 ? 0 : alignment - misfit);
  return std::unique_ptr<WindowMap>(new WindowMap(start, wanted, base, windows_max, window_size));
}

WindowMap::WindowMap(std::byte* reservation, uint64_t reserved, std::byte* base, uint32_t windows_max,
                     uint64_t window_size)
    : reservation_(reservation),
      reserved_(reserved),
      base_(base),
      windows_max_(windows_max),
      window_size_(window_size),
      windows_(std::make_unique<Window[]>(windows_max)) {}

WindowMap::~WindowMap() { ::munmap(reservation_, reserved_); }

Status WindowMap::Map(uint32_t window, uint32_t page_size, int fd) {
  const auto name = "window " + std::to_string(window);
  if (window >= windows_max_)
    return Fail(Code::kInvalid, name + " is beyond the " + std::to_string(windows_max_) + " announced");
  if (page_size != kPageSize && page_size != kBlockSize) {
    return Fail(Code::kInvalid, name + " has an impossible page size of " + std::to_string(page_size));
  }
  Window& entry = windows_[window];
  if (entry.mapped.load()) return Fail(Code::kInvalid, name + " was sent twice");
  struct stat file{};
  if (::fstat(fd, &file) != 0 || static_cast<uint64_t>(file.st_size) < window_size_) {
    return Fail(Code::kInvalid, name + " is smaller than a window: touching it would be fatal");
  }
  std::byte* const address = AddressOf(window, 0);
  if (::mmap(address, window_size_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    return Fail(Code::kNoMemory, "cannot map " + name + ": " + std::strerror(errno));
  }
  if (::madvise(address, window_size_, MADV_DONTFORK) != 0) {
    return Fail(Code::kIoError, "cannot keep " + name + " out of forked children: " + std::strerror(errno));
  }
  entry.page_size.store(page_size, std::memory_order_relaxed);
  mapped_count_.fetch_add(1, std::memory_order_relaxed);
  {
    const MutexLock lock(arrival_mutex_);
    entry.mapped.store(true, std::memory_order_release);
  }
  arrival_.NotifyAll();
  // Its pages exist already; only this process's page tables are filled, at a tenth of the price of faults. Best
  // effort: without it (before Linux 5.14) the first touch of each page costs a fault.
  (void)::madvise(address, window_size_, MADV_POPULATE_WRITE);
  return {};
}

Status WindowMap::Unmap(uint32_t window) {
  const auto name = "window " + std::to_string(window);
  if (window >= windows_max_ || !windows_[window].mapped.load()) {
    return Fail(Code::kInvalid, "the daemon asked for " + name + " back, which this client does not have");
  }
  Window& entry = windows_[window];
  if (const uint32_t leases = entry.leases.load(); leases > 0) {
    return Fail(Code::kInvalid,
                "the daemon asked for " + name + " back while " + std::to_string(leases) + " leased runs lie in it");
  }
  entry.mapped.store(false);
  mapped_count_.fetch_sub(1, std::memory_order_relaxed);
  void* const address = AddressOf(window, 0);
  if (::mmap(address, window_size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) ==
      MAP_FAILED) {
    return Fail(Code::kNoMemory, "cannot unmap " + name + ": " + std::strerror(errno));
  }
  (void)::madvise(address, window_size_, MADV_DONTFORK);
  return {};
}

void WindowMap::UnmapAll() {
  for (uint32_t i = 0; i < windows_max_; ++i) {
    windows_[i].mapped.store(false);
  }
  mapped_count_.store(0);
  // One call for the whole range: a failure leaves pages mapped until the process ends, which is the kernel's to undo.
  (void)::mmap(base_, windows_max_ * window_size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
               -1, 0);
}

bool WindowMap::Contains(const proto::SpanRecord& span) const {
  return span.length > 0 && span.offset < window_size_ && span.length <= window_size_ - span.offset;
}

bool WindowMap::Await(const proto::SpanRecord& span, std::chrono::steady_clock::time_point deadline) {
  if (span.window >= windows_max_ || !Contains(span)) return false;
  Window& entry = windows_[span.window];
  if (entry.mapped.load(std::memory_order_acquire)) return true;
  const MutexLock lock(arrival_mutex_);
  while (!entry.mapped.load() && !stopped_.load() && arrival_.WaitUntil(arrival_mutex_, deadline)) continue;
  return entry.mapped.load();
}

void WindowMap::Stop() {
  {
    const MutexLock lock(arrival_mutex_);
    stopped_.store(true);
  }
  arrival_.NotifyAll();
}

}  // namespace tier::client
