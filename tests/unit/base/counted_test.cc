#include "daemon/base/counted.h"

#include <gtest/gtest.h>

namespace tier::base {
namespace {

TEST(Counted, OneIsNotMany) {
  EXPECT_EQ(Counted(0, "job"), "0 jobs");
  EXPECT_EQ(Counted(1, "job"), "1 job");
  EXPECT_EQ(Counted(2, "job"), "2 jobs");
  EXPECT_EQ(Counted(1, "request waits", "requests wait"), "1 request waits");
  EXPECT_EQ(Counted(2, "request waits", "requests wait"), "2 requests wait");
}

}  // namespace
}  // namespace tier::base
