// What any design that keeps a model on SSD must do beside a training step at the least: threads that move the step's
// bytes between the file and memory that is there, by blocking O_DIRECT calls, and compute their CRC32C. No copy, no
// queue, no lease, no index.

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "daemon/storage/checksum.h"
#include "tools/bench/parts.h"
#include "tools/bench/samples.h"
#include "tools/bench/staging.h"

namespace tier::bench {
namespace {

constexpr uint32_t kThreads = 4;

class BareMoves {
 public:
  explicit BareMoves(const PartOptions& options)
      : file_(open(options.file.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC)),
        offset_(options.offset),
        chunks_(options.total / kChunk) {
    if (file_ < 0) Fail(options.file.c_str());
    if (chunks_ == 0) {
      std::fprintf(stderr, "--total holds no chunk of %llu bytes\n", static_cast<unsigned long long>(kChunk));
      std::exit(1);
    }
  }

  // Whole chunks, reads and writes evenly mixed. Returns the seconds that they took.
  double Move(uint64_t read, uint64_t written) {
    const uint64_t writes = (written + kChunk / 2) / kChunk;
    const uint64_t all = writes + (read + kChunk / 2) / kChunk;
    std::atomic<uint64_t> next = 0;
    const auto start = std::chrono::steady_clock::now();
    {
      std::vector<std::jthread> threads;
      for (uint32_t i = 0; i < kThreads; ++i) {
        threads.emplace_back([&, memory = staging_[i]] {
          for (uint64_t move; (move = next.fetch_add(1)) < all;) {
            const bool write = (move + 1) * writes / all > move * writes / all;
            MoveChunk(write, (first_ + move) % chunks_, memory);
          }
        });
      }
    }
    first_ += all;
    return SecondsSince(start);
  }

 private:
  void MoveChunk(bool write, uint64_t chunk, char* memory) {
    const auto place = static_cast<off_t>(offset_ + chunk * kChunk);
    if (!write && pread(file_, memory, kChunk, place) != static_cast<ssize_t>(kChunk)) Fail("pread");
    checksum_.fetch_xor(storage::Crc32c(std::as_bytes(std::span(memory, kChunk))), std::memory_order_relaxed);
    if (write && pwrite(file_, memory, kChunk, place) != static_cast<ssize_t>(kChunk)) Fail("pwrite");
  }

  const int file_;
  const uint64_t offset_;
  const uint64_t chunks_;
  const Staging staging_{kThreads};
  uint64_t first_ = 0;
  std::atomic<uint32_t> checksum_ = 0;
};

}  // namespace

void BareMovesShell(const PartOptions& options) {
  BareMoves moves(options);
  fmt::print("{{\"ready\": true}}\n");
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    uint64_t read = 0;
    uint64_t written = 0;
    if (!(words >> read >> written)) {
      std::fprintf(stderr, "'%s' is not READ WRITTEN\n", line.c_str());
      std::exit(1);
    }
    fmt::print("{{\"{} {}\": {:.6g}}}\n", read, written, moves.Move(read, written));
    std::fflush(stdout);
  }
}

}  // namespace tier::bench
