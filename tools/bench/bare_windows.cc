// The least that making and giving back windows takes: memfds of the daemon's size and kind of pages, populated and
// punched by several threads, and nothing else. A small shell on standard input lets run.py alternate it with a daemon.

#include <fcntl.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "tools/bench/client.h"
#include "tools/bench/parts.h"
#include "tools/bench/samples.h"

namespace tier::bench {
namespace {

#ifndef MADV_COLLAPSE
constexpr int kMadviseCollapse = 25;  // Linux 6.1; younger than the C library's headers.
#else
constexpr int kMadviseCollapse = MADV_COLLAPSE;
#endif
constexpr uint64_t kHugePage = 2 << 20;
constexpr uint64_t kSmallPage = 4096;
constexpr uint64_t kStepBytes = 8 << 20;  // Populated at a time, as the daemon does.

void RequireSystem(bool ok, const char* what) {
  if (ok) return;
  fmt::print(stderr, "tier_bench: {}: {}\n", what, std::strerror(errno));
  std::exit(1);
}

void RaiseFileLimit() {
  rlimit limit{};
  RequireSystem(::getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  limit.rlim_cur = limit.rlim_max;
  RequireSystem(::setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

// Of equal size, side by side in one reservation that begins at a huge page's boundary.
class BareWindows {
 public:
  explicit BareWindows(const PartOptions& options)
      : size_(options.bytes),
        threads_(options.threads),
        collapse_(options.collapse),
        flags_(MFD_CLOEXEC | (options.pool ? MFD_HUGETLB | HUGETLB_FLAG_ENCODE_2MB : 0U)),
        files_(options.total / options.bytes, -1) {
    Require(size_ != 0 && size_ % kHugePage == 0 && !files_.empty() ? TIER_OK : TIER_INVALID, "--bytes, --total");
    const uint64_t reserved = size_ * files_.size() + kHugePage;
    void* const begin = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    RequireSystem(begin != MAP_FAILED, "reserve addresses");
    const auto address = reinterpret_cast<uintptr_t>(begin);
    base_ = static_cast<std::byte*>(begin) + (kHugePage - address % kHugePage) % kHugePage;
  }

  // Makes all windows. Seconds.
  double Populate() {
    return Timed([this](size_t window) {
      Open(window);
      for (uint64_t done = 0; done < size_; done += kStepBytes) {
        PopulateStep(base_ + window * size_ + done, std::min(kStepBytes, size_ - done));
      }
    });
  }

  // Takes their pages away; then, outside the time, closes them. Seconds.
  double Punch() {
    const double seconds = Timed([this](size_t window) {
      const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
      RequireSystem(::fallocate(files_[window], mode, 0, static_cast<off_t>(size_)) == 0, "punch");
    });
    for (int& file : files_) {
      ::close(file);
      file = -1;
    }
    const uint64_t bytes = size_ * files_.size();
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    RequireSystem(::mmap(base_, bytes, PROT_NONE, flags, -1, 0) == base_, "unmap");
    return seconds;
  }

 private:
  // Each thread takes the next window until there is none.
  double Timed(const std::function<void(size_t)>& work) const {
    std::atomic<size_t> next{0};
    const auto take = [&] {
      for (size_t window = next++; window < files_.size(); window = next++) work(window);
    };
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < threads_; ++i) threads.emplace_back(take);
    for (std::thread& thread : threads) thread.join();
    return SecondsSince(start);
  }

  void Open(size_t window) {
    int& file = files_[window];
    file = ::memfd_create("tier-bench-window", flags_);
    RequireSystem(file >= 0 && ::ftruncate(file, static_cast<off_t>(size_)) == 0, "make a memfd");
    std::byte* const place = base_ + window * size_;
    const int access = PROT_READ | PROT_WRITE;
    RequireSystem(::mmap(place, size_, access, MAP_SHARED | MAP_FIXED, file, 0) == place, "map a memfd");
    (void)::madvise(place, size_, MADV_HUGEPAGE);  // As the daemon does: of use where shmem's pages go by advice.
  }

  void PopulateStep(std::byte* at, uint64_t length) const {
    if (collapse_) {  // One page of a block is enough for a collapse, and spares the copying of the others.
      for (uint64_t block = 0; block < length; block += kHugePage) Fill(at + block, kSmallPage);
      (void)::madvise(at, length, kMadviseCollapse);
    }
    Fill(at, length);
  }

  static void Fill(std::byte* at, uint64_t length) {
    while (::madvise(at, length, MADV_POPULATE_WRITE) != 0) {
      RequireSystem(errno == EINTR || errno == EAGAIN, "populate a memfd");
    }
  }

  const uint64_t size_;
  const uint32_t threads_;
  const bool collapse_;
  const unsigned flags_;
  std::vector<int> files_;
  std::byte* base_ = nullptr;
};

}  // namespace

void BareWindowsShell(const PartOptions& options) {
  RaiseFileLimit();
  BareWindows windows(options);
  fmt::print("{{\"ready\": true}}\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    const double seconds = line == "populate" ? windows.Populate() : windows.Punch();
    fmt::print("{{\"{}\": {:.6g}}}\n", line, seconds);
    std::fflush(stdout);
  }
}

}  // namespace tier::bench
