#include "daemon/base/check.h"

#include <gtest/gtest.h>

namespace tier::base {
namespace {

TEST(CheckDeathTest, PrintsPlaceConditionAndValuesAndAborts) {
  const int free_pages = 3;
  EXPECT_DEATH(TIER_CHECK(free_pages == 4, "free {} of {}", free_pages, 4),
               "check_test.cc:[0-9]+: CHECK failed: free_pages == 4: free 3 of 4");
  EXPECT_DEATH(TIER_CHECK(free_pages > 5), "CHECK failed: free_pages > 5\n");
}

TEST(Check, EvaluatesValuesOnlyWhenItFails) {
  int evaluations = 0;
  TIER_CHECK(true, "{}", ++evaluations);
  EXPECT_EQ(evaluations, 0);
}

}  // namespace
}  // namespace tier::base
