// pool_churn: the pool beside classical allocators, and the engine, each on the same trace (`tools/dev churn`). Prints
// what each refuses although it has as many free bytes, and how much it holds for what lives. Exit status 1: the pool
// or the engine broke a promise.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "daemon/base/format_bytes.h"
#include "proto/units.h"
#include "tests/perf/churn/allocator.h"
#include "tests/perf/churn/best_fit.h"
#include "tests/perf/churn/buddy.h"
#include "tests/perf/churn/engine_run.h"
#include "tests/perf/churn/pool.h"
#include "tests/perf/churn/segregated_fit.h"
#include "tests/perf/churn/trace.h"

namespace tier::churn {
namespace {

constexpr double kHeldMax = 1.01;      // Of what lives, at the peak.
constexpr double kArenaNarrow = 1.01;  // Of the peak: the pool needs no more than it may hold.
// The same of the engine, where each of five jobs is promised three sixteenths of the arena (a sixteenth is promised to
// none), and may fill the SSD devices except a sixteenth of what the others leave. The narrower one is for jobs that
// have a fifth of the peak at most: what they hold together is then what lives, and none keeps windows that it used
// before and that no other job has asked for.
constexpr double kArenaOfEngine = 1.18;
constexpr double kArenaOfFifths = 1.07;
constexpr double kSsdOfEngine = 1.05;

struct Outcome {
  uint64_t created = 0;
  uint64_t refused = 0;
  uint64_t refused_with_room = 0;  // … while as many bytes were held by nobody.
  uint64_t bytes_with_room = 0;
  // Of what lives, at worst: while that is at least 0.99 of the peak, and while it is at least half of it.
  double held_at_peak = 0;
  double held_below = 0;
  double nanoseconds = 0;  // For each event.
};

void NoteHeld(const Allocator& allocator, uint64_t live_pages, uint64_t peak_pages, Outcome* outcome) {
  if (2 * live_pages < peak_pages) return;
  const double held = static_cast<double>(allocator.held_pages()) / static_cast<double>(live_pages);
  outcome->held_below = std::max(outcome->held_below, held);
  if (100 * live_pages >= 99 * peak_pages) outcome->held_at_peak = std::max(outcome->held_at_peak, held);
}

Outcome Run(Allocator& allocator, const TraceOptions& options) {
  struct Tensor {
    Place place;
    uint64_t pages = 0;
  };
  Outcome outcome;
  Trace trace(options);
  std::unordered_map<uint64_t, Tensor> live;
  uint64_t live_pages = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (Event event; trace.Next(&event);) {
    if (event.bytes == 0) {
      const auto found = live.find(event.tensor);
      if (found == live.end()) continue;  // It was refused.
      allocator.Free(found->second.place);
      live_pages -= found->second.pages;
      live.erase(found);
      continue;
    }
    ++outcome.created;
    Tensor tensor{.place = {}, .pages = PagesFor(event.bytes)};
    if (allocator.TryAllocate(tensor.pages, &tensor.place)) {
      live_pages += tensor.pages;
      live.emplace(event.tensor, std::move(tensor));
      NoteHeld(allocator, live_pages, options.peak_bytes / kPageSize, &outcome);
      continue;
    }
    ++outcome.refused;
    if (allocator.arena_pages() - allocator.held_pages() < tensor.pages) continue;
    ++outcome.refused_with_room;
    outcome.bytes_with_room += event.bytes;
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  outcome.nanoseconds = took.count() / static_cast<double>(options.events);
  return outcome;
}

std::string InWords(double held) { return held == 0 ? "never there" : fmt::format("{:.4f}", held); }

struct Arm {
  std::function<std::unique_ptr<Allocator>(uint64_t)> make;
  double arena = 0;  // Of the peak.
  bool promises = false;
};

struct EngineArm {
  std::string_view name;
  double arena = 0;  // Of the peak.
  double ssd = 0;    // The same; 0: none.
  uint32_t job_percent = TraceOptions{}.job_percent;
  uint32_t page_size = kPageSize;
};

constexpr EngineArm kEngineArms[] = {{"engine, RAM alone", 1.25, 0},
                                     {"engine, RAM alone", kArenaOfEngine, 0},
                                     {"engine, RAM, 5 × 20 %", kArenaOfFifths, 0, 20},
                                     {"engine, huge pages", kArenaOfEngine, 0, TraceOptions{}.job_percent, kBlockSize},
                                     {"engine, RAM and SSD", 0.5, kSsdOfEngine}};

// Whether the engine kept its promises.
bool RunEngineArm(TraceOptions options, const EngineArm& arm) {
  options.job_percent = arm.job_percent;
  const auto peak = static_cast<double>(options.peak_bytes);
  EngineRunOptions run{.arena_bytes = static_cast<uint64_t>(arm.arena * peak) / kBlockSize * kBlockSize,
                       .page_size = arm.page_size,
                       .devices = {}};
  if (arm.ssd != 0) run.devices.assign(2, static_cast<uint32_t>(arm.ssd * peak / 2 / kBlockSize));
  const EngineOutcome outcome = RunEngine(options, run);
  const std::string refused = fmt::format("{} ({})", outcome.refused, base::FormatBytes(outcome.refused_bytes));
  fmt::print("  {:<24} {:>5.3f} × {:>9} {:>22} {:>13} {:>15} {:>9.0f}\n", arm.name, arm.arena, outcome.refused, refused,
             InWords(outcome.used_at_peak), InWords(outcome.used_below), outcome.nanoseconds);
  fmt::print(
      "    windows {} at the peak, of one job {}; {} tensors read, {} not readable; "
      "{} evicted, {} read from SSD, {} moved\n",
      InWords(outcome.windows_at_peak), InWords(outcome.windows_of_job), outcome.read, outcome.unreadable,
      base::FormatBytes(outcome.evicted_bytes), base::FormatBytes(outcome.read_bytes),
      base::FormatBytes(outcome.moved_bytes));
  if (outcome.refused != 0) fmt::print("    the first refusal: {}\n", outcome.refusal);
  std::fflush(stdout);
  // Held is whole windows, of each job at its own peak: it keeps what it needed once until others ask for it. All jobs
  // together have that peak at one time only where each has a fifth.
  const bool of_all = arm.arena > kArenaOfFifths || outcome.windows_at_peak <= kHeldMax;
  // Where jobs become so large, one must have been measured.
  const bool any_large = options.peak_bytes / 100 * options.job_percent > kJobMin * 21 / 20;
  const bool of_job = outcome.windows_of_job <= kHeldMax && (outcome.windows_of_job != 0 || !any_large);
  return outcome.refused == 0 && outcome.unreadable == 0 && outcome.used_at_peak <= kHeldMax && of_all && of_job;
}

// Whether the pool kept its promises.
bool RunTrace(const TraceOptions& options, double arena) {
  fmt::print("seed {}: {} events of {} jobs{}, at most {} live\n", options.seed, options.events, options.jobs,
             options.odd_sizes ? ", every other one with sizes that fill no block" : "",
             base::FormatBytes(options.peak_bytes));
  fmt::print("  {:<24} {:>7} {:>9} {:>22} {:>13} {:>15} {:>9}\n", "allocator", "arena", "refused", "of them with room",
             "held at peak", "from half of it", "ns/event");
  const std::vector<Arm> arms = {
      {MakeBestFit, arena},
      {MakeBuddy, arena},
      {MakeSegregatedFit, arena},
      {[](uint64_t pages) { return MakePool(pages, /*tails=*/false); }, arena},
      {[](uint64_t pages) { return MakePool(pages, /*tails=*/true); }, arena, true},
      {[](uint64_t pages) { return MakePool(pages, /*tails=*/true); }, kArenaNarrow, true},
  };
  bool kept = true;
  for (const Arm& arm : arms) {
    const auto blocks = static_cast<uint64_t>(arm.arena * static_cast<double>(options.peak_bytes / kBlockSize));
    const std::unique_ptr<Allocator> allocator = arm.make((blocks + 1) * kPagesPerBlock);
    const Outcome outcome = Run(*allocator, options);
    const std::string room =
        fmt::format("{} ({})", outcome.refused_with_room, base::FormatBytes(outcome.bytes_with_room));
    fmt::print("  {:<24} {:>5.3f} × {:>9} {:>22} {:>13} {:>15} {:>9.0f}\n", allocator->name(), arm.arena,
               outcome.refused, room, InWords(outcome.held_at_peak), InWords(outcome.held_below), outcome.nanoseconds);
    std::fflush(stdout);
    // Holes that odd sizes leave are packed by moves, which only the engine makes.
    const bool packed = outcome.refused == 0 && outcome.held_at_peak <= kHeldMax;
    if (arm.promises) kept &= outcome.refused_with_room == 0 && (options.odd_sizes || packed);
  }
  for (const EngineArm& arm : kEngineArms) kept &= RunEngineArm(options, arm);
  return kept;
}

int Main(int argc, char** argv) {
  CLI::App app{"The pool beside best fit, buddy and TLSF on one trace of creations and frees.", "pool_churn"};
  TraceOptions options;
  uint64_t peak_gib = 512;
  double minutes = 0;
  double arena = 1.25;
  app.add_option("--seed", options.seed, "of the trace; with --minutes, of the first one")->capture_default_str();
  app.add_option("--events", options.events, "creations and frees of a trace")
      ->check(CLI::Range(1'000, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--peak", peak_gib, "GiB that live at most")->check(CLI::Range(16, 8192))->capture_default_str();
  app.add_option("--arena", arena, "of all but the last allocator, as a multiple of the peak")
      ->check(CLI::Range(1.0, 8.0))
      ->capture_default_str();
  app.add_option("--minutes", minutes, "go on with the next seeds for so long")
      ->check(CLI::Range(0.0, 10'000.0))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  options.peak_bytes = peak_gib * kGiB;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(60 * minutes);
  bool kept = true;
  do {
    for (const bool odd_sizes : {false, true}) {
      options.odd_sizes = odd_sizes;
      kept &= RunTrace(options, arena);
    }
    ++options.seed;
  } while (std::chrono::steady_clock::now() < end);
  if (!kept) fmt::print("the pool refused a tensor, or held more than {} of what lives at the peak\n", kHeldMax);
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace tier::churn

int main(int argc, char** argv) { return tier::churn::Main(argc, argv); }
