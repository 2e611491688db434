#include "daemon/metrics/families.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace tier::metrics {
namespace {

const prometheus::MetricFamily* Find(const std::vector<prometheus::MetricFamily>& families, const std::string& name) {
  const auto found = std::find_if(families.begin(), families.end(), [&](const auto& f) { return f.name == name; });
  return found == families.end() ? nullptr : &*found;
}

std::string LabelOf(const prometheus::ClientMetric& metric, const std::string& name) {
  for (const auto& label : metric.label) {
    if (label.name == name) return label.value;
  }
  return {};
}

std::vector<JobRow> Jobs(size_t count) {
  std::vector<JobRow> jobs(count);
  for (size_t i = 0; i < count; ++i) {
    jobs[i].name = "job" + std::to_string(i);
    jobs[i].uid = "1000";
    jobs[i].counters.ram_bytes = i + 1;
    jobs[i].counters.swap_out_bytes = 10;
  }
  return jobs;
}

std::vector<prometheus::MetricFamily> BuildFamilies(const session::DaemonDescription& daemon,
                                                    const std::vector<JobRow>& jobs) {
  return metrics::BuildFamilies(daemon, jobs, {});
}

TEST(Families, NamesFollowTheRuleAndAreUnique) {
  session::DaemonDescription daemon;
  daemon.devices.resize(1);
  const auto families = BuildFamilies(daemon, Jobs(2));
  std::set<std::string> names;
  constexpr const char* kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789_";
  for (const auto& family : families) {
    EXPECT_TRUE(family.name.starts_with("tierd_") || family.name.starts_with("process_")) << family.name;
    EXPECT_EQ(family.name.find_first_not_of(kAllowed), std::string::npos) << family.name;
    EXPECT_TRUE(names.insert(family.name).second) << family.name << " twice";
    EXPECT_FALSE(family.help.empty()) << family.name;
    const bool total = family.name.ends_with("_total");
    EXPECT_EQ(total, family.type == prometheus::MetricType::Counter) << family.name;
  }
}

TEST(Families, WhatAllJobsCountedIsThereWithoutAnyJob) {
  session::DaemonDescription daemon;
  daemon.engine.totals = {.swap_out_bytes = 10,
                          .swap_in_bytes = 20,
                          .acquire_hits = 3,
                          .acquire_misses = 4,
                          .evicted_bytes = 70,
                          .write_avoided_bytes = 30};
  const auto families = BuildFamilies(daemon, {});
  const auto value = [&](const char* name) { return Find(families, name)->metric.at(0).counter.value; };
  EXPECT_DOUBLE_EQ(value("tierd_swap_out_bytes_total"), 10);
  EXPECT_DOUBLE_EQ(value("tierd_swap_in_bytes_total"), 20);
  EXPECT_DOUBLE_EQ(value("tierd_evicted_bytes_total"), 70);
  EXPECT_DOUBLE_EQ(value("tierd_writeback_avoided_bytes_total"), 30);
  const auto* acquires = Find(families, "tierd_acquires_total");
  ASSERT_EQ(acquires->metric.size(), 2u);
  EXPECT_EQ(LabelOf(acquires->metric[0], "result"), "hit");
  EXPECT_DOUBLE_EQ(acquires->metric[0].counter.value, 3);
  EXPECT_DOUBLE_EQ(acquires->metric[1].counter.value, 4);
}

TEST(Families, MovesInRamAreCountedByTheirCause) {
  session::DaemonDescription daemon;
  daemon.engine.compaction[static_cast<size_t>(tiering::CompactionCause::kSlot)] = {
      .moves = 3, .bytes = 12288, .cancelled = 2};
  const auto families = BuildFamilies(daemon, {});
  const auto value = [&](const char* family, const char* cause) {
    for (const auto& metric : Find(families, family)->metric) {
      if (LabelOf(metric, "cause") == cause) return metric.counter.value;
    }
    return -1.0;
  };
  EXPECT_DOUBLE_EQ(value("tierd_compaction_moves_total", "slot"), 3);
  EXPECT_DOUBLE_EQ(value("tierd_compaction_moved_bytes_total", "slot"), 12288);
  EXPECT_DOUBLE_EQ(value("tierd_compaction_cancelled_moves_total", "slot"), 2);
  EXPECT_DOUBLE_EQ(value("tierd_compaction_moves_total", "block"), 0);
  EXPECT_DOUBLE_EQ(value("tierd_compaction_moves_total", "window"), 0);
}

TEST(Families, WindowsThatGoToOtherJobsAreCountedByHowTheyBecameEmpty) {
  session::DaemonDescription daemon;
  daemon.engine.hand_over = {.windows = {5, 6, 7}, .evicted_bytes = 8192, .lent_bytes = 4096};
  const auto families = BuildFamilies(daemon, {});
  std::map<std::string, double> windows;
  for (const auto& metric : Find(families, "tierd_hand_over_windows_total")->metric) {
    windows[LabelOf(metric, "how")] = metric.counter.value;
  }
  EXPECT_EQ(windows, (std::map<std::string, double>{{"empty", 5}, {"moved", 6}, {"evicted", 7}}));
  EXPECT_DOUBLE_EQ(Find(families, "tierd_hand_over_evicted_bytes_total")->metric.at(0).counter.value, 8192);
  EXPECT_DOUBLE_EQ(Find(families, "tierd_lent_bytes_total")->metric.at(0).counter.value, 4096);
}

TEST(Families, MergesAreCountedByTheirOutcome) {
  session::DaemonDescription daemon;
  daemon.engine.merges = {.effective = 5, .in_vain = 2, .windows = 80};
  daemon.engine.compaction[static_cast<size_t>(tiering::CompactionCause::kMerge)] = {.moves = 9};
  const auto families = BuildFamilies(daemon, {});
  std::map<std::string, double> merges;
  for (const auto& metric : Find(families, "tierd_window_merges_total")->metric) {
    merges[LabelOf(metric, "outcome")] = metric.counter.value;
  }
  EXPECT_EQ(merges, (std::map<std::string, double>{{"effective", 5}, {"in_vain", 2}}));
  EXPECT_DOUBLE_EQ(Find(families, "tierd_merged_windows_total")->metric.at(0).counter.value, 80);
  for (const auto& metric : Find(families, "tierd_compaction_moves_total")->metric) {
    EXPECT_DOUBLE_EQ(metric.counter.value, LabelOf(metric, "cause") == "merge" ? 9 : 0);
  }
}

TEST(Families, NoSeriesAppearsTwice) {
  auto jobs = Jobs(3);
  for (size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].name = "same";  // Of three users.
    jobs[i].uid = std::to_string(i);
  }
  session::DaemonDescription daemon;
  daemon.devices.resize(2);
  daemon.devices[1].index = 1;
  for (const auto& family : BuildFamilies(daemon, jobs)) {
    std::set<std::vector<std::pair<std::string, std::string>>> seen;
    for (const auto& metric : family.metric) {
      std::vector<std::pair<std::string, std::string>> labels;
      for (const auto& label : metric.label) labels.emplace_back(label.name, label.value);
      EXPECT_TRUE(seen.insert(labels).second) << family.name;
    }
  }
}

TEST(Families, AJobIsLabelledByItsNameAndItsUserAlone) {
  for (const auto& family : BuildFamilies({}, Jobs(1))) {
    for (const auto& metric : family.metric) {
      EXPECT_EQ(LabelOf(metric, "job"), "") << family.name << ": Prometheus has a label of that name";
      if (!family.name.starts_with("tierd_job_")) continue;
      EXPECT_EQ(LabelOf(metric, "tierd_job"), "job0") << family.name;
      EXPECT_EQ(LabelOf(metric, "uid"), "1000") << family.name;
    }
  }
}

TEST(Families, ALimitThatIsNoneHasNoSeries) {
  auto jobs = Jobs(2);
  jobs[1].counters.limit_bytes = 5;
  const auto families = BuildFamilies({}, jobs);
  ASSERT_EQ(Find(families, "tierd_job_limit_bytes")->metric.size(), 1u);
  EXPECT_EQ(LabelOf(Find(families, "tierd_job_limit_bytes")->metric[0], "tierd_job"), "job1");
  EXPECT_EQ(Find(families, "tierd_job_ssd_limit_bytes")->metric.size(), 0u);
}

TEST(Families, WaitHistogramIsCumulative) {
  session::DaemonDescription daemon;
  daemon.engine.wait_histogram[0] = 3;
  daemon.engine.wait_histogram.back() = 2;
  daemon.engine.wait_sum_ns = 2'000'000'000;
  const auto families = BuildFamilies(daemon, {});
  const auto* waits = Find(families, "tierd_acquire_wait_seconds");
  ASSERT_NE(waits, nullptr);
  const auto& histogram = waits->metric.at(0).histogram;
  EXPECT_EQ(histogram.sample_count, 5u);
  EXPECT_DOUBLE_EQ(histogram.sample_sum, 2.0);
  EXPECT_EQ(histogram.bucket.front().cumulative_count, 3u);
  EXPECT_EQ(histogram.bucket.back().cumulative_count, 5u);
}

TEST(Families, RefusalsAreShownOnceTheyHappened) {
  session::DaemonDescription daemon;
  daemon.engine.requests[static_cast<size_t>(proto::Op::kCreate)][static_cast<size_t>(Code::kNoMemory)] = 4;
  const auto families = BuildFamilies(daemon, {});
  const auto* requests = Find(families, "tierd_requests_total");
  ASSERT_NE(requests, nullptr);
  std::map<std::string, double> refused;
  for (const auto& metric : requests->metric) {
    if (LabelOf(metric, "code") != "OK")
      refused[LabelOf(metric, "op") + "/" + LabelOf(metric, "code")] = metric.counter.value;
  }
  EXPECT_EQ(refused, (std::map<std::string, double>{{"create/NO_MEMORY", 4.0}}));
}

std::map<std::string, double> ByLabel(const std::vector<prometheus::MetricFamily>& families, const std::string& name,
                                      const std::string& label, const std::string& job = {}) {
  std::map<std::string, double> values;
  for (const auto& metric : Find(families, name)->metric) {
    if (LabelOf(metric, "tierd_job") != job) continue;
    values[LabelOf(metric, label)] = metric.counter.value + metric.gauge.value;
  }
  return values;
}

TEST(Families, RefusalsAreCountedByEveryReason) {
  session::DaemonDescription daemon;
  daemon.engine.refusals[static_cast<size_t>(tiering::RefusalReason::kArena)] = 3;
  const auto refused = ByLabel(BuildFamilies(daemon, {}), "tierd_refusals_total", "reason");
  EXPECT_EQ(refused.size(), tiering::kRefusalReasons) << "a rate exists before the first refusal";
  EXPECT_DOUBLE_EQ(refused.at("arena"), 3);
  EXPECT_DOUBLE_EQ(refused.at("host_memory"), 0);
}

TEST(Families, RequestsThatWaitAndTheirTimesAreShownByCause) {
  session::DaemonDescription daemon;
  daemon.engine.waiting_for[static_cast<size_t>(tiering::StallCause::kRam)] = 3;
  daemon.engine.waited_for[static_cast<size_t>(tiering::StallCause::kRam)] = std::chrono::milliseconds(1500);
  daemon.engine.any_waited_for[static_cast<size_t>(tiering::StallCause::kSsdRead)] = std::chrono::milliseconds(500);
  const auto families = BuildFamilies(daemon, Jobs(64));
  using Values = std::map<std::string, double>;
  EXPECT_EQ(ByLabel(families, "tierd_waiting_requests", "cause"),
            (Values{{"ram", 3}, {"ssd_read", 0}, {"ssd_write", 0}, {"lease", 0}, {"budget", 0}, {"queue", 0}}));
  EXPECT_EQ(ByLabel(families, "tierd_stall_seconds_total", "cause"),
            (Values{{"ram", 1.5}, {"ssd_read", 0}, {"ssd_write", 0}, {"lease", 0}, {"budget", 0}, {"queue", 0}}));
  EXPECT_EQ(ByLabel(families, "tierd_waiting_seconds_total", "cause"),
            (Values{{"ram", 0}, {"ssd_read", 0.5}, {"ssd_write", 0}, {"lease", 0}, {"budget", 0}, {"queue", 0}}));
  EXPECT_EQ(Find(families, "tierd_stall_seconds_total")->metric.size(), tiering::kStallCauses) << "not by job";
}

TEST(Families, WindowsAreCountedByCondition) {
  session::DaemonDescription daemon;
  daemon.engine.windows_by_condition = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(ByLabel(BuildFamilies(daemon, {}), "tierd_window_conditions", "condition"),
            (std::map<std::string, double>{
                {"making", 1}, {"ready", 2}, {"emptying", 3}, {"returning", 4}, {"overdue", 5}, {"closing", 6}}));
}

TEST(Families, AJobsPoolIsShownByKindAndClass) {
  auto jobs = Jobs(1);
  jobs[0].counters.pool = {.requested_bytes = {10, 20, 30},
                           .held_bytes = {100, 50},
                           .free_bytes = 60,
                           .largest_run_bytes = 40,
                           .borrowed_bytes = 7,
                           .owed_bytes = 8,
                           .emptying_bytes = 11,
                           .returning_bytes = 9};
  const auto families = BuildFamilies({}, jobs);
  EXPECT_EQ(ByLabel(families, "tierd_job_held_bytes", "kind", "job0"),
            (std::map<std::string, double>{{"block", 100}, {"slot", 50}}));
  EXPECT_EQ(ByLabel(families, "tierd_job_requested_bytes", "class", "job0"),
            (std::map<std::string, double>{{"block", 10}, {"tail", 20}, {"slot", 30}}));
  const std::map<std::string, double> expected = {{"waste", 90}, {"free", 60},     {"largest_run", 40}, {"borrowed", 7},
                                                  {"owed", 8},   {"emptying", 11}, {"returning", 9}};
  for (const auto& [figure, value] : expected) {
    EXPECT_DOUBLE_EQ(Find(families, "tierd_job_" + figure + "_bytes")->metric.at(0).gauge.value, value) << figure;
  }
}

TEST(Families, AJobsWindowsAreShownByNode) {
  auto jobs = Jobs(2);
  jobs[1].node_bytes = {{0, 5}, {3, 7}};
  const auto families = BuildFamilies({}, jobs);
  EXPECT_EQ(ByLabel(families, "tierd_job_node_bytes", "node", "job1"),
            (std::map<std::string, double>{{"0", 5}, {"3", 7}}));
  EXPECT_EQ(Find(families, "tierd_job_node_bytes")->metric.size(), 2u) << "the other one's host has one node";
}

TEST(Families, AJobsRefusalsAreShownByTheReasonsThatItMet) {
  auto jobs = Jobs(2);
  jobs[1].counters.refusals[static_cast<size_t>(tiering::RefusalReason::kLimit)] = 3;
  jobs[1].counters.refusals[static_cast<size_t>(tiering::RefusalReason::kDevice)] = 1;
  jobs[1].counters.moved_bytes = 8192;
  const auto families = BuildFamilies({}, jobs);
  EXPECT_EQ(ByLabel(families, "tierd_job_refusals_total", "reason", "job1"),
            (std::map<std::string, double>{{"limit", 3}, {"device", 1}}));
  EXPECT_EQ(Find(families, "tierd_job_refusals_total")->metric.size(), 2u) << "the other job met none";
  EXPECT_EQ(Find(families, "tierd_job_refusals_total")->type, prometheus::MetricType::Counter);
  EXPECT_DOUBLE_EQ(Find(families, "tierd_job_compaction_moved_bytes_total")->metric.at(1).counter.value, 8192);
}

TEST(Families, FiguresLandUnderTheirNames) {
  session::DaemonDescription daemon;
  daemon.spin_mode = "auto";
  daemon.ssd_mode = "reduced";
  daemon.spin_pauses = 6;
  daemon.observed_seconds = 0.5;
  daemon.reload_failure.emplace();
  daemon.version = "1.2.3";
  daemon.engine.arena_bytes = 77;
  daemon.engine.stock_bytes = 7;
  daemon.prefault = {.done_bytes = 8, .target_bytes = 9};
  daemon.devices.resize(2);
  daemon.devices[1].index = 1;
  daemon.devices[1].now.space.free = 5;
  daemon.devices[1].now.traffic = {.errors = 2, .corrupt = 3, .window_faults = 4};
  const auto families = BuildFamilies(daemon, {});
  EXPECT_DOUBLE_EQ(Find(families, "tierd_arena_bytes")->metric.at(0).gauge.value, 77);
  EXPECT_DOUBLE_EQ(Find(families, "tierd_arena_stock_bytes")->metric.at(0).gauge.value, 7);
  EXPECT_DOUBLE_EQ(Find(families, "tierd_arena_prefaulted_bytes")->metric.at(0).gauge.value, 8);
  EXPECT_DOUBLE_EQ(Find(families, "tierd_arena_prefault_target_bytes")->metric.at(0).gauge.value, 9);
  EXPECT_DOUBLE_EQ(Find(families, "tierd_device_free_bytes")->metric.at(1).gauge.value, 5);
  EXPECT_EQ(LabelOf(Find(families, "tierd_device_free_bytes")->metric.at(1), "device"), "1");
  EXPECT_DOUBLE_EQ(Find(families, "tierd_device_errors_total")->metric.at(1).counter.value, 2);
  EXPECT_DOUBLE_EQ(Find(families, "tierd_device_corrupt_pieces_total")->metric.at(1).counter.value, 3);
  EXPECT_DOUBLE_EQ(Find(families, "tierd_device_window_faults_total")->metric.at(1).counter.value, 4);
  EXPECT_DOUBLE_EQ(Find(families, "tierd_config_reload_failed")->metric.at(0).gauge.value, 1);
  EXPECT_DOUBLE_EQ(Find(families, "tierd_engine_spin_pauses_total")->metric.at(0).counter.value, 6);
  EXPECT_DOUBLE_EQ(Find(families, "tierd_engine_observed_seconds_total")->metric.at(0).counter.value, 0.5);
  EXPECT_EQ(LabelOf(Find(families, "tierd_build_info")->metric.at(0), "version"), "1.2.3");
}

TEST(Families, ModesAndStatesHaveASeriesForEachValue) {
  session::DaemonDescription daemon;
  daemon.io_mode = "threads";
  daemon.memory_mode = "pinned";
  daemon.ssd_mode = "reduced";
  daemon.spin_mode = "auto";
  daemon.huge_page_mode = "thp";
  daemon.devices.resize(1);
  daemon.devices[0].now.state = storage::DeviceState::kSuspect;
  const auto families = BuildFamilies(daemon, {});
  using Values = std::map<std::string, double>;
  EXPECT_EQ(ByLabel(families, "tierd_io_mode", "mode"), (Values{{"io_uring", 0}, {"threads", 1}}));
  EXPECT_EQ(ByLabel(families, "tierd_memory_mode", "mode"), (Values{{"pinned", 1}, {"unpinned", 0}}));
  EXPECT_EQ(ByLabel(families, "tierd_ssd_mode", "mode"), (Values{{"full", 0}, {"reduced", 1}, {"none", 0}}));
  EXPECT_EQ(ByLabel(families, "tierd_engine_spin_mode", "mode"), (Values{{"auto", 1}, {"always", 0}, {"never", 0}}));
  EXPECT_EQ(ByLabel(families, "tierd_huge_page_mode", "mode"), (Values{{"hugetlb", 0}, {"thp", 1}, {"small", 0}}));
  daemon.huge_page_mode = "none";  // Without a window.
  EXPECT_EQ(ByLabel(BuildFamilies(daemon, {}), "tierd_huge_page_mode", "mode"),
            (Values{{"hugetlb", 0}, {"thp", 0}, {"small", 0}}));
  EXPECT_EQ(ByLabel(families, "tierd_device_state", "state"),
            (Values{{"online", 0}, {"suspect", 1}, {"offline", 0}, {"gone", 0}}));
}

TEST(Families, MissingDevicesAreCountedWithTheJobsThatAreLost) {
  session::DaemonDescription daemon;
  EXPECT_DOUBLE_EQ(Find(BuildFamilies(daemon, {}), "tierd_missing_devices")->metric.at(0).gauge.value, 0);
  daemon.engine.missing = {{.uuid = "1-2", .path = "/dev/b", .reason = "it is gone", .lost_job_count = 3},
                           {.uuid = "", .path = "/dev/c", .reason = "it is foreign"}};
  const auto families = BuildFamilies(daemon, {});
  EXPECT_DOUBLE_EQ(Find(families, "tierd_missing_devices")->metric.at(0).gauge.value, 2);
  EXPECT_EQ(ByLabel(families, "tierd_missing_device_lost_jobs", "device_uuid"),
            (std::map<std::string, double>{{"1-2", 3}}));
  EXPECT_DOUBLE_EQ(ByLabel(families, "tierd_degraded", "cause").at("missing_device"), 1);
}

TEST(Families, DrainingAndDegradedAreFiguresOfAFixedSet) {
  session::DaemonDescription daemon;
  using Values = std::map<std::string, double>;
  Values expected = {{"ssd_tier", 0}, {"ssd_size", 0},     {"ssd_drained", 0}, {"index", 0},
                     {"memory", 0},   {"torn_tensors", 0}, {"device", 0},      {"missing_device", 0}};
  EXPECT_EQ(ByLabel(BuildFamilies(daemon, {}), "tierd_degraded", "cause"), expected);
  EXPECT_DOUBLE_EQ(Find(BuildFamilies(daemon, {}), "tierd_draining")->metric.at(0).gauge.value, 0);
  daemon.draining = true;
  daemon.engine.torn_count = 2;
  daemon.engine.index_failure = "the index was cut short";
  daemon.ssd_mode = "reduced";
  daemon.devices.emplace_back().now.draining = true;
  for (const char* const cause : {"torn_tensors", "index", "ssd_size", "ssd_drained"}) expected[cause] = 1;
  EXPECT_EQ(ByLabel(BuildFamilies(daemon, {}), "tierd_degraded", "cause"), expected);
  EXPECT_DOUBLE_EQ(Find(BuildFamilies(daemon, {}), "tierd_draining")->metric.at(0).gauge.value, 1);
}

TEST(Families, ADeviceIsNamedByPathAndUuid) {
  session::DaemonDescription daemon;
  daemon.devices.push_back({.index = 3, .path = "/dev/nvme0n1", .uuid = "u-u", .block_device = true, .now = {}});
  const auto families = BuildFamilies(daemon, {});
  const auto& info = Find(families, "tierd_device_info")->metric.at(0);
  EXPECT_EQ(LabelOf(info, "device"), "3");
  EXPECT_EQ(LabelOf(info, "path"), "/dev/nvme0n1");
  EXPECT_EQ(LabelOf(info, "device_uuid"), "u-u");
  EXPECT_EQ(LabelOf(info, "kind"), "block");
}

TEST(Families, TheProcessHasTheNamesThatMonitoringExpects) {
  const auto families = metrics::BuildFamilies({}, {}, {.cpu_seconds = 1.5, .start_time_seconds = 2, .open_fds = 7});
  EXPECT_DOUBLE_EQ(Find(families, "process_cpu_seconds_total")->metric.at(0).counter.value, 1.5);
  EXPECT_DOUBLE_EQ(Find(families, "process_start_time_seconds")->metric.at(0).gauge.value, 2);
  EXPECT_DOUBLE_EQ(Find(families, "process_open_fds")->metric.at(0).gauge.value, 7);
}

TEST(ProcessFigures, AreThoseOfThisProcess) {
  const ProcessFigures figures = ReadProcessFigures();
  EXPECT_GT(figures.start_time_seconds, 1.6e9) << "after 2020";
  EXPECT_GT(figures.resident_bytes, uint64_t{1} << 20);
  EXPECT_GT(figures.virtual_bytes, figures.resident_bytes);
  EXPECT_GE(figures.open_fds, 3u);
  const std::ifstream one("/dev/null");
  const std::ifstream two("/dev/null");
  EXPECT_EQ(ReadProcessFigures().open_fds, figures.open_fds + 2);
  EXPECT_GT(figures.max_fds, figures.open_fds);
  EXPECT_GE(figures.threads, 1u);
  EXPECT_GE(figures.cpu_seconds, 0);
}

TEST(ProcessFigures, AreZeroWhereProcIsMissing) {
  const ProcessFigures figures = ReadProcessFigures("/nowhere");
  EXPECT_EQ(figures.resident_bytes, 0u);
  EXPECT_EQ(figures.open_fds, 0u);
}

}  // namespace
}  // namespace tier::metrics
