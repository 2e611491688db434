// Samples of one figure: median, quartiles, and how they are printed: one JSON line for each figure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace tier::bench {

class Samples {
 public:
  void Add(double value) { values_.push_back(value); }
  size_t count() const { return values_.size(); }
  // The value below which `part` of the samples lie (nearest rank). 0 without samples.
  double Quantile(double part) const {
    if (values_.empty()) return 0;
    std::vector<double> sorted = values_;
    std::sort(sorted.begin(), sorted.end());
    const auto rank = static_cast<size_t>(std::lround(part * static_cast<double>(sorted.size() - 1)));
    return sorted[rank];
  }
  double Median() const { return Quantile(0.5); }

 private:
  std::vector<double> values_;
};

inline double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline void PrintFigure(const std::string& name, const std::string& unit, const Samples& samples) {
  fmt::print(
      "{{\"figure\": \"{}\", \"unit\": \"{}\", \"median\": {:.6g}, \"q1\": {:.6g}, \"q3\": {:.6g}, \"p99\": {:.6g}, "
      "\"samples\": {}}}\n",
      name, unit, samples.Median(), samples.Quantile(0.25), samples.Quantile(0.75), samples.Quantile(0.99),
      samples.count());
}

}  // namespace tier::bench
