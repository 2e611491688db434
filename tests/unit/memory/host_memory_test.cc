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
  EXPECT_EQ(reading->cgroup.limit, kUnlimited);
  EXPECT_FALSE(reading->stalls.known || reading->cgroup.stalls.known);
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

TEST(HostMemory, ReadsPressureOfTheMachineAndOfTheGroup) {
  const FakeHost host;
  host.SetMemory(64 * kGiB, 40 * kGiB);
  host.SetPressure(12.5, 3.25);
  host.SetGroup("/job");
  host.Write("sys/fs/cgroup/job/memory.pressure",
             "some avg10=7.00 avg60=0 avg300=0 total=70\nfull avg10=1.00 total=9\n");
  const auto reading = ReadHost(host.root());
  ASSERT_TRUE(reading && reading->stalls.known && reading->cgroup.stalls.known);
  EXPECT_DOUBLE_EQ(reading->stalls.some_avg10, 12.5);
  EXPECT_DOUBLE_EQ(reading->stalls.full_avg10, 3.25);
  EXPECT_EQ(reading->stalls.full_total_us, 4U);
  EXPECT_EQ(reading->cgroup.stalls.some_total_us, 70U);
}

TEST(HostMemory, APressureFileThatMakesNoSenseSaysNothing) {
  for (const char* const text : {"", "some nonsense\n", "some avg10=1.00 total=1\n", "full avg10=1.00\nsome avg10=x\n",
                                 "some avg10=nan total=1\nfull avg10=1 total=1\n"}) {
    EXPECT_FALSE(ParseStalls(text).known) << text;
  }
  const MemoryStalls short_one = ParseStalls("some avg10=1.00\nfull avg10=2.00 total=99999999999999999999999\n");
  EXPECT_TRUE(short_one.known);
  EXPECT_FALSE(short_one.some_total_us || short_one.full_total_us);
}

TEST(HostMemory, CountsWhatTheProcessTakesBesideItsWindows) {
  const FakeHost host;
  host.SetMemory(64 * kGiB, 40 * kGiB);
  EXPECT_EQ(ReadHost(host.root())->own_bytes, 0U);
  host.Write("proc/self/status",
             "Name:\ttierd\nRssAnon:\t  40 kB\nRssFile:\t 9 kB\nRssShmem:\t 900 kB\nVmPTE:\t 3 kB\n"
             "VmSwap:\t 5 kB\n");
  EXPECT_EQ(ReadHost(host.root())->own_bytes, 48 * kKiB);
}

TEST(HostMemory, ReadsThisMachine) {
  const auto reading = ReadHost();
  ASSERT_TRUE(reading) << reading.error().message;
  EXPECT_GT(reading->memory_total, reading->memory_available);
  EXPECT_GT(reading->own_bytes, 0U);
  EXPECT_EQ(reading->cgroup.unreadable, "");
}

}  // namespace
}  // namespace tier::memory
