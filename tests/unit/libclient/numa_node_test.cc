#include "libclient/link/numa_node.h"

#include <filesystem>
#include <fstream>
#include <initializer_list>

#include <gtest/gtest.h>

#include "tests/support/session/temporary_directory.h"

namespace tier::link {
namespace {

// A sysfs of two nodes with two processors each, and a GPU at the second one.
class NumaNode : public testing::Test {
 protected:
  NumaNode() {
    Write("devices/system/node/online", "0-1\n");
    Write("devices/system/node/node0/cpulist", "0,2\n");
    Write("devices/system/node/node1/cpulist", "1,3\n");
    Write("bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
  }

  void Write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::optional<uint16_t> Of(std::initializer_list<int> processors, const std::string& gpu = {}) const {
    CallerPlace place{.gpu = gpu, .processors = {}};
    for (const int processor : processors) CPU_SET(processor, &place.processors);
    return NodeOf(place, root_.string());
  }

  const session::testing::TemporaryDirectory folder_;
  const std::filesystem::path root_ = folder_.path();
};

TEST_F(NumaNode, IsThatOfAllProcessors) {
  EXPECT_EQ(Of({0, 2}), 0);
  EXPECT_EQ(Of({3}), 1);
}

TEST_F(NumaNode, IsNoneWhereTheProcessorsBelongToSeveral) {
  EXPECT_EQ(Of({0, 1, 2, 3}), std::nullopt);
  EXPECT_EQ(Of({}), std::nullopt) << "the system did not tell";
  EXPECT_EQ(Of({7}), std::nullopt) << "no node has it";
}

TEST_F(NumaNode, IsThatOfTheGpuWhereverTheProcessorsAre) {
  EXPECT_EQ(Of({0, 2}, "0000:3B:00.0"), 1);
  EXPECT_EQ(Of({0, 1, 2, 3}, "0000:3b:00.0"), 1);
}

TEST_F(NumaNode, FallsBackToTheProcessorsWhereTheGpuHasNone) {
  Write("bus/pci/devices/0000:3b:00.0/numa_node", "-1\n");
  EXPECT_EQ(Of({0}, "0000:3b:00.0"), 0);
  EXPECT_EQ(Of({0}, "0000:99:00.0"), 0) << "there is no such device";
  for (const char* text : {"", "one", "1 2", "1024", "99999999999"}) {
    Write("bus/pci/devices/0000:3b:00.0/numa_node", text);
    EXPECT_EQ(Of({0}, "0000:3b:00.0"), 0) << text;
  }
}

TEST_F(NumaNode, AnAddressThatIsNoneNamesNoFile) {
  Write("bus/pci/numa_node", "1\n");
  EXPECT_EQ(Of({0}, ".."), 0);
  EXPECT_EQ(Of({0}, "../devices/0000:3b:00.0"), 0);
}

TEST_F(NumaNode, IsNoneWhereThereIsOneNode) {
  Write("devices/system/node/online", "0\n");
  EXPECT_EQ(Of({0}), std::nullopt);
  EXPECT_EQ(Of({0}, "0000:3b:00.0"), std::nullopt);
  std::filesystem::remove_all(root_ / "devices");
  EXPECT_EQ(Of({0}), std::nullopt) << "no sysfs";
}

TEST_F(NumaNode, NonsenseInSysfsIsNoNode) {
  Write("devices/system/node/node0/cpulist", "all of them\n");
  EXPECT_EQ(Of({0}), std::nullopt);
  Write("devices/system/node/online", "0,2000\n");
  Write("devices/system/node/node2000/cpulist", "0\n");
  EXPECT_EQ(Of({0}), std::nullopt) << "no kernel has so many";
}

TEST(AllowedProcessors, AreSome) {
  const cpu_set_t processors = AllowedProcessors();
  EXPECT_GT(CPU_COUNT(&processors), 0);
}

}  // namespace
}  // namespace tier::link
