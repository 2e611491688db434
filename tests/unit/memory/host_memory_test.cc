#include "daemon/memory/host_memory.h"

#include <gtest/gtest.h>

#include "tests/unit/memory/fake_host.h"

namespace tier::memory {
namespace {

TEST(HostMemory, ReadsMeminfoInBytes) {
  const FakeHost host;
  host.SetMemory(64 * kGiB, 40 * kGiB, 7);
  const auto reading = ReadHost(host.root());
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->memory_total, 64 * kGiB);
  EXPECT_EQ(reading->memory_available, 40 * kGiB);
  EXPECT_EQ(reading->huge_page_size, 2 * kMiB);
  EXPECT_EQ(reading->huge_pages_free, 7U);
  EXPECT_EQ(reading->cgroup_limit, kUnlimited);
  EXPECT_FALSE(reading->pressure_known);
  EXPECT_EQ(reading->memory_limit(), 64 * kGiB);
  EXPECT_EQ(reading->available(), 40 * kGiB);
}

TEST(HostMemory, TakesReservedHugePagesOff) {
  const FakeHost host;
  host.Write("proc/meminfo", "MemTotal: 8 kB\nMemAvailable: 4 kB\nHugePages_Free: 3\nHugePages_Rsvd: 5\n");
  EXPECT_EQ(ReadHost(host.root())->huge_pages_free, 0U);
  EXPECT_EQ(ReadHost(host.root())->huge_page_size, 0U);
}

TEST(HostMemory, AMissingOrShortMeminfoIsAnErrorThatNamesIt) {
  const FakeHost host;
  auto reading = ReadHost(host.root());
  ASSERT_FALSE(reading);
  EXPECT_EQ(reading.error().code, Code::kIoError);
  EXPECT_NE(reading.error().message.find("/proc/meminfo"), std::string::npos);
  host.Write("proc/meminfo", "MemTotal: 8 kB\n");
  EXPECT_FALSE(ReadHost(host.root()));
  host.Write("proc/meminfo", "MemTotal: eight kB\nMemAvailable: 4 kB\n");
  EXPECT_FALSE(ReadHost(host.root()));
}

TEST(HostMemory, TakesTheTightestCgroupV2LimitOnTheWayToTheRoot) {
  const FakeHost host;
  host.SetMemory(64 * kGiB, 40 * kGiB);
  host.Write("proc/self/cgroup", "0::/system.slice/tierd.service\n");
  const std::string group = "sys/fs/cgroup/system.slice/";
  host.Write(group + "tierd.service/memory.max", "max\n");
  host.Write(group + "memory.max", fmt::format("{}\n", 8 * kGiB));
  host.Write(group + "memory.current", fmt::format("{}\n", 5 * kGiB));
  host.Write(group + "memory.stat", fmt::format("anon 1\ninactive_file {}\n", 2 * kGiB));
  const auto reading = ReadHost(host.root());
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->cgroup_limit, 8 * kGiB);
  EXPECT_EQ(reading->cgroup_available, 5 * kGiB);
  EXPECT_EQ(reading->memory_limit(), 8 * kGiB);
  EXPECT_EQ(reading->available(), 5 * kGiB);
}

TEST(HostMemory, ReadsCgroupV1AndKnowsItsWordForUnlimited) {
  const FakeHost host;
  host.SetMemory(64 * kGiB, 40 * kGiB);
  host.Write("proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/job/7\n0::/\n");
  const std::string group = "sys/fs/cgroup/memory/";
  host.Write(group + "memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(ReadHost(host.root())->cgroup_limit, kUnlimited);
  host.Write(group + "job/7/memory.limit_in_bytes", fmt::format("{}\n", 2 * kGiB));
  host.Write(group + "job/7/memory.usage_in_bytes", fmt::format("{}\n", 3 * kGiB));
  EXPECT_EQ(ReadHost(host.root())->cgroup_limit, 2 * kGiB);
  EXPECT_EQ(ReadHost(host.root())->cgroup_available, 0U);
  host.Write(group + "job/7/memory.stat", fmt::format("inactive_file 0\ntotal_inactive_file {}\n", 2 * kGiB));
  EXPECT_EQ(ReadHost(host.root())->cgroup_available, 1 * kGiB);
}

TEST(HostMemory, AContainersForeignPathFallsBackToTheMountedRoot) {
  const FakeHost host;
  host.SetMemory(64 * kGiB, 40 * kGiB);
  host.Write("proc/self/cgroup", "0::/../../machine.slice/libpod-1234\n");
  host.Write("sys/fs/cgroup/memory.max", fmt::format("{}\n", kGiB));
  host.Write("sys/fs/cgroup/memory.current", "0\n");
  EXPECT_EQ(ReadHost(host.root())->cgroup_limit, kGiB);
}

TEST(HostMemory, ReadsPressure) {
  const FakeHost host;
  host.SetMemory(64 * kGiB, 40 * kGiB);
  host.SetPressure(12.5, 3.25);
  const auto reading = ReadHost(host.root());
  ASSERT_TRUE(reading && reading->pressure_known);
  EXPECT_DOUBLE_EQ(reading->pressure_some_avg10, 12.5);
  EXPECT_DOUBLE_EQ(reading->pressure_full_avg10, 3.25);
  host.Write("proc/pressure/memory", "some nonsense\n");
  EXPECT_FALSE(ReadHost(host.root())->pressure_known);
}

TEST(HostMemory, ReadsThisMachine) {
  const auto reading = ReadHost();
  ASSERT_TRUE(reading) << reading.error().message;
  EXPECT_GT(reading->memory_total, reading->memory_available);
}

}  // namespace
}  // namespace tier::memory
