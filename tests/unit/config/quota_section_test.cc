// Quotas in the configuration: what is read, and that every mistake is told with its line and what would be right.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/config/config.h"
#include "daemon/config/quota_section.h"
#include "proto/units.h"

namespace tier::config {
namespace {

using session::QuotaFields;
using ::testing::HasSubstr;
using tiering::kUnlimited;

std::string Mistake(const std::string& text) {
  const auto config = ParseConfig(text, "tierd.toml");
  if (config) return "accepted";
  EXPECT_EQ(config.error().code, Code::kInvalid);
  return config.error().message;
}

constexpr char kLevels[] = R"(
[quota.default]
ram = "8GiB"
ssd = 1048576
guarantee = 0
jobs = 4
[quota.user."alice"]
ram = "unlimited"
jobs = "unlimited"
[quota.user.1001]
ssd = "1TiB"
)";

TEST(QuotaSection, ReadsEveryLevelAndKindOfValue) {
  const auto config = ParseConfig(std::string(kLevels) + R"([quota.group."phd students".x]
)",
                                  "x");
  EXPECT_FALSE(config) << "a group's name has no spaces";
  const auto good = ParseConfig(std::string(kLevels) + R"([quota.group.students]
guarantee = "2GiB"
[quota.group.staff]
)",
                                "x");
  ASSERT_TRUE(good) << good.error().message;
  const session::QuotaTable& quota = good->quota;
  EXPECT_EQ(quota.by_default, (QuotaFields{.ram = 8 * kGiB, .ssd = kMiB, .guarantee = 0, .jobs = 4}));
  EXPECT_EQ(quota.users.at("alice"), (QuotaFields{.ram = kUnlimited, .jobs = kUnlimited}));
  EXPECT_EQ(quota.users.at("1001"), (QuotaFields{.ssd = 1024 * kGiB}));
  EXPECT_EQ(quota.groups.at("students"), (QuotaFields{.guarantee = 2 * kGiB}));
  EXPECT_FALSE(quota.groups.contains("staff")) << "its section says nothing";
  EXPECT_EQ(ParseConfig("[quota]\n[quota.user]\n", "x")->quota, session::QuotaTable{});
}

TEST(QuotaSection, MistakesAreToldWithTheirLine) {
  struct Case {
    std::string text, part;
  };
  const Case cases[] = {
      {"quota = 1\n", "tierd.toml:1: 'quota' is no quota: quotas stand in the sections [quota.default]"},
      {"[quota]\nram = 1\n", "tierd.toml:2: 'quota.ram' is no quota"},
      {"[quota.usr.bob]\nram = 1\n", "tierd.toml:2: 'quota.usr.bob.ram' is no quota"},
      {"[quota.user]\nram = 1\n", "tierd.toml:2: 'quota.user.ram' is no quota"},
      {"[quota.user.bob]\nram = { most = 1 }\n", "tierd.toml:2: 'quota.user.bob.ram.most' is no quota"},
      {"[quota.user.bob.more.yet]\nram = 1\n", "'quota.user.bob.more.yet' is no quota"},
      {"[quota.default.x]\n", "tierd.toml:1: 'quota.default.x' is no quota"},
      {"[quota.default]\nrom = 1\n",
       "tierd.toml:2: unknown option 'quota.default.rom'; a quota has ram, ssd, guarantee "
       "and jobs, the nearest is 'ram'"},
      {"[quota.user.bob]\n\nram = \"8 gigs\"\n", "tierd.toml:3: option quota.user.bob.ram: "},
      {"[quota.user.bob]\nram = \"\"\n", "must be a size like \"64GiB\", a number of bytes (0: nothing), or "},
      {"[quota.user.bob]\nram = -1\n", "option quota.user.bob.ram: must be a size"},
      {"[quota.user.bob]\nram = true\n", "option quota.user.bob.ram: must be a size"},
      {"[quota.user.bob]\nram = 1.5\n", "option quota.user.bob.ram: must be a size"},
      {"[quota.user.bob]\nram = [1]\n", "option quota.user.bob.ram: must be a size"},
      {"[quota.user.bob]\nssd = \"2000000TiB\"\n", "option quota.user.bob.ssd: "},
      {"[quota.user.bob]\nssd = 1125899906842625\n", "are out of range, allowed are 0 to 1024 TiB, or \"unlimited\""},
      {"[quota.user.bob]\njobs = \"4\"\n",
       "quota.user.bob.jobs: must be a number of 0 (none) to 65536, or \"unlimited\""},
      {"[quota.user.bob]\njobs = -1\n", "quota.user.bob.jobs: must be a number"},
      {"[quota.user.bob]\njobs = 65537\n", "quota.user.bob.jobs: must be a number"},
      {"[quota.user.bob]\nram = 5\nguarantee = 6\n", "guarantee of 6 bytes is above ram of 5 bytes"},
      {"[quota.user.\"\"]\nram = 1\n", "option quota.user..ram: the name is empty"},
      {"[quota.user.\"a b\"]\nram = 1\n", "a name has no spaces, control characters, ':' or '/'"},
      {"[quota.group.\"a\\u0007\"]\nram = 1\n", "a name has no spaces, control characters"},
      {"[quota.user.4294967295]\nram = 1\n", "must be an id of 0 to 4294967294, without leading zeros"},
      {"[quota.user.99999999999]\nram = 1\n", "must be an id of 0 to 4294967294"},
      {"[quota.user.4026531840]\nram = 1\n",
       "tierd.toml:2: option quota.user.4026531840.ram: uids from 4026531840 to 4294967293 stand for owners of "
       "sockets: write the owner's name (tierctl socket list)"},
      {"[quota.user.\"4294967293\"]\nram = 1\n", "write the owner's name"},
      {"[quota.group.007]\nram = 1\n", "must be an id of 0 to 4294967294, without leading zeros"},
      {fmt::format("[quota.user.{}]\nram = 1\n", std::string(257, 'x')), "the name has 257 characters, at most 256"},
  };
  for (const Case& one : cases) EXPECT_THAT(Mistake(one.text), HasSubstr(one.part)) << one.text;
}

TEST(QuotaSection, NumbersBesideThoseOfOwnersAreUsersAndAllAreGroups) {
  for (const char* name : {"user.4026531839", "user.4294967294", "group.4026531840", "group.4294967293"})
    EXPECT_TRUE(ParseConfig(fmt::format("[quota.{}]\nram = 1\n", name), "x")) << name;
}

TEST(QuotaSection, TheNumberOfNamesIsLimited) {
  std::string text;
  for (size_t i = 0; i < session::kQuotasMax; ++i)
    text += fmt::format("[quota.{}.u{}]\nram = 1\n", i % 2 ? "user" : "group", i);
  EXPECT_TRUE(ParseConfig(text, "x"));
  EXPECT_THAT(Mistake(text + "[quota.user.one-more]\nram = 1\n"), HasSubstr("more than 4096 users and groups"));
}

TEST(QuotaSection, IsNotOfTheCommandLineAndNoOptionThatNeedsARestart) {
  Config config = DefaultConfig();
  const Status refused = ApplyOverride("quota.default.ram=1GiB", &config);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              HasSubstr("quotas stand in the file, or are set at run time (tierctl quota set)"));
  Config other = config;
  other.quota.by_default.ram = 1;
  EXPECT_TRUE(ChangedOptions(config, other).empty());
  EXPECT_NE(config, other);
}

}  // namespace
}  // namespace tier::config
