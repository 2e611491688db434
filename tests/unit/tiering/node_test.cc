// Windows come from the NUMA node of the session that needs room.
#include <map>

#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

constexpr uint64_t kWindow = 8 * kMiB;

std::map<int, uint64_t> BytesByNode(const World& world) {
  std::map<int, uint64_t> bytes;
  for (const WindowView& window : world.engine->Pool().windows) bytes[window.node] += window.size;
  return bytes;
}

TEST(NodeOfWindows, IsThatOfTheSession) {
  World world({.windows = {.window_size = kWindow, .arena_max_bytes = 64 * kMiB}});
  const JobId job = world.OpenJob();
  const SessionId first = world.OpenSession(job);
  const SessionId second = world.OpenSession(job);
  world.engine->SetNode(first, 0);
  world.engine->SetNode(second, 1);
  world.Put(first, 1, kWindow);
  EXPECT_EQ(BytesByNode(world), (std::map<int, uint64_t>{{0, 2 * kWindow}})) << "one of them ahead of need";
  world.Put(second, 2, 2 * kWindow);
  EXPECT_EQ(BytesByNode(world), (std::map<int, uint64_t>{{0, 2 * kWindow}, {1, 2 * kWindow}}));
  EXPECT_EQ(world.engine->Snapshot().node_bytes, BytesByNode(world));
  const JobId other = world.OpenJob();
  const SessionId third = world.OpenSession(other);
  world.engine->SetNode(third, 1);
  world.Put(third, 1, kWindow);
  const EngineSnapshot snapshot = world.engine->Snapshot();
  ASSERT_EQ(snapshot.jobs.size(), 2u);
  EXPECT_EQ(snapshot.jobs[0].node_bytes, (std::map<int, uint64_t>{{0, 2 * kWindow}, {1, 2 * kWindow}}));
  ASSERT_EQ(snapshot.jobs[1].node_bytes.size(), 1u);
  EXPECT_GE(snapshot.jobs[1].node_bytes.at(1), kWindow);
  EXPECT_EQ(snapshot.node_bytes.at(1), 2 * kWindow + snapshot.jobs[1].node_bytes.at(1));
}

TEST(NodeOfWindows, IsAnyWhereTheSessionNamesNone) {
  World world({.windows = {.window_size = kWindow, .arena_max_bytes = 64 * kMiB}});
  world.Put(world.Open(), 1, kWindow);
  EXPECT_EQ(BytesByNode(world), (std::map<int, uint64_t>{{memory::kAnyNode, 2 * kWindow}}));
  EXPECT_TRUE(world.engine->Snapshot().node_bytes.empty());
}

TEST(NodeOfWindows, ASessionThatHasEndedHasNone) {
  World world({.windows = {.window_size = kWindow, .arena_max_bytes = 64 * kMiB}});
  const SessionId session = world.Open();
  world.engine->EndSession(session, Code::kOk, "gone", std::nullopt);
  world.engine->SetNode(session, 1);  // Its hello came before its end.
  world.Put(world.Open(), 1, kWindow);
  EXPECT_EQ(BytesByNode(world), (std::map<int, uint64_t>{{memory::kAnyNode, 2 * kWindow}}));
}

}  // namespace
}  // namespace tier::tiering::testing
