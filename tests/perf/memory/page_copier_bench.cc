// Moves in RAM: 16 MiB, the most that is in flight, by worker threads under the fault guard, in pieces of several
// sizes; beside a memcpy of the same pieces by one thread.
#include <benchmark/benchmark.h>

#include <cstring>
#include <memory>
#include <semaphore>

#include "daemon/base/fault_guard.h"
#include "daemon/memory/page_copier.h"
#include "proto/mapping.h"

namespace tier::memory {
namespace {

constexpr uint64_t kBytes = 16 * kMiB;

// Two windows of small pages, populated.
struct Windows {
  explicit Windows(uint64_t piece) : piece_bytes(piece) {
    base::InstallFaultGuard();
    std::memset(mapping.data(), 1, 2 * kBytes);
  }
  std::byte* from(uint64_t piece) const { return mapping.data() + piece * piece_bytes; }
  // Pieces do not land in their order.
  std::byte* to(uint64_t piece) const { return mapping.data() + kBytes + (count() - 1 - piece) * piece_bytes; }
  uint64_t count() const { return kBytes / piece_bytes; }

  uint64_t piece_bytes;
  proto::FileDescriptor file = proto::CreateMemoryFile("bench", 2 * kBytes).value();
  proto::Mapping mapping = proto::Mapping::Map(file.get(), 0, 2 * kBytes, proto::Access::kReadWrite).value();
  base::GuardedRange range{mapping.data(), 2 * kBytes};
};

void BM_Memcpy(benchmark::State& state) {
  const Windows windows(static_cast<uint64_t>(state.range(0)));
  for (auto _ : state) {
    for (uint64_t i = 0; i < windows.count(); ++i) std::memcpy(windows.to(i), windows.from(i), windows.piece_bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kBytes));
}
BENCHMARK(BM_Memcpy)->Arg(4 << 10)->Arg(64 << 10)->Arg(2 << 20)->UseRealTime();

void BM_PageCopier(benchmark::State& state) {
  const Windows windows(static_cast<uint64_t>(state.range(0)));
  const auto workers = base::Workers::Start(static_cast<unsigned>(state.range(1)), "copy").value();
  std::counting_semaphore<> finished{0};
  PageCopier copier(workers.get(), [&] { finished.release(); });
  std::vector<PageCopyResult> results;
  for (auto _ : state) {
    results.clear();
    for (uint64_t i = 0; i < windows.count(); ++i) {
      copier.Start({.cookie = i,
                    .from = windows.from(i),
                    .to = windows.to(i),
                    .length = static_cast<uint32_t>(windows.piece_bytes)});
    }
    copier.Submit();
    while (copier.inflight() != 0) {
      finished.acquire();
      copier.Poll(&results);
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kBytes));
}
BENCHMARK(BM_PageCopier)->ArgsProduct({{4 << 10, 64 << 10, 2 << 20}, {1, 2}})->UseRealTime();

}  // namespace
}  // namespace tier::memory
