// Swaps that stay in RAM against one memcpy of the same bytes into already-faulted memory; the fused pass against the
// plain one. Arms alternate within each round, so that a slow minute of the machine hits all of them.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "proto/units.h"
#include "tools/bench/client.h"
#include "tools/bench/parts.h"
#include "tools/bench/samples.h"

namespace tier::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kTensor = 1;

std::vector<float> Filled(uint64_t bytes) {
  std::vector<float> data(bytes / sizeof(float));
  uint32_t state = 1;
  for (float& value : data) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(state >> 8) * 1e-7f;
  }
  return data;
}

// The most private memory this process has had, in bytes, sampled at 100 Hz by a thread of its own.
class PrivateMemory {
 public:
  PrivateMemory() : first_(Now()), most_(first_), thread_([this] { Sample(); }) {}
  // What it grew by at its largest. Ends the sampling.
  double Grown() {
    stop_.store(true);
    thread_.join();
    return static_cast<double>(most_ - first_);
  }

 private:
  static int64_t Now() {
    std::ifstream statm("/proc/self/statm");
    int64_t size = 0, resident = 0, shared = 0;
    statm >> size >> resident >> shared;
    return (resident - shared) * static_cast<int64_t>(kPageSize);
  }
  void Sample() {
    for (; !stop_.load(); std::this_thread::sleep_for(std::chrono::milliseconds(10))) most_ = std::max(most_, Now());
  }

  const int64_t first_;
  int64_t most_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

double GigabytesPerSecond(uint64_t bytes, Clock::time_point start) {
  return static_cast<double>(bytes) * 1e-9 / SecondsSince(start);
}

}  // namespace

void SwapInRam(const PartOptions& options) {
  const BenchClient client(options.socket, options.spin);
  const std::vector<float> source = Filled(options.bytes);
  std::vector<float> target = Filled(options.bytes);
  std::vector<float> ceiling = Filled(options.bytes);
  Samples out;
  Samples in;
  Samples copy;
  Samples out_ratio;
  Samples in_ratio;
  client.SwapOut(kTensor, source.data(), options.bytes);  // Windows are made and mapped outside the measurement.
  client.SwapIn(kTensor, target.data(), options.bytes);
  for (uint32_t round = 0; round < options.rounds; ++round) {
    auto start = Clock::now();
    std::memcpy(ceiling.data(), source.data(), options.bytes);
    copy.Add(GigabytesPerSecond(options.bytes, start));
    const double base = GigabytesPerSecond(options.bytes, start);
    start = Clock::now();
    client.SwapOut(kTensor, source.data(), options.bytes);
    out.Add(GigabytesPerSecond(options.bytes, start));
    out_ratio.Add(GigabytesPerSecond(options.bytes, start) / base);
    start = Clock::now();
    client.SwapIn(kTensor, target.data(), options.bytes);
    in.Add(GigabytesPerSecond(options.bytes, start));
    in_ratio.Add(GigabytesPerSecond(options.bytes, start) / base);
  }
  if (std::memcmp(source.data(), target.data(), options.bytes) != 0) Require(TIER_CORRUPT, "swap_in gave other bytes");
  client.Free(kTensor);
  const std::string size = fmt::format("{}MiB", options.bytes >> 20);
  PrintFigure("memcpy_" + size, "GB/s", copy);
  PrintFigure("swap_out_ram_" + size, "GB/s", out);
  PrintFigure("swap_in_ram_" + size, "GB/s", in);
  PrintFigure("swap_out_ram_ratio_" + size, "of memcpy", out_ratio);
  PrintFigure("swap_in_ram_ratio_" + size, "of memcpy", in_ratio);
}

void FusedPass(const PartOptions& options) {
  const BenchClient client(options.socket, options.spin);
  const std::vector<float> source = Filled(options.bytes);
  tier_copy_options plain = TIER_COPY_OPTIONS_INIT;
  plain.memory_type = plain.tensor_type = TIER_FP32;
  tier_copy_options fused = plain;
  fused.check_finite = 1;
  fused.sum_squares = 1;
  client.SwapOut(kTensor, source.data(), options.bytes, &plain);
  PrivateMemory memory_used;
  Samples plain_rate;
  Samples fused_rate;
  Samples ratio;
  for (uint32_t round = 0; round < options.rounds; ++round) {
    auto start = Clock::now();
    client.SwapOut(kTensor, source.data(), options.bytes, &plain);
    const double plain_seconds = SecondsSince(start);
    start = Clock::now();
    client.SwapOut(kTensor, source.data(), options.bytes, &fused);
    const double fused_seconds = SecondsSince(start);
    plain_rate.Add(static_cast<double>(options.bytes) * 1e-9 / plain_seconds);
    fused_rate.Add(static_cast<double>(options.bytes) * 1e-9 / fused_seconds);
    ratio.Add(fused_seconds / plain_seconds);
  }
  client.Free(kTensor);
  Samples memory;
  memory.Add(memory_used.Grown());
  PrintFigure("copy_check_norm_memory", "B", memory);
  PrintFigure("copy_plain", "GB/s", plain_rate);
  PrintFigure("copy_check_norm", "GB/s", fused_rate);
  PrintFigure("copy_check_norm_ratio", "of the copy's time", ratio);
}

}  // namespace tier::bench
