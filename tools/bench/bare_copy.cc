// What any design that keeps its own copy of a tensor, with a checksum, must do at least: threads that copy a chunk,
// compute its CRC32C and move it by one blocking O_DIRECT call, and nothing else. No queue, no lease, no index.

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "daemon/storage/checksum.h"
#include "tools/bench/parts.h"
#include "tools/bench/samples.h"
#include "tools/bench/staging.h"
#include "tools/bench/user_memory.h"

namespace tier::bench {
namespace {

constexpr uint32_t kThreadCounts[] = {4, 8, 16};
constexpr uint64_t kTuningBytes = 1 << 30;

class BareCopy {
 public:
  explicit BareCopy(const PartOptions& options)
      : file_(open(options.file.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC)),
        offset_(options.offset),
        user_(options.bytes),
        total_(options.total / kChunk * kChunk) {
    if (file_ < 0) Fail(options.file.c_str());
    if (options.bytes % kChunk != 0) {
      std::fprintf(stderr, "tensors of %llu bytes are no whole chunks\n",
                   static_cast<unsigned long long>(options.bytes));
      std::exit(1);
    }
  }

  uint32_t threads() const { return threads_; }
  void Tune() {
    const uint64_t bytes = std::min(total_, kTuningBytes);
    double best = 0;
    uint32_t chosen = 0;
    for (const uint32_t threads : kThreadCounts) {
      threads_ = threads;
      const double rate = 1 / (1 / Pass(true, bytes) + 1 / Pass(false, bytes));
      if (rate > best) chosen = threads;
      best = std::max(best, rate);
    }
    threads_ = chosen;
  }
  // GB/s over `bytes` of the file.
  double Pass(bool write, uint64_t bytes) {
    std::atomic<uint64_t> next = 0;
    const auto start = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> threads;
      for (uint32_t i = 0; i < threads_; ++i) {
        threads.emplace_back([&, staging = staging_[i]] {
          for (uint64_t at; (at = next.fetch_add(kChunk)) < bytes;) Move(write, at, staging);
        });
      }
    }
    return static_cast<double>(bytes) * 1e-9 / SecondsSince(start);
  }
  double Pass(bool write) { return Pass(write, total_); }

 private:
  void Move(bool write, uint64_t at, char* staging) {
    const auto place = static_cast<off_t>(offset_ + at);
    if (write) std::memcpy(staging, user_.At(at), kChunk);
    if (!write && pread(file_, staging, kChunk, place) != static_cast<ssize_t>(kChunk)) Fail("pread");
    checksum_.fetch_xor(storage::Crc32c(std::as_bytes(std::span(staging, kChunk))), std::memory_order_relaxed);
    if (write && pwrite(file_, staging, kChunk, place) != static_cast<ssize_t>(kChunk)) Fail("pwrite");
    if (!write) std::memcpy(user_.At(at), staging, kChunk);
  }

  const int file_;
  const uint64_t offset_;
  UserMemory user_;
  const uint64_t total_;
  Staging staging_{kThreadCounts[std::size(kThreadCounts) - 1]};
  uint32_t threads_ = 0;
  std::atomic<uint32_t> checksum_ = 0;
};

}  // namespace

void BareCopyShell(const PartOptions& options) {
  BareCopy copy(options);
  copy.Tune();
  fmt::print("{{\"ready\": true, \"shape\": \"{} threads\"}}\n", copy.threads());
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    fmt::print("{{\"{}\": {:.6g}}}\n", line, copy.Pass(line == "write"));
    std::fflush(stdout);
  }
}

}  // namespace tier::bench
