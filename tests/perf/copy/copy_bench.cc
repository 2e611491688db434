// Benchmarks of the copy kernels as paired ratios: see README.md beside this file.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "libclient/copy/fused_copy.h"

namespace tier::copy {
namespace {

constexpr size_t kMemoryMax = size_t{1} << 30;
constexpr int kPairsMin = 11;

struct Memory {
  std::byte* source = nullptr;
  std::byte* target = nullptr;
};

// Faulted in once; fp32 numbers of ordinary size in the source.
Memory& SharedMemory() {
  static Memory memory = [] {
    const int fd = memfd_create("copy_bench", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, kMemoryMax) != 0) std::abort();
    void* const target = mmap(nullptr, kMemoryMax, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    void* const source =
        mmap(nullptr, kMemoryMax, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    close(fd);
    if (target == MAP_FAILED || source == MAP_FAILED) std::abort();
    auto* const values = static_cast<float*>(source);
    for (size_t i = 0; i < kMemoryMax / sizeof(float); ++i) values[i] = static_cast<float>(i % 8191) * 0.001f - 4.0f;
    return Memory{static_cast<std::byte*>(source), static_cast<std::byte*>(target)};
  }();
  return memory;
}

using Work = std::function<void()>;

double ThreadSeconds() {  // Time this thread was running: a preempted copy is not a slow one.
  timespec now{};
  (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);  // Cannot fail for the calling thread.
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double Seconds(const Work& work) {
  const double start = ThreadSeconds();
  work();
  return ThreadSeconds() - start;
}

double Quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

// Small copies are repeated, over fresh memory each time, so that one measurement lasts about a millisecond.
Work Repeat(size_t bytes, const std::function<void(size_t offset)>& copy) {
  const size_t times = std::max<size_t>(1, (size_t{16} << 20) / bytes);
  return [=] {
    for (size_t i = 0; i < times; ++i) copy(i * bytes);
  };
}

void Compare(benchmark::State& state, size_t bytes, const Work& candidate, const Work& reference) {
  std::vector<double> ratios, candidate_times, reference_times;
  candidate();
  reference();
  bool candidate_first = false;
  for (auto _ : state) {
    candidate_first = !candidate_first;
    double mine = 0;
    if (candidate_first) mine = Seconds(candidate);
    const double other = Seconds(reference);
    if (!candidate_first) mine = Seconds(candidate);
    state.SetIterationTime(mine);
    ratios.push_back(mine / other);
    candidate_times.push_back(mine);
    reference_times.push_back(other);
  }
  const double moved = static_cast<double>(std::max<size_t>(1, (size_t{16} << 20) / bytes) * bytes) / 1e9;
  state.counters["ratio"] = Quantile(ratios, 0.5);
  state.counters["ratio_q1"] = Quantile(ratios, 0.25);
  state.counters["ratio_q3"] = Quantile(ratios, 0.75);
  state.counters["GBps"] = moved / Quantile(candidate_times, 0.5);
  state.counters["reference_GBps"] = moved / Quantile(reference_times, 0.5);
}

void AddComparison(const std::string& name, size_t bytes, const std::function<void(size_t)>& candidate,
                   const std::function<void(size_t)>& reference) {
  const int pairs = bytes >= (size_t{512} << 20) ? kPairsMin : 5 * kPairsMin;
  benchmark::RegisterBenchmark(
      (name + "/" + std::to_string(bytes >> 10) + "KiB").c_str(),
      [=](benchmark::State& state) { Compare(state, bytes, Repeat(bytes, candidate), Repeat(bytes, reference)); })
      ->UseManualTime()
      ->Iterations(pairs)
      ->Unit(benchmark::kMillisecond);
}

void AddPlain(size_t bytes) {
  const Memory memory = SharedMemory();
  AddComparison(
      "plain", bytes, [=](size_t at) { (void)FusedCopy(memory.target + at, memory.source + at, bytes, {}); },
      [=](size_t at) { std::memcpy(memory.target + at, memory.source + at, bytes); });
}

void AddFused(size_t bytes, const CopyVariant& variant, ElementType type) {
  const Memory memory = SharedMemory();
  const size_t elements = bytes / ElementSize(type);
  const bool streaming = bytes >= StreamingThresholdBytes();
  const CopyPlan fused = {type, type, true, true};
  AddComparison(
      "check_sum/" + std::string(variant.name) + (type == ElementType::kFp32 ? "/fp32" : "/bf16"), bytes,
      [=](size_t at) {
        benchmark::DoNotOptimize(variant.copy(memory.target + at, memory.source + at, elements, fused, streaming));
      },
      [=](size_t at) { (void)FusedCopy(memory.target + at, memory.source + at, bytes, {}); });
}

void AddCast(size_t bytes, ElementType source, ElementType target, const char* name) {
  const Memory memory = SharedMemory();
  const size_t elements = bytes / 4;
  AddComparison(
      name, bytes,
      [=](size_t at) {
        (void)FusedCopy(memory.target + at, memory.source + at, elements, {source, target, true, true});
      },
      [=](size_t at) { (void)FusedCopy(memory.target + at, memory.source + at, bytes, {}); });
}

void AddStreaming(size_t bytes, const CopyVariant& variant, const CopyPlan& plan, const char* name) {
  const Memory memory = SharedMemory();
  const size_t elements = bytes / ElementSize(plan.source_type);
  AddComparison(
      std::string("streaming/") + name, bytes,
      [=](size_t at) { variant.copy(memory.target + at, memory.source + at, elements, plan, true); },
      [=](size_t at) { variant.copy(memory.target + at, memory.source + at, elements, plan, false); });
}

void AddAll() {
  constexpr size_t kMiB = size_t{1} << 20;
  constexpr auto kFp32 = ElementType::kFp32;
  for (const size_t bytes : {kMiB / 4, kMiB, 4 * kMiB, 64 * kMiB, 256 * kMiB, 1024 * kMiB}) AddPlain(bytes);
  for (const CopyVariant& variant : CopyVariants()) {
    if (!variant.runnable || variant.name == "scalar") continue;
    for (const size_t bytes : {64 * kMiB, 256 * kMiB}) {
      AddFused(bytes, variant, kFp32);
      AddFused(bytes, variant, ElementType::kBf16);
    }
  }
  AddFused(1024 * kMiB, ChosenVariant(), kFp32);
  AddCast(256 * kMiB, kFp32, ElementType::kBf16, "cast/fp32_to_bf16");
  AddCast(256 * kMiB, kFp32, ElementType::kFp16, "cast/fp32_to_fp16");
  AddCast(256 * kMiB, ElementType::kBf16, kFp32, "cast/bf16_to_fp32");
  AddCast(256 * kMiB, ElementType::kFp16, kFp32, "cast/fp16_to_fp32");
  for (const size_t bytes : {kMiB / 4, kMiB, 2 * kMiB, 4 * kMiB, 8 * kMiB, 16 * kMiB, 64 * kMiB, 256 * kMiB}) {
    AddStreaming(bytes, ChosenVariant(), {}, "bytes");
    AddStreaming(bytes, ChosenVariant(), {kFp32, kFp32, true, true}, "check_sum");
  }
}

}  // namespace
}  // namespace tier::copy

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  std::printf("kernels: %s\n", std::string(tier::copy::ChosenVariant().name).c_str());
  tier::copy::AddAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
