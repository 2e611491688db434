#include "proto/number_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::proto {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(NumberList, ReadsWhatTheKernelWrites) {
  EXPECT_THAT(ParseNumberList("0\n").value(), ElementsAre(0));
  EXPECT_THAT(ParseNumberList("0-3,8,10-11\n").value(), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(ParseNumberList("\n").value(), IsEmpty());
  EXPECT_THAT(ParseNumberList("8191").value(), ElementsAre(8191));
}

TEST(NumberList, RefusesWhatIsNone) {
  for (const char* text : {"a", "-1", "1-", "3-1", "1,,2", "1,", "1 2", "8192", "0-8192", "99999999999", "0x1"}) {
    EXPECT_FALSE(ParseNumberList(text)) << text;
  }
}

TEST(NumberList, DoesNotGrowBeyondAllNumbers) {
  std::string text = "0-8191";
  EXPECT_EQ(ParseNumberList(text).value().size(), kListedNumbersMax);
  EXPECT_FALSE(ParseNumberList(text + ",0-8191"));
}

}  // namespace
}  // namespace tier::proto
