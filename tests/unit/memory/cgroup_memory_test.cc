// Limits of control groups, of both versions, at every level.
#include "daemon/memory/cgroup_memory.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/memory/kernel_text.h"
#include "tests/unit/memory/fake_host.h"

namespace tier::memory {
namespace {

using testing::HasSubstr;

class CgroupMemoryTest : public testing::Test {
 protected:
  CgroupMemory Read() const { return ReadCgroups(host_.root()); }
  void SetGroupStat(const std::string& path, const std::string& text) const {
    host_.Write("sys/fs/cgroup" + path + "/memory.stat", text);
  }
  FakeHost host_;
};

TEST_F(CgroupMemoryTest, NothingBindsWhereNothingIsThere) {
  EXPECT_EQ(Read().limit, kUnlimited);
  host_.SetGroup("/a/b");
  EXPECT_EQ(Read().limit, kUnlimited);
  EXPECT_EQ(Read().available, kUnlimited);
  EXPECT_EQ(Read().tightest, "");
}

TEST_F(CgroupMemoryTest, TakesTheTightestLimitOnTheWayToTheRoot) {
  host_.SetGroup("/system.slice/tierd.service");
  host_.Write("sys/fs/cgroup/system.slice/tierd.service/memory.max", "max\n");
  host_.SetGroupFile("/system.slice", "memory.max", 8 * kGiB);
  host_.SetGroupFile("/system.slice", "memory.current", 5 * kGiB);
  SetGroupStat("/system.slice", fmt::format("anon 1\ninactive_file {}\nactive_file {}\nslab_reclaimable {}\n", kGiB,
                                            kGiB / 2, kGiB / 2));
  const CgroupMemory found = Read();
  EXPECT_EQ(found.limit, 8 * kGiB);
  EXPECT_EQ(found.available, 5 * kGiB);
  EXPECT_EQ(found.unused, 3 * kGiB);
  EXPECT_EQ(found.unused_limit, 8 * kGiB);
  EXPECT_EQ(found.excess, 0U);
  EXPECT_EQ(found.tightest, "memory.max of /system.slice");
}

TEST_F(CgroupMemoryTest, MemoryHighBindsAsMemoryMaxDoes) {
  host_.SetGroup("/a/b");
  host_.SetGroupFile("/a/b", "memory.max", 4 * kGiB);
  host_.SetGroupFile("/a/b", "memory.high", 3 * kGiB);
  host_.SetGroupFile("/a/b", "memory.current", kGiB);
  EXPECT_EQ(Read().limit, 3 * kGiB);
  EXPECT_EQ(Read().available, 2 * kGiB);
  EXPECT_EQ(Read().tightest, "memory.high of /a/b");
  host_.SetGroupFile("/a/b", "memory.high", kGiB - kMiB);  // Lowered below what is used.
  EXPECT_EQ(Read().available, 0U);
  EXPECT_EQ(Read().excess, kMiB);
  host_.SetGroupFile("/a", "memory.high", 4 * kGiB);
  host_.SetGroupFile("/a", "memory.current", 4 * kGiB + 3 * kMiB);
  EXPECT_EQ(Read().limit, kGiB - kMiB) << "the group's own";
  EXPECT_EQ(Read().excess, 3 * kMiB) << "of the level above";
  host_.Write("sys/fs/cgroup/a/b/memory.high", "max\n");  // Raised again.
  host_.Write("sys/fs/cgroup/a/memory.high", "max\n");
  EXPECT_EQ(Read().limit, 4 * kGiB);
  EXPECT_EQ(Read().excess, 0U);
}

TEST_F(CgroupMemoryTest, ReadsVersion1AndKnowsItsWordForUnlimited) {
  host_.Write("proc/self/cgroup", "9:name=systemd:/x\n4:cpu,memory:/job/7\n0::/\n");
  host_.SetGroupFile("/memory", "memory.limit_in_bytes", 9223372036854771712U);
  EXPECT_EQ(Read().limit, kUnlimited);
  host_.SetGroupFile("/memory/job/7", "memory.limit_in_bytes", 2 * kGiB);
  host_.SetGroupFile("/memory/job/7", "memory.usage_in_bytes", 3 * kGiB);
  EXPECT_EQ(Read().limit, 2 * kGiB);
  EXPECT_EQ(Read().available, 0U);
  EXPECT_EQ(Read().excess, kGiB);
  SetGroupStat("/memory/job/7", fmt::format("inactive_file 0\ntotal_inactive_file {}\n", 2 * kGiB));
  EXPECT_EQ(Read().available, kGiB);
  EXPECT_EQ(Read().tightest, "memory.limit_in_bytes of /job/7");
}

TEST_F(CgroupMemoryTest, LevelsOfVersion1ThatCannotBeSeenBindThroughTheOwnGroup) {
  host_.Write("proc/self/cgroup", "4:memory:/job/7\n");
  host_.SetGroupFile("/memory/job/7", "memory.limit_in_bytes", 9223372036854771712U);
  SetGroupStat("/memory/job/7", fmt::format("hierarchical_memory_limit {}\n", kGiB));
  EXPECT_EQ(Read().limit, kGiB);
}

TEST_F(CgroupMemoryTest, BothVersionsBindWhereBothAreMounted) {
  host_.Write("proc/self/cgroup", "4:memory:/job\n0::/own\n");
  host_.SetGroupFile("/memory/job", "memory.limit_in_bytes", 3 * kGiB);
  host_.SetGroupFile("/unified/own", "memory.high", 2 * kGiB);
  EXPECT_EQ(Read().limit, 2 * kGiB);
  host_.Write("sys/fs/cgroup/unified/own/memory.pressure", "some avg10=5.00 total=1\nfull avg10=4.00 total=1\n");
  EXPECT_TRUE(Read().stalls.known);
}

TEST_F(CgroupMemoryTest, AContainersForeignPathFallsBackToTheMountedRoot) {
  host_.SetGroup("/../../machine.slice/libpod-1234");
  host_.SetGroupFile("", "memory.max", kGiB);
  host_.SetGroupFile("", "memory.current", 0);
  EXPECT_EQ(Read().limit, kGiB);
  EXPECT_EQ(Read().tightest, "memory.max of /");
}

TEST_F(CgroupMemoryTest, AFileThatMakesNoSenseBindsNothingAndIsNamed) {
  host_.SetGroup("/a");
  host_.SetGroupFile("/a", "memory.max", 2 * kGiB);
  for (const char* const text : {"many\n", "", "-5\n", "99999999999999999999999999\n"}) {
    host_.Write("sys/fs/cgroup/a/memory.high", text);
    const CgroupMemory found = Read();
    EXPECT_EQ(found.limit, 2 * kGiB) << text;
    EXPECT_THAT(found.unreadable, HasSubstr("/a/memory.high")) << text;
  }
  host_.Write("sys/fs/cgroup/a/memory.high", "max\n");
  EXPECT_EQ(Read().unreadable, "");
  host_.Write("sys/fs/cgroup/a/memory.current", "none\n");
  EXPECT_THAT(Read().unreadable, HasSubstr("memory.current"));
}

TEST_F(CgroupMemoryTest, AFileThatCannotBeReadBindsNothing) {
  host_.SetGroup("/a");
  std::filesystem::create_directories(host_.root() + "/sys/fs/cgroup/a/memory.max");  // read() says EISDIR.
  host_.SetGroupFile("/a", "memory.high", kGiB);
  EXPECT_EQ(Read().limit, kGiB);
}

TEST_F(CgroupMemoryTest, AnEndlessFileIsNotRead) {
  host_.SetGroup("/a");
  host_.Write("sys/fs/cgroup/a/memory.max", std::string(kKernelTextMax + 8192, '1'));
  EXPECT_EQ(Read().limit, kUnlimited);
  EXPECT_FALSE(ReadText(host_.root() + "/sys/fs/cgroup/a/memory.max"));
  EXPECT_FALSE(ReadText("/dev/zero"));
}

TEST_F(CgroupMemoryTest, APathOfManyLevelsEnds) {
  std::string path;
  for (int i = 0; i < 300; ++i) path += "/a";
  host_.SetGroup(path);
  host_.SetGroupFile("", "memory.max", kGiB);
  EXPECT_EQ(Read().limit, kUnlimited) << "further up than groups can be nested";
  host_.Write("proc/self/cgroup", "nonsense\n0:\n:::\n0::/a\n");
  EXPECT_EQ(Read().limit, kGiB);
}

}  // namespace
}  // namespace tier::memory
