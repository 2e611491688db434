#include "daemon/base/edit_distance.h"

#include <gtest/gtest.h>

namespace tier::base {
namespace {

TEST(EditDistance, CountsWhatWasPutInLeftOutReplacedAndSwapped) {
  EXPECT_EQ(EditDistance("status", "status"), 0u);
  EXPECT_EQ(EditDistance("statsu", "status"), 1u) << "swapped";
  EXPECT_EQ(EditDistance("sttus", "status"), 1u) << "left out";
  EXPECT_EQ(EditDistance("statuss", "status"), 1u) << "put in";
  EXPECT_EQ(EditDistance("ststus", "status"), 1u) << "replaced";
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3u);
  EXPECT_EQ(EditDistance("", "abc"), 3u);
  EXPECT_EQ(EditDistance("abc", ""), 3u);
  EXPECT_EQ(EditDistance("", ""), 0u);
}

TEST(EditDistance, IsTheSameBothWays) {
  for (const auto& [a, b] : {std::pair("drian", "drain"), std::pair("ca", "abc"), std::pair("jbo", "job")}) {
    EXPECT_EQ(EditDistance(a, b), EditDistance(b, a)) << a << " " << b;
  }
}

}  // namespace
}  // namespace tier::base
