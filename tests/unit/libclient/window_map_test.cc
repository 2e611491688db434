#include "libclient/client/window_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "proto/mapping.h"
#include "tests/unit/libclient/asleep.h"

namespace tier::client {
namespace {

using std::chrono::steady_clock;

constexpr uint64_t kWindowSize = 4 * kMiB;
constexpr uint64_t kAddressSpace = 8 * kWindowSize;

// A right packet: window i behind window i − 1.
proto::WindowPacket Packet(uint32_t window, uint64_t size = kWindowSize) {
  proto::WindowPacket packet{};
  packet.window = window;
  packet.page_size = kPageSize;
  packet.size = size;
  packet.place = window * kWindowSize;
  return packet;
}

proto::FileDescriptor File(uint64_t size = kWindowSize) { return std::move(*proto::CreateMemoryFile("window", size)); }

class WindowMapTest : public ::testing::Test {
 protected:
  WindowMapTest() : map_(std::move(*WindowMap::Reserve(4, kAddressSpace))) {}
  std::unique_ptr<WindowMap> map_;
};

TEST_F(WindowMapTest, NeighboursAreContiguous) {
  ASSERT_TRUE(map_->Map(Packet(1), File().get()));
  ASSERT_TRUE(map_->Map(Packet(2), File().get()));
  EXPECT_EQ(map_->AddressOf(1, kWindowSize), map_->AddressOf(2, 0));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(map_->AddressOf(1, 0)) % kWindowSize, 0u);
  *map_->AddressOf(2, 5) = std::byte{1};
  EXPECT_EQ(map_->mapped_count(), 2u);
  EXPECT_EQ(map_->mapped_bytes(), 2 * kWindowSize);
}

TEST_F(WindowMapTest, WindowsOfTwoSizesLieAtTheirPlaces) {
  proto::WindowPacket small = Packet(0, 2 * kMiB);
  small.kind = static_cast<uint16_t>(WindowKind::kSlot);
  small.place = kAddressSpace - 2 * kMiB;
  ASSERT_TRUE(map_->Map(small, File(2 * kMiB).get()));
  small.window = 3;
  small.place -= 2 * kMiB;
  ASSERT_TRUE(map_->Map(small, File(2 * kMiB).get()));
  ASSERT_TRUE(map_->Map(Packet(1), File().get()));
  EXPECT_EQ(map_->AddressOf(3, 2 * kMiB), map_->AddressOf(0, 0));
  EXPECT_EQ(map_->AddressOf(0, 0) - map_->AddressOf(1, 0),
            static_cast<ptrdiff_t>(kAddressSpace - 2 * kMiB - kWindowSize));
  EXPECT_EQ(map_->size(0), 2 * kMiB);
  EXPECT_EQ(map_->mapped_bytes(), 4 * kMiB + kWindowSize);
  *map_->AddressOf(0, 2 * kMiB - 1) = std::byte{1};
  ASSERT_TRUE(map_->Unmap(0));
  EXPECT_EQ(map_->mapped_bytes(), 2 * kMiB + kWindowSize);
}

TEST_F(WindowMapTest, RefusesWhatADaemonMustNotSend) {
  EXPECT_FALSE(map_->Map(Packet(4), File().get()));
  EXPECT_FALSE(map_->Map(Packet(0), File(kPageSize).get()));
  ASSERT_TRUE(map_->Map(Packet(0), File().get()));
  EXPECT_FALSE(map_->Map(Packet(0), File().get()));
  EXPECT_FALSE(map_->Unmap(3));
  EXPECT_FALSE(map_->Unmap(77));
  EXPECT_EQ(map_->mapped_count(), 1u);
}

TEST_F(WindowMapTest, RefusesWindowsOfImpossibleShapesAndSaysWhy) {
  const auto refusal = [&](const std::function<void(proto::WindowPacket&)>& spoil) {
    proto::WindowPacket packet = Packet(1);
    spoil(packet);
    const auto mapped = map_->Map(packet, File().get());
    if (mapped) return std::string("it was mapped");
    EXPECT_EQ(mapped.error().code, Code::kInvalid);
    return mapped.error().message;
  };
  const ::testing::Matcher<std::string> size = ::testing::HasSubstr("impossible size");
  EXPECT_THAT(refusal([](auto& packet) { packet.size = 0; }), size);
  EXPECT_THAT(refusal([](auto& packet) { packet.size = kMiB; }), size);
  EXPECT_THAT(refusal([](auto& packet) { packet.size = 3 * kMiB; }), size);
  EXPECT_THAT(refusal([](auto& packet) { packet.size = 2 * kWindowSizeMax; }), size);
  EXPECT_THAT(refusal([](auto& packet) { packet.size = uint64_t{1} << 63; }), size);
  const ::testing::Matcher<std::string> page_size = ::testing::HasSubstr("impossible page size");
  EXPECT_THAT(refusal([](auto& packet) { packet.page_size = 12345; }), page_size);
  EXPECT_THAT(refusal([](auto& packet) {
                packet.page_size = kBlockSize;
                packet.kind = static_cast<uint16_t>(WindowKind::kSlot);
              }),
              page_size);
  const ::testing::Matcher<std::string> kind = ::testing::HasSubstr("unknown kind");
  EXPECT_THAT(refusal([](auto& packet) { packet.kind = kWindowKinds; }), kind);
  EXPECT_THAT(refusal([](auto& packet) { packet.reserved0 = 1; }), kind);
  EXPECT_THAT(refusal([](auto& packet) { packet.reserved1 = 1; }), kind);
  EXPECT_EQ(map_->mapped_count(), 0u);
}

TEST_F(WindowMapTest, RefusesPlacesOutsideTheAddressSpaceAndOnOtherWindows) {
  const auto refusal = [&](uint64_t place, uint64_t size) {
    proto::WindowPacket packet = Packet(1, size);
    packet.place = place;
    const auto mapped = map_->Map(packet, File(size).get());
    return mapped ? std::string("it was mapped") : mapped.error().message;
  };
  const ::testing::Matcher<std::string> multiple = ::testing::HasSubstr("no multiple");
  EXPECT_THAT(refusal(1, kWindowSize), multiple);
  EXPECT_THAT(refusal(2 * kMiB, kWindowSize), multiple);
  EXPECT_THAT(refusal(UINT64_MAX, kWindowSize), multiple);
  const ::testing::Matcher<std::string> outside = ::testing::HasSubstr("of an address space of 33554432 bytes");
  EXPECT_THAT(refusal(kAddressSpace, kWindowSize), outside);
  EXPECT_THAT(refusal(~(kWindowSize - 1), kWindowSize), outside);
  EXPECT_THAT(refusal(0, 2 * kAddressSpace), outside);
  ASSERT_TRUE(map_->Map(Packet(2), File().get()));
  const ::testing::Matcher<std::string> taken = ::testing::HasSubstr("where another window lies");
  EXPECT_THAT(refusal(2 * kWindowSize, kWindowSize), taken);
  EXPECT_THAT(refusal(2 * kWindowSize, 2 * kMiB), taken) << "its start";
  EXPECT_THAT(refusal(2 * kWindowSize + 2 * kMiB, 2 * kMiB), taken) << "its end";
  EXPECT_THAT(refusal(0, 4 * kWindowSize), taken) << "all of it and more";
  EXPECT_EQ(refusal(kWindowSize, kWindowSize), "it was mapped");
}

TEST_F(WindowMapTest, APlaceIsFreeAgainOnceItsWindowWasGivenBack) {
  proto::WindowPacket packet = Packet(0);
  ASSERT_TRUE(map_->Map(packet, File().get()));
  *map_->AddressOf(0, 0) = std::byte{7};
  ASSERT_TRUE(map_->Unmap(0));
  packet.window = 3;
  packet.size = 2 * kMiB;
  ASSERT_TRUE(map_->Map(packet, File(2 * kMiB).get()));
  EXPECT_EQ(*map_->AddressOf(3, 0), std::byte{0}) << "another window";
}

TEST_F(WindowMapTest, AWindowUnderALeaseStays) {
  ASSERT_TRUE(map_->Map(Packet(0), File().get()));
  map_->AddLease(0);
  EXPECT_FALSE(map_->Unmap(0));
  map_->DropLease(0);
  EXPECT_TRUE(map_->Unmap(0));
  EXPECT_EQ(map_->mapped_count(), 0u);
  EXPECT_TRUE(map_->Map(Packet(0), File().get()));  // The same place again.
}

TEST_F(WindowMapTest, AwaitKnowsSpansThatFit) {
  ASSERT_TRUE(map_->Map(Packet(0), File().get()));
  constexpr std::chrono::milliseconds kAtOnce{0};
  EXPECT_TRUE(map_->Await({1, 0, 0, kWindowSize - 10, 10}, kAtOnce));
  EXPECT_FALSE(map_->Await({1, 0, 0, kWindowSize - 10, 11}, kAtOnce)) << "the next window's";
  EXPECT_FALSE(map_->Await({1, 0, 0, ~0ull, 10}, kAtOnce));
  EXPECT_FALSE(map_->Await({1, 9, 0, 0, 10}, kAtOnce));
  EXPECT_FALSE(map_->Await({1, 1, 0, 0, 10}, kAtOnce));
}

TEST_F(WindowMapTest, AwaitIsEndedByStop) {
  std::atomic<pid_t> waiter{0};
  auto waiting = std::async(std::launch::async, [&] {
    waiter = ::gettid();
    return map_->Await({1, 1, 0, 0, 10}, std::chrono::hours(1));
  });
  while (waiter.load() == 0) std::this_thread::yield();
  EXPECT_TRUE(session_fake::FallsAsleep(waiter.load()));
  map_->Stop();
  const bool woken = waiting.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
  EXPECT_TRUE(woken) << "Stop did not wake the thread";
  if (!woken) (void)map_->Map(Packet(1), File().get());  // Its arrival ends the wait, so that the test ends.
  EXPECT_EQ(waiting.get(), !woken);
}

TEST_F(WindowMapTest, NothingOfItIsInheritedByAChild) {
  ASSERT_TRUE(map_->Map(Packet(0), File().get()));
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
  const auto map = WindowMap::Reserve(kWindowsMax, uint64_t{1} << 50);
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().code, Code::kNoMemory);
}

}  // namespace
}  // namespace tier::client
