// What the host's state does to the arena's growth: reserve, cgroup, pressure, huge pages.
#include <sys/stat.h>

#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/memory/arena_fixture.h"

namespace tier::memory {
namespace {

using testing::HasSubstr;

class ArenaHostTest : public ArenaTest {
 protected:
  // The host is three windows short of its reserve of eight.
  std::vector<WindowIndex> FourWindowsOnAShortHost() {
    ArenaOptions options = Options(8);
    options.sizes.host_reserve_bytes = 8 * kWindow;
    Start(std::move(options));
    std::vector<WindowIndex> windows;
    for (int i = 0; i < 4; ++i) windows.push_back(Create().window.index);
    host_.SetMemory(64 * kGiB, 5 * kWindow);
    arena_->RefreshHost();
    return windows;
  }
};

TEST_F(ArenaHostTest, KeepsTheHostReserve) {
  host_.SetMemory(64 * kGiB, kGiB + 3 * kMiB);  // Reserve: 1 GiB. One window fits.
  Start(Options(8));
  ASSERT_TRUE(StartCreate());
  EXPECT_THAT(Refusal(), HasSubstr("a window of 2 MiB would cut into the host reserve: 1.0 GiB available, 2 MiB still "
                                   "to be populated, reserve 1 GiB; the arena stays at 2 MiB"));
  EXPECT_EQ(arena_->snapshot().refusals_by_host, 1U);
  (void)Await(1);
  arena_->RefreshHost();  // What was in the making is in the reading now, which is still 3 MiB above the reserve.
  EXPECT_TRUE(StartCreate());
  (void)Await(1);
}

TEST_F(ArenaHostTest, WindowsChangeOwnersWhileTheHostLacksSomeOfItsReserve) {
  ArenaOptions options = Options(8);
  options.sizes.host_reserve_bytes = 8 * kWindow;
  Start(std::move(options));
  std::vector<WindowIndex> windows;
  for (int i = 0; i < 4; ++i) windows.push_back(Create().window.index);
  host_.SetMemory(64 * kGiB, 7 * kWindow);  // More than three quarters of it.
  arena_->RefreshHost();
  EXPECT_THAT(Refusal(), HasSubstr("would cut into the host reserve"));
  for (int i = 0; i < 2; ++i) arena_->Retire(windows[i]);
  AwaitQuiet();
  host_.SetMemory(64 * kGiB, 9 * kWindow);
  arena_->RefreshHost();
  EXPECT_EQ(arena_->arena_max_bytes(), 4 * kWindow);
  for (int i = 0; i < 2; ++i) (void)Create();
  host_.SetMemory(64 * kGiB, 7 * kWindow);
  arena_->RefreshHost();
  EXPECT_THAT(Refusal(), HasSubstr("would cut into the host reserve")) << "it has what it had";
  arena_->Retire(windows[2]);  // For no other.
  AwaitQuiet();
  host_.SetMemory(64 * kGiB, 8 * kWindow);
  RefreshAfter(std::chrono::seconds(11));
  EXPECT_EQ(arena_->arena_max_bytes(), 3 * kWindow);
  EXPECT_THAT(Refusal(), HasSubstr("would cut into the host reserve")) << "the reserve has it";
}

TEST_F(ArenaHostTest, LeavesRoomForTheDaemonsOwnTables) {
  ArenaOptions options = Options(8);
  options.sizes.usable_bytes = 10 * kWindow;
  Start(options);
  arena_->SetMetadata(2 * kWindow);
  for (int i = 0; i < 6; ++i) (void)Create();
  arena_->RefreshHost();
  EXPECT_EQ(arena_->arena_max_bytes(), 8 * kWindow) << "so much is left beside the arena";
}

TEST_F(ArenaHostTest, GivesWayToTheDaemonsOwnTablesAndComesBack) {
  ArenaOptions options = Options(8);
  options.sizes.usable_bytes = 8 * kWindow;
  Start(options);
  for (int i = 0; i < 6; ++i) (void)Create();
  arena_->SetMetadata(kWindow + 1);
  EXPECT_THAT(Refusal(),
              HasSubstr("12 MiB in windows and 2 MiB more asked for, of 14.0 MiB that 2.0 MiB of the daemon's "
                        "own memory leave"));
  arena_->SetMetadata(3 * kWindow);
  arena_->RefreshHost();
  EXPECT_EQ(arena_->arena_max_bytes(), 5 * kWindow) << "one window is to come back";
  arena_->SetMetadata(100 * kWindow);
  arena_->RefreshHost();
  EXPECT_EQ(arena_->arena_max_bytes(), 0U);
  arena_->SetMetadata(kWindow);
  RefreshAfter(kCalmFirst);
  EXPECT_EQ(arena_->arena_max_bytes(), 7 * kWindow);
  (void)Create();
}

TEST_F(ArenaHostTest, KeepsTheCgroupLimit) {
  host_.Write("proc/self/cgroup", "0::/\n");
  host_.Write("sys/fs/cgroup/memory.max", fmt::format("{}", 2 * kGiB));
  host_.Write("sys/fs/cgroup/memory.current", fmt::format("{}", kGiB - kMiB));
  Start(Options(8));
  EXPECT_THAT(Refusal(), HasSubstr("by the cgroup limit"));
  EXPECT_EQ(arena_->arena_max_bytes(), 0U);
}

TEST_F(ArenaHostTest, DoesNotGrowUnderMemoryPressureAndSomeTimeAfter) {
  Start(Options(8));
  (void)Create();
  host_.SetPressure(80, 40);
  arena_->RefreshHost();
  EXPECT_EQ(arena_->arena_max_bytes(), kWindow);
  EXPECT_THAT(Refusal(), HasSubstr("tasks of this machine waited for memory 80.0 % of the last 10 s, all of them 40.0 "
                                   "%): the arena stays at 2 MiB"));
  host_.SetPressure(5, 1);
  RefreshAfter(kCalmFirst / 2);
  EXPECT_EQ(arena_->arena_max_bytes(), kWindow);
  RefreshAfter(kCalmFirst / 2);
  EXPECT_EQ(arena_->arena_max_bytes(), 8 * kWindow);
  (void)Create();
}

TEST_F(ArenaHostTest, TheMaximumFallsByWhatTheHostMissesAndStockGoesFirst) {
  ArenaOptions options = Options(256);
  options.sizes.host_reserve_bytes = 8 * kWindow;
  Start(std::move(options));
  for (int i = 0; i < 6; ++i) (void)Create();
  ASSERT_TRUE(arena_->StartPrefault(7 * kWindow));
  AwaitQuiet();
  host_.SetMemory(64 * kGiB, 6 * kWindow);
  arena_->RefreshHost();
  EXPECT_EQ(arena_->snapshot().stock_bytes, kWindow) << "a quarter of the reserve is not worth it";
  EXPECT_EQ(arena_->snapshot().prefault_done_bytes, kWindow);
  host_.SetMemory(64 * kGiB, 5 * kWindow);
  arena_->RefreshHost();
  EXPECT_EQ(arena_->snapshot().stock_bytes, 0U);
  EXPECT_EQ(arena_->snapshot().prefault_done_bytes, 0U) << "it is populated no longer";
  EXPECT_EQ(arena_->snapshot().prefault_target_bytes, 0U);
  EXPECT_EQ(arena_->arena_max_bytes(), 4 * kWindow) << "of 7 windows 3 are missing";
  AwaitQuiet();
  EXPECT_EQ(arena_->given_back_bytes(), kWindow);
}

TEST_F(ArenaHostTest, WhatIsRetiredAboveTheMaximumCountsAsGivenBack) {
  const std::vector<WindowIndex> windows = FourWindowsOnAShortHost();
  ASSERT_EQ(arena_->arena_max_bytes(), kWindow);
  for (int i = 0; i < 4; ++i) arena_->Retire(windows[static_cast<size_t>(i)]);
  AwaitQuiet();
  EXPECT_EQ(arena_->given_back_bytes(), 3 * kWindow) << "the fourth was no longer asked for";
  EXPECT_EQ(arena_->snapshot().given_back_bytes, 3 * kWindow);
}

TEST_F(ArenaHostTest, WindowsMayChangePlacesBelowTheCeiling) {
  const std::vector<WindowIndex> windows = FourWindowsOnAShortHost();
  for (int i = 0; i < 4; ++i) arena_->Retire(windows[static_cast<size_t>(i)]);
  AwaitQuiet();
  host_.SetMemory(64 * kGiB, 9 * kWindow);
  RefreshAfter(std::chrono::milliseconds(250));
  EXPECT_EQ(arena_->arena_max_bytes(), kWindow) << "held down for a while";
  (void)Create();
  EXPECT_THAT(Refusal(), HasSubstr("the host is short of memory"));
}

// The maximum is as it was, and so is the window's size: nothing else would wake those that wait.
TEST_F(ArenaHostTest, RoomBelowTheCeilingThatOnlyAReadingShowsIsTold) {
  const std::vector<WindowIndex> windows = FourWindowsOnAShortHost();
  for (int i = 0; i < 4; ++i) arena_->Retire(windows[static_cast<size_t>(i)]);
  host_.SetMemory(64 * kGiB, 9 * kWindow);
  EXPECT_THAT(Refusal(), HasSubstr("the host is short of memory")) << "the last reading covers nothing";
  EXPECT_FALSE(arena_->TakeRoomFreed());
  const uint64_t maximum = arena_->arena_max_bytes();
  AwaitRoomFreed();
  EXPECT_EQ(arena_->arena_max_bytes(), maximum);
  EXPECT_TRUE(StartCreate());
  (void)Await(1);
}

TEST_F(ArenaHostTest, LessRoomThanWasLackedIsNotTold) {
  const std::vector<WindowIndex> windows = FourWindowsOnAShortHost();
  EXPECT_THAT(Refusal(), HasSubstr("the host is short of memory"));
  for (int i = 0; i < 3; ++i) {
    RefreshAfter(std::chrono::milliseconds(250));
    EXPECT_FALSE(arena_->TakeRoomFreed()) << "who waits would only be refused again, without an end";
  }
  for (int i = 0; i < 4; ++i) arena_->Retire(windows[static_cast<size_t>(i)]);
  AwaitQuiet();
  host_.SetMemory(64 * kGiB, 9 * kWindow);
  RefreshAfter(std::chrono::milliseconds(250));
  EXPECT_TRUE(arena_->TakeRoomFreed());
  RefreshAfter(std::chrono::milliseconds(250));
  EXPECT_FALSE(arena_->TakeRoomFreed()) << "once";
}

TEST_F(ArenaHostTest, AMinimumIsKept) {
  ArenaOptions options = Options(8);
  options.sizes.min_bytes = 3 * kWindow;
  Start(std::move(options));
  for (int i = 0; i < 5; ++i) (void)Create();
  host_.SetMemory(64 * kGiB, 0);
  arena_->RefreshHost();
  EXPECT_EQ(arena_->arena_max_bytes(), 3 * kWindow);
  Start(Options(8));
  (void)StartCreate();
  arena_->RefreshHost();
  EXPECT_EQ(arena_->arena_max_bytes(), 0U) << "none is set";
}

TEST_F(ArenaHostTest, AnotherReserveAndMinimumHoldFromTheNextReadingOn) {
  ArenaOptions options = Options(8);
  options.sizes.host_reserve_bytes = 4 * kWindow;
  ArenaSizes sizes = options.sizes;
  Start(std::move(options));
  for (int i = 0; i < 5; ++i) (void)Create();
  host_.SetMemory(64 * kGiB, 4 * kWindow);
  arena_->RefreshHost();
  EXPECT_EQ(arena_->arena_max_bytes(), 5 * kWindow) << "the reserve is there";
  sizes.host_reserve_bytes = 8 * kWindow;
  sizes.min_bytes = 2 * kWindow;
  arena_->SetHostLimits(sizes);
  EXPECT_EQ(arena_->arena_max_bytes(), 5 * kWindow);
  RefreshAfter(std::chrono::milliseconds(250));
  EXPECT_EQ(arena_->arena_max_bytes(), 2 * kWindow) << "four more are missing, and two stay";
  EXPECT_THAT(arena_->PressureText(), HasSubstr("the host reserve is 16 MiB"));
}

TEST_F(ArenaHostTest, AMinimumIsNotMadeBeyondWhatTheHostHas) {
  host_.SetMemory(64 * kGiB, 0);
  ArenaOptions options = Options(8);
  options.sizes.min_bytes = 3 * kWindow;
  Start(std::move(options));
  EXPECT_THAT(Refusal(), HasSubstr("the host is short of memory"));
  EXPECT_EQ(arena_->arena_max_bytes(), 0U);
}

TEST_F(ArenaHostTest, ALimitThatIsLoweredWhileTheDaemonRunsLowersTheArenaAndADerivedReserve) {
  host_.SetGroup("/job");
  host_.SetGroupFile("/job", "memory.high", 8 * kGiB);
  host_.SetGroupFile("/job", "memory.current", 0);
  ArenaOptions options = Options(256);
  options.sizes.usable_bytes = 7 * kGiB;
  options.sizes.reserve_is_derived = true;
  Start(std::move(options));
  for (int i = 0; i < 8; ++i) (void)Create();
  EXPECT_EQ(arena_->arena_max_bytes(), 256 * kWindow);
  host_.SetGroupFile("/job", "memory.high", 64 * kMiB + 8 * kWindow);
  host_.SetGroupFile("/job", "memory.current", 8 * kWindow);
  RefreshAfter(std::chrono::milliseconds(250));
  EXPECT_EQ(arena_->arena_max_bytes(), 8 * kWindow) << "the reserve of so small a group is 64 MiB";
  host_.SetGroupFile("/job", "memory.high", 4 * kWindow);  // Below what is used.
  RefreshAfter(std::chrono::milliseconds(250));
  EXPECT_EQ(arena_->arena_max_bytes(), 0U);
  EXPECT_EQ(arena_->PressureText(),
            "memory.high of /job is exceeded by 8 MiB, the host reserve is 64 MiB, 0 bytes are the "
            "daemon's own memory");
}

TEST_F(ArenaHostTest, TheDaemonsOwnHeapCountsBesideTheWindows) {
  host_.Write("proc/self/status", "RssAnon: 6144 kB\n");
  ArenaOptions options = Options(8);
  options.sizes.usable_bytes = 8 * kWindow;
  Start(options);
  arena_->RefreshHost();
  EXPECT_EQ(arena_->arena_max_bytes(), 5 * kWindow);
  arena_->SetMetadata(4 * kWindow);  // The tables are a part of the heap.
  arena_->RefreshHost();
  EXPECT_EQ(arena_->arena_max_bytes(), 4 * kWindow) << "whichever is more";
}

TEST_F(ArenaHostTest, OneReadingCoversABurst) {
  Start(Options(16));
  (void)Create();
  host_.SetMemory(64 * kGiB, 0);  // Unseen: the reading before covers 256 MiB of growth.
  (void)Create();
  arena_->RefreshHost();
  EXPECT_NE(Refusal(), "");
}

// A host that takes its time to answer.
TEST_F(ArenaHostTest, ReadsOnAnotherThreadAndGrowsMeanwhile) {
  Start(Options(256));
  (void)Create();
  host_.Remove("proc/meminfo");
  const std::string meminfo = host_.root() + "/proc/meminfo";
  ASSERT_EQ(::mkfifo(meminfo.c_str(), 0600), 0);
  arena_->StartRefresh();  // Its reader waits for a writer.
  for (uint64_t grown = kWindow; grown <= Arena::kReadingCoversBytes; grown += kWindow) {
    ASSERT_TRUE(StartCreate()) << "more than a reading covers, and the next one is not there";
  }
  EXPECT_EQ(arena_->arena_max_bytes(), 256 * kWindow);
  host_.SetMemory(64 * kGiB, 0);  // Opens the FIFO and writes to it.
  while (arena_->snapshot().host.memory_available != 0) {
    std::vector<WindowEvent> events;
    arena_->Poll(&events);
  }
  host_.Remove("proc/meminfo");
  host_.SetMemory(64 * kGiB, 0);  // In an ordinary file, for the readings to come.
  EXPECT_LT(arena_->arena_max_bytes(), 256 * kWindow);
  EXPECT_THAT(Refusal(), HasSubstr("this machine leaves 0 bytes, the host reserve is 1 GiB"));
  while (arena_->snapshot().making_bytes != 0) {
    std::vector<WindowEvent> events;
    arena_->Poll(&events);
  }
}

TEST_F(ArenaHostTest, AnUnreadableHostRefusesGrowthAndSaysWhy) {
  host_.Remove("proc/meminfo");
  Start(Options(8));
  EXPECT_THAT(Refusal(), HasSubstr("meminfo cannot be read"));
}

TEST_F(ArenaHostTest, HugePagesAlwaysRefusesWhereThePoolIsEmpty) {
  ArenaOptions options = Options(8);
  options.huge_pages = HugePagePolicy::kAlways;
  Start(std::move(options));
  EXPECT_THAT(Refusal(), HasSubstr("vm.nr_hugepages"));
}

TEST_F(ArenaHostTest, SlotWindowsAreInSmallPagesWhateverThePolicy) {
  for (const HugePagePolicy policy : {HugePagePolicy::kAuto, HugePagePolicy::kAlways, HugePagePolicy::kNever}) {
    host_.SetMemory(64 * kGiB, 32 * kGiB, /*huge_pages_free=*/100);
    ArenaOptions options = Options(8);
    options.huge_pages = policy;
    Start(std::move(options));
    arena_->RefreshHost();
    EXPECT_EQ(arena_->block_windows_take_slots(), policy == HugePagePolicy::kNever);
    const WindowEvent event = Create(kSlot);
    ASSERT_EQ(event.code, Code::kOk) << event.message;
    EXPECT_EQ(event.window.page_size, 4096U);
    EXPECT_EQ(arena_->snapshot().made.huge_fallbacks, 0U) << "none was tried";
  }
}

TEST_F(ArenaHostTest, SlotWindowsKeepTheHostReserveWhereHugePagesAreFree) {
  host_.SetMemory(64 * kGiB, kGiB, /*huge_pages_free=*/100);  // Reserve: 1 GiB.
  ArenaOptions options = Options(8);
  options.huge_pages = HugePagePolicy::kAlways;
  Start(std::move(options));
  EXPECT_THAT(Refusal(kSlot), HasSubstr("would cut into the host reserve"));
}

TEST_F(ArenaHostTest, HugePagesAutoGoesOnInSmallPagesWhenThePoolTurnsOutEmpty) {
  const auto probe = Window::Open({.size = kWindow, .pages = PageKind::kHuge});
  if (probe) GTEST_SKIP() << "needs a kernel without free huge pages";
  host_.SetMemory(64 * kGiB, 32 * kGiB, /*huge_pages_free=*/100);  // The fake host promises what the kernel has not.
  ArenaOptions options = Options(8);
  options.huge_pages = HugePagePolicy::kAuto;
  Start(std::move(options));
  const WindowEvent event = Create();
  EXPECT_EQ(event.code, Code::kOk);
  EXPECT_EQ(event.window.page_size, 4096U);
  EXPECT_EQ(arena_->snapshot().made.huge_fallbacks, 1U);
  EXPECT_EQ(arena_->snapshot().huge_page_bytes, 0U);
}

TEST_F(ArenaHostTest, HugePagesAreNoWayAroundTheReserve) {
  const auto probe = Window::Open({.size = kWindow, .pages = PageKind::kHuge});
  if (probe) GTEST_SKIP() << "needs a kernel without free huge pages";
  host_.SetMemory(64 * kGiB, 0, /*huge_pages_free=*/100);
  ArenaOptions options = Options(8);
  options.huge_pages = HugePagePolicy::kAuto;
  Start(std::move(options));
  EXPECT_EQ(Create().code, Code::kNoMemory);  // Not tried in small pages: those are the host's.
}

TEST_F(ArenaHostTest, HugeWindowsHoldWholeBlocksOnlyAndComeBackZeroed) {
  const auto probe = Window::Open({.size = kWindow, .pages = PageKind::kHuge});
  if (!probe) GTEST_SKIP() << "needs huge pages: " << probe.error().message;
  host_.SetMemory(64 * kGiB, 32 * kGiB, 1);
  ArenaOptions options = Options(8);
  options.huge_pages = HugePagePolicy::kAlways;
  options.sizes.max_bytes = kWindow;
  Start(std::move(options));
  for (int i = 0; i < 2; ++i) {
    const WindowEvent event = Create();
    ASSERT_EQ(event.code, Code::kOk) << event.message;
    EXPECT_EQ(event.window.page_size, kBlockSize);
    EXPECT_EQ(event.address[0], std::byte{0});
    EXPECT_EQ(event.address[kWindow - 1], std::byte{0});
    EXPECT_EQ(arena_->snapshot().huge_page_bytes, kWindow);
    std::fill_n(event.address, kWindow, std::byte{1});
    arena_->Retire(event.window.index);
    AwaitQuiet();
  }
}

// The pool has two pages, and all memory goes from one job to another: it is to stay in huge pages.
TEST_F(ArenaHostTest, WindowsThatTakeTheRoomOfHugeOnesAreHuge) {
  const auto probe = Window::Open({.size = 2 * kWindow, .pages = PageKind::kHuge});
  if (!probe) GTEST_SKIP() << "needs huge pages: " << probe.error().message;
  host_.SetMemory(64 * kGiB, 32 * kGiB, 2);
  ArenaOptions options = Options(2);
  options.huge_pages = HugePagePolicy::kAuto;
  Start(std::move(options));
  for (int round = 0; round < 4; ++round) {
    const WindowEvent first = Create();
    const WindowEvent second = Create();
    ASSERT_EQ(first.window.page_size, kBlockSize) << "round " << round;
    ASSERT_EQ(second.window.page_size, kBlockSize) << "round " << round;
    host_.SetMemory(64 * kGiB, 32 * kGiB, 0);  // What a reading finds from now on.
    arena_->Retire(first.window.index);
    arena_->Retire(second.window.index);
    EXPECT_THAT(Refusal(), HasSubstr("4 MiB of windows in huge pages are still being closed"));
    EXPECT_FALSE(arena_->TakeRoomFreed());
    arena_->RefreshHost();  // While they are being closed a reading says nothing.
    AwaitQuiet();
    EXPECT_TRUE(arena_->TakeRoomFreed()) << "the one that was refused is to ask again";
  }
}

// It may have a smaller one then, or one in small pages.
TEST_F(ArenaHostTest, WhoWantsMoreThanComesBackIsToldToo) {
  const auto probe = Window::Open({.size = 2 * kWindow, .pages = PageKind::kHuge});
  if (!probe) GTEST_SKIP() << "needs huge pages: " << probe.error().message;
  host_.SetMemory(64 * kGiB, 32 * kGiB, 2);
  ArenaOptions options = Options(2, 4 * kWindow);
  options.huge_pages = HugePagePolicy::kAuto;
  Start(std::move(options));
  std::vector<WindowIndex> small;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(arena_->StartCreate(kOwner, kBlock, kWindow, kAnyNode));
    small.push_back(Await(1).at(0).window.index);
  }
  host_.SetMemory(64 * kGiB, 0, 0);
  arena_->RefreshHost();
  for (const WindowIndex window : small) arena_->Retire(window);
  EXPECT_TRUE(arena_->block_windows_come());
  EXPECT_FALSE(arena_->StartCreate(kOwner, kBlock, 4 * kWindow, kAnyNode));
  AwaitQuiet();
  EXPECT_TRUE(arena_->TakeRoomFreed());
}

TEST_F(ArenaHostTest, AReadingOfThePoolIsBelievedWhileNothingIsUnderWay) {
  host_.SetMemory(64 * kGiB, 32 * kGiB, 100);
  ArenaOptions options = Options(8);
  options.huge_pages = HugePagePolicy::kAlways;
  Start(std::move(options));
  arena_->RefreshHost();
  host_.SetMemory(64 * kGiB, 32 * kGiB, 0);  // Others have taken it.
  arena_->RefreshHost();
  EXPECT_THAT(Refusal(), HasSubstr("vm.nr_hugepages"));
}

}  // namespace
}  // namespace tier::memory
