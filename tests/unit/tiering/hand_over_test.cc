// Hand-over: windows of a job that holds more than it is promised are emptied by moves in RAM, those with least in them
// first, and what may come meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using memory::CopyOutcome;
using proto::Op;
using std::chrono::milliseconds;
constexpr uint64_t kBlock = kBlockSize;

// 32 windows of one block, of which job A holds 28 and job B, which comes later, is guaranteed 15.
class HandOverTest : public ::testing::Test {
 protected:
  static WorldOptions Options(uint32_t devices) {
    return {.windows = {.window_size = kBlock, .arena_max_bytes = 32 * kBlock},
            .transfers = {.device_count = static_cast<uint16_t>(devices)},
            .engine = {.deadline_default = std::chrono::seconds(300)}};  // Beyond that of forced return.
  }
  explicit HandOverTest(uint32_t devices = 0) : world(Options(devices)) {}

  // In each of the windows tensor 100 + i, of `pages(i)` pages, and nothing beside it.
  template <typename Pages>
  void FillEach(uint64_t windows, Pages pages) {
    for (uint64_t i = 0; i < windows; ++i) {
      world.Put(a, 100 + i, pages(i) * kPageSize, 100 + i, proto::kFlagShared);
      world.Put(a, 200 + i, kBlock - pages(i) * kPageSize, 200 + i);
    }
    for (uint64_t i = 0; i < windows; ++i) EXPECT_EQ(world.Free(a, 200 + i).code, Code::kOk);
    sparse = windows;
    ASSERT_GE(world.Job(job_a).window_count, windows);
    world.Turns(50);  // What write-behind has begun ends.
  }
  void LeaveOnePageInEach(uint64_t windows) {
    FillEach(windows, [](uint64_t) { return uint64_t{1}; });
  }
  void CheckSparse() {
    for (uint64_t i = 0; i < sparse; ++i) {
      EXPECT_EQ(world.Check(a, 100 + i, 100 + i, proto::kFlagShared), Code::kOk) << i;
    }
  }
  uint32_t WindowOf(uint64_t tensor) {
    const Answer acquired = world.Acquire(a, tensor, proto::kFlagShared);
    EXPECT_EQ(acquired.code, Code::kOk);
    EXPECT_EQ(world.Release(a, World::LeaseOf(acquired)).code, Code::kOk);
    return acquired.spans.at(0).window;
  }
  void OpenB(uint64_t guaranteed_blocks = 15) {
    job_b = world.OpenJob({.key = "2/b", .uid = 2, .guarantee_bytes = guaranteed_blocks * kBlock});
    b = world.OpenSession(job_b);
  }
  uint64_t AskOfB(uint64_t blocks) { return world.Send(b, Op::kCreate, {{1, 0, 0, blocks * kBlock}}); }
  // Whether B is served within a second.
  Code WaitOfB(uint64_t asked) {
    world.TurnsReturning(b, asked, 1000, milliseconds(1));
    const std::optional<Answer> answer = world.Answered(b, asked);
    return answer ? answer->code : Code::kTimeout;
  }
  // Until copies are under way for B's request.
  uint64_t AskWhilePiecesMove(uint64_t blocks) {
    world.copier.SetDelay(4, 4);
    const uint64_t asked = AskOfB(blocks);
    for (int i = 0; i < 20 && world.copier.inflight() == 0; ++i) {
      world.Turn();
      world.Advance(milliseconds(1));
    }
    EXPECT_NE(world.copier.inflight(), 0U);
    return asked;
  }
  EngineSnapshot Snapshot() { return world.engine->Snapshot(); }
  CompactionFigures Moved() { return Snapshot().compaction[static_cast<size_t>(CompactionCause::kWindow)]; }
  uint64_t Returned(LeftBy how) { return Snapshot().hand_over.windows[static_cast<size_t>(how)]; }

  World world;
  JobId job_a = world.OpenJob({.key = "1/a", .uid = 1});
  SessionId a = world.OpenSession(job_a);
  JobId job_b{};
  SessionId b{};
  uint64_t sparse = 0;
};

TEST_F(HandOverTest, SparseWindowsGoWithoutAnSsd) {
  LeaveOnePageInEach(28);
  OpenB();
  EXPECT_EQ(WaitOfB(AskOfB(14)), Code::kOk);
  EXPECT_GE(Moved().moves, 8U);
  EXPECT_EQ(Moved().bytes, Moved().moves * kPageSize);
  EXPECT_GE(Returned(LeftBy::kMoves), 8U);
  EXPECT_EQ(Returned(LeftBy::kEviction), 0U);
  EXPECT_EQ(Snapshot().hand_over.evicted_bytes, 0U);
  CheckSparse();
}

TEST_F(HandOverTest, WindowsThatAreBeingEmptiedAreCountedUntilTheyGo) {
  LeaveOnePageInEach(28);
  const auto emptying = [&](JobId job) { return world.Job(job).pool.emptying_bytes; };
  EXPECT_EQ(emptying(job_a), 0U);
  OpenB();
  const uint64_t asked = AskWhilePiecesMove(14);
  EXPECT_GE(emptying(job_a), kBlock);
  EXPECT_LE(emptying(job_a), world.Job(job_a).held_bytes);
  EXPECT_EQ(emptying(job_b), 0U);
  EXPECT_EQ(WaitOfB(asked), Code::kOk);
  for (int i = 0; i < 100 && emptying(job_a) != 0; ++i) {
    world.Advance(milliseconds(10));
    world.Turn();
  }
  EXPECT_EQ(emptying(job_a), 0U) << "those that B does not need stay with A";
}

// The whole tensor of a block needs a free block of another window.
TEST_F(HandOverTest, WholeBlocksMoveToo) {
  World large({.windows = {.window_size = 4 * kBlock, .slot_window_size = kBlock, .arena_max_bytes = 32 * kBlock},
               .transfers = {.device_count = 0}});
  const JobId holder = large.OpenJob({.uid = 1});
  const SessionId session = large.OpenSession(holder);
  large.PutEach(session, 1, 24, kBlock);
  for (uint64_t id = 1; id <= 24; ++id) {
    const Code code = id % 4 == 0 ? Code::kOk : large.Free(session, id).code;
    EXPECT_EQ(code, Code::kOk);
  }
  ASSERT_GE(large.Job(holder).window_count, 6U);
  const SessionId other = large.Open({.uid = 2, .guarantee_bytes = 14 * kBlock});
  const uint64_t asked = large.Send(other, Op::kCreate, {{1, 0, 0, 14 * kBlock}});
  large.TurnsReturning(other, asked, 1000, milliseconds(1));
  ASSERT_TRUE(large.Answered(other, asked).has_value());
  EXPECT_EQ(large.Answered(other, asked)->code, Code::kOk);
  for (uint64_t id = 4; id <= 24; id += 4) EXPECT_EQ(large.Check(session, id, id), Code::kOk);
}

TEST_F(HandOverTest, TheWindowsWithLeastInThemGoFirst) {
  FillEach(28, [](uint64_t i) { return 1 + (i * 7) % 30; });
  std::vector<uint32_t> before;
  for (uint64_t i = 0; i < sparse; ++i) before.push_back(WindowOf(100 + i));
  const uint64_t held = world.Job(job_a).window_count;
  OpenB();
  EXPECT_EQ(WaitOfB(AskOfB(8)), Code::kOk);  // Four windows are free, four are to go.
  const uint64_t gone = held - world.Job(job_a).window_count;
  ASSERT_GE(gone, 4U);
  for (uint64_t i = 0; i < sparse; ++i) {
    const uint64_t pages = 1 + (i * 7) % 30;
    // The order is exact up to 16 pages, and to within an eighth from there on.
    if (pages > std::min<uint64_t>(gone, 16) && pages <= gone + gone / 8 + 1) continue;
    EXPECT_EQ(WindowOf(100 + i) != before[i], pages <= gone) << "tensor of " << pages << " pages";
  }
  CheckSparse();
}

TEST_F(HandOverTest, WindowsWithLeasesStay) {
  LeaveOnePageInEach(28);
  std::vector<Answer> leases;
  for (uint64_t i = 0; i < 10; ++i) leases.push_back(world.Acquire(a, 100 + i, proto::kFlagShared));
  OpenB();
  EXPECT_EQ(WaitOfB(AskOfB(14)), Code::kOk);
  for (uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(world.Matches(leases[i].spans, 100 + i, 100 + i));
  EXPECT_EQ(Moved().cancelled, 0U) << "they were not even chosen";
}

TEST_F(HandOverTest, ALeaseKeepsTheWindowAndOthersGo) {
  LeaveOnePageInEach(28);
  OpenB();
  const uint64_t asked = AskWhilePiecesMove(14);
  std::vector<uint64_t> sent;
  for (uint64_t i = 0; i < 6; ++i) {
    sent.push_back(world.Send(a, Op::kAcquire, {{100 + i, 0, 0, 0}}, proto::kFlagShared));
  }
  world.Turn();
  for (uint64_t i = 0; i < 6; ++i) ASSERT_TRUE(world.Answered(a, sent[i]).has_value()) << "nothing waits for a move";
  EXPECT_EQ(WaitOfB(asked), Code::kOk);
  for (uint64_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(world.Matches(world.Answered(a, sent[i])->spans, 100 + i, 100 + i)) << "nothing under a lease moves";
    EXPECT_EQ(world.Release(a, World::LeaseOf(*world.Answered(a, sent[i]))).code, Code::kOk);
  }
  CheckSparse();
}

TEST_F(HandOverTest, WhatIsRewrittenOrFreedMeanwhileIsWhatCounts) {
  LeaveOnePageInEach(28);
  OpenB();
  const uint64_t asked = AskWhilePiecesMove(14);
  for (uint64_t i = 0; i < sparse; i += 2) {
    EXPECT_EQ(world.Rewrite(a, 100 + i, 500 + i, proto::kFlagShared).code, Code::kOk);
    EXPECT_EQ(world.Free(a, 101 + i, proto::kFlagShared).code, Code::kOk);
  }
  EXPECT_EQ(WaitOfB(asked), Code::kOk);
  for (uint64_t i = 0; i < sparse; i += 2) {
    EXPECT_EQ(world.Check(a, 100 + i, 500 + i, proto::kFlagShared), Code::kOk);
  }
}

TEST_F(HandOverTest, TheJobThatIsOwedMayCloseMeanwhile) {
  LeaveOnePageInEach(28);
  OpenB();
  (void)AskWhilePiecesMove(14);
  world.EndSession(b);
  for (int i = 0; i < 50; ++i) {
    world.Turn();
    world.ReturnWindows();
    world.Advance(milliseconds(1));
  }
  CheckSparse();
  const PoolView pool = world.engine->Pool();
  for (const WindowView& window : pool.windows) EXPECT_EQ(window.condition, PoolCondition::kReady);
  world.PutEach(a, 300, 320, kBlock - kPageSize);  // What was closed takes pieces again.
}

TEST_F(HandOverTest, TheHolderMayEndMeanwhile) {
  LeaveOnePageInEach(28);
  OpenB();
  const uint64_t asked = AskWhilePiecesMove(14);
  world.EndSession(a);
  world.Turn();
  EXPECT_EQ(WaitOfB(asked), Code::kOk);
  world.EndSession(b);
  world.Turns(20);
  EXPECT_EQ(world.windows.window_count(), 0U);
  EXPECT_TRUE(world.engine->idle());
}

TEST_F(HandOverTest, ASessionOfTheHolderMayEndMeanwhile) {
  const SessionId keeper = world.OpenSession(job_a);
  LeaveOnePageInEach(28);
  OpenB();
  const uint64_t asked = AskWhilePiecesMove(14);
  world.EndSession(a);
  EXPECT_EQ(WaitOfB(asked), Code::kOk);
  a = keeper;
  CheckSparse();  // They are shared.
}

TEST_F(HandOverTest, AWindowThatIsTakenAwayMeanwhileEndsTheHolderAlone) {
  LeaveOnePageInEach(28);
  OpenB();
  world.copier.FaultNext(CopyOutcome::kTargetFault);
  EXPECT_EQ(WaitOfB(AskOfB(14)), Code::kOk);
  EXPECT_TRUE(world.sink.ended.contains(static_cast<uint64_t>(a)));
  EXPECT_FALSE(world.sink.ended.contains(static_cast<uint64_t>(b)));
}

// What was half full fits into as many windows again, and not into fewer.
TEST_F(HandOverTest, WithoutAnSsdNothingMovesThatCouldNotGo) {
  FillEach(28, [](uint64_t) { return uint64_t{500}; });
  OpenB(2);  // No more can be guaranteed beside tensors that stay.
  EXPECT_NE(WaitOfB(AskOfB(14)), Code::kOk);
  EXPECT_EQ(Moved().moves, 0U);
  EXPECT_EQ(world.Job(job_a).window_count, 28U);
  CheckSparse();
}

// The window with the fewest bytes has a piece that fits no hole: the next ones go.
TEST_F(HandOverTest, AWindowThatCannotBeEmptiedDoesNotKeepOthersFromGoing) {
  world.Put(a, 100, 300 * kPageSize, 100, proto::kFlagShared);
  world.Put(a, 200, 212 * kPageSize, 200);
  for (uint64_t i = 1; i < 28; ++i) {
    world.Put(a, 100 + i, 170 * kPageSize, 100 + i, proto::kFlagShared);
    world.Put(a, 150 + i, 170 * kPageSize, 150 + i);
    world.Put(a, 200 + i, 172 * kPageSize, 200 + i);
  }
  for (uint64_t i = 0; i < 28; ++i) EXPECT_EQ(world.Free(a, 200 + i).code, Code::kOk);
  ASSERT_EQ(world.Job(job_a).window_count, 28U);
  sparse = 28;
  OpenB(11);
  EXPECT_EQ(WaitOfB(AskOfB(6)), Code::kOk);
  CheckSparse();
  for (uint64_t i = 1; i < 28; ++i) EXPECT_EQ(world.Check(a, 150 + i, 150 + i), Code::kOk);
}

class HandOverWithSsd : public HandOverTest {
 protected:
  HandOverWithSsd() : HandOverTest(1) {}
  storage::DeviceTraffic Traffic() { return Snapshot().devices.at(0).traffic; }
};

TEST_F(HandOverWithSsd, NothingIsWrittenOrReadForSparseWindows) {
  LeaveOnePageInEach(28);
  const uint64_t written = Traffic().written_bytes;
  OpenB();
  EXPECT_EQ(WaitOfB(AskOfB(14)), Code::kOk);
  EXPECT_GE(Returned(LeftBy::kMoves), 8U);
  EXPECT_EQ(Traffic().written_bytes, written);
  CheckSparse();
  EXPECT_EQ(Traffic().read_bytes, 0U);
}

// A session that leases too much is ended by force. What it leased stays, and what lies sparse of it moves.
TEST_F(HandOverWithSsd, WhatForcedReturnLeavesMoves) {
  LeaveOnePageInEach(8);
  world.PutEach(a, 300, 319, kBlock, proto::kFlagShared);
  const SessionId hog = world.OpenSession(job_a);
  for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(world.Acquire(hog, 100 + i, proto::kFlagShared).code, Code::kOk);
  for (uint64_t i = 300; i < 320; ++i) EXPECT_EQ(world.Acquire(hog, i, proto::kFlagShared).code, Code::kOk);
  b = world.Open({.key = "2/b", .uid = 2});
  const uint64_t asked = AskOfB(9);
  world.TurnsReturning(b, asked, 1500, milliseconds(50));
  ASSERT_TRUE(world.Answered(b, asked).has_value());
  EXPECT_EQ(world.Answered(b, asked)->code, Code::kOk);
  EXPECT_TRUE(world.sink.ended.contains(static_cast<uint64_t>(hog)));
  EXPECT_GE(Moved().moves, 1U);
  CheckSparse();
  for (uint64_t id = 300; id < 320; ++id) EXPECT_EQ(world.Check(a, id, id, proto::kFlagShared), Code::kOk);
}

TEST_F(HandOverWithSsd, CleanPiecesMoveTooAndAreNotReadAgain) {
  LeaveOnePageInEach(28);
  for (uint64_t i = 0; i < sparse; ++i) EXPECT_EQ(world.Flush(a, 100 + i, proto::kFlagShared).code, Code::kOk);
  OpenB();
  EXPECT_EQ(WaitOfB(AskOfB(14)), Code::kOk);
  EXPECT_EQ(world.Job(job_a).evicted_bytes, 0U);
  CheckSparse();
  EXPECT_EQ(Traffic().read_bytes, 0U);
}

// 28 windows of 400 pages each become 18: what the free pages of those do not take, in several runs, is evicted, some 5
// windows of it.
TEST_F(HandOverWithSsd, WhatFindsNoRoomIsEvicted) {
  FillEach(28, [](uint64_t) { return uint64_t{400}; });
  for (uint64_t i = 0; i < sparse; ++i) EXPECT_EQ(world.Flush(a, 100 + i, proto::kFlagShared).code, Code::kOk);
  OpenB();
  EXPECT_EQ(WaitOfB(AskOfB(14)), Code::kOk);
  EXPECT_GE(Returned(LeftBy::kEviction), 4U);
  EXPECT_EQ(Snapshot().hand_over.evicted_bytes, world.Job(job_a).evicted_bytes);
  CheckSparse();
}

// Each window is asked back of every session that maps it: a turn asks for as many as its work allows, and for no
// others instead.
TEST(HandOverOfEmptyWindows, ATurnAsksManySessionsForFew) {
  constexpr size_t kSessions = 40;
  World world({.windows = {.window_size = kBlock, .arena_max_bytes = 32 * kBlock},
               .engine = {.deadline_default = std::chrono::seconds(300), .work = {.move = 3 * kSessions}}});
  const JobId job = world.OpenJob({.key = "1/a", .uid = 1});
  std::vector<SessionId> sessions;
  for (size_t i = 0; i < kSessions; ++i) sessions.push_back(world.OpenSession(job));
  world.Put(sessions[0], 1, 28 * kBlock, 1, proto::kFlagShared);
  for (const SessionId session : sessions) {
    EXPECT_EQ(world.Check(session, 1, 1, proto::kFlagShared), Code::kOk);
  }
  EXPECT_EQ(world.Ask(sessions[0], Op::kFree, {{1, 0, 0, 0}}, proto::kFlagShared).code, Code::kOk);
  const SessionId late = world.Open({.key = "2/b", .uid = 2, .guarantee_bytes = 15 * kBlock});
  const uint64_t asked = world.Send(late, Op::kCreate, {{1, 0, 0, 14 * kBlock}});
  size_t most = 0;
  size_t all = 0;
  for (int turns = 0; turns < 1'000 && !world.Answered(late, asked); ++turns) {
    world.sink.returns.clear();
    world.Turn();
    most = std::max(most, world.sink.returns.size());
    all += world.sink.returns.size();
    for (const auto& [session, window] : world.sink.returns) {
      world.engine->WindowReturned(SessionId{session}, WindowIndex{window});
    }
    world.Advance(milliseconds(2));
  }
  ASSERT_TRUE(world.Answered(late, asked).has_value());
  EXPECT_EQ(world.Answered(late, asked)->code, Code::kOk);
  EXPECT_GE(all, 10 * kSessions);
  EXPECT_LE(most, 4 * kSessions);
}

}  // namespace
}  // namespace tier::tiering::testing
