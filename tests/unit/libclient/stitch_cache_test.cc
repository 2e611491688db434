#include "libclient/client/stitch_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>
#include <span>

#include <cstring>

namespace tier::client {
namespace {

constexpr uint64_t kWindowSize = 4 * kMiB;
constexpr uint32_t kWindows = 4;

proto::WindowPacket Packet(uint32_t window, uint64_t size, uint32_t page_size = kPageSize) {
  proto::WindowPacket packet{};
  packet.window = window;
  packet.page_size = page_size;
  packet.size = size;
  packet.place = window * size;
  return packet;
}

class StitchCacheTest : public ::testing::Test {
 protected:
  StitchCacheTest() : map_(std::move(*WindowMap::Reserve(kWindows, 2 * kWindows * kWindowSize))) {
    for (uint32_t i = 0; i < kWindows; ++i) {
      const auto file = std::move(*proto::CreateMemoryFile("window", kWindowSize));
      EXPECT_TRUE(map_->Map(Packet(i, kWindowSize), file.get()));
      // Each page says which it is.
      for (uint64_t at = 0; at < kWindowSize; at += kPageSize) {
        const uint64_t mark = i * kWindowSize + at;
        std::memcpy(map_->AddressOf(i, at), &mark, sizeof mark);
      }
    }
  }
  static uint64_t MarkAt(const std::byte* address) {
    uint64_t mark;
    std::memcpy(&mark, address, sizeof mark);
    return mark;
  }
  std::unique_ptr<WindowMap> map_;
};

TEST_F(StitchCacheTest, LaysRunsBehindEachOther) {
  StitchCache cache(*map_, 100);
  const client::Run runs[] = {{3, kBlockSize, kBlockSize}, {0, 0, kBlockSize}, {1, 8 * kPageSize, 1000}};
  auto view = cache.Acquire(runs);
  ASSERT_TRUE(view) << view.error().message;
  const std::byte* data = (*view)->data;
  EXPECT_EQ(MarkAt(data), 3 * kWindowSize + kBlockSize);
  EXPECT_EQ(MarkAt(data + kBlockSize), 0u);
  EXPECT_EQ(MarkAt(data + 2 * kBlockSize), kWindowSize + 8 * kPageSize);
  (*view)->data[kBlockSize + 9] = std::byte{0xab};
  EXPECT_EQ(*map_->AddressOf(0, 9), std::byte{0xab});
  EXPECT_EQ(cache.vmas_used(), 3u);
  cache.Release(*view);
}

TEST_F(StitchCacheTest, BlocksLieAtTheirPlaceInAHugePage) {
  StitchCache cache(*map_, 100);
  const client::Run whole[] = {{3, 0, kBlockSize}, {0, kBlockSize, kBlockSize}, {1, 8 * kPageSize, 1000}};
  const client::Run late[] = {{1, kBlockSize + 3 * kPageSize, kBlockSize - 3 * kPageSize}, {0, 0, kBlockSize}};
  for (const std::span<const client::Run> runs : {std::span<const client::Run>(whole), {late}}) {
    auto view = cache.Acquire(runs);
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*view)->data) % kBlockSize, runs.front().offset % kBlockSize);
    cache.Release(*view);
  }
}

TEST_F(StitchCacheTest, TheSameRunsGiveTheSameView) {
  StitchCache cache(*map_, 100);
  const client::Run runs[] = {{2, 0, kBlockSize}, {1, 0, kPageSize}};
  StitchCache::View* const first = *cache.Acquire(runs);
  StitchCache::View* const second = *cache.Acquire(runs);
  EXPECT_EQ(first, second);
  cache.Release(first);
  cache.Release(second);
  EXPECT_EQ(cache.view_count(), 1u);
}

TEST_F(StitchCacheTest, TheLeastRecentlyUsedMakesRoom) {
  StitchCache cache(*map_, 5);
  const client::Run a[] = {{2, 0, kBlockSize}, {1, 0, kPageSize}};
  const client::Run b[] = {{3, 0, kBlockSize}, {1, 0, kPageSize}};
  const client::Run c[] = {{0, 0, kBlockSize}, {2, 0, kPageSize}};
  cache.Release(*cache.Acquire(a));
  StitchCache::View* const kept = *cache.Acquire(b);
  cache.Release(kept);
  cache.Release(*cache.Acquire(b));
  cache.Release(*cache.Acquire(c));
  EXPECT_EQ(cache.view_count(), 2u);
  EXPECT_EQ(*cache.Acquire(b), kept);
  cache.Release(kept);
}

TEST_F(StitchCacheTest, ViewsInUseAreNeverTaken) {
  StitchCache cache(*map_, 3);
  const client::Run a[] = {{2, 0, kBlockSize}, {1, 0, kPageSize}};
  const client::Run b[] = {{3, 0, kBlockSize}, {1, 0, kPageSize}};
  StitchCache::View* const held = *cache.Acquire(a);
  const auto refused = cache.Acquire(b);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_EQ(MarkAt(held->data), 2 * kWindowSize);
  cache.Release(held);
  EXPECT_TRUE(cache.Acquire(b));
}

TEST_F(StitchCacheTest, ViewsOfWhatHasMovedAreNotKeptBeyondTwiceTheWindows) {
  StitchCache cache(*map_, 10000);
  constexpr uint64_t kMax = StitchCache::kViewsOfWindowsMax * kWindows * kWindowSize;
  const client::Run used[] = {{3, kBlockSize, kBlockSize}, {1, 0, kPageSize}};
  StitchCache::View* const held = *cache.Acquire(used);
  for (uint64_t page = 0; page < 100; ++page) {
    const client::Run runs[] = {{2, 0, kBlockSize}, {1, kBlockSize, kBlockSize}, {0, page * kPageSize, kPageSize}};
    cache.Release(*cache.Acquire(runs));
    EXPECT_LE(cache.bytes_used(), kMax);
  }
  EXPECT_GE(cache.bytes_used(), kMax / 2) << "what fits is kept";
  EXPECT_EQ(MarkAt(held->data), 3 * kWindowSize + kBlockSize);
  cache.Release(held);
}

TEST_F(StitchCacheTest, ViewsInUseMayShowMoreThanTheWindowsHave) {
  StitchCache cache(*map_, 10000);
  std::vector<StitchCache::View*> held;
  for (uint64_t page = 0; page < 20; ++page) {
    const client::Run runs[] = {{2, 0, kBlockSize}, {1, kBlockSize, kBlockSize}, {0, page * kPageSize, kPageSize}};
    held.push_back(*cache.Acquire(runs));
  }
  EXPECT_EQ(cache.view_count(), held.size());
  for (StitchCache::View* view : held) cache.Release(view);
}

TEST_F(StitchCacheTest, RunsThatMeetInsideAPageAreRefused) {
  StitchCache cache(*map_, 100);
  const client::Run runs[] = {{2, 0, 100}, {1, 0, kPageSize}};
  const auto view = cache.Acquire(runs);
  ASSERT_FALSE(view);
  EXPECT_EQ(view.error().code, Code::kInvalid);
  EXPECT_EQ(cache.vmas_used(), 0u);
}

TEST_F(StitchCacheTest, AWindowTakesItsViewsWithIt) {
  StitchCache cache(*map_, 100);
  const client::Run a[] = {{2, 0, kBlockSize}, {1, 0, kPageSize}};
  const client::Run b[] = {{3, 0, kBlockSize}, {0, 0, kPageSize}};
  cache.Release(*cache.Acquire(a));
  cache.Release(*cache.Acquire(b));
  cache.DropWindow(1);
  EXPECT_EQ(cache.view_count(), 1u);
  EXPECT_EQ(cache.vmas_used(), 2u);
}

TEST_F(StitchCacheTest, AHeldViewOutlivesDropAllAsAnEntryOnly) {
  StitchCache cache(*map_, 100);
  const client::Run a[] = {{2, 0, kBlockSize}, {1, 0, kPageSize}};
  StitchCache::View* const held = *cache.Acquire(a);
  cache.DropAll();
  EXPECT_EQ(cache.view_count(), 1u);
  cache.Release(held);
  EXPECT_EQ(cache.view_count(), 0u);
}

TEST_F(StitchCacheTest, HugePagesAreStitchedThroughTheirDescriptors) {
  const proto::FileDescriptor huge(::memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB));
  if (!huge || ::ftruncate(huge.get(), 2 * kBlockSize) != 0) GTEST_SKIP() << "needs hugetlb: memfd_create(MFD_HUGETLB)";
  void* const probe = ::mmap(nullptr, 2 * kBlockSize, PROT_READ | PROT_WRITE, MAP_SHARED, huge.get(), 0);
  if (probe == MAP_FAILED) GTEST_SKIP() << "needs hugepages: two free pages of 2 MiB (vm.nr_hugepages)";
  ::munmap(probe, 2 * kBlockSize);
  auto map = std::move(*WindowMap::Reserve(2, 4 * kBlockSize));
  ASSERT_TRUE(map->Map(Packet(0, 2 * kBlockSize, kBlockSize), huge.get()));
  StitchCache cache(*map, 100);
  cache.KeepDescriptor(0, proto::FileDescriptor(::dup(huge.get())));
  *map->AddressOf(0, kBlockSize) = std::byte{1};
  *map->AddressOf(0, 0) = std::byte{2};
  const client::Run runs[] = {{0, kBlockSize, kBlockSize}, {0, 0, kBlockSize}};
  const auto view = cache.Acquire(runs);
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_EQ((*view)->data[0], std::byte{1});
  EXPECT_EQ((*view)->data[kBlockSize], std::byte{2});
  cache.Release(*view);
}

TEST_F(StitchCacheTest, AForkedChildHasNoDescriptorOfAWindow) {
  StitchCache cache(*map_, 12);
  proto::FileDescriptor file(::memfd_create("window", MFD_CLOEXEC));
  const int number = file.get();
  cache.KeepDescriptor(0, std::move(file));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::fcntl(number, F_GETFD) == -1 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "it is closed in the child";
  EXPECT_NE(::fcntl(number, F_GETFD), -1);
  cache.DropWindow(0);
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

TEST_F(StitchCacheTest, ManyDescriptorsLeaveTheLowNumbersToTheProgram) {
  StitchCache cache(*map_, 12);
  for (uint32_t window = 0; window < StitchCache::kLowDescriptorsMax + 8; ++window) {
    cache.KeepDescriptor(window, proto::FileDescriptor(::memfd_create("window", MFD_CLOEXEC)));
  }
  const proto::FileDescriptor next(::memfd_create("next", MFD_CLOEXEC));
  EXPECT_LT(next.get(), static_cast<int>(StitchCache::kLowDescriptorsMax) + 64);
  EXPECT_NE(::fcntl(FD_SETSIZE, F_GETFD), -1) << "they are kept";
  for (uint32_t window = 0; window < StitchCache::kLowDescriptorsMax + 8; ++window) cache.DropWindow(window);
  EXPECT_EQ(::fcntl(FD_SETSIZE, F_GETFD), -1);
}

RC_GTEST_FIXTURE_PROP(StitchCacheTest, EveryViewShowsItsPages, ()) {
  StitchCache cache(*map_, 12);
  for (int round = 0; round < 20; ++round) {
    std::vector<client::Run> runs;
    const int blocks = *rc::gen::inRange(1, 4);
    for (int i = 0; i < blocks; ++i) {
      runs.push_back(
          {*rc::gen::inRange<uint32_t>(0, kWindows), *rc::gen::inRange<uint64_t>(0, 2) * kBlockSize, kBlockSize});
    }
    runs.push_back({*rc::gen::inRange<uint32_t>(0, kWindows), *rc::gen::inRange<uint64_t>(0, 100) * kPageSize,
                    *rc::gen::inRange<uint64_t>(1, 9 * kPageSize)});
    const auto view = cache.Acquire(runs);
    RC_ASSERT(view.has_value());
    const std::byte* at = (*view)->data;
    for (const client::Run& run : runs) {
      RC_ASSERT(MarkAt(at) == run.window * kWindowSize + run.offset);
      at += run.length;
    }
    RC_ASSERT(cache.vmas_used() <= 12u);
    cache.Release(*view);
  }
}

}  // namespace
}  // namespace tier::client
