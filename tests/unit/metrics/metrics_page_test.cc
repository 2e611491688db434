// docs/metrics.md is what the program prints.
#include "daemon/metrics/metrics_page.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

namespace tier::metrics {
namespace {

TEST(MetricsPage, IsWhatTheDocumentationHas) {
  std::ifstream file(TIER_METRICS_PAGE);
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(page, MetricsPage()) << "run tierd --print-metrics > docs/metrics.md";
}

TEST(MetricsPage, EveryLineOfTheTableHasFourCells) {
  const std::string page = MetricsPage();
  size_t rows = 0;
  for (size_t at = page.find("\n| `"); at != std::string::npos; at = page.find("\n| `", at + 1)) {
    const std::string line = page.substr(at + 1, page.find('\n', at + 1) - at - 1);
    EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 5) << line;
    ++rows;
  }
  EXPECT_GT(rows, 80u);
}

}  // namespace
}  // namespace tier::metrics
