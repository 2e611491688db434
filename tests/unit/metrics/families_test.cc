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
      EXPECT_TRUE(job.empty() || seen.insert(job).second) << family.name << " has " << job << " twice";
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
