#include "daemon/memory/page_copier.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <semaphore>

#include <gtest/gtest.h>

#include "daemon/base/fault_guard.h"
#include "proto/mapping.h"

namespace tier::memory {
namespace {

// A window whose bytes can be taken away: unsealed, so that ftruncate makes touching it a fault.
struct Memory {
  explicit Memory(size_t size)
      : file(proto::CreateMemoryFile("copied", size, /*seal=*/false).value()),
        mapping(proto::Mapping::Map(file.get(), 0, size, proto::Access::kReadWrite).value()),
        range(mapping.data(), size) {}
  std::byte* at(uint64_t offset) const { return mapping.data() + offset; }
  void Vanish() const { ASSERT_EQ(::ftruncate(file.get(), 0), 0); }

  proto::FileDescriptor file;
  proto::Mapping mapping;
  base::GuardedRange range;
};

class PageCopierTest : public testing::Test {
 protected:
  PageCopierTest() {
    base::InstallFaultGuard();
    copier.emplace(workers.get(), [this] { finished.release(); });
  }
  std::vector<PageCopyResult> Await(size_t count) {
    std::vector<PageCopyResult> results;
    while (results.size() < count && finished.try_acquire_for(std::chrono::seconds(30))) copier->Poll(&results);
    EXPECT_EQ(results.size(), count);
    std::ranges::sort(results, {}, &PageCopyResult::cookie);
    return results;
  }

  std::counting_semaphore<> finished{0};
  std::unique_ptr<base::Workers> workers = base::Workers::Start(2, "copy").value();
  std::optional<PageCopier> copier;
};

TEST_F(PageCopierTest, CopiesManyRunsAndAnswersEachOnce) {
  constexpr uint32_t kRuns = 300;
  constexpr uint32_t kLength = 3 * kPageSize;
  const Memory from(kRuns * kLength);
  const Memory to(kRuns * kLength);
  for (uint32_t i = 0; i < kRuns; ++i)
    std::memset(from.at(uint64_t{i} * kLength), static_cast<int>(i % 251) + 1, kLength);
  for (uint32_t i = 0; i < kRuns; ++i) {
    const uint64_t other = kRuns - 1 - i;
    copier->Start(
        {.cookie = i, .from = from.at(uint64_t{i} * kLength), .to = to.at(other * kLength), .length = kLength});
  }
  EXPECT_EQ(copier->inflight(), 0U) << "nothing moves before the end of the turn";
  copier->Submit();
  EXPECT_EQ(copier->inflight(), kRuns);
  const auto results = Await(kRuns);
  for (uint32_t i = 0; i < kRuns; ++i) {
    EXPECT_EQ(results[i].cookie, i);
    EXPECT_EQ(results[i].outcome, CopyOutcome::kDone);
    const uint64_t other = kRuns - 1 - i;
    EXPECT_EQ(std::memcmp(from.at(uint64_t{i} * kLength), to.at(other * kLength), kLength), 0) << i;
  }
  EXPECT_EQ(copier->inflight(), 0U);
}

TEST_F(PageCopierTest, SaysWhichSideIsGone) {
  const Memory here(8 * kPageSize);
  const Memory gone(8 * kPageSize);
  gone.Vanish();
  copier->Start({.cookie = 1, .from = gone.at(0), .to = here.at(0), .length = 4 * kPageSize});
  copier->Start({.cookie = 2, .from = here.at(4 * kPageSize), .to = gone.at(0), .length = 4 * kPageSize});
  copier->Start({.cookie = 3, .from = here.at(0), .to = here.at(4 * kPageSize), .length = 4 * kPageSize});
  copier->Submit();
  const auto results = Await(3);
  EXPECT_EQ(results[0].outcome, CopyOutcome::kSourceFault);
  EXPECT_EQ(results[1].outcome, CopyOutcome::kTargetFault);
  EXPECT_EQ(results[2].outcome, CopyOutcome::kDone) << "the others of the task are copied all the same";
}

TEST_F(PageCopierTest, EndsOnlyWhenNothingIsBeingCopied) {
  constexpr uint32_t kLength = 2 * kMiB;
  const Memory from(kLength);
  std::memset(from.at(0), 7, kLength);
  for (int round = 0; round < 20; ++round) {
    auto to = std::make_unique<Memory>(kLength);
    PageCopier ending(workers.get(), nullptr);
    ending.Start({.cookie = 1, .from = from.at(0), .to = to->at(0), .length = kLength});
    ending.Submit();
  }  // First the copier, then its target.
}

// The engine thread has requests to answer meanwhile.
TEST_F(PageCopierTest, WhatTheWorkersHaveNoRoomForWaitsForALaterTurn) {
  const Memory memory(4 * kPageSize);
  std::memset(memory.at(0), 9, kPageSize);
  std::memset(memory.at(kPageSize), 8, kPageSize);
  std::binary_semaphore block{0};
  std::binary_semaphore blocked{0};
  std::binary_semaphore drained{0};
  auto one = base::Workers::Start(1, "busy").value();
  ASSERT_TRUE(one->TryPost([&] {
    blocked.release();
    block.acquire();
  }));
  blocked.acquire();
  for (size_t i = 1; i < base::Workers::kTasksQueuedMax; ++i) ASSERT_TRUE(one->TryPost([] {}));
  ASSERT_TRUE(one->TryPost([&] { drained.release(); }));
  PageCopier busy(one.get(), [this] { finished.release(); });
  std::vector<PageCopyResult> results;
  for (int turn = 0; turn < 3; ++turn) {
    if (turn == 0) busy.Start({.cookie = 5, .from = memory.at(0), .to = memory.at(2 * kPageSize), .length = kPageSize});
    if (turn == 1)
      busy.Start({.cookie = 6, .from = memory.at(kPageSize), .to = memory.at(3 * kPageSize), .length = kPageSize});
    busy.Submit();
    busy.Poll(&results);
    EXPECT_TRUE(results.empty()) << "in turn " << turn;
    EXPECT_EQ(*memory.at(2 * kPageSize), std::byte{0}) << "in turn " << turn;
  }
  EXPECT_EQ(busy.inflight(), 2U);
  block.release();
  drained.acquire();
  busy.Submit();
  while (results.size() < 2 && finished.try_acquire_for(std::chrono::seconds(30))) busy.Poll(&results);
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].cookie, 5U) << "in the order in which they were started";
  EXPECT_EQ(results[1].outcome, CopyOutcome::kDone);
  EXPECT_EQ(std::memcmp(memory.at(0), memory.at(2 * kPageSize), 2 * kPageSize), 0);
  EXPECT_EQ(busy.inflight(), 0U);
}

TEST_F(PageCopierTest, CopiesThatWaitForTheWorkersEndWithTheCopier) {
  const Memory memory(2 * kPageSize);
  std::binary_semaphore block{0};
  std::binary_semaphore blocked{0};
  auto one = base::Workers::Start(1, "busy").value();
  ASSERT_TRUE(one->TryPost([&] {
    blocked.release();
    block.acquire();
  }));
  blocked.acquire();
  while (one->TryPost([] {})) {
  }
  {
    PageCopier ending(one.get(), nullptr);
    ending.Start({.cookie = 1, .from = memory.at(0), .to = memory.at(kPageSize), .length = kPageSize});
    ending.Submit();
  }
  block.release();
}

}  // namespace
}  // namespace tier::memory
