#include "daemon/metrics/job_rows.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "daemon/base/check.h"

namespace tier::metrics {
namespace {

using tiering::JobCounters;

// The counters that a row shows.
constexpr uint64_t JobCounters::* kCounters[] = {&JobCounters::swap_out_bytes, &JobCounters::swap_in_bytes,
                                                 &JobCounters::acquire_hits,   &JobCounters::acquire_misses,
                                                 &JobCounters::stall_ns,       &JobCounters::moved_bytes};
// The gauges that are sums where several jobs share a row.
constexpr uint64_t JobCounters::* kSums[] = {
    &JobCounters::ram_bytes,       &JobCounters::ssd_bytes,     &JobCounters::leased_bytes,
    &JobCounters::dirty_bytes,     &JobCounters::logical_bytes, &JobCounters::guarantee_bytes,
    &JobCounters::limit_bytes,     &JobCounters::share_bytes,   &JobCounters::ssd_guarantee_bytes,
    &JobCounters::ssd_limit_bytes, &JobCounters::kept_bytes,    &JobCounters::session_count,
    &JobCounters::tensor_count,    &JobCounters::torn_count,    &JobCounters::lease_count};

// Calls `apply` with each counter of `from`, and the same one of `to`.
template <typename Apply>
void ForEachCounter(const JobCounters& from, JobCounters* to, Apply apply) {
  for (const auto counter : kCounters) apply(from.*counter, &(to->*counter));
  for (size_t i = 0; i < tiering::kRefusalReasons; ++i) apply(from.refusals[i], &to->refusals[i]);
}

void Add(const JobCounters& from, JobCounters* to) {
  ForEachCounter(from, to, [](uint64_t count, uint64_t* sum) { *sum += count; });
}

void Set(const JobCounters& from, JobCounters* to) {
  ForEachCounter(from, to, [](uint64_t count, uint64_t* shown) { *shown = count; });
}

// `all` less `part`: 0 where the part was read later and has more.
JobCounters Rest(const JobCounters& all, const JobCounters& part) {
  JobCounters rest;
  Set(all, &rest);
  ForEachCounter(part, &rest, [](uint64_t count, uint64_t* left) { *left -= std::min(*left, count); });
  return rest;
}

}  // namespace

// The largest come first; one that has a row keeps it against one that is less than twice as large, so that two jobs of
// nearly one size do not take it from each other at each scrape.
void JobRows::ChooseRows(std::vector<session::JobDescription>* jobs) {
  const auto weight = [this](const session::JobDescription& job) {
    const auto known = known_.find(job.id);
    const bool has_row = known != known_.end() && known->second.has_row;
    return (has_row ? 2 : 1) * job.counters.ram_bytes + (has_row ? 1 : 0);
  };
  std::ranges::sort(*jobs, [&](const auto& a, const auto& b) {
    return std::tuple(weight(b), a.name, a.uid) < std::tuple(weight(a), b.name, b.uid);
  });
}

void JobRows::EndRow(const Known& known) {
  TIER_CHECK(known.has_row, "there is no row to end");
  Add(known.counted, &ended_rows_);
}

void JobRows::DropThoseThatEnded(const std::vector<session::JobDescription>& jobs) {
  std::set<uint64_t> live;
  for (const auto& job : jobs) live.insert(job.id);
  std::erase_if(known_, [&](const auto& entry) {
    if (live.contains(entry.first)) return false;
    if (entry.second.has_row) EndRow(entry.second);
    return true;
  });
}

std::vector<JobRow> JobRows::Of(std::vector<session::JobDescription> jobs, const JobCounters& totals) {
  DropThoseThatEnded(jobs);
  ChooseRows(&jobs);
  std::vector<JobRow> rows;
  JobRow others{.name = kOtherJobs, .uid = {}, .counters = {}};
  JobCounters in_rows;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const session::JobDescription& job = jobs[i];
    const auto [entry, is_new] = known_.try_emplace(job.id);
    Known& known = entry->second;
    if (i >= kJobRowsMax) {
      if (known.has_row) EndRow(known);
      known = {};
      for (const auto gauge : kSums) others.counters.*gauge += job.counters.*gauge;
      tiering::AddPool(job.counters.pool, &others.counters.pool);
      for (const auto& [node, bytes] : job.node_bytes) others.node_bytes[node] += bytes;
      continue;
    }
    if (!known.has_row) known = {.has_row = true, .base = is_new ? JobCounters{} : job.counters, .counted = {}};
    known.counted = Rest(job.counters, known.base);
    Add(known.counted, &in_rows);
    JobRow& row = rows.emplace_back(JobRow{job.name, std::to_string(job.uid), job.counters, job.node_bytes});
    Set(known.counted, &row.counters);
  }
  std::ranges::sort(rows,
                    [](const JobRow& a, const JobRow& b) { return std::tie(a.name, a.uid) < std::tie(b.name, b.uid); });
  Add(ended_rows_, &in_rows);
  ForEachCounter(Rest(totals, in_rows), &others_shown_,
                 [](uint64_t count, uint64_t* shown) { *shown = std::max(*shown, count); });
  Set(others_shown_, &others.counters);
  rows.push_back(std::move(others));
  return rows;
}

}  // namespace tier::metrics
