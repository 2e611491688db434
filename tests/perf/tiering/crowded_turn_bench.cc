// How long one turn of the engine can take beside a crowd of one user: hundreds of sessions that wait for one tensor,
// die while they wait, or update the same tensors. In CPU time of the engine's thread, over ports that cost nothing.
#include <benchmark/benchmark.h>

#include <malloc.h>

#include <ctime>

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/tiering/engine.h"
#include "tests/support/tiering/fake_windows.h"
#include "tests/support/tiering/null_ports.h"

namespace tier::tiering {
namespace {

using proto::Op;
using proto::RequestItem;

constexpr uint64_t kSessions = 500;
constexpr uint64_t kWaiting = 998;  // Requests of each.
constexpr uint64_t kTensors = 300;
constexpr JobId kJob{1};
const int kAsTheDaemon = ::mallopt(M_MXFAST, 0);

class Answers final : public ReplySink {
 public:
  void OnReply(SessionId session, const Reply& reply) override {
    ++count;
    failures += reply.code != Code::kOk ? 1 : 0;
    std::vector<uint64_t>& own = leases[static_cast<uint64_t>(session)];
    for (const proto::SpanRecord& span : reply.spans) {
      if (own.empty() || own.back() != span.lease) own.push_back(span.lease);
    }
  }
  void OnWindow(SessionId, const memory::WindowShape&) override {}
  void OnWindowReturn(SessionId, WindowIndex) override {}
  void OnSessionEnded(SessionId, Code, const std::string&) override {}
  void OnJobOpened(JobId, const Status&) override {}
  uint64_t count = 0;
  uint64_t failures = 0;
  std::unordered_map<uint64_t, std::vector<uint64_t>> leases;  // By session.
};

double CpuMicroseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

class Crowd {
 public:
  Crowd() {
    extents_.AddDevice(256);
    engine_ = std::make_unique<Engine>(EngineOptions{}, EnginePorts{windows_, extents_, transfers_, nullptr, answers_});
    failed_ = kAsTheDaemon != 1 || !engine_->OpenJob(kJob, {});
    for (uint64_t id = 1; id <= kSessions + 1; ++id) failed_ |= !engine_->OpenSession(SessionId{id}, kJob);
  }

  bool failed() const { return failed_ || answers_.failures != 0; }
  std::string Failure() const {
    return std::to_string(answers_.failures) + " failures of " + std::to_string(answers_.count);
  }

  // Readers of a tensor that the last session writes.
  void StartWaiting() {
    const RequestItem create{1, 0, 4096, 4096};
    const uint64_t writer = kSessions + 1;
    Send(writer, Op::kCreate, {&create, 1}, 0);
    Idle();
    Release(writer);
    const RequestItem item{1, 0, 0, 0};
    Send(writer, Op::kAcquire, {&item, 1}, proto::kFlagWrite);
    Idle();
    for (uint64_t i = 0; i < kWaiting; ++i) {
      for (uint64_t session = 1; session <= kSessions; ++session) Send(session, Op::kAcquire, {&item, 1}, 0);
      Turn();
    }
    Idle();
    failed_ |= answers_.count != 3;
  }
  double Wake() {
    longest_ = 0;
    Timed([&] { Release(kSessions + 1); });
    Idle();
    failed_ |= answers_.count != 4 + kSessions * kWaiting;
    return longest_;
  }
  // Each seals the last page of every tensor, and none the rest.
  void Update() {
    for (uint64_t tensor = 1; tensor <= kTensors; ++tensor) {
      const RequestItem create{tensor, 0, kBlockSize + kPageSize, kBlockSize + kPageSize};
      Send(1, Op::kCreate, {&create, 1}, 0);
      Idle();
      Release(1);
    }
    for (uint64_t session = 1; session <= kSessions; ++session) {
      for (uint64_t tensor = 1; tensor <= kTensors; ++tensor) {
        const RequestItem page{tensor, kBlockSize, kPageSize, 0};
        Send(session, Op::kAcquire, {&page, 1}, proto::kFlagWrite);
      }
      Idle();
      Release(session);
      Idle();
    }
  }
  double Free() {
    longest_ = 0;
    std::vector<RequestItem> items;
    for (uint64_t tensor = 1; tensor <= kTensors; ++tensor) items.push_back({tensor, 0, 0, 0});
    Timed([&] { Send(kSessions + 1, Op::kFree, items, 0); });
    Idle();
    return longest_;
  }
  // All but one session end in one moment.
  double Die() {
    longest_ = 0;
    for (uint64_t session = 1; session <= kSessions; ++session) {
      Timed([&] { engine_->EndSession(SessionId{session}, Code::kDisconnected, "killed", std::nullopt); });
    }
    Idle();
    failed_ |= engine_->Snapshot().session_count != 1;
    return longest_;
  }

 private:
  void Send(uint64_t session, Op op, std::span<const RequestItem> items, uint32_t flags) {
    engine_->Submit(
        SessionId{session},
        {.sequence = ++sequence_, .op = op, .flags = proto::kFlagShared | flags, .items = items, .text = {}});
  }
  void Release(uint64_t session) {
    std::vector<RequestItem> items;
    for (const uint64_t lease : answers_.leases[session]) items.push_back({0, 0, 0, lease});
    answers_.leases[session].clear();
    Send(session, Op::kRelease, items, 0);
  }
  bool Turn() { return engine_->Turn(now_ = now_ + std::chrono::nanoseconds(100)); }
  template <typename Work>
  void Timed(Work work) {
    const double begin = CpuMicroseconds();
    work();
    Turn();
    longest_ = std::max(longest_, CpuMicroseconds() - begin);
  }
  void Idle() {
    for (bool happened = true; happened;) {
      const double begin = CpuMicroseconds();
      happened = Turn();
      longest_ = std::max(longest_, CpuMicroseconds() - begin);
    }
  }

  memory::testing::FakeWindowSource windows_{
      {.window_size = 64 * kMiB, .arena_max_bytes = 2 * kGiB, .windows_max = 64, .without_memory = true}};
  storage::ExtentStore extents_;
  testing::InstantTransfers transfers_;
  Answers answers_;
  std::unique_ptr<Engine> engine_;
  base::TimePoint now_;
  uint64_t sequence_ = 0;
  double longest_ = 0;  // CPU microseconds of a turn, in what is measured now.
  bool failed_ = false;
};

// Whatever else the machine does can only make a turn longer: of each kind the shortest of some rounds.
template <typename Prepare, typename Measure>
void Longest(benchmark::State& state, Prepare prepare, Measure measure) {
  constexpr int kRounds = 3;
  double least = 0;
  for (auto _ : state) {
    for (int round = 0; round < kRounds; ++round) {
      Crowd crowd;
      prepare(crowd);
      const double longest = measure(crowd);
      least = round == 0 ? longest : std::min(least, longest);
      if (crowd.failed()) state.SkipWithError(crowd.Failure().c_str());
    }
  }
  state.counters["longest_us"] = least;
}

void WaitingAreWoken(benchmark::State& state) {
  Longest(state, [](Crowd& crowd) { crowd.StartWaiting(); }, [](Crowd& crowd) { return crowd.Wake(); });
}
void WaitingDie(benchmark::State& state) {
  Longest(state, [](Crowd& crowd) { crowd.StartWaiting(); }, [](Crowd& crowd) { return crowd.Die(); });
}
void UpdatedIsFreed(benchmark::State& state) {
  Longest(state, [](Crowd& crowd) { crowd.Update(); }, [](Crowd& crowd) { return crowd.Free(); });
}
void UpdatersDie(benchmark::State& state) {
  Longest(state, [](Crowd& crowd) { crowd.Update(); }, [](Crowd& crowd) { return crowd.Die(); });
}
BENCHMARK(WaitingAreWoken)->Iterations(1)->Unit(benchmark::kSecond);
BENCHMARK(WaitingDie)->Iterations(1)->Unit(benchmark::kSecond);
BENCHMARK(UpdatedIsFreed)->Iterations(1)->Unit(benchmark::kSecond);
BENCHMARK(UpdatersDie)->Iterations(1)->Unit(benchmark::kSecond);

}  // namespace
}  // namespace tier::tiering
