// CPU time of the engine's thread between taking a request for a tensor in RAM and answering it, while another job
// swaps through a real file: what devices and large requests add to the work that a hit waits for. Waiting for a
// processor is not in it (tools/bench/hits.py has that).
//
//   tiering_bench --benchmark_filter=Hit; its file of 1 GiB goes to TIER_BENCH_DIRECTORY, or /var/tmp, and is gone
// afterwards.
#include <benchmark/benchmark.h>

#include <ctime>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

#include "daemon/base/check.h"
#include "daemon/base/fault_guard.h"
#include "daemon/base/workers.h"
#include "daemon/memory/arena.h"
#include "daemon/storage/ssd_tier.h"
#include "daemon/tiering/engine.h"

namespace tier::tiering {
namespace {

using proto::Op;
using proto::RequestItem;

constexpr uint64_t kArena = 256 * kMiB;
constexpr uint64_t kWindow = 16 * kMiB;
constexpr uint64_t kTensor = 64 * kMiB;  // Of the job that swaps.
constexpr uint64_t kTensors = 10;
constexpr uint64_t kHit = 2 * kMiB;
constexpr size_t kHits = 10'000;
constexpr SessionId kReader{1};
constexpr SessionId kSwapper{2};
constexpr uint64_t kHitTensor = 100;

double CpuMicroseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

base::TimePoint Now() { return {std::chrono::steady_clock::now().time_since_epoch()}; }

class Node final : public ReplySink {
 public:
  Node() {
    base::InstallFaultGuard();
    memory::ArenaOptions arena;
    arena.sizes = {.max_bytes = kArena,
                   .window_size_min = kWindow,
                   .window_size_max = kWindow,
                   .windows_aimed = kArena / kWindow,
                   .windows_max = 64};
    arena.huge_pages = memory::HugePagePolicy::kNever;
    arena_ = std::make_unique<memory::Arena>(arena, workers_.get());
    arena_->RefreshHost();
    const char* const directory = std::getenv("TIER_BENCH_DIRECTORY");
    storage::SsdTierOptions ssd;
    ssd.devices = {{.path = directory == nullptr ? "/var/tmp" : directory, .size = kGiB, .private_file = true}};
    ssd.windows_max = arena_->windows_max();
    auto opened = storage::SsdTier::Open(ssd, *workers_);
    TIER_CHECK(opened, "{}", opened.error().message);
    ssd_ = std::move(*opened);
    engine_ = std::make_unique<Engine>(
        EngineOptions{}, EnginePorts{*arena_, ssd_->extents(), ssd_->transfers(), ssd_->manifests(), *this});
    for (const SessionId session : {kReader, kSwapper}) {
      const JobId job{static_cast<uint64_t>(session)};
      const Status open = engine_->OpenJob(job, {.key = session == kReader ? "0/reader" : "0/swapper"});
      TIER_CHECK(open && engine_->OpenSession(session, job), "job {}", static_cast<uint64_t>(job));
    }
    Put(kReader, kHitTensor, kHit);
    for (uint64_t tensor = 1; tensor <= kTensors; ++tensor) Put(kSwapper, tensor, kTensor);
    swapping_ = true;
  }
  ~Node() {
    swapping_ = false;
    while (outstanding_ != 0) Turn();
    for (const SessionId session : {kReader, kSwapper}) {
      engine_->EndSession(session, Code::kDisconnected, "done", JobId{static_cast<uint64_t>(session)});
    }
    while (engine_->Turn(Now()) || ssd_->transfers().inflight() != 0) {
    }
  }

  // Microseconds between a hit and its answer.
  double Hit() {
    answered_ = false;
    begin_ = CpuMicroseconds();
    Submit(kReader, Op::kAcquire, {{kHitTensor, 0, 0, 0}});
    while (!answered_) Turn();
    const double took = took_;
    Submit(kReader, Op::kRelease, {{0, 0, 0, hit_lease_}});
    // What the daemon does between two hits.
    for (int i = 0; i < 4; ++i) {
      if (!Turn()) Rest();
    }
    return took;
  }
  uint64_t swapped_bytes() const {
    const JobCounters counters = engine_->Counters(JobId{static_cast<uint64_t>(kSwapper)});
    return counters.swap_in_bytes + counters.swap_out_bytes;
  }

  void OnReply(SessionId session, const Reply& reply) override {
    TIER_CHECK(reply.code == Code::kOk, "{}", reply.detail);
    const bool lease = !reply.spans.empty();
    if (session == kReader) {
      if (!lease) return;
      took_ = CpuMicroseconds() - begin_;
      hit_lease_ = reply.spans.front().lease;
      answered_ = true;
    } else if (lease) {
      leases_.push_back(reply.spans.front().lease);
    } else {
      --outstanding_;
    }
  }
  void OnWindow(SessionId, const memory::WindowShape&) override {}
  void OnWindowReturn(SessionId session, WindowIndex window) override { returns_.emplace_back(session, window); }
  void OnSessionEnded(SessionId, Code, const std::string&) override {}
  void OnJobOpened(JobId, const Status&) override {}

 private:
  void Submit(SessionId session, Op op, std::vector<RequestItem> items, uint32_t flags = 0) {
    engine_->Submit(
        session,
        {.sequence = ++sequence_[session == kReader ? 0 : 1], .op = op, .flags = flags, .items = items, .text = {}});
  }
  void Put(SessionId session, uint64_t tensor, uint64_t size) {
    ++outstanding_;
    Submit(session, Op::kCreate, {{tensor, 0, 0, size}});
    if (session == kReader) {
      answered_ = false;
      while (!answered_) Turn();
      Submit(session, Op::kRelease, {{0, 0, 0, hit_lease_}});
      --outstanding_;
      return;
    }
    while (outstanding_ != 0) Turn();
  }
  void SwapNext() {
    ++outstanding_;
    next_ = next_ % kTensors + 1;
    Submit(kSwapper, Op::kAcquire, {{next_, 0, 0, 0}}, proto::kFlagWrite);
  }
  bool Turn() {
    const bool moved = engine_->Turn(Now());
    for (const auto& [session, window] : std::exchange(returns_, {})) engine_->WindowReturned(session, window);
    for (const uint64_t lease : std::exchange(leases_, {})) Submit(kSwapper, Op::kRelease, {{0, 0, 0, lease}});
    while (swapping_ && outstanding_ < 2) SwapNext();
    return moved;
  }
  // Until a device or a worker has something, 50 µs at most.
  void Rest() {
    pollfd wakeup{.fd = ssd_->completion_fd(), .events = POLLIN, .revents = 0};
    const timespec most{.tv_sec = 0, .tv_nsec = 50'000};
    (void)::ppoll(&wakeup, 1, &most, nullptr);
    ssd_->ClearWakeup();
  }

  const std::unique_ptr<base::Workers> workers_ = base::Workers::Start(1, "bench").value();
  std::unique_ptr<memory::Arena> arena_;
  std::unique_ptr<storage::SsdTier> ssd_;
  std::unique_ptr<Engine> engine_;
  uint64_t sequence_[2] = {};
  std::vector<uint64_t> leases_;  // Of the swapper, to be released.
  std::vector<std::pair<SessionId, WindowIndex>> returns_;
  uint32_t outstanding_ = 0;
  uint64_t next_ = 0;
  bool swapping_ = false;
  bool answered_ = false;
  double begin_ = 0;
  double took_ = 0;
  uint64_t hit_lease_ = 0;
};

void HitWhileAnotherJobSwaps(benchmark::State& state) {
  Node node;
  for (auto _ : state) {
    std::vector<double> times;
    const uint64_t before = node.swapped_bytes();
    while (times.size() < kHits) times.push_back(node.Hit());
    std::sort(times.begin(), times.end());
    state.counters["p50_us"] = times[times.size() / 2];
    state.counters["p99_us"] = times[times.size() / 100 * 99];
    state.counters["longest_us"] = times.back();
    state.counters["swapped_MB"] = static_cast<double>(node.swapped_bytes() - before) / 1e6;
  }
}
BENCHMARK(HitWhileAnotherJobSwaps)->Iterations(1)->Repetitions(5)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tier::tiering
