#include "tools/tierctl/user_names.h"

#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

TEST(UserNames, AreThoseOfTheSystem) {
  EXPECT_EQ(NameOfUser(0), "root");
  EXPECT_EQ(NameOfGroup(0), "root");
  EXPECT_EQ(NameOfUser(4026531840u), "");
}

TEST(UserNames, ANumberIsDigitsAlone) {
  EXPECT_EQ(NumberIn("65534"), 65534u);
  for (const char* text : {"", "5x", " 5", "-1", "4294967296", "games"}) EXPECT_FALSE(NumberIn(text)) << text;
}

}  // namespace
}  // namespace tier::tierctl
