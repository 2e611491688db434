// How fast the engine decides: pairs of acquire and release, creations and seals, over ports that cost nothing.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "daemon/tiering/engine.h"
#include "tests/support/tiering/fake_windows.h"
#include "tests/support/tiering/null_ports.h"

namespace tier::tiering {
namespace {

using proto::Op;
using proto::RequestItem;

class LeaseCollector final : public ReplySink {
 public:
  void OnReply(SessionId, const Reply& reply) override {
    code = reply.code;
    ++replies;
    for (const proto::SpanRecord& span : reply.spans) {
      if (leases.empty() || leases.back().value != span.lease) leases.push_back({0, 0, 0, span.lease});
    }
  }
  void OnWindow(SessionId, const memory::WindowShape&) override {}
  void OnWindowReturn(SessionId, WindowIndex) override {}
  void OnSessionEnded(SessionId, Code, const std::string&) override {}
  std::vector<RequestItem> leases;
  Code code = Code::kOk;
  uint64_t replies = 0;
};

constexpr memory::testing::FakeWindowOptions kArena = {
    .window_size = 64 * kMiB, .arena_max_bytes = 2 * kGiB, .windows_max = 64};
// Room for a million of small tensors. Nothing here touches a byte of them.
constexpr memory::testing::FakeWindowOptions kLargeArena = {
    .window_size = 64 * kMiB, .arena_max_bytes = 16 * kGiB, .windows_max = 256, .without_memory = true};

struct Bench {
  explicit Bench(const memory::testing::FakeWindowOptions& arena = kArena) : windows(arena) {
    extents.AddDevice(4096);
    EngineOptions options;
    options.tensors_per_job_max = 1u << 24;
    engine = std::make_unique<Engine>(options, EnginePorts{windows, extents, transfers, nullptr, sink});
    (void)engine->OpenJob(JobId{1}, {.key = "0/bench"});
    (void)engine->OpenSession(SessionId{2}, JobId{1});
  }
  void Send(Op op, std::span<const RequestItem> items, uint32_t flags = 0) {
    engine->Submit(SessionId{2}, {.sequence = ++sequence, .op = op, .flags = flags, .items = items, .text = {}});
  }
  void Turn() {
    now = now + std::chrono::microseconds(1);
    engine->Turn(now);
  }
  void Answered(uint64_t replies) {
    while (sink.replies < replies) Turn();
  }
  void Put(uint64_t count, uint64_t size) {
    std::vector<RequestItem> items;
    for (uint64_t id = 1; id <= count; ++id) {
      items.push_back({id, 0, 0, size});
      if (items.size() < 500 && id != count) continue;
      sink.leases.clear();
      Send(Op::kCreate, items);
      Answered(sink.replies + 1);
      Send(Op::kRelease, sink.leases);
      Answered(sink.replies + 1);
      items.clear();
    }
  }

  memory::testing::FakeWindowSource windows;
  storage::ExtentStore extents;
  testing::InstantTransfers transfers;
  LeaseCollector sink;
  std::unique_ptr<Engine> engine;
  uint64_t sequence = 0;
  base::TimePoint now;
};

// items: tensors in a request; all tensors are visited in turn, so that caches see what they would see.
void AcquireRelease(benchmark::State& state) {
  const auto batch = static_cast<uint64_t>(state.range(0));
  const auto tensors = static_cast<uint64_t>(state.range(1));
  const uint32_t flags = state.range(2) != 0 ? proto::kFlagWrite : 0;
  Bench bench;
  bench.Put(tensors, 16 * kKiB);
  std::vector<RequestItem> items(batch);
  uint64_t next = 0;
  for (auto _ : state) {
    for (RequestItem& item : items) {
      item = {1 + next * 7919 % tensors, 0, 0, 0};
      ++next;
    }
    bench.sink.leases.clear();
    bench.Send(Op::kAcquire, items, flags);
    bench.Turn();
    bench.Send(Op::kRelease, bench.sink.leases);
    bench.Turn();
  }
  if (bench.sink.code != Code::kOk) state.SkipWithError("refused");
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(batch));
}
BENCHMARK(AcquireRelease)
    ->ArgNames({"batch", "tensors", "write"})
    ->Args({1, 1000, 0})
    ->Args({64, 1000, 0})
    ->Args({512, 1000, 0})
    ->Args({512, 50000, 0})
    ->Args({512, 1000, 1})
    ->Args({512, 50000, 1});

void CreateSealFree(benchmark::State& state) {
  const auto batch = static_cast<uint64_t>(state.range(0));
  Bench bench;
  std::vector<RequestItem> items(batch);
  std::vector<RequestItem> names(batch);
  uint64_t next = 1;
  bench.Put(1, 4096);
  for (auto _ : state) {
    for (uint64_t i = 0; i < batch; ++i) {
      items[i] = {1000 + next, 0, 0, 64 * kKiB};
      names[i] = {1000 + next, 0, 0, 0};
      ++next;
    }
    bench.sink.leases.clear();
    const uint64_t replies = bench.sink.replies;
    bench.Send(Op::kCreate, items);
    bench.Answered(replies + 1);
    bench.Send(Op::kRelease, bench.sink.leases);
    bench.Turn();
    state.PauseTiming();
    bench.Send(Op::kFree, names);
    bench.Turn();
    state.ResumeTiming();
  }
  if (bench.sink.code != Code::kOk) state.SkipWithError("refused");
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(batch));
}
BENCHMARK(CreateSealFree)->ArgName("batch")->Arg(64)->Arg(512);

// Of so many live tensors of 4 KiB the oldest are freed and made again, batch by batch: what a turn does must not grow
// with them.
void FreeCreateSeal(benchmark::State& state) {
  constexpr uint64_t kBatch = 500;
  const auto live = static_cast<uint64_t>(state.range(0));
  Bench bench(kLargeArena);
  bench.Put(live, 4 * kKiB);
  std::vector<RequestItem> items(kBatch);
  std::vector<RequestItem> names(kBatch);
  uint64_t next = 0;
  for (auto _ : state) {
    for (uint64_t i = 0; i < kBatch; ++i, next = (next + 1) % live) {
      names[i] = {1 + next, 0, 0, 0};
      items[i] = {1 + next, 0, 0, 4 * kKiB};
    }
    bench.sink.leases.clear();
    const uint64_t replies = bench.sink.replies;
    bench.Send(Op::kFree, names);
    bench.Send(Op::kCreate, items);
    bench.Answered(replies + 2);
    bench.Send(Op::kRelease, bench.sink.leases);
    bench.Answered(replies + 3);
  }
  if (bench.sink.code != Code::kOk) state.SkipWithError("refused");
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kBatch));
}
BENCHMARK(FreeCreateSeal)->ArgName("live")->Arg(1'000)->Arg(100'000)->Arg(1'000'000)->MinTime(1.0);

}  // namespace
}  // namespace tier::tiering
