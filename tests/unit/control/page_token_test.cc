// Places in lists as text: what is given out comes back, and nothing else is taken.
#include "daemon/control/page_token.h"

#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::control {
namespace {

using ::testing::HasSubstr;
using List = PagePlace::List;

constexpr uint64_t kEpoch = 0xfedcba9876543210;

TEST(PageToken, APlaceComesBackAsItWas) {
  for (const List list : {List::kJobs, List::kReservations, List::kStoredManifests, List::kTensors}) {
    for (const uint64_t number : {uint64_t{0}, uint64_t{17}, UINT64_MAX}) {
      for (const std::string name : {"", "train", "1000/train", "a//b", "0/t/0/"}) {
        const PagePlace place{.list = list, .number = number, .name = name};
        const auto back = FromPageToken(kEpoch, ToPageToken(kEpoch, place));
        ASSERT_TRUE(back) << back.error().message;
        EXPECT_EQ(*back, place);
      }
    }
  }
}

TEST(PageToken, ATokenFromBeforeARestartIsRefused) {
  const std::string token = ToPageToken(kEpoch, {.list = List::kJobs, .number = 5, .name = {}});
  const auto refused = FromPageToken(kEpoch + 1, token);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_THAT(refused.error().message, HasSubstr("from before tierd was started: begin the list again"));
}

TEST(PageToken, WhatTierdNeverGaveIsRefused) {
  const std::string good = ToPageToken(kEpoch, {.list = List::kTensors, .number = 10, .name = "train"});
  std::vector<std::string> tokens = {"",
                                     "/",
                                     "//",
                                     "x",
                                     "1/t",
                                     "1/t/",
                                     "1/t/2",
                                     "1//2/",
                                     "1/tt/2/",
                                     "-1/t/2/",
                                     " 1/t/2/",
                                     "0x1/t/2/",
                                     "1/q/2/x",
                                     "10000000000000000/t/2/",
                                     std::string(1, '\0') + good,
                                     "0" + good};
  for (size_t length = 0; length < good.find("/train") + 1; ++length) tokens.push_back(good.substr(0, length));
  std::string upper = good;
  upper[0] = 'F';
  tokens.push_back(upper);
  for (const std::string& token : tokens) {
    const auto refused = FromPageToken(kEpoch, token);
    ASSERT_FALSE(refused) << token;
    EXPECT_EQ(refused.error().code, Code::kInvalid) << token;
    EXPECT_THAT(refused.error().message, HasSubstr("without one")) << token;
  }
}

TEST(PageToken, APageHasItsUsualSizeUnlessOneIsAskedFor) {
  EXPECT_EQ(PageSizeOf(0, 10, 100).value(), 10u);
  EXPECT_EQ(PageSizeOf(1, 10, 100).value(), 1u);
  EXPECT_EQ(PageSizeOf(100, 10, 100).value(), 100u);
  EXPECT_EQ(PageSizeOf(INT32_MAX, 10, 100).value(), 100u) << "no error: a page may always have fewer";
  for (const int32_t asked : {-1, INT32_MIN}) {
    const auto refused = PageSizeOf(asked, 10, 100);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kInvalid);
    EXPECT_THAT(refused.error().message, HasSubstr(std::to_string(asked)));
  }
}

}  // namespace
}  // namespace tier::control
