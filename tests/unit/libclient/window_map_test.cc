#include "libclient/client/window_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

#include "proto/mapping.h"

namespace tier::client {
namespace {

using std::chrono::steady_clock;

class WindowMapTest : public ::testing::Test {
 protected:
  WindowMapTest() : map_(std::move(*WindowMap::Reserve(4, kWindowSize))) {}
  static proto::FileDescriptor File(uint64_t size = kWindowSize) {
    return std::move(*proto::CreateMemoryFile("window", size));
  }
  static constexpr uint64_t kWindowSize = 4 * kMiB;
  std::unique_ptr<WindowMap> map_;
};

TEST_F(WindowMapTest, NeighboursAreContiguous) {
  ASSERT_TRUE(map_->Map(1, kPageSize, File().get()));
  ASSERT_TRUE(map_->Map(2, kPageSize, File().get()));
  EXPECT_EQ(map_->AddressOf(1, kWindowSize), map_->AddressOf(2, 0));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(map_->AddressOf(0, 0)) % kWindowSize, 0u);
  *map_->AddressOf(2, 5) = std::byte{1};
  EXPECT_EQ(map_->mapped_count(), 2u);
}

TEST_F(WindowMapTest, RefusesWhatADaemonMustNotSend) {
  EXPECT_FALSE(map_->Map(4, kPageSize, File().get()));
  EXPECT_FALSE(map_->Map(0, 12345, File().get()));
  EXPECT_FALSE(map_->Map(0, kPageSize, File(kPageSize).get()));
  ASSERT_TRUE(map_->Map(0, kPageSize, File().get()));
  EXPECT_FALSE(map_->Map(0, kPageSize, File().get()));
  EXPECT_FALSE(map_->Unmap(3));
  EXPECT_FALSE(map_->Unmap(77));
}

TEST_F(WindowMapTest, AWindowUnderALeaseStays) {
  ASSERT_TRUE(map_->Map(0, kPageSize, File().get()));
  map_->AddLease(0);
  EXPECT_FALSE(map_->Unmap(0));
  map_->DropLease(0);
  EXPECT_TRUE(map_->Unmap(0));
  EXPECT_EQ(map_->mapped_count(), 0u);
  EXPECT_TRUE(map_->Map(0, kPageSize, File().get()));  // The same place again.
}

TEST_F(WindowMapTest, AwaitKnowsSpansThatFit) {
  ASSERT_TRUE(map_->Map(0, kPageSize, File().get()));
  const auto now = steady_clock::now();
  EXPECT_TRUE(map_->Await({1, 0, 0, kWindowSize - 10, 10}, now));
  EXPECT_FALSE(map_->Await({1, 0, 0, kWindowSize - 10, 11}, now));
  EXPECT_FALSE(map_->Await({1, 0, 0, ~0ull, 10}, now));
  EXPECT_FALSE(map_->Await({1, 9, 0, 0, 10}, now));
  EXPECT_FALSE(map_->Await({1, 1, 0, 0, 10}, now));
}

TEST_F(WindowMapTest, AwaitIsEndedByStop) {
  std::thread waiting(
      [&] { EXPECT_FALSE(map_->Await({1, 1, 0, 0, 10}, steady_clock::now() + std::chrono::hours(1))); });
  map_->Stop();
  waiting.join();
}

TEST_F(WindowMapTest, NothingOfItIsInheritedByAChild) {
  ASSERT_TRUE(map_->Map(0, kPageSize, File().get()));
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  bool window = false;
  int checked = 0;
  while (std::getline(smaps, line)) {
    if (line.find("-") != std::string::npos && line.find("memfd:window") != std::string::npos) window = true;
    if (!line.starts_with("VmFlags:")) continue;
    if (window) {
      EXPECT_THAT(line, ::testing::HasSubstr(" dc"));  // VM_DONTCOPY
      checked++;
    }
    window = false;
  }
  EXPECT_EQ(checked, 1);
}

TEST(WindowMap, RefusesMoreAddressesThanThereAre) {
  const auto map = WindowMap::Reserve(kWindowsMax, kWindowSizeMax * 64);
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, Code::kNoMemory);
}

}  // namespace
}  // namespace tier::client
