// Windows of several sizes: a job's windows grow with what it holds, so that it holds little more than it asked for; no
// window is larger than the job may have; and the arena can ask for larger ones.
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/tiering/memory/growth.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

constexpr uint64_t kLargest = 64 * kMiB;

WorldOptions WithSizes(uint64_t arena, uint64_t page_size = kPageSize) {
  return {.windows = {.window_size = kLargest,
                      .window_size_min = kBlockSize,
                      .arena_max_bytes = arena,
                      .windows_max = 4096,
                      .page_size = static_cast<uint32_t>(page_size),
                      .without_memory = true},
          .transfers = {.device_count = 0}};
}

std::map<uint64_t, uint64_t> CountBySize(const World& world) {
  std::map<uint64_t, uint64_t> counts;
  for (const auto& [index, shape] : world.sink.shapes) ++counts[shape.size];
  return counts;
}

// As many whole blocks as fit, in tensors of half a GiB.
void Fill(World& world, SessionId session, uint64_t first, uint64_t bytes) {
  constexpr uint64_t kMost = 512 * kMiB;
  for (uint64_t id = first; bytes != 0; ++id) {
    const uint64_t size = std::min(bytes, kMost);
    const Answer created = world.Create(session, id, size);
    ASSERT_EQ(created.code, Code::kOk) << created.detail;
    ASSERT_EQ(world.Release(session, World::LeaseOf(created)).code, Code::kOk);
    bytes -= size;
  }
}

// Until what was made ahead of need is given back.
void Settle(World& world) {
  for (int i = 0; i < 4; ++i) {
    world.Advance(kAheadKept);
    world.Turns(2);
    world.ReturnWindows();
    world.Turns(2);
  }
}

TEST(WindowSizes, AJobOfAnySizeHoldsLittleMoreThanItAskedFor) {
  for (const uint64_t mib : {2, 62, 600, 1024, 5 * 1024, 11 * 1024}) {
    World world(WithSizes(64 * kGiB));
    const JobId job = world.OpenJob();
    Fill(world, world.OpenSession(job), 1, mib * kMiB);
    Settle(world);
    const uint64_t held = world.Job(job).held_bytes;
    EXPECT_GE(held, mib * kMiB);
    EXPECT_LE(held, mib * kMiB + std::max(mib * kMiB / 200, kBlockSize)) << mib;
  }
}

TEST(WindowSizes, WindowsGrowWithWhatTheirJobHolds) {
  World world(WithSizes(64 * kGiB));
  Fill(world, world.Open(), 1, 20 * kGiB);
  const auto counts = CountBySize(world);
  EXPECT_EQ(counts.rbegin()->first, kLargest) << "16 GiB and more";
  EXPECT_LT(world.windows.window_count(), 256 * 7u) << "some for each time that it has doubled";
  // A small job beside it has small ones all the same.
  const JobId job = world.OpenJob();
  Fill(world, world.OpenSession(job), 1, 2 * kBlockSize);
  Settle(world);
  EXPECT_EQ(world.Job(job).held_bytes, 2 * kBlockSize);
}

TEST(WindowSizes, TheArenaCanWishForLargerOnes) {
  World world(WithSizes(kGiB));
  world.windows.SetSmallestWished(16 * kMiB);
  const JobId job = world.OpenJob();
  Fill(world, world.OpenSession(job), 1, 6 * kBlockSize);
  EXPECT_EQ(world.Job(job).held_bytes, 16 * kMiB);
  EXPECT_EQ(CountBySize(world), (std::map<uint64_t, uint64_t>{{16 * kMiB, 1}}));
}

TEST(WindowSizes, ATurnStartsABoundedNumberOfWindows) {
  World world(WithSizes(64 * kGiB));
  constexpr uint64_t kSize = 3 * kGiB;  // 384 windows of 8 MiB.
  constexpr uint64_t kInATurn = WorkUnits{}.windows;
  std::vector<std::pair<SessionId, uint64_t>> asked;
  for (int job = 0; job < 4; ++job) {
    const SessionId session = world.Open();
    asked.emplace_back(session, world.Send(session, proto::Op::kCreate, {{1, 0, 0, kSize}}));
  }
  uint64_t before = 0;
  for (int turn = 0; turn < 20; ++turn) {
    world.Turn();
    EXPECT_LE(world.windows.made_count() - before, kInATurn + 8) << "and one for each request";
    before = world.windows.made_count();
  }
  EXPECT_GT(before, 3 * kInATurn);
  for (const auto& [session, sequence] : asked) EXPECT_EQ(world.Wait(session, sequence).code, Code::kOk);
  EXPECT_EQ(world.engine->Snapshot().totals.evicted_bytes, 0U);
}

TEST(WindowSizes, AWishIsNotALimit) {
  World world(WithSizes(kGiB));
  world.windows.SetSmallestWished(kLargest);
  const JobId limited = world.OpenJob({.limit_bytes = 10 * kMiB});
  Fill(world, world.OpenSession(limited), 1, 10 * kMiB);
  EXPECT_EQ(world.Job(limited).held_bytes, 10 * kMiB) << "a window of 8 MiB, and one of 2 MiB";
}

TEST(WindowSizes, PromisesAreReachedExactly) {
  World world(WithSizes(kGiB));  // A sixteenth of it is promised to nobody.
  world.windows.SetSmallestWished(kLargest);
  const JobId rich = world.OpenJob({.uid = 1, .guarantee_bytes = 760 * kMiB});
  const JobId poor = world.OpenJob({.uid = 2, .guarantee_bytes = 200 * kMiB});
  Fill(world, world.OpenSession(rich), 1, 760 * kMiB);
  Fill(world, world.OpenSession(poor), 1, 200 * kMiB);
  EXPECT_EQ(world.Job(rich).held_bytes, 760 * kMiB) << "11 of the largest, and smaller ones";
  EXPECT_EQ(world.Job(poor).held_bytes, 200 * kMiB);
}

TEST(WindowSizes, AWindowMayComeSmallerThanItWasAskedFor) {
  World world(WithSizes(kGiB));
  world.windows.SetSmallestWished(8 * kMiB);
  world.windows.HalveNext(1);
  const JobId job = world.OpenJob();
  Fill(world, world.OpenSession(job), 1, 8 * kMiB);
  EXPECT_EQ(world.Job(job).held_bytes, 12 * kMiB);
}

TEST(WindowSizes, AWindowThatCouldNotBeMadeCountsForNothing) {
  World world(WithSizes(kGiB));
  world.windows.SetSmallestWished(8 * kMiB);
  world.windows.FailNext(2);
  const JobId job = world.OpenJob();
  Fill(world, world.OpenSession(job), 1, 8 * kMiB);
  Settle(world);
  EXPECT_EQ(world.Job(job).held_bytes, 8 * kMiB);
}

// Slots lie in windows of their own where blocks are in huge pages: these are as small as a job's slots are few.
TEST(WindowSizes, EachKindGrowsByWhatItHolds) {
  World world(WithSizes(64 * kGiB, kBlockSize));
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  Fill(world, session, 1, 4 * kGiB);
  ASSERT_EQ(world.Create(session, 1000, 5000).code, Code::kOk);
  Settle(world);
  EXPECT_EQ(world.windows.CountOf(WindowKind::kSlot), 1u);
  EXPECT_LE(world.Job(job).held_bytes, 4 * kGiB + 4 * kGiB / 200 + kBlockSize);
}

TEST(WindowSizes, WhatWasMadeAheadStaysWhileTheUseRises) {
  World world(WithSizes(64 * kGiB));
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  uint64_t id = 1;
  for (; id <= 40; ++id) {
    Fill(world, session, id, 100 * kMiB);
    world.Turns(3);
    world.Advance(kAheadKept / 4);
  }
  EXPECT_GE(world.Job(job).held_bytes, 4000 * kMiB + 200 * kMiB);
  Settle(world);
  EXPECT_LE(world.Job(job).held_bytes, 4000 * kMiB + 20 * kMiB);
  // What it needed once it keeps.
  for (uint64_t freed = 1; freed < id; ++freed) {
    ASSERT_EQ(world.Free(session, freed).code, Code::kOk);
  }
  Settle(world);
  EXPECT_GE(world.Job(job).held_bytes, 4000 * kMiB);
}

}  // namespace
}  // namespace tier::tiering::testing
