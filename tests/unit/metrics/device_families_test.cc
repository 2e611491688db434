// What the metrics tell of SSD devices: how long requests take, wear, health.
#include "daemon/metrics/device_families.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include "daemon/metrics/families.h"

namespace tier::metrics {
namespace {

using storage::Direction;
using storage::Purpose;

class DeviceFamilies : public ::testing::Test {
 protected:
  DeviceFamilies() {
    daemon_.devices.resize(2);
    daemon_.devices[1].index = 1;
  }
  storage::LatencyFigures& Latency(Direction direction, Purpose purpose) {
    return daemon_.devices[1].now.latency.figures[static_cast<size_t>(direction)][static_cast<size_t>(purpose)];
  }
  const std::vector<prometheus::ClientMetric>& Metrics(const std::string& name) {
    families_ = BuildFamilies(daemon_, {}, {});
    const auto found = std::ranges::find(families_, name, &prometheus::MetricFamily::name);
    EXPECT_NE(found, families_.end()) << name;
    return found->metric;
  }
  // Of the series with these labels, written "device=1 class=ahead".
  static std::string LabelsOf(const prometheus::ClientMetric& metric) {
    std::string text;
    for (const auto& label : metric.label) text += (text.empty() ? "" : " ") + label.name + "=" + label.value;
    return text;
  }
  std::optional<double> Value(const std::string& name, const std::string& labels) {
    for (const auto& metric : Metrics(name)) {
      if (LabelsOf(metric) == labels) return metric.counter.value + metric.gauge.value;
    }
    return std::nullopt;
  }

  session::DaemonDescription daemon_;
  std::vector<prometheus::MetricFamily> families_;
};

TEST_F(DeviceFamilies, LatencyIsAHistogramByDirectionAndClass) {
  storage::LatencyFigures& ahead = Latency(Direction::kWrite, Purpose::kAhead);
  ahead.requests[0] = 2;
  ahead.requests.back() = 1;
  ahead.sum_ns = 3'000'000'000;
  ahead.bytes = 8192;
  const prometheus::ClientMetric* found = nullptr;
  for (const auto& metric : Metrics("tierd_device_request_seconds")) {
    if (LabelsOf(metric) == "device=1 direction=write class=ahead") found = &metric;
    EXPECT_NE(LabelsOf(metric), "device=0 direction=write class=ahead") << "there was none";
  }
  ASSERT_NE(found, nullptr);
  const auto& buckets = found->histogram.bucket;
  ASSERT_EQ(buckets.size(), storage::kLatencyBuckets);
  EXPECT_EQ(buckets.front().cumulative_count, 2u);
  EXPECT_DOUBLE_EQ(buckets.front().upper_bound, 1e-5);
  EXPECT_EQ(buckets[buckets.size() - 2].cumulative_count, 2u);
  EXPECT_EQ(buckets.back().cumulative_count, 3u);
  EXPECT_TRUE(std::isinf(buckets.back().upper_bound));
  EXPECT_EQ(found->histogram.sample_count, 3u);
  EXPECT_DOUBLE_EQ(found->histogram.sample_sum, 3);
  EXPECT_EQ(Value("tierd_device_request_bytes_total", "device=1 direction=write class=ahead"), 8192);
}

TEST_F(DeviceFamilies, WhatRequestsWaitForIsThereFromTheStart) {
  EXPECT_EQ(Metrics("tierd_device_request_seconds").size(), 4u) << "reads and writes of two devices";
  EXPECT_EQ(Value("tierd_device_request_bytes_total", "device=0 direction=read class=demand"), 0);
}

// A page of 64 jobs has 200 kB at most, and several devices must fit beside the jobs.
TEST_F(DeviceFamilies, OneDeviceMoreTakesFewKilobytesOfThePage) {
  for (auto& direction : daemon_.devices[1].now.latency.figures) {
    for (storage::LatencyFigures& figures : direction) {
      figures.requests.fill(1'000'000'000);
      figures.sum_ns = 1'234'567'890'123'456'789;
      figures.bytes = uint64_t{1} << 50;
    }
  }
  daemon_.devices[1].smart.emplace();
  const auto page_bytes = [this] {
    return prometheus::TextSerializer().Serialize(BuildFamilies(daemon_, {}, {})).size();
  };
  const size_t both = page_bytes();
  daemon_.devices.pop_back();
  EXPECT_LT(both - page_bytes(), 20'000u);
}

TEST_F(DeviceFamilies, WearAndItsBudget) {
  daemon_.devices[1].drive_writes_per_day = 1.5;
  daemon_.engine.write_budget = {.bytes_per_day = 1000, .left_bytes = -7, .slowing = true, .delays = 3};
  daemon_.engine.totals.sealed_bytes = 99;
  daemon_.devices[1].drive_bytes = 4'000'000'000'000;
  EXPECT_EQ(Value("tierd_device_drive_writes_per_day", "device=1"), 1.5);
  EXPECT_EQ(Value("tierd_device_drive_bytes", "device=1"), 4e12);
  EXPECT_EQ(Value("tierd_device_drive_bytes", "device=0"), std::nullopt) << "it is not known";
  EXPECT_EQ(Value("tierd_write_budget_bytes_per_day", ""), 1000);
  EXPECT_EQ(Value("tierd_write_budget_left_bytes", ""), -7);
  EXPECT_EQ(Value("tierd_write_budget_slowing", ""), 1);
  EXPECT_EQ(Value("tierd_write_budget_delays_total", ""), 3);
  EXPECT_EQ(Value("tierd_sealed_bytes_total", ""), 99);
}

TEST_F(DeviceFamilies, HealthIsThereForDevicesOfWhichItIsKnown) {
  daemon_.devices[1].smart = {.figures = {.warnings = 1u << static_cast<unsigned>(storage::SmartWarning::kReadOnly),
                                          .temperature_kelvin = 311,
                                          .available_spare = 40,
                                          .spare_threshold = 10,
                                          .percentage_used = 120,
                                          .written_bytes = 5,
                                          .media_errors = 2},
                              .read_time = 1000,
                              .stale = true};
  EXPECT_EQ(Value("tierd_device_smart_warning", "device=1 cause=read_only"), 1);
  EXPECT_EQ(Value("tierd_device_smart_warning", "device=1 cause=spare"), 0);
  EXPECT_EQ(Value("tierd_device_smart_temperature_celsius", "device=1"), 38);
  EXPECT_EQ(Value("tierd_device_smart_available_spare_ratio", "device=1"), 0.4);
  EXPECT_EQ(Value("tierd_device_smart_spare_threshold_ratio", "device=1"), 0.1);
  EXPECT_EQ(Value("tierd_device_smart_used_ratio", "device=1"), 1.2);
  EXPECT_EQ(Value("tierd_device_smart_media_errors_total", "device=1"), 2);
  EXPECT_EQ(Value("tierd_device_smart_written_bytes_total", "device=1"), 5);
  EXPECT_EQ(Value("tierd_device_smart_read_time_seconds", "device=1"), 1000);
  EXPECT_EQ(Value("tierd_device_smart_stale", "device=1"), 1);
  EXPECT_EQ(Value("tierd_device_smart_used_ratio", "device=0"), std::nullopt);
  daemon_.devices[1].smart->figures.temperature_kelvin = 0;
  EXPECT_TRUE(Metrics("tierd_device_smart_temperature_celsius").empty()) << "it does not tell";
}

}  // namespace
}  // namespace tier::metrics
