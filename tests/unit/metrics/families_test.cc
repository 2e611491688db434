#include "daemon/metrics/families.h"

#include <algorithm>
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

std::vector<session::JobDescription> Jobs(size_t count) {
  std::vector<session::JobDescription> jobs(count);
  for (size_t i = 0; i < count; ++i) {
    jobs[i].name = "job" + std::to_string(i);
    jobs[i].counters.ram_bytes = i + 1;
    jobs[i].counters.swap_out_bytes = 10;
  }
  return jobs;
}

TEST(Families, NamesFollowTheRuleAndAreUnique) {
  session::DaemonDescription daemon;
  daemon.devices.resize(1);
  const auto families = BuildFamilies(daemon, Jobs(2));
  std::set<std::string> names;
  constexpr const char* kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789_";
  for (const auto& family : families) {
    EXPECT_TRUE(family.name.starts_with("tier_")) << family.name;
    EXPECT_EQ(family.name.find_first_not_of(kAllowed), std::string::npos) << family.name;
    EXPECT_TRUE(names.insert(family.name).second) << family.name << " twice";
    EXPECT_FALSE(family.help.empty()) << family.name;
    const bool total = family.name.ends_with("_total");
    EXPECT_EQ(total, family.type == prometheus::MetricType::Counter) << family.name;
  }
}

TEST(Families, SumsOverJobsKeepWhatClosedJobsCounted) {
  session::DaemonDescription daemon;
  daemon.engine.totals.evicted_bytes = 70;
  daemon.engine.totals.write_avoided_bytes = 30;
  const auto families = BuildFamilies(daemon, {});
  EXPECT_DOUBLE_EQ(Find(families, "tier_eviction_bytes_total")->metric.at(0).counter.value, 70);
  EXPECT_DOUBLE_EQ(Find(families, "tier_writeback_avoided_bytes_total")->metric.at(0).counter.value, 30);
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
  EXPECT_DOUBLE_EQ(value("tier_compaction_moves_total", "slot"), 3);
  EXPECT_DOUBLE_EQ(value("tier_compaction_moved_bytes_total", "slot"), 12288);
  EXPECT_DOUBLE_EQ(value("tier_compaction_cancelled_total", "slot"), 2);
  EXPECT_DOUBLE_EQ(value("tier_compaction_moves_total", "block"), 0);
  EXPECT_DOUBLE_EQ(value("tier_compaction_moves_total", "window"), 0);
}

TEST(Families, WindowsThatGoToOtherJobsAreCountedByHowTheyBecameEmpty) {
  session::DaemonDescription daemon;
  daemon.engine.hand_over = {.windows = {5, 6, 7}, .evicted_bytes = 8192, .lent_bytes = 4096};
  const auto families = BuildFamilies(daemon, {});
  std::map<std::string, double> windows;
  for (const auto& metric : Find(families, "tier_hand_over_windows_total")->metric) {
    windows[LabelOf(metric, "how")] = metric.counter.value;
  }
  EXPECT_EQ(windows, (std::map<std::string, double>{{"empty", 5}, {"moved", 6}, {"evicted", 7}}));
  EXPECT_DOUBLE_EQ(Find(families, "tier_hand_over_evicted_bytes_total")->metric.at(0).counter.value, 8192);
  EXPECT_DOUBLE_EQ(Find(families, "tier_lent_bytes_total")->metric.at(0).counter.value, 4096);
}

TEST(Families, NoSeriesAppearsTwice) {
  auto jobs = Jobs(3);
  jobs[0].name = jobs[1].name = jobs[2].name = "same";
  jobs[0].uid = 1;
  jobs[1].uid = 2;
  jobs[2].uid = 3;
  for (const auto& family : BuildFamilies({}, jobs)) {
    std::set<std::vector<std::pair<std::string, std::string>>> seen;
    for (const auto& metric : family.metric) {
      std::vector<std::pair<std::string, std::string>> labels;
      for (const auto& label : metric.label) labels.emplace_back(label.name, label.value);
      EXPECT_TRUE(seen.insert(labels).second) << family.name;
    }
  }
}

TEST(Families, JobLabelsAreBoundedAndTheRestIsSummed) {
  const auto families = BuildFamilies({}, Jobs(kJobLabelsMax + 50));
  const auto* out = Find(families, "tier_swap_out_bytes_total");
  ASSERT_NE(out, nullptr);
  ASSERT_EQ(out->metric.size(), kJobLabelsMax + 1);
  EXPECT_EQ(LabelOf(out->metric.back(), "job"), "(other)");
  EXPECT_DOUBLE_EQ(out->metric.back().counter.value, 500);
  // The smallest are the ones without a label.
  const auto* ram = Find(families, "tier_job_ram_bytes");
  EXPECT_DOUBLE_EQ(ram->metric.back().gauge.value, 50 * 51 / 2);
}

TEST(Families, NoJobNameCollidesWithALabelOfOurs) {
  auto jobs = Jobs(kJobLabelsMax + 5);
  const size_t last = jobs.size() - 1;
  jobs[last].name = "other";
  jobs[last - 1].name = jobs[last - 2].name = "twice";
  jobs[last - 1].uid = 1000;
  jobs[last - 2].uid = 2000;
  jobs[last - 3].name = "twice@2000";
  for (const auto& family : BuildFamilies({}, jobs)) {
    std::set<std::string> seen;
    for (const auto& metric : family.metric) {
      const std::string job = LabelOf(metric, "job");
      const std::string series = job + LabelOf(metric, "kind") + LabelOf(metric, "class");
      EXPECT_TRUE(job.empty() || seen.insert(series).second) << family.name << " has " << job << " twice";
    }
  }
}

TEST(Families, WaitHistogramIsCumulative) {
  session::DaemonDescription daemon;
  daemon.engine.wait_histogram[0] = 3;
  daemon.engine.wait_histogram.back() = 2;
  daemon.engine.wait_sum_ns = 2'000'000'000;
  const auto families = BuildFamilies(daemon, {});
  const auto* waits = Find(families, "tier_acquire_wait_seconds");
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
  const auto* requests = Find(families, "tier_request_total");
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
    if (LabelOf(metric, "job") != job) continue;
    values[LabelOf(metric, label)] = metric.counter.value + metric.gauge.value;
  }
  return values;
}

TEST(Families, RefusalsAreCountedByEveryReason) {
  session::DaemonDescription daemon;
  daemon.engine.refusals[static_cast<size_t>(tiering::RefusalReason::kArena)] = 3;
  const auto refused = ByLabel(BuildFamilies(daemon, {}), "tier_refusal_total", "reason");
  EXPECT_EQ(refused.size(), tiering::kRefusalReasons) << "a rate exists before the first refusal";
  EXPECT_DOUBLE_EQ(refused.at("arena"), 3);
  EXPECT_DOUBLE_EQ(refused.at("host_memory"), 0);
}

TEST(Families, WindowsAreCountedByCondition) {
  session::DaemonDescription daemon;
  daemon.engine.windows_by_condition = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(ByLabel(BuildFamilies(daemon, {}), "tier_windows_by_condition", "condition"),
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
                           .returning_bytes = 9};
  const auto families = BuildFamilies({}, jobs);
  EXPECT_EQ(ByLabel(families, "tier_job_held_bytes", "kind", "job0"),
            (std::map<std::string, double>{{"block", 100}, {"slot", 50}}));
  EXPECT_EQ(ByLabel(families, "tier_job_requested_bytes", "class", "job0"),
            (std::map<std::string, double>{{"block", 10}, {"tail", 20}, {"slot", 30}}));
  const std::map<std::string, double> expected = {{"waste", 90},   {"free", 60}, {"largest_run", 40},
                                                  {"borrowed", 7}, {"owed", 8},  {"returning", 9}};
  for (const auto& [figure, value] : expected) {
    EXPECT_DOUBLE_EQ(Find(families, "tier_job_" + figure + "_bytes")->metric.at(0).gauge.value, value) << figure;
  }
}

TEST(Families, ThePoolOfJobsWithoutALabelIsSummedAndItsLargestRunIsNot) {
  auto jobs = Jobs(kJobLabelsMax + 2);
  for (auto& job : jobs) job.counters.pool = {.held_bytes = {10, 1}, .largest_run_bytes = job.counters.ram_bytes};
  const auto families = BuildFamilies({}, jobs);
  EXPECT_EQ(ByLabel(families, "tier_job_held_bytes", "kind", "(other)"),
            (std::map<std::string, double>{{"block", 20}, {"slot", 2}}));
  EXPECT_DOUBLE_EQ(Find(families, "tier_job_largest_run_bytes")->metric.back().gauge.value, 2);
}

TEST(Families, FiguresLandUnderTheirNames) {
  session::DaemonDescription daemon;
  daemon.spin_mode = "auto";
  daemon.ssd_mode = "reduced";
  daemon.spin_pauses = 6;
  daemon.version = "1.2.3";
  daemon.engine.arena_bytes = 77;
  daemon.prefault = {.done_bytes = 8, .target_bytes = 9};
  daemon.devices.resize(2);
  daemon.devices[1].index = 1;
  daemon.devices[1].now.space.free = 5;
  daemon.devices[1].now.traffic = {.errors = 2, .corrupt = 3, .window_faults = 4};
  const auto families = BuildFamilies(daemon, {});
  EXPECT_DOUBLE_EQ(Find(families, "tier_arena_bytes")->metric.at(0).gauge.value, 77);
  EXPECT_DOUBLE_EQ(Find(families, "tier_arena_prefault_bytes")->metric.at(0).gauge.value, 8);
  EXPECT_DOUBLE_EQ(Find(families, "tier_arena_prefault_target_bytes")->metric.at(0).gauge.value, 9);
  EXPECT_DOUBLE_EQ(Find(families, "tier_device_free_bytes")->metric.at(1).gauge.value, 5);
  EXPECT_EQ(LabelOf(Find(families, "tier_device_free_bytes")->metric.at(1), "device"), "1");
  EXPECT_DOUBLE_EQ(Find(families, "tier_device_errors_total")->metric.at(1).counter.value, 2);
  EXPECT_DOUBLE_EQ(Find(families, "tier_device_corrupt_total")->metric.at(1).counter.value, 3);
  EXPECT_DOUBLE_EQ(Find(families, "tier_device_window_faults_total")->metric.at(1).counter.value, 4);
  EXPECT_EQ(LabelOf(Find(families, "tier_engine_spin_mode")->metric.at(0), "mode"), "auto");
  EXPECT_DOUBLE_EQ(Find(families, "tier_engine_spin_pauses_total")->metric.at(0).counter.value, 6);
  EXPECT_EQ(LabelOf(Find(families, "tier_ssd_mode")->metric.at(0), "mode"), "reduced");
  EXPECT_EQ(LabelOf(Find(families, "tier_build_info")->metric.at(0), "version"), "1.2.3");
}

}  // namespace
}  // namespace tier::metrics
