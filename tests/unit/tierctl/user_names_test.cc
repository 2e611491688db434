#include "tools/tierctl/user_names.h"

#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

TEST(UserNames, AreThoseOfTheSystem) {
  EXPECT_EQ(NameOfUser(0), "root");
  EXPECT_EQ(NameOfGroup(0), "root");
  EXPECT_EQ(UidOf("root"), 0u);
  EXPECT_EQ(NameOfUser(4026531840u), "");
  EXPECT_FALSE(UidOf("no such user"));
}

TEST(UserNames, ANumberIsDigitsAlone) {
  EXPECT_EQ(NumberIn("65534"), 65534u);
  for (const char* text : {"", "5x", " 5", "-1", "4294967296", "games"}) EXPECT_FALSE(NumberIn(text)) << text;
}

TEST(UserNames, WhoWritesANameWhereANumberIsMeantIsToldTheNumber) {
  const UserNames names{.uid_of = [](const std::string& name) {
    return name == "nobody" ? std::optional<uint32_t>(65534) : std::nullopt;
  }};
  EXPECT_EQ(HintOnUid("nobody/train", names), "the UID of UID/NAME is a number: 65534/train");
  EXPECT_EQ(HintOnUid("nobdoy/train", names), "the UID of UID/NAME is a number");
  EXPECT_EQ(HintOnUid("1001/train", names), "");
  EXPECT_EQ(HintOnUid("train", names), "");
  EXPECT_EQ(HintOnUid("/train", names), "");
}

}  // namespace
}  // namespace tier::tierctl
