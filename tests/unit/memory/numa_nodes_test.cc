#include "daemon/memory/numa_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/memory/fake_host.h"

namespace tier::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kHasMemory = "sys/devices/system/node/has_memory";

TEST(MemoryNodes, AreReadFromSysfs) {
  const FakeHost host;
  EXPECT_THAT(ReadMemoryNodes(host.root()), IsEmpty()) << "it does not tell";
  host.Write(kHasMemory, "0,2-3\n");
  EXPECT_THAT(ReadMemoryNodes(host.root()), ElementsAre(0, 2, 3));
  for (const char* text : {"", "many", "1-", "2000"}) {
    host.Write(kHasMemory, text);
    EXPECT_THAT(ReadMemoryNodes(host.root()), IsEmpty()) << text;
  }
}

TEST(NumaNodes, AWindowComesRatherFromItsClientsNode) {
  const NumaNodes nodes(kAnyNode, {0, 2});
  EXPECT_TRUE(nodes.several());
  EXPECT_EQ(nodes.For(2).node, 2);
  EXPECT_FALSE(nodes.For(2).only);
  EXPECT_EQ(nodes.For(kAnyNode).node, kAnyNode);
}

TEST(NumaNodes, ANodeWithoutMemoryIsNotPreferred) {
  const NumaNodes nodes(kAnyNode, {0, 2});
  for (const int wished : {1, 3, -7, 70000}) EXPECT_EQ(nodes.For(wished).node, kAnyNode) << wished;
}

TEST(NumaNodes, TheConfiguredNodeIsTheOnlyOne) {
  NumaNodes nodes(1, {0, 1});
  for (const NodeChoice choice : {nodes.For(0), nodes.For(kAnyNode), nodes.ForStock()}) {
    EXPECT_EQ(choice.node, 1);
    EXPECT_TRUE(choice.only);
  }
}

TEST(NumaNodes, WhatIsMadeAheadIsSpread) {
  NumaNodes nodes(kAnyNode, {0, 2, 5});
  for (const int node : {0, 2, 5, 0}) EXPECT_EQ(nodes.ForStock().node, node);
}

TEST(NumaNodes, OnOneNodeNothingIsChosen) {
  for (const std::vector<int>& with_memory : {std::vector<int>{0}, std::vector<int>{}}) {
    NumaNodes nodes(kAnyNode, with_memory);
    EXPECT_EQ(nodes.For(0).node, kAnyNode);
    EXPECT_EQ(nodes.ForStock().node, kAnyNode);
  }
}

}  // namespace
}  // namespace tier::memory
