// How long one turn of the engine can take, over ports that cost nothing: the longest turns in the life of a job of
// 1 TiB, in CPU time of the engine's thread. What is submitted between two turns counts to the next one.
#include <benchmark/benchmark.h>

#include <ctime>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/storage/manifest_store.h"
#include "daemon/tiering/engine.h"
#include "tests/support/tiering/fake_windows.h"
#include "tests/support/tiering/null_ports.h"

namespace tier::tiering {
namespace {

using proto::Op;
using proto::RequestItem;

constexpr uint64_t kJobBytes = 1024 * kGiB;
constexpr uint64_t kRange = 64 * kBlockSize;  // Created at once.
const JobOptions kJob{.key = "0/large", .named = true};

class Answers final : public ReplySink {
 public:
  void OnReply(SessionId, const Reply& reply) override {
    code = reply.code;
    ++count;
    if (!reply.spans.empty()) lease = reply.spans.front().lease;
  }
  void OnWindow(SessionId, const memory::WindowShape&) override {}
  void OnWindowReturn(SessionId, WindowIndex) override {}
  void OnSessionEnded(SessionId, Code, const std::string&) override {}
  void OnJobOpened(JobId, const Status& status) override { opened = status.has_value(); }
  Code code = Code::kOk;
  uint64_t count = 0;
  uint64_t lease = 0;
  bool opened = false;  // The job that is resumed.
};

// Keeps one manifest, and gives it away when it is loaded: what the daemon's store copies, its own thread does.
class InstantManifests final : public storage::ManifestStore {
 public:
  void StartPut(uint64_t cookie, std::string, std::vector<std::byte> manifest, std::vector<std::byte>) override {
    manifest_ = std::move(manifest);
    results_.push_back({.cookie = cookie});
  }
  void StartErase(uint64_t cookie, std::string) override { results_.push_back({.cookie = cookie}); }
  void StartLoad(uint64_t cookie, std::string) override {
    results_.push_back({.cookie = cookie, .manifest = std::move(manifest_)});
  }
  void StartPurge(uint64_t cookie, std::string) override { results_.push_back({.cookie = cookie}); }
  void Discard(std::shared_ptr<void> memory) override { discarded_.push_back(std::move(memory)); }
  void Poll(std::vector<storage::ManifestResult>* results) override {
    std::ranges::move(results_, std::back_inserter(*results));
    results_.clear();
  }
  Result<std::vector<std::byte>> Load(std::string_view) const override { return manifest_; }
  Result<std::vector<std::byte>> LoadExtents(std::string_view) const override { return std::vector<std::byte>{}; }
  Result<std::vector<std::string>> Jobs() const override { return std::vector<std::string>{}; }
  void StartQuarantine(uint16_t, std::vector<base::PageRun>) override {}
  std::vector<base::PageRun> Quarantined(uint16_t) const override { return {}; }
  std::string failure() const override { return {}; }

 private:
  std::vector<std::shared_ptr<void>> discarded_;
  std::vector<std::byte> manifest_;
  std::vector<storage::ManifestResult> results_;
};

double CpuMicroseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

constexpr memory::testing::FakeWindowOptions kFewWindows{
    .window_size = 64 * kMiB, .arena_max_bytes = 2 * kGiB, .windows_max = 64, .without_memory = true};
// As many as a node may have, in 2 MiB each: a job has fifteen sixteenths of them.
constexpr memory::testing::FakeWindowOptions kManyWindows{
    .window_size = kBlockSize, .arena_max_bytes = 8000 * kBlockSize, .windows_max = 8000, .without_memory = true};

// Tensors of that size, all of the job together 1 TiB, on SSD.
class Job {
 public:
  Job(uint64_t tensor_bytes, const memory::testing::FakeWindowOptions& windows)
      : windows_(windows), tensor_bytes_(tensor_bytes), tensors_(kJobBytes / tensor_bytes) {
    extents_.AddDevice(static_cast<uint32_t>(kJobBytes / kBlockSize / 15 * 16 + 4096));  // One job has no more of it.
    EngineOptions options;
    options.tensors_per_job_max = 1u << 24;
    engine_ = std::make_unique<Engine>(options, EnginePorts{windows_, extents_, transfers_, &manifests_, answers_});
    Open(kJob);
  }

  bool failed() const { return failed_; }
  uint64_t work_max() const { return engine_->Snapshot().turn_work_max; }  // Units that a turn has spent.
  double Create() {
    longest_ = 0;
    for (uint64_t id = 1; id <= tensors_; ++id) {
      for (uint64_t at = 0; at < tensor_bytes_; at += kRange) Put(id, at);
    }
    return longest_;
  }
  double List() {
    longest_ = 0;
    uint32_t from = 0;
    size_t listed = 0;
    do {
      const double begin = CpuMicroseconds();
      const TensorPage page = engine_->Tensors(JobId{1}, from, SIZE_MAX);
      longest_ = std::max(longest_, CpuMicroseconds() - begin);
      listed += page.tensors.size();
      from = page.next;
    } while (from != 0);
    failed_ |= listed != tensors_;
    return longest_;
  }
  double Persist() {
    longest_ = 0;
    Ask(Op::kPersist, {});
    Idle();
    return longest_;
  }
  double Close() {
    longest_ = 0;
    Timed([&] { engine_->EndSession(SessionId{session_}, Code::kOk, "its process ended", std::nullopt); });
    Timed([&] { engine_->CloseJob(JobId{1}, "closed", false); });
    Idle();
    return longest_;
  }
  double Resume() {
    longest_ = 0;
    JobOptions resume = kJob;
    resume.resume = true;
    Timed([&] { failed_ |= !engine_->OpenJob(JobId{1}, resume); });
    while (!answers_.opened) Turn();
    Idle();
    failed_ |= engine_->Counters(JobId{1}).tensor_count != tensors_;
    return longest_;
  }

 private:
  void Open(const JobOptions& options) {
    failed_ |= !engine_->OpenJob(JobId{1}, options) || !engine_->OpenSession(SessionId{++session_}, JobId{1});
  }
  template <typename Work>
  void Timed(Work work) {
    const double begin = CpuMicroseconds();
    work();
    engine_->Turn(now_ = now_ + std::chrono::microseconds(1));
    longest_ = std::max(longest_, CpuMicroseconds() - begin);
  }
  bool Turn() {
    bool happened = false;
    const double begin = CpuMicroseconds();
    happened = engine_->Turn(now_ = now_ + std::chrono::microseconds(1));
    longest_ = std::max(longest_, CpuMicroseconds() - begin);
    return happened;
  }
  void Idle() {
    while (Turn()) {
    }
  }
  void Ask(Op op, std::span<const RequestItem> items, uint32_t flags = 0) {
    const uint64_t before = answers_.count;
    Timed([&] {
      engine_->Submit(
          SessionId{session_},
          {.sequence = ++sequence_, .op = op, .flags = proto::kFlagShared | flags, .items = items, .text = {}});
    });
    while (answers_.count == before) Turn();
    failed_ |= answers_.code != Code::kOk;
  }
  void Put(uint64_t id, uint64_t at) {
    const RequestItem range{id, at, std::min(kRange, tensor_bytes_ - at), at == 0 ? tensor_bytes_ : 0};
    Ask(at == 0 ? Op::kCreate : Op::kAcquire, {&range, 1}, at == 0 ? 0 : proto::kFlagWrite);
    const RequestItem lease{0, 0, 0, answers_.lease};
    Ask(Op::kRelease, {&lease, 1});
  }

  memory::testing::FakeWindowSource windows_;
  storage::ExtentStore extents_;
  InstantManifests manifests_;
  testing::InstantTransfers transfers_;
  Answers answers_;
  std::unique_ptr<Engine> engine_;
  const uint64_t tensor_bytes_;
  const uint64_t tensors_;
  uint64_t session_ = 1;
  uint64_t sequence_ = 0;
  base::TimePoint now_;
  double longest_ = 0;  // CPU microseconds of a turn, in what is measured now.
  bool failed_ = false;
};

// Whatever else the machine does can only make a turn longer: of each kind the shortest of some rounds.
void LongestTurn(benchmark::State& state) {
  constexpr int kRounds = 5;
  constexpr std::array<const char*, 5> kKinds = {"create_us", "list_us", "persist_us", "close_us", "resume_us"};
  for (auto _ : state) {
    for (int round = 0; round < kRounds; ++round) {
      Job job(static_cast<uint64_t>(state.range(0)) * kMiB, state.range(1) == 0 ? kFewWindows : kManyWindows);
      const std::array<double, 5> longest = {job.Create(), job.List(), job.Persist(), job.Close(), job.Resume()};
      for (size_t kind = 0; kind < kKinds.size(); ++kind) {
        benchmark::Counter& counter = state.counters[kKinds[kind]];
        counter.value = round == 0 ? longest[kind] : std::min(counter.value, longest[kind]);
      }
      benchmark::Counter& units = state.counters["work_units"];
      units.value = std::max(units.value, static_cast<double>(job.work_max()));
      if (job.failed()) state.SkipWithError("refused");
    }
  }
}
// One tensor of all of it; such as large models have; many small ones. Then the second in many windows.
BENCHMARK(LongestTurn)
    ->ArgNames({"tensor_MiB", "many_windows"})
    ->Args({1 << 20, 0})
    ->Args({1024, 0})
    ->Args({8, 0})
    ->Args({1024, 1})
    ->Iterations(1)
    ->Unit(benchmark::kSecond);

}  // namespace
}  // namespace tier::tiering
