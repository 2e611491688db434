#include "daemon/metrics/metrics_page.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "daemon/metrics/families.h"

namespace tier::metrics {
namespace {

constexpr const char* kHead = R"(# Metrics

The metrics that tierd has for Prometheus, on `127.0.0.1:9464/metrics` for the system's daemon ([start.md](start.md)).
This page is what `tierd --print-metrics` prints; a test compares it with that, and with a running daemon. How to scrape
a node, and the rules and dashboards made for these names: `deploy/prometheus`, `deploy/grafana`.

Base units; counters end in `_total` and only rise. Modes and states have a series for each value they can have: 1 for
the one that holds, 0 for the others. The labels of a training job are `tierd_job` and `uid`: two users may have jobs of
one name. At most {0} jobs, the largest, have series of their own. `tierd_job="{1}"`, which is no legal name and has no
uid, is all others together: its gauges are their sums, and its counters have all that no other series has, of jobs that
have ended as well. So the sum over all jobs is what the daemon counted, and the same is there without a job
(`tierd_swap_out_bytes_total`). A job that gets a series of its own later counts from there.

Names change only with the second number of the version, and the changelog says so.

| metric | type | labels | meaning |
| --- | --- | --- | --- |
)";

const char* TypeName(prometheus::MetricType type) {
  switch (type) {
    case prometheus::MetricType::Counter: return "counter";
    case prometheus::MetricType::Histogram: return "histogram";
    default: return "gauge";
  }
}

// A daemon that has one of everything, so that each family has a series with its labels.
session::DaemonDescription Sample() {
  session::DaemonDescription daemon;
  daemon.version = "0";
  daemon.engine.node_bytes[0] = 1;
  daemon.devices.emplace_back(session::DeviceDescription{.index = 0, .path = "/", .uuid = "0", .now = {}});
  daemon.devices.front().drive_bytes = 1;
  daemon.devices.front().smart = {.figures = {.temperature_kelvin = 300}};
  daemon.engine.missing.push_back({.uuid = "1", .path = "/", .reason = {}});
  return daemon;
}

std::vector<JobRow> SampleJobs() {
  JobRow job{.name = "job", .uid = "0", .counters = {}, .node_bytes = {{0, 1}}};
  job.counters.refusals[0] = 1;
  job.counters.limit_bytes = job.counters.ssd_limit_bytes = 1;
  return {job};
}

}  // namespace

std::string MetricsPage() {
  std::string page = fmt::format(fmt::runtime(kHead), kJobRowsMax, kOtherJobs);
  for (const prometheus::MetricFamily& family : BuildFamilies(Sample(), SampleJobs(), {})) {
    std::vector<std::string> labels;
    for (const auto& label : family.metric.at(0).label) labels.push_back(fmt::format("`{}`", label.name));
    page += fmt::format("| `{}` | {} | {} | {} |\n", family.name, TypeName(family.type), fmt::join(labels, ", "),
                        family.help);
  }
  return page;
}

}  // namespace tier::metrics
