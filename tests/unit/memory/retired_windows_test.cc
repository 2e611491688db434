#include "daemon/memory/retired_windows.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/memory/window.h"
#include "tests/unit/memory/arena_fixture.h"

namespace tier::memory {
namespace {

constexpr uint64_t kSize = 4 * kMiB;
constexpr uint64_t kNumber = 8;

// A window as a client has it: its descriptor, mapped.
class RetiredWindowsTest : public testing::Test {
 protected:
  RetiredWindowsTest() {
    auto window = Window::Open({.size = kSize});
    EXPECT_TRUE(window) << window.error().message;
    window_ = std::move(*window);
    EXPECT_TRUE(window_.Populate(0, kSize));
  }
  void MapAsClient() {
    client_ = proto::FileDescriptor(::dup(window_.descriptor()->get()));
    auto mapping = proto::Mapping::Map(client_.get(), 0, kSize, proto::Access::kReadWrite);
    ASSERT_TRUE(mapping);
    mapping_ = std::move(*mapping);
  }
  void Retire() {
    proto::FileDescriptor file = window_.Close();
    ASSERT_TRUE(file);
    retired_.Add(
        {.window = {.owner = OwnerId{5}, .sessions = {3}, .number = kNumber, .bytes = kSize}, .file = std::move(file)});
  }
  // One look, from its start to its end.
  std::vector<KeptWindow> Look() {
    retired_.Start();
    return AwaitLook();
  }
  std::vector<KeptWindow> AwaitLook() {
    std::vector<KeptWindow> kept;
    // The only other thread does what was posted in order: behind the look.
    std::binary_semaphore done{0};
    EXPECT_TRUE(workers_->TryPost([&] { done.release(); }));
    done.acquire();
    EXPECT_TRUE(retired_.Poll(&kept));
    EXPECT_FALSE(retired_.Poll(&kept)) << "once for each look";
    return kept;
  }

  const std::unique_ptr<base::Workers> workers_ = base::Workers::Start(1, "retired").value();
  static constexpr size_t kFilesMax = 256;
  RetiredWindows retired_{workers_.get(), kFilesMax};
  Window window_;
  proto::FileDescriptor client_;
  proto::Mapping mapping_;
};

TEST_F(RetiredWindowsTest, AWindowThatNobodyElseHasIsNotWatched) {
  MapAsClient();
  mapping_ = proto::Mapping();
  client_ = proto::FileDescriptor();
  EXPECT_FALSE(window_.Close());
}

TEST_F(RetiredWindowsTest, AMappingAloneKeepsAFileWatchedAndItsEndEndsThat) {
  MapAsClient();
  client_ = proto::FileDescriptor();
  Retire();
  const auto kept = Look();
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].bytes, kSize);
  EXPECT_EQ(kept[0].refilled_bytes, 0U);
  mapping_ = proto::Mapping();
  EXPECT_TRUE(Look().empty());
  EXPECT_EQ(retired_.count(), 0U);
}

TEST_F(RetiredWindowsTest, ADescriptorForReadingAloneKeepsItWatched) {
  MapAsClient();
  const std::string path = "/proc/self/fd/" + std::to_string(client_.get());
  const proto::FileDescriptor reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(reader);
  mapping_ = proto::Mapping();
  client_ = proto::FileDescriptor();
  Retire();
  Look();
  EXPECT_EQ(retired_.count(), 1U);
}

TEST_F(RetiredWindowsTest, WhatIsFilledAgainIsPunchedAndCounted) {
  MapAsClient();
  Retire();
  EXPECT_EQ(mapping_.data()[0], std::byte{0}) << "it was punched when it was retired";
  for (uint32_t look = 1; look <= 2; ++look) {
    std::memset(mapping_.data(), 7, kMiB);
    const auto kept = Look();
    ASSERT_EQ(kept.size(), 1U);
    EXPECT_EQ(kept[0].owner, OwnerId{5});
    EXPECT_THAT(kept[0].sessions, testing::ElementsAre(3));
    EXPECT_EQ(kept[0].refilled_bytes, kMiB);
    EXPECT_EQ(kept[0].refills, look);
  }
  const auto kept = Look();
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_EQ(kept[0].refilled_bytes, 0U);
  EXPECT_EQ(kept[0].refills, 2U);
  EXPECT_EQ(mapping_.data()[0], std::byte{0}) << "it was punched";
}

TEST_F(RetiredWindowsTest, ASessionThatReturnsAWindowIsNotNamedAnyMore) {
  MapAsClient();
  Retire();
  retired_.Strike(kNumber + 1, 3);  // Another window.
  retired_.Strike(kNumber, 4);
  auto kept = Look();
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_THAT(kept[0].sessions, testing::ElementsAre(3));
  retired_.Strike(kNumber, 3);
  kept = Look();
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_TRUE(kept[0].sessions.empty());
}

TEST_F(RetiredWindowsTest, NorIsOneThatReturnsItDuringALook) {
  MapAsClient();
  Retire();
  retired_.Start();
  retired_.Strike(kNumber, 3);
  const auto kept = AwaitLook();
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_TRUE(kept[0].sessions.empty());
}

// A process that was stopped answers for all of them at once, some during a look.
TEST_F(RetiredWindowsTest, AnswersForManyWindowsStrikeEachItsOwnName) {
  constexpr uint64_t kCount = 200;
  for (uint64_t number = 1; number <= kCount; ++number) {
    retired_.Add({.window = {.owner = OwnerId{5}, .sessions = {3, 4}, .number = number}, .file = {}});
  }
  for (uint64_t number = kCount; number >= 1; --number) {
    if (number % 2 == 0) retired_.Strike(number, 3);
  }
  retired_.Start();
  for (uint64_t number = 1; number <= kCount; ++number) {
    if (number % 3 == 0) retired_.Strike(number, 4);
  }
  const auto kept = AwaitLook();
  ASSERT_EQ(kept.size(), kCount);
  for (const KeptWindow& window : kept) {
    std::vector<uint64_t> named;
    if (window.number % 2 != 0) named.push_back(3);
    if (window.number % 3 != 0) named.push_back(4);
    EXPECT_EQ(window.sessions, named) << window.number;
  }
}

TEST_F(RetiredWindowsTest, ThereIsAMaximumOfFiles) {
  const auto file = window_.descriptor();
  const std::string path = "/proc/self/fd/" + std::to_string(file->get());
  const proto::FileDescriptor reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(reader);
  for (size_t i = 0; i <= kFilesMax; ++i) {
    retired_.Add({.file = proto::FileDescriptor(::dup(file->get()))});
  }
  Look();
  EXPECT_EQ(retired_.count(), kFilesMax);
}

TEST_F(RetiredWindowsTest, ManyOfOneJobDoNotLetTheFilesOfAnotherGo) {
  const auto file = window_.descriptor();
  const std::string path = "/proc/self/fd/" + std::to_string(file->get());
  const proto::FileDescriptor reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(reader);
  const auto add = [&](uint32_t owner) {
    retired_.Add({.window = {.owner = OwnerId{owner}, .sessions = {}, .asked = {}},
                  .file = proto::FileDescriptor(::dup(file->get()))});
  };
  add(1);
  for (size_t i = 0; i < kFilesMax + 3; ++i) add(2);
  const std::vector<KeptWindow> kept = Look();
  EXPECT_EQ(kept.size(), kFilesMax);
  EXPECT_EQ(std::ranges::count(kept, OwnerId{1}, &KeptWindow::owner), 1);
}

TEST_F(ArenaTest, AWindowThatAClientKeepsIsWatchedUntilTheClientLetsGo) {
  Start(Options(1));
  const WindowEvent event = Create();
  proto::FileDescriptor client(::dup(arena_->Descriptor(event.window.index)->get()));
  arena_->NoteUnreturned(event.window.index, 3);
  arena_->Retire(event.window.index);
  AwaitQuiet();
  EXPECT_EQ(arena_->snapshot().retired_windows, 1U);
  const WindowEvent next = Create();
  EXPECT_EQ(next.window.index, event.window.index) << "its place and index are free";
}

TEST_F(ArenaTest, AKeptWindowSaysForWhomItWasTakenAndWhoHasNotReturnedIt) {
  Start(Options(1));
  const WindowIndex index = Create().window.index;
  const proto::FileDescriptor client(::dup(arena_->Descriptor(index)->get()));
  for (uint64_t session = 3; session <= 5; ++session) arena_->NoteUnreturned(index, session);
  const uint64_t number = arena_->NumberOf(index);
  EXPECT_EQ(arena_->NumberOf(index), number);
  arena_->NoteOwed(index);
  arena_->StrikeUnreturned(index, number, 3);
  arena_->Retire(index);
  arena_->StrikeUnreturned(index, number, 4);
  AwaitQuiet();
  const WindowIndex next = Create().window.index;
  ASSERT_EQ(next, index);
  EXPECT_NE(arena_->NumberOf(next), number);
  arena_->NoteUnreturned(next, 5);
  std::vector<KeptWindow> kept;
  arena_->StartRefresh();
  while (!arena_->TakeKept(&kept)) std::this_thread::yield();
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_TRUE(kept[0].owed);
  EXPECT_EQ(kept[0].number, number);
  EXPECT_THAT(kept[0].sessions, testing::ElementsAre(5));
}

}  // namespace
}  // namespace tier::memory
