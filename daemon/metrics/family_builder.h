// FamilyBuilder: collects metric families one after the other; what is added goes to the family begun last.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <prometheus/metric_family.h>

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
  std::vector<prometheus::MetricFamily> Take() { return std::move(families_); }

 private:
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
