#include "tests/perf/churn/engine_run.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "tests/perf/churn/marked_transfers.h"
#include "tests/perf/held/node.h"

namespace tier::churn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr base::Duration kEventTime = std::chrono::milliseconds(1);
constexpr uint32_t kEventsForFigures = 50;

class EngineRun {
 public:
  EngineRun(const TraceOptions& trace, const EngineRunOptions& options)
      : trace_options_(trace),
        options_(options),
        trace_(trace),
        random_(trace.seed),
        transfers_(options.devices),
        node_(
            {.arena_bytes = options.arena_bytes, .devices = options.devices, .transfers = &transfers_, .moves = true}) {
  }

  EngineOutcome Run() {
    const auto begin = Clock::now();
    Clock::duration checks{};
    uint64_t events = 0;
    for (Event event; trace_.Next(&event); ++events) {
      Do(event);
      node_.Pass(kEventTime);
      if (events % options_.events_for_a_read == 0) ReadOne();
      if (events % kEventsForFigures == 0) NoteFigures();
      if (events % options_.events_for_a_check != 0) continue;
      const auto check = Clock::now();
      node_.CheckInvariants();
      checks += Clock::now() - check;
    }
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin - checks;
    outcome_.nanoseconds = took.count() / static_cast<double>(events);
    for (const Tensor& tensor : live_) Read(tensor);
    node_.Settle();
    node_.CheckInvariants();
    NoteTotals();
    return outcome_;
  }

 private:
  struct Tensor {
    uint64_t number = 0;
    uint64_t bytes = 0;
    uint32_t job = 0;
  };

  void Do(const Event& event) {
    if (event.bytes == 0) {
      Free(event);
    } else {
      Create(event);
    }
    if (!event.ends_job) return;
    node_.EndJob(IdOf(event.job));
    jobs_.erase(std::ranges::find(jobs_, event.job));
  }

  void Create(const Event& event) {
    if (std::ranges::find(jobs_, event.job) == jobs_.end()) {
      jobs_.push_back(event.job);
      node_.Open(IdOf(event.job), event.job, 1);
    }
    ++outcome_.created;
    if (!node_.Put(IdOf(event.job), 0, event.tensor, event.bytes)) {
      ++outcome_.refused;
      outcome_.refused_bytes += event.bytes;
      if (outcome_.refusal.empty()) {
        outcome_.refusal = fmt::format("tensor {}: {}", event.tensor, node_.refusal());
      }
      return;
    }
    places_.emplace(event.tensor, live_.size());
    live_.push_back({.number = event.tensor, .bytes = event.bytes, .job = event.job});
    live_bytes_ += event.bytes;
  }

  void Free(const Event& event) {
    const auto found = places_.find(event.tensor);
    if (found == places_.end()) return;  // It was refused.
    const size_t place = found->second;
    places_.erase(found);
    live_bytes_ -= live_[place].bytes;
    if (place + 1 != live_.size()) {
      live_[place] = live_.back();
      places_.at(live_[place].number) = place;
    }
    live_.pop_back();
    node_.FreeTensor(IdOf(event.job), 0, event.tensor);
  }

  void ReadOne() {
    if (!live_.empty()) Read(live_[random_() % live_.size()]);
  }

  void Read(const Tensor& tensor) {
    ++outcome_.read;
    if (node_.Read(IdOf(tensor.job), 0, tensor.number) != Code::kOk) ++outcome_.unreadable;
  }

  void NoteFigures() {
    if (2 * live_bytes_ < trace_options_.peak_bytes) return;
    uint64_t windows = 0;
    uint64_t used = 0;
    for (const uint32_t job : jobs_) {
      const tiering::JobCounters figures = node_.Figures(IdOf(job));
      windows += figures.held_bytes;
      used += options_.devices.empty() ? figures.held_bytes - figures.pool.free_bytes
                                       : figures.ssd_bytes + figures.dirty_bytes;
    }
    windows_most_ = std::max(windows_most_, windows);
    live_most_ = std::max(live_most_, live_bytes_);
    outcome_.windows_at_peak = static_cast<double>(windows_most_) / static_cast<double>(live_most_);
    const auto live = static_cast<double>(live_bytes_);
    outcome_.used_below = std::max(outcome_.used_below, static_cast<double>(used) / live);
    if (live < 0.99 * static_cast<double>(trace_options_.peak_bytes)) return;
    outcome_.used_at_peak = std::max(outcome_.used_at_peak, static_cast<double>(used) / live);
  }

  void NoteTotals() {
    const tiering::JobCounters totals = node_.Snapshot().totals;
    outcome_.evicted_bytes = totals.evicted_bytes;
    outcome_.read_bytes = totals.swap_in_bytes;
    outcome_.moved_bytes = totals.moved_bytes;
  }

  static uint32_t IdOf(uint32_t job) { return job + 1; }

  TraceOptions trace_options_;
  EngineRunOptions options_;
  Trace trace_;
  std::mt19937_64 random_;
  MarkedTransfers transfers_;
  held::Node node_;
  std::vector<uint32_t> jobs_;  // Open ones.
  std::vector<Tensor> live_;
  std::unordered_map<uint64_t, size_t> places_;  // Of tensors in live_.
  uint64_t live_bytes_ = 0;
  uint64_t windows_most_ = 0;  // Of all jobs, at one time.
  uint64_t live_most_ = 0;
  EngineOutcome outcome_;
};

}  // namespace

EngineOutcome RunEngine(const TraceOptions& trace, const EngineRunOptions& options) {
  return EngineRun(trace, options).Run();
}

}  // namespace tier::churn
