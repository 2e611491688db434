#include "tests/perf/churn/engine_run.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <map>
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
constexpr uint64_t kEventsUntilGivenBack = 2 * (tiering::kAheadKept / kEventTime);
class EngineRun {
 public:
  EngineRun(const TraceOptions& trace, const EngineRunOptions& options)
      : trace_options_(trace),
        options_(options),
        trace_(trace),
        random_(trace.seed),
        transfers_(options.devices),
        node_({.arena_bytes = options.arena_bytes,
               .page_size = options.page_size,
               .devices = options.devices,
               .transfers = &transfers_,
               .moves = true}) {}

  EngineOutcome Run() {
    const auto begin = Clock::now();
    Clock::duration checks{};
    uint64_t events = 0;
    for (Event event; trace_.Next(&event); ++events) {
      event_ = events;
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
    while (!leased_.empty()) ReleaseOldest();
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
  struct Leased {
    uint64_t tensor = 0;
    uint32_t job = 0;
    std::vector<proto::RequestItem> items;
  };
  struct Job {
    uint64_t live_bytes = 0;
    uint64_t live_most = 0;
    uint64_t risen_at = 0;  // The event at which the most rose.
  };

  void Do(const Event& event) {
    if (event.bytes == 0) {
      Free(event);
    } else {
      Create(event);
    }
    if (!event.ends_job) return;
    node_.EndJob(IdOf(event.job));
    std::erase_if(leased_, [&](const Leased& each) { return each.job == event.job; });
    jobs_.erase(event.job);
  }

  void Create(const Event& event) {
    const auto [at, opened] = jobs_.try_emplace(event.job);
    if (opened) node_.Open(IdOf(event.job), event.job, 1);
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
    live_most_ = std::max(live_most_, live_bytes_);
    Job& job = at->second;
    job.live_bytes += event.bytes;
    if (job.live_bytes > job.live_most) {
      job.live_most = job.live_bytes;
      job.risen_at = event_;
    }
  }

  void Free(const Event& event) {
    const auto found = places_.find(event.tensor);
    if (found == places_.end()) return;  // It was refused.
    const size_t place = found->second;
    places_.erase(found);
    live_bytes_ -= live_[place].bytes;
    jobs_.at(event.job).live_bytes -= live_[place].bytes;
    if (place + 1 != live_.size()) {
      live_[place] = live_.back();
      places_.at(live_[place].number) = place;
    }
    live_.pop_back();
    ReleaseOf(event.tensor);
    node_.FreeTensor(IdOf(event.job), 0, event.tensor);
  }

  // Its lease stays until as many others were read.
  void ReadOne() {
    if (live_.empty()) return;
    const Tensor& tensor = live_[random_() % live_.size()];
    ++outcome_.read;
    Leased leased{.tensor = tensor.number, .job = tensor.job, .items = {}};
    if (node_.Lease(IdOf(tensor.job), 0, tensor.number, &leased.items) != Code::kOk) {
      ++outcome_.unreadable;
      return;
    }
    leased_.push_back(std::move(leased));
    if (leased_.size() > options_.leases_kept) ReleaseOldest();
  }

  void ReleaseOldest() {
    node_.Release(IdOf(leased_.front().job), 0, leased_.front().items);
    leased_.pop_front();
  }

  void ReleaseOf(uint64_t tensor) {
    for (auto at = leased_.begin(); at != leased_.end();) {
      if (at->tensor == tensor) node_.Release(IdOf(at->job), 0, at->items);
      at = at->tensor == tensor ? leased_.erase(at) : std::next(at);
    }
  }

  void Read(const Tensor& tensor) {
    ++outcome_.read;
    if (node_.Read(IdOf(tensor.job), 0, tensor.number) != Code::kOk) ++outcome_.unreadable;
  }

  void NoteFigures() {
    if (2 * live_bytes_ < trace_options_.peak_bytes) return;
    uint64_t windows = 0;
    uint64_t used = 0;
    for (const auto& [number, job] : jobs_) {
      const tiering::JobCounters figures = node_.Figures(IdOf(number));
      windows += figures.held_bytes;
      if (job.live_most >= kJobMin && event_ - job.risen_at >= kEventsUntilGivenBack) {
        const double held = static_cast<double>(figures.held_bytes) / static_cast<double>(job.live_most);
        outcome_.windows_of_job = std::max(outcome_.windows_of_job, held);
      }
      used += options_.devices.empty() ? figures.held_bytes - figures.pool.free_bytes
                                       : figures.ssd_bytes + figures.dirty_bytes;
    }
    windows_most_ = std::max(windows_most_, windows);
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
  std::map<uint32_t, Job> jobs_;  // Open ones, by number.
  std::vector<Tensor> live_;
  std::deque<Leased> leased_;                    // The oldest first.
  std::unordered_map<uint64_t, size_t> places_;  // Of tensors in live_.
  uint64_t live_bytes_ = 0;
  uint64_t windows_most_ = 0;  // Of all jobs, at one time.
  uint64_t live_most_ = 0;     // At one time.
  uint64_t event_ = 0;
  EngineOutcome outcome_;
};

}  // namespace

EngineOutcome RunEngine(const TraceOptions& trace, const EngineRunOptions& options) {
  return EngineRun(trace, options).Run();
}

}  // namespace tier::churn
