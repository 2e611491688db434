// storage_bench: moves bytes between window memory and an SSD file through the whole storage layer, and through fio on
// the same extents, in alternating pairs. Prints the median of the paired ratios, quartiles, and core seconds per GB.
//
//   storage_bench --file /var/tmp/tier.img --size 2048 --pairs 10 --piece 2048 --fio-bs 2048 --fio-depth 8
//
// The file is made when absent and written once before anything is measured (a first write to preallocated space also
// converts it). A write run ends when its bytes are on the device.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>

#include "daemon/base/check.h"
#include "daemon/base/fault_guard.h"
#include "daemon/storage/ssd_tier.h"
#include "proto/mapping.h"

namespace tier::storage {
namespace {

struct BenchOptions {
  std::string file = "/var/tmp/tier-bench.img";
  uint64_t size_mib = 1024;  // Moved in each run.
  uint64_t pairs = 10;
  uint64_t piece_kib = 2048;
  uint64_t memory_mib = 0;  // Cycled through, as fio cycles through its buffers; 0: as much as is moved.
  uint64_t window_mib = 32;
  uint64_t depth = 32;
  uint64_t merge_kib = 4096;
  uint64_t inflight = 1024;
  uint64_t workers = 1;
  uint64_t fio_bs_kib = 2048;
  uint64_t fio_depth = 8;
  uint64_t threads = 0;  // 1: the thread pool instead of io_uring.
  uint64_t fio = 1;      // 0: without fio.
};

struct Figure {
  double gb_per_second = 0;
  double core_seconds_per_gb = 0;
};

struct Window {
  proto::FileDescriptor file;
  proto::Mapping mapping;
  base::GuardedRange guard;
};

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Bench {
 public:
  explicit Bench(const BenchOptions& options)
      : options_(options), workers_(base::Workers::Start(static_cast<unsigned>(options.workers), "bench").value()) {
    SsdTierOptions tier_options;
    tier_options.devices = {{.path = options.file, .size = options.size_mib * kMiB + 64 * kMiB}};
    tier_options.io = options.threads != 0 ? IoChoice::kThreads : IoChoice::kAuto;
    tier_options.io_depth = static_cast<uint32_t>(options.depth);
    tier_options.inflight_max = static_cast<uint32_t>(options.inflight);
    tier_options.merge_bytes_max = static_cast<uint32_t>(options.merge_kib * kKiB);
    auto tier = SsdTier::Open(tier_options, *workers_);
    TIER_CHECK(tier.has_value(), "{}", tier.error().message);
    tier_ = std::move(*tier);
    MakeWindows();
    MakeTransfers();
  }
  ~Bench() {
    for (uint32_t i = 0; i < windows_.size(); ++i) tier_->transfers().RemoveWindow(WindowIndex{i});
  }

  Figure Run(Direction direction) {
    const double wall = WallSeconds();
    const double cpu = CpuSeconds();
    size_t started = 0;
    size_t finished = 0;
    size_t oldest = 0;  // Not finished.
    std::vector<bool> done(transfers_.size());
    std::vector<TransferResult> results;
    results.reserve(options_.inflight);
    while (finished < transfers_.size()) {
      TransferPort& port = tier_->transfers();
      const size_t end = std::min(transfers_.size(), oldest + memory_pieces_);
      for (; started < end && port.inflight() < port.inflight_max(); ++started) {
        transfers_[started].direction = direction;
        port.Start(transfers_[started]);
      }
      port.Submit();
      results.clear();
      port.Poll(&results);
      for (const TransferResult& result : results) {
        TIER_CHECK(result.outcome == TransferOutcome::kDone, "outcome {}", static_cast<int>(result.outcome));
        if (direction == Direction::kWrite) transfers_[result.cookie].crc = result.crc;
        done[result.cookie] = true;
      }
      while (oldest < done.size() && done[oldest]) ++oldest;
      finished += results.size();
      if (!results.empty() || finished == transfers_.size()) continue;
      pollfd wait{.fd = tier_->completion_fd(), .events = POLLIN, .revents = 0};
      ::poll(&wait, 1, -1);
      tier_->ClearWakeup();
    }
    const double gigabytes = static_cast<double>(options_.size_mib * kMiB) / 1e9;
    return {gigabytes / (WallSeconds() - wall), (CpuSeconds() - cpu) / gigabytes};
  }

  std::string Mode() const {
    return fmt::format("{}, {}", tier_->io_mode() == IoMode::kUring ? "io_uring" : "threads",
                       tier_->pinned() ? "pinned" : "unpinned: " + tier_->unpinned_reason());
  }

 private:
  void MakeWindows() {
    const uint64_t window_size = options_.window_mib * kMiB;
    base::InstallFaultGuard();
    for (uint64_t at = 0; at < MemoryBytes(); at += window_size) {
      Window& window = windows_.emplace_back();
      window.file = std::move(*proto::CreateMemoryFile("bench-window", window_size));
      window.mapping = std::move(*proto::Mapping::Map(window.file.get(), 0, window_size, proto::Access::kReadWrite));
      for (uint64_t i = 0; i < window_size; i += 8) {
        const uint64_t word = (at + i) * 0x9e3779b97f4a7c15;
        std::memcpy(window.mapping.data() + i, &word, 8);
      }
      window.guard = base::GuardedRange(window.mapping.data(), window_size);
      tier_->transfers().AddWindow(WindowIndex{static_cast<uint32_t>(windows_.size() - 1)}, window.mapping.data(),
                                   window_size);
    }
  }

  uint64_t MemoryBytes() const { return (options_.memory_mib == 0 ? options_.size_mib : options_.memory_mib) * kMiB; }

  void MakeTransfers() {
    const uint64_t piece = options_.piece_kib * kKiB;
    memory_pieces_ = MemoryBytes() / piece;
    for (uint64_t at = 0; at < options_.size_mib * kMiB; at += piece) {
      const auto extent = tier_->extents().Allocate(static_cast<uint32_t>(piece / kPageSize));
      TIER_CHECK(extent.has_value(), "{}", extent.error().message);
      const uint64_t place = at % MemoryBytes();
      const uint64_t window = place / (options_.window_mib * kMiB);
      transfers_.push_back({.cookie = transfers_.size(),
                            .extent = *extent,
                            .window = WindowIndex{static_cast<uint32_t>(window)},
                            .memory = windows_[window].mapping.data() + place % (options_.window_mib * kMiB),
                            .length = static_cast<uint32_t>(piece)});
    }
  }

  BenchOptions options_;
  std::unique_ptr<base::Workers> workers_;
  std::vector<Window> windows_;
  std::unique_ptr<SsdTier> tier_;
  std::vector<Transfer> transfers_;
  size_t memory_pieces_ = 0;
};

// The number behind the first `"name" : ` after `from`.
double JsonNumber(const std::string& text, const std::string& name, size_t from) {
  const size_t at = text.find("\"" + name + "\" :", from);
  TIER_CHECK(at != std::string::npos, "fio's output lacks {}: {}", name, text);
  return std::strtod(text.c_str() + text.find(':', at) + 1, nullptr);
}

Figure RunFio(const BenchOptions& options, Direction direction) {
  const bool read = direction == Direction::kRead;
  const std::string command = fmt::format(
      "fio --name=ceiling --filename={} --rw={} --bs={}k --iodepth={} --ioengine=io_uring --fixedbufs --registerfiles "
      "--direct=1 --offset=2m --size={}m --mem=mmapshared --fallocate=none --overwrite=1 --allow_file_create=0 "
      "--output-format=json 2>/dev/null",
      options.file, read ? "read" : "write", options.fio_bs_kib, options.fio_depth, options.size_mib);
  std::string output;
  FILE* pipe = ::popen(command.c_str(), "r");
  TIER_CHECK(pipe != nullptr, "{}", command);
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, got);
  TIER_CHECK(::pclose(pipe) == 0, "fio failed: {}", output);
  const size_t section = output.find(read ? "\"read\" : {" : "\"write\" : {");
  const double seconds = JsonNumber(output, "runtime", section) / 1e3;
  const double gigabytes = static_cast<double>(options.size_mib * kMiB) / 1e9;
  const double busy = (JsonNumber(output, "usr_cpu", 0) + JsonNumber(output, "sys_cpu", 0)) / 100;
  return {JsonNumber(output, "bw_bytes", section) / 1e9, busy * seconds / gigabytes};
}

double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

void Compare(const BenchOptions& options, Direction direction, std::unique_ptr<Bench>* bench) {
  std::vector<double> speeds, cores, fio_speeds, fio_cores, ratios;
  for (uint64_t pair = 0; pair < options.pairs; ++pair) {
    const Figure ours = (*bench)->Run(direction);
    speeds.push_back(ours.gb_per_second);
    cores.push_back(ours.core_seconds_per_gb);
    if (options.fio == 0) continue;
    const Figure fio = RunFio(options, direction);
    fio_speeds.push_back(fio.gb_per_second);
    fio_cores.push_back(fio.core_seconds_per_gb);
    ratios.push_back(ours.gb_per_second / fio.gb_per_second);
  }
  fmt::print("{:5}  tierd {:.2f} GB/s ({:.2f} … {:.2f}), {:.3f} core s/GB",
             direction == Direction::kRead ? "read" : "write", Quantile(speeds, 0.5), Quantile(speeds, 0.25),
             Quantile(speeds, 0.75), Quantile(cores, 0.5));
  if (options.fio != 0) {
    fmt::print("   fio {:.2f} GB/s, {:.3f} core s/GB   ratio {:.3f} ({:.3f} … {:.3f})", Quantile(fio_speeds, 0.5),
               Quantile(fio_cores, 0.5), Quantile(ratios, 0.5), Quantile(ratios, 0.25), Quantile(ratios, 0.75));
  }
  fmt::print("\n");
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  BenchOptions options;
  const std::pair<const char*, uint64_t*> numbers[] = {{"--size", &options.size_mib},
                                                       {"--pairs", &options.pairs},
                                                       {"--piece", &options.piece_kib},
                                                       {"--window", &options.window_mib},
                                                       {"--memory", &options.memory_mib},
                                                       {"--depth", &options.depth},
                                                       {"--merge", &options.merge_kib},
                                                       {"--inflight", &options.inflight},
                                                       {"--workers", &options.workers},
                                                       {"--fio-bs", &options.fio_bs_kib},
                                                       {"--fio-depth", &options.fio_depth},
                                                       {"--threads", &options.threads},
                                                       {"--fio", &options.fio}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--file") == 0) options.file = argv[i + 1];
    for (const auto& [name, value] : numbers) {
      if (std::strcmp(argv[i], name) == 0) *value = std::strtoull(argv[i + 1], nullptr, 10);
    }
  }
  auto bench = std::make_unique<Bench>(options);
  (void)bench->Run(Direction::kWrite);  // Converts preallocated space and gives reads something to verify.
  fmt::print("{}; {} MiB a run, pieces of {} KiB, merged to {} KiB, depth {}, {} worker(s)\n", bench->Mode(),
             options.size_mib, options.piece_kib, options.merge_kib, options.depth, options.workers);
  Compare(options, Direction::kRead, &bench);
  Compare(options, Direction::kWrite, &bench);
  return 0;
}

}  // namespace
}  // namespace tier::storage

int main(int argc, char** argv) { return tier::storage::Main(argc, argv); }
