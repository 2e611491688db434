// Quotas as messages: what is taken from a client and what it is told.
#include "daemon/control/convert_quotas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::control {
namespace {

using session::QuotaFields;
using ::testing::HasSubstr;
using tiering::kUnlimited;
using tiering::QuotaLevel;

TEST(ConvertQuotas, ATargetHasALevelAndAName) {
  EXPECT_EQ(QuotaTargetOf(v1::QUOTA_LEVEL_DEFAULT, "")->level, QuotaLevel::kDefault);
  EXPECT_EQ(QuotaTargetOf(v1::QUOTA_LEVEL_USER, "alice")->level, QuotaLevel::kUser);
  EXPECT_EQ(QuotaTargetOf(v1::QUOTA_LEVEL_GROUP, "100")->name, "100");
  const auto refused = [](int level, const std::string& name) {
    const auto target = QuotaTargetOf(static_cast<v1::QuotaLevel>(level), name);
    EXPECT_FALSE(target) << level << name;
    if (target) return std::string();
    EXPECT_EQ(target.error().code, Code::kInvalid);
    return target.error().message;
  };
  EXPECT_THAT(refused(v1::QUOTA_LEVEL_UNSPECIFIED, "x"), HasSubstr("level is 0, allowed are 1 (default), 2 (group)"));
  EXPECT_THAT(refused(4711, "x"), HasSubstr("level is 4711"));
  EXPECT_THAT(refused(v1::QUOTA_LEVEL_DEFAULT, "x"), HasSubstr("the default quota has no name"));
  for (const std::string& name : {std::string(), std::string("a b"), std::string("a\n"), std::string(257, 'x')})
    EXPECT_THAT(refused(v1::QUOTA_LEVEL_USER, name), HasSubstr("1 to 256 characters, and no spaces"));
}

TEST(ConvertQuotas, FieldsThatAreAbsentStayAbsent) {
  v1::SetQuotaRequest message;
  EXPECT_EQ(*FromMessage(message), QuotaFields{});
  message.mutable_ram()->set_most(7);
  message.mutable_ssd()->set_unlimited(true);
  message.mutable_guarantee();
  message.mutable_jobs()->set_most(3);
  EXPECT_EQ(*FromMessage(message), (QuotaFields{.ram = 7, .ssd = kUnlimited, .guarantee = 0, .jobs = 3}));
}

TEST(ConvertQuotas, ALimitIsOneOfTwo) {
  v1::SetQuotaRequest both;
  both.mutable_ssd()->set_unlimited(true);
  both.mutable_ssd()->set_most(1);
  EXPECT_THAT(FromMessage(both).error().message, HasSubstr("ssd is unlimited, and 1: give one of them"));
  v1::SetQuotaRequest large;
  large.mutable_ram()->set_most((uint64_t{1} << 50) + 1);
  EXPECT_EQ(FromMessage(large).error().code, Code::kInvalid);
  EXPECT_THAT(FromMessage(large).error().message,
              HasSubstr("ram is 1125899906842625, allowed are 0 to 1125899906842624"));
}

TEST(ConvertQuotas, AReportTellsUseLimitAndOrigin) {
  session::QuotaReport report;
  report.quotas.push_back({.level = QuotaLevel::kGroup, .at_run_time = true, .name = "100", .fields = {.ram = 0}});
  report.uses.push_back({.uid = 1000,
                         .ram = {.used = 5, .limit = {9, {QuotaLevel::kGroup, true, 100}}},
                         .ssd = {.used = 6, .limit = {10, {}}},
                         .guarantee = {.used = 0, .limit = {}},
                         .jobs = {.used = 1, .limit = {64, {}}}});
  v1::ListQuotasResponse message;
  ToMessage(report, &message);
  ASSERT_EQ(message.quotas_size(), 1);
  EXPECT_EQ(message.quotas(0).level(), v1::QUOTA_LEVEL_GROUP);
  EXPECT_TRUE(message.quotas(0).has_ram() && !message.quotas(0).has_ssd());
  EXPECT_FALSE(message.quotas(0).ram().unlimited()) << "0 is nothing";
  ASSERT_EQ(message.uses_size(), 1);
  const v1::QuotaUse& use = message.uses(0);
  EXPECT_EQ(use.ram().used(), 5u);
  EXPECT_EQ(use.ram().limit().most(), 9u);
  EXPECT_EQ(use.ram().origin(), "the quota of group 100, set at run time");
  EXPECT_EQ(use.ssd().origin(), "option jobs.max_ssd_per_uid");
  EXPECT_TRUE(use.guarantee().limit().unlimited());
  EXPECT_EQ(use.guarantee().origin(), "");
  EXPECT_EQ(use.jobs().origin(), "option jobs.max_jobs_per_uid");
}

TEST(ConvertQuotas, AnOwnerIsNamedInPlaceOfItsNumber) {
  session::QuotaReport report;
  report.quotas.push_back({.level = QuotaLevel::kUser, .name = "pod-a", .owner = "pod-a", .fields = {.ram = 0}});
  report.uses.push_back(
      {.uid = 0xF0000000, .owner = "pod-a", .ram = {.used = 5, .limit = {9, {QuotaLevel::kUser, true, 0xF0000000}}}});
  v1::ListQuotasResponse message;
  ToMessage(report, &message);
  EXPECT_EQ(message.quotas(0).owner(), "pod-a");
  EXPECT_EQ(message.uses(0).ram().origin(), "the quota of owner pod-a, set at run time");
}

}  // namespace
}  // namespace tier::control
