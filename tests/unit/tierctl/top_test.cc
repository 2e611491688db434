// What is typed for the time between two readings.
#include "tools/tierctl/top.h"

#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

using namespace std::chrono_literals;

TEST(ParseInterval, TakesSecondsWithOrWithoutAUnit) {
  EXPECT_EQ(ParseInterval("1"), 1s);
  EXPECT_EQ(ParseInterval("0.1"), 100ms);
  EXPECT_EQ(ParseInterval("2.5"), 2500ms);
  EXPECT_EQ(ParseInterval("500ms"), 500ms);
  EXPECT_EQ(ParseInterval("1min"), 60s);
  EXPECT_EQ(ParseInterval("3600"), 1h);
}

TEST(ParseInterval, RefusesWhatIsNoTimeOrOutOfRange) {
  for (const char* text : {"", ".", "nan", "-nan", "NaN", "nans", "inf", "infs", "-1", "1e400", "0", "0.09", "3601",
                           "1d", "five", "1 2", "99999999999999999999"})
    EXPECT_EQ(ParseInterval(text), std::nullopt) << text;
}

}  // namespace
}  // namespace tier::tierctl
