// Quotas on the command line: what is typed, and how an answer is shown.
#include "tools/tierctl/quota_verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

TEST(QuotaVerbs, FillsWhatIsTyped) {
  v1::SetQuotaRequest request;
  EXPECT_EQ(
      FillRequest({.level = "group", .name = "students", .ram = "1GiB", .ssd = "unlimited", .jobs = "0"}, &request),
      std::nullopt);
  EXPECT_EQ(request.level(), v1::QUOTA_LEVEL_GROUP);
  EXPECT_EQ(request.name(), "students");
  EXPECT_EQ(request.ram().most(), 1u << 30);
  EXPECT_TRUE(request.ssd().unlimited());
  EXPECT_FALSE(request.has_guarantee()) << "it stays as it is";
  EXPECT_TRUE(request.has_jobs());
  EXPECT_EQ(request.jobs().most(), 0u);
  EXPECT_EQ(LimitsText(request), "RAM 1.00 GiB, SSD unlimited, jobs 0");
  v1::ClearQuotaRequest clear;
  EXPECT_EQ(FillRequest({.level = "default"}, &clear), std::nullopt);
  EXPECT_EQ(clear.level(), v1::QUOTA_LEVEL_DEFAULT);
}

TEST(QuotaVerbs, MistakesAreExplained) {
  const auto mistake = [](const QuotaWords& words) {
    v1::SetQuotaRequest request;
    return FillRequest(words, &request);
  };
  EXPECT_THAT(mistake({.level = "alice", .ram = "1"}),
              Optional(HasSubstr("a quota is of 'default', 'user NAME' or 'group NAME', not of 'alice'")));
  EXPECT_THAT(mistake({.level = "user", .ram = "1"}), Optional(HasSubstr("name the user, or give its number")));
  EXPECT_THAT(mistake({.level = "default", .name = "x", .ram = "1"}),
              Optional(HasSubstr("the default quota has no name")));
  EXPECT_THAT(mistake({.level = "default"}), Optional(HasSubstr("nothing to set; name --ram, --ssd, --guarantee")));
  EXPECT_THAT(mistake({.level = "default", .ram = "much"}),
              Optional(HasSubstr("--ram \"much\" is no size; write it like 512MiB or 16GiB, or unlimited")));
  EXPECT_THAT(mistake({.level = "default", .guarantee = "-1"}), Optional(HasSubstr("--guarantee \"-1\" is no size")));
  EXPECT_THAT(mistake({.level = "default", .ram = "64"}),
              Optional(HasSubstr("--ram 64 is 64 bytes; write 64GiB, or 64B if bytes are meant")));
  EXPECT_THAT(mistake({.level = "default", .jobs = "1GiB"}),
              Optional(HasSubstr("--jobs \"1GiB\" is no count; write it like 4, or unlimited")));
}

TEST(QuotaVerbs, ShowsWhoHasWhatOfWhichQuota) {
  v1::ListQuotasResponse answer;
  v1::QuotaUse* use = answer.add_uses();
  use->set_uid(1000);
  use->mutable_ram()->set_used(512);
  use->mutable_ram()->mutable_limit()->set_most(1024);
  use->mutable_ram()->set_origin("the quota of group 100, set at run time");
  use->mutable_ssd()->mutable_limit()->set_unlimited(true);
  use->mutable_guarantee()->mutable_limit()->set_most(0);
  use->mutable_jobs()->set_used(2);
  use->mutable_jobs()->mutable_limit()->set_most(64);
  use->mutable_jobs()->set_origin("option jobs.max_jobs_per_uid");
  EXPECT_EQ(RenderUses(answer, {}),
            " UID  OF          USED      QUOTA  BY\n"
            "1000  RAM        512 B   1.00 KiB  the quota of group 100, set at run time\n"
            "1000  SSD          0 B  unlimited  -\n"
            "1000  guarantee    0 B        0 B  -\n"
            "1000  jobs           2         64  option jobs.max_jobs_per_uid\n");
}

TEST(QuotaVerbs, ListsQuotas) {
  v1::ListQuotasResponse answer;
  v1::Quota* first = answer.add_quotas();
  first->set_level(v1::QUOTA_LEVEL_DEFAULT);
  first->mutable_jobs()->set_most(8);
  v1::Quota* second = answer.add_quotas();
  second->set_level(v1::QUOTA_LEVEL_USER);
  second->set_name("1000\033[2J");
  second->set_at_run_time(true);
  second->mutable_ram()->set_unlimited(true);
  second->mutable_ssd()->set_most(0);
  const std::string text = RenderQuotas(answer, {}, {});
  EXPECT_THAT(text, HasSubstr("default"));
  EXPECT_THAT(text, HasSubstr("in the configuration"));
  EXPECT_THAT(text, HasSubstr("unlimited"));
  EXPECT_THAT(text, HasSubstr("0 B"));
  EXPECT_THAT(text, HasSubstr("at run time"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("\033"))) << "what is printed steers no terminal";
}

// Who was typed is found again.
TEST(QuotaVerbs, ListsWhomQuotasAreForByName) {
  const UserNames names{.of_user = [](uint32_t uid) { return uid == 5 ? "games" : ""; },
                        .of_group = [](uint32_t gid) { return gid == 60 ? "players" : ""; }};
  v1::ListQuotasResponse answer;
  const auto add = [&answer](v1::QuotaLevel level, const char* name, const char* owner = "") {
    v1::Quota* const quota = answer.add_quotas();
    quota->set_level(level);
    quota->set_name(name);
    quota->set_owner(owner);
  };
  add(v1::QUOTA_LEVEL_USER, "5");
  add(v1::QUOTA_LEVEL_USER, "6");
  add(v1::QUOTA_LEVEL_USER, "alice");
  add(v1::QUOTA_LEVEL_USER, "pod-a", "pod-a");
  add(v1::QUOTA_LEVEL_GROUP, "60");
  const std::string text = RenderQuotas(answer, {}, names);
  for (const char* whom : {"user games (5) ", "user 6 ", "user alice ", "owner pod-a ", "group players (60) "})
    EXPECT_THAT(text, HasSubstr(std::string("\n") + whom));
}

}  // namespace
}  // namespace tier::tierctl
