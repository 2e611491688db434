// What the tables of a real daemon take goes back to the system when tensors are freed.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "proto/units.h"
#include "tests/crash/daemon/daemon_process.h"
#include "tests/crash/daemon/trainer.h"

namespace tier::crash {
namespace {

// Its own memory, without windows.
uint64_t AnonymousBytes(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoull(line.substr(8)) * kKiB;
  }
  return 0;
}

TEST(Metadata, OfFreedTensorsGoesBackToTheSystem) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "needs a build without sanitizers: they keep what is freed";
#endif
  constexpr uint64_t kTensors = 100'000;  // Records of 18 MiB.
  constexpr uint64_t kBatch = 250;
  // A chunk of each table that is kept empty beside one in use, what the allocator keeps of small blocks, and the pools
  // of the windows.
  constexpr uint64_t kKeptMax = 3 * kMiB;
  ScratchDirectory scratch;
  DaemonProcess daemon(scratch, {.arguments = {"--set", "arena.maximum=512MiB", "--set", "arena.window_size=32MiB"},
                                 .environment = {},
                                 .uid = {},
                                 .inherited = {}});
  ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
  Trainer trainer(daemon, "tables");
  trainer.PutAll(1, kBatch, kPageSize);
  const uint64_t before = AnonymousBytes(daemon.pid());
  for (uint64_t first = 1000; first < 1000 + kTensors; first += kBatch) trainer.PutAll(first, kBatch, kPageSize);
  const uint64_t full = AnonymousBytes(daemon.pid());
  EXPECT_GT(full, before + kTensors * 170);
  std::vector<proto::RequestItem> names(kBatch);
  for (uint64_t first = 1000; first < 1000 + kTensors; first += kBatch) {
    for (uint64_t i = 0; i < kBatch; ++i) names[i] = {.tensor = first + i};
    ASSERT_EQ(trainer.AskAll(proto::Op::kFree, names).header.code, 0);
  }
  // It goes by time, a chunk in 10 ms, whether requests come or not.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  uint64_t after = AnonymousBytes(daemon.pid());
  while (after > before + kKeptMax && std::chrono::steady_clock::now() < until) {
    (void)trainer.Ask(proto::Op::kStat, {.tensor = 1});
    after = AnonymousBytes(daemon.pid());
  }
  std::printf("%llu KiB with few tensors, %llu with many, %llu after\n", static_cast<unsigned long long>(before / kKiB),
              static_cast<unsigned long long>(full / kKiB), static_cast<unsigned long long>(after / kKiB));
  EXPECT_LE(after, before + kKeptMax);
  EXPECT_TRUE(trainer.Put(7'000'000, kPageSize, 3).header.code == 0 && trainer.Holds(7'000'000, 3));
  EXPECT_EQ(daemon.Stop(), 0) << daemon.Output();
}

}  // namespace
}  // namespace tier::crash
