#include "daemon/memory/arena.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/memory/arena_fixture.h"

namespace tier::memory {
namespace {

using testing::HasSubstr;

bool IsZero(const WindowEvent& event, uint64_t size) {
  return std::all_of(event.address, event.address + size, [](std::byte b) { return b == std::byte{0}; });
}

TEST_F(ArenaTest, GivesAZeroedPrefaultedSealedWindow) {
  Start(Options(4));
  const auto index = StartCreate();
  ASSERT_TRUE(index);
  EXPECT_EQ(arena_->arena_bytes(), kWindow);
  const WindowEvent event = Await(1).at(0);
  EXPECT_EQ(event.window.index, *index);
  EXPECT_EQ(event.owner, kOwner);
  EXPECT_EQ(event.code, Code::kOk);
  EXPECT_EQ(event.window.page_size, 4096U);
  EXPECT_TRUE(IsZero(event, kWindow));
  struct stat status{};
  ASSERT_EQ(::fstat(arena_->Descriptor(event.window.index)->get(), &status), 0);
  EXPECT_EQ(static_cast<uint64_t>(status.st_size), kWindow);
  EXPECT_EQ(static_cast<uint64_t>(status.st_blocks) * 512, kWindow);
  EXPECT_EQ(::fcntl(arena_->Descriptor(event.window.index)->get(), F_GET_SEALS),
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

TEST_F(ArenaTest, IndicesAreDenseAndAddressesDistinct) {
  Start(Options(32));
  for (int i = 0; i < 32; ++i) ASSERT_TRUE(StartCreate());
  std::set<std::byte*> addresses;
  std::set<uint32_t> indices;
  for (const WindowEvent& event : Await(32)) {
    addresses.insert(event.address);
    indices.insert(Value(event.window.index));
  }
  EXPECT_EQ(addresses.size(), 32U);
  EXPECT_EQ(indices.size(), 32U);
  EXPECT_EQ(*indices.rbegin(), 31U);
  EXPECT_EQ(arena_->arena_bytes(), 32 * kWindow);
}

TEST_F(ArenaTest, ARetiredIndexIsUsedAgainOnceClosedAndItsMemoryIsZero) {
  Start(Options(1));
  const WindowEvent first = Create();
  std::fill_n(first.address, kWindow, std::byte{0xab});
  arena_->Retire(first.window.index);
  EXPECT_EQ(arena_->arena_bytes(), 0U);
  AwaitQuiet();
  const WindowEvent again = Create();
  EXPECT_EQ(again.window.index, first.window.index);
  EXPECT_TRUE(IsZero(again, kWindow));
}

TEST_F(ArenaTest, AWindowCanBeMadeWhileTheOneBeforeIsStillBeingClosed) {
  Start(Options(1));
  const WindowEvent first = Create();
  arena_->Retire(first.window.index);
  const auto second = StartCreate();
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_NE(*second, first.window.index);
  EXPECT_EQ(Await(1).at(0).code, Code::kOk);
}

TEST_F(ArenaTest, TellsOnceThatAnIndexIsFreeThatAWindowLacked) {
  ArenaOptions options = Options(2);
  options.sizes.windows_max = 2;
  Start(options);
  for (const WindowEvent& each : {Create(), Create()}) arena_->Retire(each.window.index);
  EXPECT_FALSE(arena_->TakeRoomFreed());
  EXPECT_THAT(Refusal(), HasSubstr("all 2 window indices are in use, 4 MiB of windows are still being closed"));
  AwaitQuiet();
  EXPECT_TRUE(arena_->TakeRoomFreed());
  EXPECT_FALSE(arena_->TakeRoomFreed());
  EXPECT_TRUE(StartCreate());
}

TEST_F(ArenaTest, RefusesAtItsMaximumWithFigures) {
  Start(Options(2));
  (void)Create();
  ASSERT_TRUE(StartCreate());
  EXPECT_THAT(Refusal(), HasSubstr("4 MiB in windows and 2 MiB more asked for, of 4 MiB"));
  EXPECT_EQ(arena_->snapshot().refusals_at_maximum, 1U);
  (void)Await(1);
}

TEST_F(ArenaTest, AWindowThatCannotBeMadeIsAnEventAndItsIndexIsFree) {
  ArenaOptions options = Options(2);
  options.numa_node = 500;
  Start(std::move(options));
  const auto index = StartCreate();
  ASSERT_TRUE(index);
  const WindowEvent event = Await(1).at(0);
  EXPECT_EQ(event.code, Code::kNoMemory);
  EXPECT_EQ(event.window.index, *index);
  EXPECT_EQ(event.owner, kOwner);
  EXPECT_THAT(event.message, HasSubstr("NUMA node 500"));
  EXPECT_EQ(arena_->arena_bytes(), 0U);
  EXPECT_EQ(arena_->snapshot().create_failures, 1U);
  EXPECT_EQ(arena_->last_failure(), event.message);
  EXPECT_THAT(Refusal(), HasSubstr("NUMA node 500")) << "it is not tried again and again";
  EXPECT_FALSE(arena_->TakeRoomFreed());
  arena_->RefreshHost();
  EXPECT_TRUE(arena_->TakeRoomFreed());
  EXPECT_EQ(*StartCreate(), *index);
  (void)Await(1);
}

// Of two nodes by sysfs; the kernel of the test's host has the first at least.
TEST_F(ArenaTest, OfSeveralNodesItSaysWhereAWindowCameFrom) {
  host_.Write("sys/devices/system/node/has_memory", "0-1\n");
  Start(Options(2));
  ASSERT_TRUE(arena_->StartCreate(kOwner, kBlock, kWindow, 0));
  EXPECT_EQ(Await(1).at(0).window.node, 0);
}

TEST_F(ArenaTest, OfOneNodeItSaysNothing) {
  host_.Write("sys/devices/system/node/has_memory", "0\n");
  Start(Options(2));
  ASSERT_TRUE(arena_->StartCreate(kOwner, kBlock, kWindow, 0));
  EXPECT_EQ(Await(1).at(0).window.node, kAnyNode);
}

TEST_F(ArenaTest, TellsThatAWindowMadeAheadHasComeThatAnotherLacked) {
  Start(Options(2));
  ASSERT_TRUE(arena_->StartPrefault(2 * kWindow));
  EXPECT_THAT(Refusal(), HasSubstr("the arena is at its maximum")) << "all of it is being made";
  EXPECT_FALSE(arena_->TakeRoomFreed());
  AwaitQuiet();
  EXPECT_TRUE(arena_->TakeRoomFreed());
  EXPECT_TRUE(StartCreate());
  (void)Await(1);
}

TEST_F(ArenaTest, PrefaultsWithoutPausesUntilAJobAsksForAWindow) {
  Start(Options(4));
  ASSERT_TRUE(arena_->StartPrefault(2 * kWindow));
  AwaitQuiet();
  EXPECT_TRUE(arena_->prefaults_alone());
  EXPECT_TRUE(StartCreate()) << "handed out";
  EXPECT_FALSE(arena_->prefaults_alone());
  (void)Await(1);
}

TEST_F(ArenaTest, LargeWindowsArePopulatedWhole) {
  Start(Options(1, 32 * kMiB));
  const WindowEvent event = Create();
  struct stat status{};
  ASSERT_EQ(::fstat(arena_->Descriptor(event.window.index)->get(), &status), 0);
  EXPECT_EQ(static_cast<uint64_t>(status.st_blocks) * 512, 32 * kMiB);
}

TEST_F(ArenaTest, PrefaultedWindowsAreHandedOutAtOnce) {
  Start(Options(4));
  ASSERT_TRUE(arena_->StartPrefault(3 * kWindow));
  EXPECT_EQ(arena_->snapshot().prefault_target_bytes, 3 * kWindow);
  AwaitQuiet();
  EXPECT_EQ(arena_->snapshot().prefault_done_bytes, 3 * kWindow);
  EXPECT_EQ(arena_->snapshot().stock_bytes, 3 * kWindow);
  EXPECT_EQ(arena_->arena_bytes(), 0U);

  ASSERT_TRUE(StartCreate());
  std::vector<WindowEvent> events;
  arena_->Poll(&events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].owner, kOwner);
  EXPECT_TRUE(IsZero(events[0], kWindow));
  EXPECT_EQ(arena_->arena_bytes(), kWindow);
  EXPECT_EQ(arena_->snapshot().stock_bytes, 2 * kWindow);
  // Prefaulted at start: collapse was tried on each, whatever the kernel said.
  EXPECT_EQ(arena_->snapshot().made.collapsed_bytes / kWindow + arena_->snapshot().made.collapse_refused, 3U);
}

TEST_F(ArenaTest, WindowsMadeOnDemandAreCollapsedToo) {
  Start(Options(1));
  EXPECT_TRUE(IsZero(Create(), kWindow));
  EXPECT_EQ(arena_->snapshot().made.collapsed_bytes / kWindow + arena_->snapshot().made.collapse_refused, 1U);
}

TEST_F(ArenaTest, CollapsesNothingWhereItIsConfiguredSo) {
  ArenaOptions options = Options(2);
  options.collapse = CollapsePolicy::kNever;
  Start(std::move(options));
  ASSERT_TRUE(arena_->StartPrefault(kWindow));
  AwaitQuiet();
  (void)Create();
  (void)Create();
  EXPECT_EQ(arena_->snapshot().made.collapsed_bytes + arena_->snapshot().made.collapse_refused, 0U);
}

TEST_F(ArenaTest, EachKindOfWindowHasItsSize) {
  Start(Options(2, 8 * kMiB));
  const WindowEvent block = Create();
  EXPECT_EQ(block.window.kind, kBlock);
  EXPECT_EQ(block.window.size, 8 * kMiB);
  const WindowEvent slot = Create(kSlot);
  EXPECT_EQ(slot.window.kind, kSlot);
  EXPECT_EQ(slot.window.size, kWindow);
  EXPECT_EQ(slot.window.page_size, 4096U);
  EXPECT_TRUE(IsZero(slot, kWindow));
  struct stat status{};
  ASSERT_EQ(::fstat(arena_->Descriptor(slot.window.index)->get(), &status), 0);
  EXPECT_EQ(static_cast<uint64_t>(status.st_size), kWindow);
  EXPECT_EQ(arena_->arena_bytes(), 8 * kMiB + kWindow);
  EXPECT_THAT(Refusal(), HasSubstr("10 MiB in windows and 8 MiB more asked for, of 16 MiB"));
  for (int i = 0; i < 3; ++i) (void)Create(kSlot);
  EXPECT_THAT(Refusal(kSlot), HasSubstr("16 MiB in windows and 2 MiB more asked for, of 16 MiB"));
}

TEST_F(ArenaTest, WindowsHaveDisjointPlacesInTwiceTheArena) {
  Start(Options(4, 8 * kMiB));
  EXPECT_EQ(arena_->address_space_bytes(), 64 * kMiB);
  std::set<uint64_t> blocks;
  for (int i = 0; i < 6; ++i) {
    const WindowEvent event = Create(i % 2 == 0 ? kBlock : kSlot);
    EXPECT_EQ(event.window.place % event.window.size, 0U);
    EXPECT_LE(event.window.place + event.window.size, arena_->address_space_bytes());
    for (uint64_t at = 0; at < event.window.size; at += kBlockSize) {
      EXPECT_TRUE(blocks.insert(event.window.place + at).second) << event.window.place + at;
    }
  }
}

TEST_F(ArenaTest, APlaceIsGivenAgainOnceItsWindowIsRetired) {
  Start(Options(2));
  const WindowEvent first = Create();
  const WindowEvent second = Create();
  EXPECT_EQ(second.window.place, kWindow);
  arena_->Retire(first.window.index);
  EXPECT_EQ(Create().window.place, first.window.place);
  AwaitQuiet();
}

TEST_F(ArenaTest, ASlotWindowTakesTheRoomOfAPrefaultedOne) {
  Start(Options(2, 8 * kMiB));
  ASSERT_TRUE(arena_->StartPrefault(16 * kMiB));
  AwaitQuiet();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Create(kSlot).window.size, kWindow);
  EXPECT_EQ(arena_->snapshot().stock_bytes, 8 * kMiB);
  EXPECT_EQ(arena_->snapshot().prefault_done_bytes, 8 * kMiB);
  EXPECT_EQ(Create().window.size, 8 * kMiB) << "the other one is still there";
  EXPECT_NE(Refusal(kSlot), "");
  AwaitQuiet();
}

TEST_F(ArenaTest, AWindowTakesTheIndexOfAPrefaultedOne) {
  ArenaOptions options = Options(3, 8 * kMiB);
  options.sizes.windows_aimed = 5;
  options.sizes.windows_max = 5;
  Start(std::move(options));
  ASSERT_TRUE(arena_->StartPrefault(24 * kMiB));
  AwaitQuiet();
  for (int i = 0; i < 3; ++i) {
    (void)Create(kSlot);  // The first takes the room of one of the three.
    AwaitQuiet();
  }
  ASSERT_EQ(arena_->free_indices(), 2U) << "those of the other two";
  const std::string refusal = "all 5 window indices are in use, 8 MiB of windows are still being closed; try again";
  EXPECT_EQ(Refusal(kSlot), refusal);
  EXPECT_EQ(Refusal(kSlot), refusal) << "one at a time";
  AwaitRoomFreed();
  (void)Create(kSlot);
  EXPECT_EQ(arena_->snapshot().stock_bytes, 8 * kMiB);
}

TEST_F(ArenaTest, AWindowHasTheSizeAskedFor) {
  Start(Options(2, 16 * kMiB));
  for (const uint64_t size : {2 * kMiB, 8 * kMiB, 4 * kMiB, 16 * kMiB}) {
    const auto started = arena_->StartCreate(kOwner, kBlock, size, kAnyNode);
    ASSERT_TRUE(started) << started.error().message;
    EXPECT_EQ(started->size, size);
    EXPECT_EQ(Await(1).at(0).window.size, size);
  }
  EXPECT_EQ(arena_->arena_bytes(), 30 * kMiB);
}

TEST_F(ArenaTest, ASmallBlockWindowTakesTheRoomOfAPrefaultedOne) {
  Start(Options(2, 8 * kMiB));
  ASSERT_TRUE(arena_->StartPrefault(16 * kMiB));
  AwaitQuiet();
  ASSERT_TRUE(arena_->StartCreate(kOwner, kBlock, 4 * kMiB, kAnyNode));
  EXPECT_EQ(Await(1).at(0).window.size, 4 * kMiB);
  EXPECT_EQ(arena_->snapshot().stock_bytes, 8 * kMiB);
  EXPECT_EQ(Create().window.size, 8 * kMiB) << "the other one is still there";
  AwaitQuiet();
}

TEST_F(ArenaTest, LargerWindowsAreWishedForAsIndicesRunShort) {
  ArenaOptions options = Options(16, 8 * kMiB);
  options.sizes.windows_aimed = 32;
  options.sizes.windows_max = 48;
  Start(std::move(options));
  const auto next = [&] { return arena_->wishes({.kind_bytes = 0, .all_bytes = 2 * kGiB}).next; };
  EXPECT_EQ(next(), kWindow);
  EXPECT_FALSE(arena_->wants_merges());
  const auto small = [&] { return arena_->StartCreate(kOwner, kBlock, kWindow, kAnyNode).value().index; };
  std::vector<WindowIndex> started;
  for (int i = 0; i < 21; ++i) started.push_back(small());
  EXPECT_EQ(next(), 8 * kMiB);
  EXPECT_TRUE(arena_->wants_merges());
  (void)Await(started.size());
  for (const WindowIndex window : started) arena_->Retire(window);
  EXPECT_EQ(next(), kWindow) << "they are back";
  AwaitQuiet();
}

// Windows that were made ahead give way to these.
TEST_F(ArenaTest, LargerWindowsAreWishedForAsSoonWhereAllIsPrefaulted) {
  ArenaOptions options = Options(16, 8 * kMiB);
  options.sizes.windows_aimed = 32;
  options.sizes.windows_max = 48;
  Start(std::move(options));
  ASSERT_TRUE(arena_->StartPrefault(16 * 8 * kMiB));
  AwaitQuiet();
  const auto next = [&] { return arena_->wishes({.kind_bytes = 0, .all_bytes = 2 * kGiB}).next; };
  const auto start = [&](int count) {
    for (int i = 0; i < count; ++i) ASSERT_TRUE(arena_->StartCreate(kOwner, kBlock, kWindow, kAnyNode));
  };
  start(14);
  EXPECT_EQ(next(), kWindow);
  start(1);
  EXPECT_EQ(next(), 4 * kMiB) << "three quarters of the spare indices are used up";
  start(2);
  EXPECT_EQ(next(), 8 * kMiB);
  (void)Await(17);
  AwaitQuiet();
  ASSERT_TRUE(StartCreate()) << "one that was made ahead";
  EXPECT_EQ(next(), 8 * kMiB);
  (void)Await(1);
}

TEST_F(ArenaTest, StockCountsTowardsTheMaximum) {
  Start(Options(3));
  ASSERT_TRUE(arena_->StartPrefault(2 * kWindow));
  AwaitQuiet();
  EXPECT_FALSE(arena_->StartPrefault(2 * kWindow));
  AwaitQuiet();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(StartCreate());
  EXPECT_NE(Refusal(), "");
  (void)Await(3);
}

TEST_F(ArenaTest, PrefaultsWhatJobsThatCameFirstHaveLeft) {
  Start(Options(3));
  ASSERT_TRUE(StartCreate());
  (void)Await(1);
  ASSERT_TRUE(arena_->StartPrefault(3 * kWindow));
  AwaitQuiet();
  EXPECT_EQ(arena_->snapshot().stock_bytes, 2 * kWindow);
  EXPECT_EQ(arena_->snapshot().prefault_target_bytes, 2 * kWindow);
}

TEST_F(ArenaTest, MayEndWhileWindowsAreInTheMaking) {
  Start(Options(16));
  for (int i = 0; i < 16; ++i) ASSERT_TRUE(StartCreate());
  arena_.reset();
}

TEST_F(ArenaTest, RaisesTheSoftLimitOfOpenFilesForItsWindows) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  Start(Options(64));
  rlimit after{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &after), 0);
  EXPECT_GE(after.rlim_cur, std::min<rlim_t>(before.rlim_max, 4096 + 68));
}

TEST_F(ArenaTest, DeathOnWhatOnlyABugCouldAsk) {
  Start(Options(2));
  const WindowEvent event = Create();
  EXPECT_DEATH(arena_->Retire(WindowIndex{1}), "CHECK failed");
  EXPECT_DEATH(arena_->Retire(WindowIndex{1000}), "CHECK failed");
  EXPECT_DEATH((void)arena_->Descriptor(WindowIndex{1}), "CHECK failed");
  arena_->Retire(event.window.index);
  EXPECT_DEATH(arena_->Retire(event.window.index), "CHECK failed");
  AwaitQuiet();
}

}  // namespace
}  // namespace tier::memory
