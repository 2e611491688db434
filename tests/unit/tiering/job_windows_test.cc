#include "daemon/tiering/tables/job_windows.h"

#include <gtest/gtest.h>

#include <vector>

namespace tier::tiering {
namespace {

std::vector<uint32_t> ReadyOf(const JobWindows& windows) {
  std::vector<uint32_t> indices;
  for (const WindowIndex window : windows.ready()) indices.push_back(Value(window));
  return indices;
}

using Indices = std::vector<uint32_t>;

TEST(JobWindows, WindowsThatLeaveLeaveTheOthersInTheirOrder) {
  JobWindows windows;
  for (const uint32_t index : {7, 3, 100, 5}) windows.Add(WindowIndex{index});
  windows.StartReturn(WindowIndex{3});
  windows.StartReturn(WindowIndex{5});
  EXPECT_EQ(windows.returning(), 2U);
  EXPECT_EQ(ReadyOf(windows), (Indices{7, 100}));
}

TEST(JobWindows, AnIndexMayComeBackAtOnce) {
  JobWindows windows;
  for (const uint32_t index : {7, 3, 100}) windows.Add(WindowIndex{index});
  windows.StartReturn(WindowIndex{7});
  windows.EndReturn();
  windows.Add(WindowIndex{7});
  EXPECT_EQ(ReadyOf(windows), (Indices{3, 100, 7}));
  windows.StartReturn(WindowIndex{7});
  EXPECT_EQ(ReadyOf(windows), (Indices{3, 100}));
}

// The list that a loop goes through stays while the loop returns windows of it.
TEST(JobWindows, AListThatIsGoneThroughStays) {
  JobWindows windows;
  for (uint32_t index = 0; index < 100; ++index) windows.Add(WindowIndex{index});
  const std::vector<WindowIndex>& ready = windows.ready();
  for (size_t i = ready.size(); i != 0; --i) windows.StartReturn(ready[i - 1]);
  EXPECT_EQ(ready.size(), 100U);
  EXPECT_TRUE(windows.ready().empty());
  EXPECT_EQ(windows.returning(), 100U);
}

}  // namespace
}  // namespace tier::tiering
