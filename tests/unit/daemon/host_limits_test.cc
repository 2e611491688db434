// What the configuration asks of a host that it may not have.
#include "daemon/host_limits.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/memory/numa_nodes.h"

namespace tier {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

config::Config Parse(const std::string& text) { return config::ParseConfig(text, "tierd.toml").value(); }

std::string Refusal(const Status& status) { return status ? std::string() : status.error().message; }

memory::HostReading HostOf(uint64_t memory) {
  memory::HostReading host;
  host.memory_total = memory;
  host.memory_available = memory;
  return host;
}

TEST(HostLimits, SharesAreOfTheMemoryOfTheHost) {
  const auto sizes = ArenaSizesOn(HostOf(64 * kGiB), Parse("[arena]\nmaximum = \"50%\"\nminimum = \"25%\"\n").arena);
  ASSERT_TRUE(sizes) << sizes.error().message;
  EXPECT_EQ(sizes->max_bytes, 32 * kGiB);
  EXPECT_EQ(sizes->min_bytes, 16 * kGiB);
}

TEST(HostLimits, AnArenaThatTheHostHasNoMemoryForIsRefused) {
  const auto large = ArenaSizesOn(HostOf(8 * kGiB), Parse("[arena]\nmaximum = \"9GiB\"\n").arena);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code, Code::kInvalid);
  const auto kept = ArenaSizesOn(HostOf(8 * kGiB), Parse("[arena]\nminimum = \"200GiB\"\n").arena);
  ASSERT_FALSE(kept);
  EXPECT_THAT(kept.error().message, AllOf(HasSubstr("cannot keep 200 GiB"), HasSubstr("arena.minimum")));
}

TEST(HostLimits, ToEndProcessesOfOthersTakesTheRight) {
  const config::Config kills = Parse("[jobs]\non_unreturned = \"kill\"\n");
  const Status refused = CheckRightToEnd(kills, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kDenied);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("CAP_KILL"), HasSubstr("kill.conf")));
  EXPECT_TRUE(CheckRightToEnd(kills, true));
  EXPECT_TRUE(CheckRightToEnd(Parse(""), false));
  EXPECT_TRUE(CheckRightToEnd(Parse("[daemon]\nprivate = true\n[jobs]\non_unreturned = \"kill\"\n"), false))
      << "its clients are its own user's";
}

TEST(HostLimits, ANodeThatIsNotThereIsRefused) {
  EXPECT_TRUE(CheckNumaNode(-1));
  const std::vector<int> nodes = memory::ReadMemoryNodes("/");
  if (nodes.empty()) GTEST_SKIP() << "needs NUMA nodes: sysfs tells of none";
  EXPECT_TRUE(CheckNumaNode(nodes.front()));
  EXPECT_THAT(Refusal(CheckNumaNode(1023)), HasSubstr("arena.numa_node is 1023"));
}

// As a start and a reload, which ask the same.
TEST(HostLimits, TheWholeConfigurationIsChecked) {
  EXPECT_EQ(Refusal(CheckHostLimits(config::DefaultConfig())), "");
  EXPECT_THAT(Refusal(CheckHostLimits(Parse("[arena]\nminimum = \"900TiB\"\n"))), HasSubstr("arena.minimum"));
  EXPECT_THAT(Refusal(CheckHostLimits(Parse("[arena]\nhost_reserve = \"900TiB\"\n"))), HasSubstr("arena.host_reserve"));
}

}  // namespace
}  // namespace tier
