// Memory: growth, eviction, write-behind, limits, refusals with figures, windows between jobs.
#include <gtest/gtest.h>

#include "daemon/tiering/memory/hand_over.h"
#include "daemon/tiering/memory/room.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;

TEST(Memory, WindowsAreMadeOnDemand) {
  World world(WithArena(64 * kMiB));
  const SessionId session = world.Open();
  world.Turns(3);
  EXPECT_EQ(world.windows.window_count(), 0u);
  world.Put(session, 1, 4096);
  EXPECT_EQ(world.windows.window_count(), 1u);
}

TEST(Memory, ABigRequestGetsAllItsWindowsAtOnce) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 64 * kMiB, .delay_turns = 10}});
  const SessionId session = world.Open();
  const uint64_t asked = world.Send(session, Op::kCreate, {{1, 0, 0, 40 * kMiB}});
  EXPECT_EQ(world.windows.window_count(), 5u) << "side by side, not one after the other";
  EXPECT_EQ(world.Wait(session, asked).code, Code::kOk);
}

TEST(Memory, TheColdestCleanPiecesMakeRoom) {
  World world(WithArena());
  const SessionId session = world.Open();
  world.PutEach(session, 1, 4, kPiece);
  for (uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(world.Flush(session, id).code, Code::kOk);
  EXPECT_EQ(world.Check(session, 1, 1), Code::kOk);
  world.Put(session, 5, kPiece, 5);
  const auto ram = [&](uint64_t id) { return world.Ask(session, Op::kStat, {{id, 0, 0, 0}}).tensor.ram_bytes; };
  EXPECT_EQ(ram(2), 0u);
  EXPECT_EQ(ram(1), kPiece) << "it was used last";
}

TEST(Memory, CleanPiecesAreNotWrittenAgain) {
  World world(WithArena());
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.PutEach(session, 1, 8, kPiece);
  for (uint64_t id = 1; id <= 8; ++id) EXPECT_EQ(world.Flush(session, id).code, Code::kOk);
  const uint64_t written = world.transfers.traffic(0).written_bytes;
  EXPECT_EQ(written, 8 * kPiece);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(world.CheckEach(session, 1, 8), Code::kOk);
  }
  EXPECT_EQ(world.transfers.traffic(0).written_bytes, written);
  EXPECT_GT(world.Job(job).write_avoided_bytes, 8 * kPiece);
}

TEST(Memory, WriteBehindBeginsBeforeMemoryIsShort) {
  World world(
      {.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}, .engine = {.write_behind_start = 0.5}});
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.PutEach(session, 1, 4, kPiece);
  world.Turns(5);
  EXPECT_EQ(world.transfers.traffic(0).written_bytes, 0u) << "half of the share is not full yet";
  world.PutEach(session, 5, 6, kPiece);
  world.Turns(5);
  EXPECT_EQ(world.transfers.traffic(0).written_bytes, 2 * kPiece);
  EXPECT_EQ(world.Job(job).dirty_bytes, 4 * kPiece);
  EXPECT_EQ(world.Ask(session, Op::kStat, {{1, 0, 0, 0}}).tensor.ssd_bytes, kPiece) << "the coldest first";
}

TEST(Memory, WriteBehindBeginsEarlierByWhatDoesNotFit) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB},
               .engine = {.write_behind_start = 0.5},
               .device_blocks = 64});
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  for (uint64_t id = 1; id <= 8; ++id) world.PutOnSsd(session, id, kPiece);  // As many as fit.
  const auto dirty_of_four = [&](uint64_t value) {
    for (uint64_t id = 1; id <= 4; ++id) EXPECT_EQ(world.Rewrite(session, id, id + value).code, Code::kOk);
    world.Turns(20);
    return world.Job(job).dirty_bytes / kPiece;
  };
  EXPECT_EQ(dirty_of_four(100), 4u);
  world.PutOnSsd(session, 9, kPiece);
  EXPECT_EQ(dirty_of_four(200), 3u);
  for (uint64_t id = 10; id <= 14; ++id) world.PutOnSsd(session, id, kPiece);
  EXPECT_EQ(dirty_of_four(300), 2u) << "not before half of that";
  for (uint64_t id = 9; id <= 14; ++id) EXPECT_EQ(world.Free(session, id).code, Code::kOk);
  EXPECT_EQ(dirty_of_four(400), 4u);
}

TEST(Memory, OfMoreThanFitsTheFirstBytesAreWrittenWhileTheNextAreFilled) {
  for (const uint64_t size : {4 * kPiece, 12 * kPiece}) {
    World world(
        {.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}, .engine = {.write_behind_start = 0.5}});
    const SessionId session = world.Open();
    const Answer first = world.Ask(session, Op::kCreate, {{1, 0, kPiece, size}});
    ASSERT_EQ(first.code, Code::kOk) << first.detail;
    world.Fill(first.spans, 1, 1);
    EXPECT_EQ(world.Release(session, World::LeaseOf(first)).code, Code::kOk);
    world.Turns(5);
    const uint64_t written = world.transfers.traffic(0).written_bytes;
    EXPECT_EQ(written, size > 8 * kMiB ? kPiece : 0) << "of " << size;
  }
}

TEST(Memory, ATensorThatIsBegunHasNothingOfOthersWritten) {
  World world(
      {.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}, .engine = {.write_behind_start = 0.5}});
  const SessionId session = world.Open();
  const Answer begun = world.Ask(session, Op::kCreate, {{1, 0, kPiece, 12 * kPiece}});
  ASSERT_EQ(begun.code, Code::kOk) << begun.detail;
  for (uint64_t id = 2; id < 10; ++id) {
    world.Put(session, id, kPiece);
    world.Turns(5);
    EXPECT_EQ(world.Free(session, id).code, Code::kOk);
  }
  EXPECT_EQ(world.transfers.traffic(0).written_bytes, 0u);
}

TEST(Memory, EvictionAheadKeepsSomeRoomFree) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB},
               .engine = {.write_behind_start = 0.1, .evict_start = 0.75}});
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.PutEach(session, 1, 8, kPiece);
  world.Turns(20);
  EXPECT_LE(world.Job(job).ram_bytes, 12 * kMiB);
}

TEST(Memory, EvictionAheadGoesOnInTheNextTurn) {
  constexpr uint32_t kUnits = 4;
  World world(
      {.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 64 * kMiB}, .engine = {.work = {.maintain = kUnits}}});
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.PutEach(session, 1, 26, kPiece);
  for (uint64_t id = 1; id <= 26; ++id) ASSERT_EQ(world.Flush(session, id).code, Code::kOk);
  const uint64_t before = world.Job(job).ram_bytes;
  ASSERT_TRUE(world.engine->SetJob(job, {.limit_bytes = 16 * kMiB}));
  uint64_t evicted = world.Job(job).evicted_bytes;
  uint32_t turns = 0;
  for (bool more = true; more && turns < 100; ++turns) {
    more = world.Turn();
    EXPECT_LE(world.Job(job).evicted_bytes - evicted, kUnits * kPiece) << "turn " << turns;
    evicted = world.Job(job).evicted_bytes;
  }
  EXPECT_GT(turns, 3u);
  EXPECT_LE(world.Job(job).ram_bytes, 16 * kMiB);
  EXPECT_GT(before, 48 * kMiB);
}

TEST(Memory, WhenEverythingIsLeasedTheWaiterGetsNoMemoryWithFigures) {
  World world(WithArena());
  const JobId job = world.OpenJob();
  const SessionId holder = world.OpenSession(job);
  const SessionId waiter = world.OpenSession(job);
  EXPECT_EQ(world.Create(holder, 1, 8 * kMiB).code, Code::kOk);
  const Answer refused = world.Create(waiter, 1, kPiece);
  EXPECT_EQ(refused.code, Code::kNoMemory);
  EXPECT_EQ(refused.error.requested, kPiece);
  EXPECT_EQ(refused.error.available, 0u);
  EXPECT_EQ(refused.error.limit, 8 * kMiB);
  EXPECT_NE(refused.detail.find("session " + std::to_string(static_cast<uint64_t>(holder)) + " leases 8"),
            std::string::npos)
      << refused.detail;
  EXPECT_EQ(world.Check(waiter, 1), Code::kNotFound) << "nothing is left of the creation";
}

TEST(Memory, WhenItsOwnLeasesHoldEverythingTheCallerIsToldItWouldDeadlock) {
  World world(WithArena());
  const SessionId session = world.Open();
  EXPECT_EQ(world.Create(session, 1, 8 * kMiB).code, Code::kOk);
  const uint64_t asked = world.Send(session, Op::kCreate, {{2, 0, 0, kPiece}}, proto::kFlagNoWaitOwn);
  world.Turn();
  ASSERT_TRUE(world.Answered(session, asked).has_value()) << "at once";
  EXPECT_EQ(world.Answered(session, asked)->code, Code::kWouldDeadlock);
  EXPECT_EQ(world.Create(session, 2, kPiece).code, Code::kWouldDeadlock) << "at the deadline";
}

TEST(Memory, TwoWaitersForHalfOfTheMemoryEachBothGetIt) {
  World world(WithArena());
  const JobId job = world.OpenJob();
  const SessionId holder = world.OpenSession(job);
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  const Answer held = world.Create(holder, 1, 8 * kMiB);
  const uint64_t first = world.Send(a, Op::kCreate, {{1, 0, 0, 6 * kMiB}});
  const uint64_t second = world.Send(b, Op::kCreate, {{1, 0, 0, 6 * kMiB}});
  world.Turns(5);
  world.Release(holder, World::LeaseOf(held));
  const Answer granted = world.Wait(a, first);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_FALSE(world.Answered(b, second).has_value());
  world.Release(a, World::LeaseOf(granted));
  EXPECT_EQ(world.Wait(b, second).code, Code::kOk) << world.Wait(b, second).detail;
}

TEST(Memory, BatchedReadsLargerThanWhatIsFreeEvictTheirPredecessors) {
  World world(WithArena(16 * kMiB));
  const SessionId session = world.Open();
  for (uint64_t id = 1; id <= 24; ++id) world.PutOnSsd(session, id, kPiece, id);
  for (uint64_t first = 1; first <= 24; first += 6) {
    std::vector<proto::RequestItem> items;
    for (uint64_t id = first; id < first + 6; ++id) items.push_back({id, 0, 0, 0});
    const Answer granted = world.Ask(session, Op::kAcquire, items);
    ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
    for (uint32_t item = 0; item < 6; ++item) {
      std::vector<proto::SpanRecord> spans;
      for (const proto::SpanRecord& span : granted.spans) {
        if (span.item == item) spans.push_back(span);
      }
      EXPECT_TRUE(world.Matches(spans, first + item, first + item));
      world.Release(session, World::LeaseOf(granted, item));
    }
  }
}

TEST(Memory, AJobsLimitIsKeptToThePage) {
  World world(WithArena(64 * kMiB));
  const JobId job = world.OpenJob({.limit_bytes = 3 * kMiB});
  const SessionId session = world.OpenSession(job);
  for (uint64_t id = 1; id <= 6; ++id) {
    world.Put(session, id, kMiB, id);
    EXPECT_LE(world.Job(job).ram_bytes, 3 * kMiB);
  }
  EXPECT_EQ(world.CheckEach(session, 1, 6), Code::kOk);
  EXPECT_EQ(world.CreateRange(session, 9, 4 * kMiB, 0, 4 * kMiB).code, Code::kNoMemory);
}

TEST(Memory, AWindowThatNobodyMapsWakesTheJobItIsFor) {
  World world(WithArena(8 * kMiB));
  const SessionId a = world.Open({.key = "0/kept", .named = true});
  world.PutOnSsd(a, 1, kPiece, 1, proto::kFlagShared);
  world.EndSession(a, "gone, but its job stays");
  world.Turns(3);
  const SessionId b = world.Open();
  const uint64_t asked = world.Send(b, Op::kCreate, {{1, 0, 0, kPiece}});
  for (int turn = 0; turn < 10; ++turn) {
    world.Turn();
    world.Advance(std::chrono::milliseconds(3));
  }
  ASSERT_TRUE(world.Answered(b, asked).has_value()) << "the arena is empty";
  EXPECT_EQ(world.Answered(b, asked)->code, Code::kOk);
}

TEST(Memory, AnArenaThatGrowsWakesTheJobsThatWait) {
  World world({.windows = {.arena_max_bytes = 8 * kMiB, .arena_limit_bytes = 16 * kMiB}});
  const SessionId session = world.Open();
  EXPECT_EQ(world.Create(session, 1, 8 * kMiB).code, Code::kOk);
  const uint64_t asked = world.Send(session, Op::kCreate, {{2, 0, 0, kPiece}});
  world.Turns(5);
  EXPECT_FALSE(world.Answered(session, asked).has_value());
  world.windows.SetArenaMax(16 * kMiB);
  world.Turns(5);
  ASSERT_TRUE(world.Answered(session, asked).has_value());
  EXPECT_EQ(world.Answered(session, asked)->code, Code::kOk);
}

// At whatever point of the search for its pieces.
TEST(Memory, AWindowThatIsBeingEmptiedMayBeEmptyBefore) {
  for (uint32_t turns = 0; turns < 6; ++turns) {
    World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB},
                 .engine = {.work = {.move = PieceSlab::kChunk / 3}}});
    const SessionId holder = world.Open();
    world.Put(holder, 1, 1);
    world.PutEach(holder, 2, 7, kPiece);
    ASSERT_EQ(world.Ask(holder, Op::kFlush, {}).code, Code::kOk);
    const SessionId heir = world.Open();
    const uint64_t asked = world.Send(heir, Op::kCreate, {{1, 0, 0, kPiece}});
    for (uint32_t turn = 0; turn < turns; ++turn) {
      world.Turn();
      world.Advance(kHandOverInterval);
    }
    for (uint64_t tensor = 1; tensor <= 7; ++tensor) (void)world.Send(holder, Op::kFree, {{tensor, 0, 0, 0}});
    world.transfers.SetRemoveDelay(10);
    world.TurnsReturning(heir, asked, 50, kHandOverInterval);
    EXPECT_EQ(world.Wait(heir, asked).code, Code::kOk) << turns;
  }
}

TEST(Memory, LookingForWindowsToHandOverGoesOverSomePiecesAtATime) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB},
               .engine = {.work = {.move = PieceSlab::kChunk / 3}}});
  const JobId first = world.OpenJob();
  const SessionId a = world.OpenSession(first);
  world.Put(a, 1, 1);
  world.PutEach(a, 2, 7, kPiece);
  ASSERT_EQ(world.Ask(a, Op::kFlush, {}).code, Code::kOk);
  ASSERT_EQ(world.windows.window_count(), 2u);
  const SessionId b = world.OpenSession(world.OpenJob());
  const uint64_t asked = world.Send(b, Op::kCreate, {{1, 0, 0, kPiece}});
  uint32_t turns = 0;
  for (; turns < 20 && world.sink.returns.empty(); ++turns) {
    world.Turn();
    world.Advance(kHandOverInterval);
  }
  EXPECT_GE(turns, 3u) << "not all pieces in one turn";
  EXPECT_LE(turns, 6u);
  world.ReturnWindows();
  EXPECT_EQ(world.Wait(b, asked).code, Code::kOk);
  EXPECT_EQ(world.CheckEach(a, 2, 7), Code::kOk);
}

TEST(Memory, AWindowIsNotReusedBeforeTheDevicesGaveItUp) {
  World world(WithArena(24 * kMiB));
  const SessionId dead = world.Open();
  world.PutEach(dead, 1, 6, kPiece);
  const SessionId heir = world.Open();
  world.transfers.SetRemoveDelay(30);
  world.EndSession(dead);
  const uint64_t asked = world.Send(heir, Op::kCreate, {{1, 0, 0, 8 * kPiece}});
  world.Turns(20);
  EXPECT_FALSE(world.Answered(heir, asked));
  EXPECT_GT(world.windows.arena_bytes(), 16 * kMiB) << "its memory is not free yet";
  EXPECT_EQ(world.Wait(heir, asked).code, Code::kOk);
}

TEST(Memory, WhatTheDevicesAreAboutToGiveUpIsNotAskedOfOthers) {
  World world(WithArena(24 * kMiB));
  const SessionId holder = world.Open();
  world.PutEach(holder, 1, 11, kPiece);
  ASSERT_EQ(world.Ask(holder, Op::kFlush, {}).code, Code::kOk);
  world.transfers.SetRemoveDelay(50);
  const SessionId heir = world.Open();
  const uint64_t asked = world.Send(heir, Op::kCreate, {{1, 0, 0, kPiece}});
  for (uint32_t turn = 0; turn < 20 && world.sink.returns.empty(); ++turn) {
    world.Turn();
    world.Advance(kHandOverInterval);
  }
  ASSERT_EQ(world.sink.returns.size(), 1u);
  world.ReturnWindows();
  for (uint32_t turn = 0; turn < 20; ++turn) {
    world.Turn();
    world.Advance(kHandOverInterval);
  }
  EXPECT_TRUE(world.sink.returns.empty()) << "one window suffices, and it is on its way";
  EXPECT_EQ(world.Wait(heir, asked).code, Code::kOk);
}

TEST(Memory, AWindowIsNotReusedBeforeItsClientGaveItBack) {
  World world(WithArena(8 * kMiB));
  const JobId first = world.OpenJob();
  const SessionId a = world.OpenSession(first);
  world.PutOnSsd(a, 1, kPiece);
  world.OpenJob();
  const SessionId b = world.Open();
  const uint64_t asked = world.Send(b, Op::kCreate, {{1, 0, 0, kPiece}});
  world.Turns(50);
  EXPECT_FALSE(world.Answered(b, asked).has_value());
  ASSERT_EQ(world.sink.returns.size(), 1u);
  EXPECT_EQ(world.windows.made_count(), 1u);
  world.engine->WindowReturned(b, WindowIndex{0});  // Not one it was asked for.
  world.Turns(5);
  EXPECT_FALSE(world.Answered(b, asked).has_value());
  world.engine->WindowReturned(a, WindowIndex{0});
  EXPECT_EQ(world.Wait(b, asked).code, Code::kOk);
  EXPECT_EQ(world.windows.made_count(), 2u) << "the next owner gets a fresh one";
}

TEST(Memory, ADeadSessionsWindowsNeedNoAnswer) {
  World world(WithArena(8 * kMiB));
  const SessionId a = world.Open();
  world.PutOnSsd(a, 1, kPiece);
  const SessionId b = world.Open();
  const uint64_t asked = world.Send(b, Op::kCreate, {{1, 0, 0, kPiece}});
  world.Turns(5);
  world.EndSession(a, "killed");
  EXPECT_EQ(world.Wait(b, asked).code, Code::kOk);
}

TEST(Memory, SmallTensorsWorkInWindowsThatHoldOnlyWholeBlocks) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB, .page_size = kBlockSize}});
  world.windows.RefuseSlotWindows(true);
  const SessionId session = world.Open();
  world.PutEach(session, 1, 10, 5000);
  world.Put(session, 11, kPiece + 5000, 11);
  EXPECT_EQ(world.CheckEach(session, 1, 11), Code::kOk);
}

TEST(Memory, AWindowThatFailsIsRoomForAnotherJob) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 8 * kMiB, .delay_turns = 4}});
  const SessionId gone = world.Open();
  const SessionId waits = world.Open();
  world.windows.FailNext(1);
  (void)world.Send(gone, Op::kCreate, {{1, 0, 0, kBlockSize}});
  world.Turn();
  const uint64_t asked = world.Send(waits, Op::kCreate, {{1, 0, 0, kBlockSize}});
  world.Turn();
  world.engine->EndSession(gone, Code::kOk, "gone", std::nullopt);
  world.Turns(12);
  ASSERT_TRUE(world.Answered(waits, asked));
  EXPECT_EQ(world.Answered(waits, asked)->code, Code::kOk);
}

TEST(Memory, ScatteredSlotsDoNotKeepARequestForBlocksFromGrowing) {
  // Room for five windows of two blocks; above three quarters none is made ahead.
  World world({.windows = {.window_size = 4 * kMiB, .arena_max_bytes = 20 * kMiB}});
  const SessionId session = world.Open();
  // Two to a block in four windows; then every other one goes, and the rest may not be evicted.
  world.PutEach(session, 1, 16, kMiB - 4096);
  for (uint64_t id = 1; id <= 16; ++id) {
    if (id % 2 == 0) {
      EXPECT_EQ(world.Acquire(session, id).code, Code::kOk);
    } else {
      world.Free(session, id);
    }
  }
  ASSERT_EQ(world.windows.window_count(), 4u);
  EXPECT_EQ(world.Create(session, 20, kPiece).code, Code::kOk) << "half of each window is free, but no whole block";
}

TEST(Memory, AWindowThatCannotBeMadeIsTriedAgain) {
  World world(WithArena(16 * kMiB));
  const SessionId session = world.Open();
  world.windows.FailNext(2);
  EXPECT_EQ(world.Create(session, 1, 4096).code, Code::kOk);
}

TEST(Memory, PrefetchBringsBackWithoutBeingWaitedFor) {
  World world(WithArena(16 * kMiB));
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.PutOnSsd(session, 1, kPiece);
  EXPECT_EQ(world.Ask(session, Op::kPrefetch, {{1, 0, 0, 0}}).value, 1u);
  world.Turns(5);
  EXPECT_EQ(world.Job(job).prefetched_bytes, kPiece);
  const uint64_t read = world.transfers.traffic(0).read_bytes;
  EXPECT_EQ(world.Check(session, 1), Code::kOk);
  EXPECT_EQ(world.transfers.traffic(0).read_bytes, read) << "a hit";
}

TEST(Memory, PrefetchIsBoundedInFlight) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 64 * kMiB},
               .engine = {.prefetch_bytes_max = 2 * kPiece}});
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  for (uint64_t id = 1; id <= 8; ++id) world.PutOnSsd(session, id, kPiece, id);
  world.transfers.Hold();
  std::vector<proto::RequestItem> items;
  for (uint64_t id = 1; id <= 8; ++id) items.push_back({id, 0, 0, 0});
  EXPECT_EQ(world.Ask(session, Op::kPrefetch, items).code, Code::kOk);
  world.Turns(5);
  EXPECT_EQ(world.Job(job).ram_bytes, 2 * kPiece);
  EXPECT_EQ(world.transfers.inflight(), 2u);
  world.transfers.Release();
  world.Turns(30);
  EXPECT_EQ(world.transfers.traffic(0).read_bytes, 8 * kPiece);
}

TEST(Memory, APrefetchOfWhatIsFreedMeanwhileDoesNothing) {
  World world(WithArena(16 * kMiB));
  const SessionId session = world.Open();
  world.PutOnSsd(session, 1, 3 * kPiece);
  world.transfers.Hold();
  world.Ask(session, Op::kPrefetch, {{1, 0, 0, 0}});
  world.Turns(2);
  EXPECT_EQ(world.Free(session, 1).code, Code::kOk);
  world.transfers.Release();
  world.Turns(5);
  EXPECT_EQ(world.extents.total().live, 0u);
}

TEST(Memory, AReaderOfAPieceBeingWrittenOutIsServedFromRam) {
  World world(WithArena(16 * kMiB));
  const SessionId session = world.Open();
  world.Put(session, 1, kPiece);
  world.transfers.Hold();
  const uint64_t flushing = world.Send(session, Op::kFlush, {{1, 0, 0, 0}});
  world.Turns(2);
  EXPECT_EQ(world.transfers.inflight(), 1u);
  EXPECT_EQ(world.Check(session, 1), Code::kOk) << "forwarded";
  const uint64_t writing = world.Send(session, Op::kAcquire, {{1, 0, 0, 0}}, proto::kFlagWrite);
  world.Turns(5);
  EXPECT_FALSE(world.Answered(session, writing).has_value()) << "a writer waits for the device";
  world.transfers.Release();
  EXPECT_EQ(world.Wait(session, writing).code, Code::kOk);
  EXPECT_EQ(world.Wait(session, flushing).code, Code::kOk);
  EXPECT_EQ(world.transfers.memory_changes(), 0u);
}

}  // namespace
}  // namespace tier::tiering::testing
