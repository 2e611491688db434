// FamilyBuilder: collects metric families one after the other; what is added goes to the family begun last.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <prometheus/metric_family.h>

#include "daemon/base/check.h"

namespace tier::metrics {

using Labels = std::vector<std::pair<std::string, std::string>>;  // One with an empty value is left out.

class FamilyBuilder {
 public:
  FamilyBuilder& Gauge(const char* name, const char* help) { return Begin(name, help, prometheus::MetricType::Gauge); }
  FamilyBuilder& Counter(const char* name, const char* help) {
    return Begin(name, help, prometheus::MetricType::Counter);
  }
  FamilyBuilder& Histogram(const char* name, const char* help) {
    return Begin(name, help, prometheus::MetricType::Histogram);
  }
  template <typename Value>
  FamilyBuilder& Add(Value value, const Labels& labels = {}) {
    prometheus::ClientMetric& metric = NewMetric(labels);
    if (families_.back().type == prometheus::MetricType::Counter) {
      metric.counter.value = static_cast<double>(value);
    } else {
      metric.gauge.value = static_cast<double>(value);
    }
    return *this;
  }
  // A series for each of `values`: 1 for the one that holds, 0 for the others.
  template <typename Names>
  FamilyBuilder& AddOneOf(const Names& values, std::string_view holds, const std::string& label, Labels others = {}) {
    others.emplace_back(label, "");
    for (const std::string_view value : values) {
      others.back().second = value;
      Add(value == holds ? 1 : 0, others);
    }
    return *this;
  }
  // `bounds`: the upper ones, in seconds. `counts` has one more, of what is beyond them.
  void AddHistogram(std::span<const uint64_t> counts, std::span<const double> bounds, uint64_t sum_ns,
                    const Labels& labels = {}) {
    TIER_CHECK(counts.size() == bounds.size() + 1, "{} counts for {} bounds", counts.size(), bounds.size());
    prometheus::ClientMetric& metric = NewMetric(labels);
    uint64_t cumulative = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      cumulative += counts[i];
      prometheus::ClientMetric::Bucket bucket;
      bucket.cumulative_count = cumulative;
      bucket.upper_bound = i == bounds.size() ? std::numeric_limits<double>::infinity() : bounds[i];
      metric.histogram.bucket.push_back(bucket);
    }
    metric.histogram.sample_count = cumulative;
    metric.histogram.sample_sum = static_cast<double>(sum_ns) * 1e-9;
  }

  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
  prometheus::ClientMetric& NewMetric(const Labels& labels) {
    prometheus::ClientMetric& metric = families_.back().metric.emplace_back();
    for (const auto& [name, value] : labels) {
      if (value.empty()) continue;
      metric.label.emplace_back();
      metric.label.back().name = name;
      metric.label.back().value = value;
    }
    return metric;
  }

  FamilyBuilder& Begin(const char* name, const char* help, prometheus::MetricType type) {
    prometheus::MetricFamily& family = families_.emplace_back();
    family.name = name;
    family.help = help;
    family.type = type;
    return *this;
  }
  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace tier::metrics
