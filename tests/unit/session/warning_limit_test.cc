// Warnings about clients: a few are told, a flood is counted.
#include "daemon/session/warning_limit.h"

#include <gtest/gtest.h>

namespace tier::session {
namespace {

constexpr base::TimePoint kStart{std::chrono::seconds(1000)};

TEST(WarningLimit, TellsAFloodInOneLineOfTheNextPeriod) {
  WarningLimit limit;
  for (uint32_t i = 0; i < kWarningsPerPeriodMax; ++i) EXPECT_EQ(limit.Pass("refused", kStart), "refused");
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(limit.Pass("refused", kStart + kWarningPeriod / 2), std::nullopt);
  EXPECT_EQ(limit.left_out(), 1000u);
  EXPECT_EQ(limit.Pass("refused", kStart + kWarningPeriod), "refused (1000 lines before this one were left out)");
  EXPECT_EQ(limit.Pass("again", kStart + kWarningPeriod), "again") << "they are told once";
}

TEST(WarningLimit, EachPeriodHasItsOwn) {
  WarningLimit limit;
  for (uint32_t i = 0; i < 10 * kWarningsPerPeriodMax; ++i) {
    EXPECT_TRUE(limit.Pass("refused", kStart + kWarningPeriod * (i / kWarningsPerPeriodMax))) << i;
  }
}

}  // namespace
}  // namespace tier::session
