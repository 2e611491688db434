// While indices run short, small windows of a job become larger ones: what lies in them is moved there and nothing is
// lost or evicted, what is leased stays, and memory that others are owed comes first.
#include <chrono>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/tiering/memory/growth.h"
#include "daemon/tiering/memory/merging.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

constexpr uint64_t kPiece = kBlockSize;
constexpr uint64_t kLargest = 32 * kMiB;
constexpr uint64_t kSmall = 32;      // Windows of one piece each.
constexpr uint64_t kWithHoles = 96;  // Tensors, two in each block.

class Merging : public ::testing::Test {
 protected:
  static WorldOptions Options(uint16_t devices) {
    return {.windows = {.window_size = kLargest,
                        .window_size_min = kBlockSize,
                        .arena_max_bytes = 256 * kMiB,
                        .windows_max = 256},
            .transfers = {.device_count = devices},
            .device_blocks = 256,
            .returns_windows = true};
  }
  void Start(uint16_t devices = 0, const JobOptions& job = {}) { Start(Options(devices), job); }
  void Start(const WorldOptions& options, const JobOptions& job = {}) {
    world_.emplace(options);
    job_ = world_->OpenJob(job);
    session_ = world_->OpenSession(job_);
    world_->PutEach(session_, 1, kSmall, kPiece);
    Settle();
    ASSERT_EQ(world_->windows.window_count(), kSmall);
  }
  // One more window is the cause.
  void RunShort(uint64_t merged = kLargest) {
    world_->windows.SetMergedWished(merged);
    world_->Put(session_, kSmall + 1, kPiece, kSmall + 1);
  }
  // Each block has two tensors of 250 pages and a hole of 12: there are pages enough for the tensors of a window, and
  // no hole for any of them.
  void StartWithHoles() {
    Start();
    world_->EndSession(session_);
    job_ = world_->OpenJob();
    session_ = world_->OpenSession(job_);
    world_->PutEach(session_, 1, kWithHoles, 250 * kPageSize);
    Settle();
    ASSERT_EQ(held(), kWithHoles / 2 * kPiece);
  }
  // Until what was made ahead is given back, and no merge is left to do.
  void Settle() {
    for (int i = 0; i < 8; ++i) {
      world_->Turns(40);
      world_->Advance(kAheadKept);
    }
  }
  // So many times: some turns, and the time that a merge which came to nothing was followed by once.
  void TurnsOften(int times) {
    for (int i = 0; i < times; ++i) {
      world_->Turns(10);
      world_->Advance(std::chrono::milliseconds(20));
    }
  }
  MergeFigures Merges() const { return world_->engine->Snapshot().merges; }
  uint64_t held() const { return world_->Job(job_).held_bytes; }

  std::optional<World> world_;
  JobId job_{};
  SessionId session_{};
};

TEST_F(Merging, SmallWindowsBecomeLargerOnes) {
  Start();
  RunShort();
  Settle();
  EXPECT_EQ(world_->windows.window_count(), 3U) << "two of 32 MiB and one of 2 MiB";
  EXPECT_EQ(held(), (kSmall + 1) * kPiece);
  EXPECT_EQ(world_->CheckEach(session_, 1, kSmall + 1), Code::kOk);
}

TEST_F(Merging, WhereIndicesSufficeWindowsStay) {
  Start();
  RunShort(0);
  Settle();
  EXPECT_EQ(world_->windows.window_count(), kSmall + 1);
  EXPECT_EQ(world_->Job(job_).moved_bytes, 0U);
}

TEST_F(Merging, WhatIsLeasedStaysWhereItIs) {
  Start();
  std::vector<uint64_t> leases;
  for (uint64_t id = 1; id <= 10; ++id) leases.push_back(World::LeaseOf(world_->Acquire(session_, id)));
  RunShort();
  Settle();
  EXPECT_GE(world_->windows.window_count(), leases.size() + 1);
  EXPECT_LE(world_->windows.window_count(), leases.size() + 8) << "32, 8 and 2 MiB, three times";
  EXPECT_EQ(held(), (kSmall + 1) * kPiece);
  for (const uint64_t lease : leases) EXPECT_EQ(world_->Release(session_, lease).code, Code::kOk);
  EXPECT_EQ(world_->CheckEach(session_, 1, kSmall + 1), Code::kOk);
}

TEST_F(Merging, NothingIsEvictedOrWrittenForIt) {
  Start(1);
  const uint64_t written = world_->Job(job_).swap_out_bytes;
  RunShort();
  Settle();
  EXPECT_LE(world_->windows.window_count(), 4U);
  EXPECT_EQ(world_->Job(job_).evicted_bytes, 0U);
  EXPECT_EQ(world_->Job(job_).swap_out_bytes, written);
}

TEST_F(Merging, AWindowThatCannotBeMadeChangesNothing) {
  Start();
  world_->windows.SetMergedWished(kLargest);
  world_->Put(session_, kSmall + 1, kPiece, kSmall + 1);
  world_->windows.FailNext(1);
  Settle();
  EXPECT_EQ(world_->CheckEach(session_, 1, kSmall + 1), Code::kOk);
  EXPECT_EQ(held(), (kSmall + 1) * kPiece);
}

// A job of another user asks for what it is promised while pieces are on their way; the first one has room for it.
TEST_F(Merging, WhatOthersAreOwedComesFirst) {
  Start();
  world_->PutEach(session_, 100, 175, kPiece);
  for (uint64_t id = 100; id <= 175; ++id) ASSERT_EQ(world_->Free(session_, id).code, Code::kOk);
  world_->copier.SetDelay(3, 5);
  RunShort();
  world_->Turns(3);
  const SessionId other = world_->OpenSession(world_->OpenJob({.uid = 7, .guarantee_bytes = 100 * kMiB}));
  world_->PutEach(other, 1, 40, kPiece);
  Settle();
  EXPECT_EQ(world_->CheckEach(session_, 1, kSmall + 1), Code::kOk);
  EXPECT_EQ(world_->CheckEach(other, 1, 40), Code::kOk);
}

// SSD would take all that the job has, so it may borrow: but not for a merge.
TEST_F(Merging, NoWindowIsMadeBeyondWhatItsJobIsPromised) {
  Start(1, {.guarantee_bytes = kSmall * kPiece});
  const SessionId other = world_->OpenSession(world_->OpenJob({.uid = 7}));
  world_->windows.SetMergedWished(kLargest);
  world_->Put(other, 1, kPiece);
  for (int turn = 0; turn < 200; ++turn) {
    world_->Turn();
    ASSERT_EQ(held(), kSmall * kPiece) << "turn " << turn;
  }
}

// What a job needed once it keeps: but it may hold less than that, when others were owed it. Then each merge was for
// nothing, and followed by the next one.
TEST_F(Merging, AJobThatOnceHeldMoreIsMergedAsOthersAre) {
  Start(0, {.guarantee_bytes = 20 * kMiB});
  for (uint64_t id = 13; id <= kSmall; ++id) ASSERT_EQ(world_->Free(session_, id).code, Code::kOk);
  const SessionId peer = world_->Open({.uid = 7, .guarantee_bytes = 216 * kMiB});
  ASSERT_EQ(world_->Create(peer, 1, 216 * kMiB).code, Code::kOk);
  ASSERT_EQ(held(), 40 * kMiB) << "12 windows in use, and 8 of 20 others";
  world_->EndSession(peer);
  Settle();
  ASSERT_EQ(held(), 40 * kMiB);
  const uint64_t made = world_->windows.made_count();
  world_->windows.SetMergedWished(8 * kMiB);
  TurnsOften(200);
  EXPECT_LE(world_->windows.made_count() - made, 6U) << "five of 8 MiB take the place of 20";
  EXPECT_LE(world_->windows.window_count(), 8U);
  EXPECT_GE(held(), 40 * kMiB);
  EXPECT_EQ(world_->CheckEach(session_, 1, 12), Code::kOk);
}

// Whenever the larger window has come, a client leases all that was to move there.
TEST_F(Merging, MergesThatComeToNothingBecomeRare) {
  Start();
  const uint64_t made = world_->windows.made_count();
  world_->windows.SetDelay(3);
  world_->windows.SetMergedWished(kLargest);
  std::vector<proto::RequestItem> tensors;
  for (uint64_t id = 1; id <= kSmall; ++id) tensors.push_back({id, 0, 0, 0});
  for (int i = 0; i < 100; ++i) {
    world_->Turns(2);
    const Answer leased = world_->Ask(session_, proto::Op::kAcquire, tensors);
    ASSERT_EQ(leased.code, Code::kOk) << leased.detail;
    world_->Turns(8);
    std::vector<proto::RequestItem> leases;
    for (uint32_t item = 0; item < kSmall; ++item) leases.push_back({0, 0, 0, World::LeaseOf(leased, item)});
    ASSERT_EQ(world_->Ask(session_, proto::Op::kRelease, leases).code, Code::kOk);
    world_->Advance(std::chrono::milliseconds(20));
  }
  EXPECT_LE(world_->windows.made_count() - made, 3U) << "at once, after 1 s, after 2 s";
  ASSERT_TRUE(world_->engine->NextDeadline().has_value()) << "nothing else tells when to look again";
  EXPECT_LE(*world_->engine->NextDeadline(), world_->now + kMergeWalkInterval);
}

TEST_F(Merging, WhatFindsNoHoleStaysAndIsNotTriedAgainAtOnce) {
  StartWithHoles();
  world_->windows.SetMergedWished(kPiece);  // No larger window helps.
  TurnsOften(200);
  EXPECT_GE(Merges().in_vain, 1U);
  EXPECT_LE(Merges().in_vain, 3U) << "at once, after 1 s, after 2 s";
  const auto moves = world_->engine->Snapshot().compaction[static_cast<size_t>(CompactionCause::kMerge)];
  EXPECT_EQ(moves.moves, 0U);
  world_->windows.SetMergedWished(kLargest);
  Settle();
  Settle();
  EXPECT_LE(world_->windows.window_count(), 16U) << "a larger one has room";
  EXPECT_GE(Merges().windows, 32U);
  EXPECT_EQ(world_->CheckEach(session_, 1, kWithHoles), Code::kOk);
}

TEST_F(Merging, OfAJobThatDoesNotChangeThoseThatComeToNothingEnd) {
  StartWithHoles();
  world_->windows.SetMergedWished(kPiece);  // No larger window helps.
  const auto pass = [&](base::Duration time) {
    for (const base::TimePoint end = world_->now + time; world_->now < end; world_->Advance(std::chrono::seconds(2))) {
      world_->Turns(10);
    }
  };
  pass(2 * kMergePauseLongest);
  const uint64_t in_vain = Merges().in_vain;
  EXPECT_GE(in_vain, 8U) << "after 0, 1, 3, 7, 15, 31, 63, 127 and 255 s";
  pass(std::chrono::hours(1));
  EXPECT_EQ(Merges().in_vain, in_vain);
  EXPECT_EQ(world_->Check(session_, 1, 1), Code::kOk);
  pass(std::chrono::hours(1));
  EXPECT_GE(Merges().in_vain, in_vain + 1) << "it asked for something: things may have changed";
  EXPECT_LE(Merges().in_vain, in_vain + 2) << "by two requests";
}

TEST_F(Merging, MovesAreCountedApartFromThoseForOtherJobs) {
  Start();
  RunShort();
  Settle();
  const EngineSnapshot snapshot = world_->engine->Snapshot();
  EXPECT_GE(snapshot.compaction[static_cast<size_t>(CompactionCause::kMerge)].moves, 32U);
  EXPECT_EQ(snapshot.compaction[static_cast<size_t>(CompactionCause::kWindow)].moves, 0U);
  EXPECT_EQ(snapshot.hand_over.windows, HandOverFigures{}.windows);
  EXPECT_GE(Merges().effective, 2U);
  EXPECT_GE(Merges().windows, 32U);
}

TEST_F(Merging, JobsOfAllIndicesHaveTheirTurn) {
  Start();
  for (int i = 0; i < 31; ++i) world_->OpenJob();
  const JobId other = world_->OpenJob();
  const SessionId session = world_->OpenSession(other);
  world_->PutEach(session, 1, kSmall, kPiece);
  Settle();
  world_->windows.SetMergedWished(kLargest);
  Settle();
  EXPECT_LE(world_->Job(job_).window_count, 3U);
  EXPECT_LE(world_->Job(other).window_count, 3U);
  EXPECT_EQ(world_->CheckEach(session, 1, kSmall), Code::kOk);
}

// Each window that goes is asked of all sessions of its job.
TEST_F(Merging, ATurnReturnsAsManyWindowsAsItHasWorkFor) {
  WorldOptions options = Options(0);
  options.engine.work.move = 64;
  Start(options);
  for (int i = 0; i < 39; ++i) world_->OpenSession(job_);
  world_->windows.SetMergedWished(kLargest);
  uint64_t before = world_->Job(job_).window_count;
  for (int turn = 0; turn < 3000; ++turn) {
    world_->Turn();
    const uint64_t now = world_->Job(job_).window_count;
    ASSERT_GE(now + 2, before) << "turn " << turn;
    before = now;
  }
  EXPECT_LE(before, 12U);
  EXPECT_EQ(held(), kSmall * kPiece);
  EXPECT_EQ(world_->CheckEach(session_, 1, kSmall), Code::kOk);
}

// The windows of a client that is stopped would be taken without its answer, and reported.
TEST_F(Merging, AClientThatDoesNotAnswerIsAskedForNothing) {
  Start(0, {.guarantee_bytes = 20 * kMiB});
  for (uint64_t id = 13; id <= kSmall; ++id) ASSERT_EQ(world_->Free(session_, id).code, Code::kOk);
  world_->options.returns_windows = false;
  const SessionId peer = world_->Open({.uid = 7, .guarantee_bytes = 216 * kMiB});
  world_->Send(peer, proto::Op::kCreate, {{1, 0, 0, 216 * kMiB}});
  for (int i = 0; i < 100 && world_->sink.taken.empty(); ++i) {
    world_->Turns(5);
    world_->Advance(std::chrono::seconds(1));
  }
  const auto taken = world_->sink.taken.size();
  ASSERT_NE(taken, 0U);
  world_->EndSession(peer);
  world_->Turns(20);
  const auto asked = world_->sink.returns.size();
  const auto forced = world_->sink.forced.size();
  const uint64_t made = world_->windows.made_count();
  world_->windows.SetMergedWished(kLargest);
  TurnsOften(200);
  EXPECT_EQ(world_->sink.taken.size(), taken);
  EXPECT_EQ(world_->sink.returns.size(), asked);
  EXPECT_EQ(world_->sink.forced.size(), forced);
  EXPECT_EQ(world_->windows.made_count(), made);
}

// It is owed memory that is free: hand-over has nothing to take, and what it lacks is an index.
TEST_F(Merging, AJobThatLacksAnIndexHasOneOfThoseThatOthersNeedNoMore) {
  WorldOptions options = Options(0);
  options.windows.windows_max = 40;
  Start(options);
  world_->PutEach(session_, kSmall + 1, 39, kPiece);
  Settle();
  ASSERT_EQ(world_->windows.window_count(), 39U);
  const SessionId other = world_->OpenSession(world_->OpenJob({.uid = 7}));
  world_->windows.SetMergedWished(kLargest);
  EXPECT_EQ(world_->Create(other, 1, 3 * kPiece).code, Code::kOk) << "the last index is that of the larger window";
  EXPECT_EQ(world_->CheckEach(session_, 1, 39), Code::kOk);
}

TEST_F(Merging, ALargeWindowWithRoomBringsIndicesToo) {
  WorldOptions options = Options(0);
  options.windows.windows_max = kSmall + 2;
  Start(options);
  world_->windows.SetSmallestWished(16 * kMiB);
  world_->Put(session_, kSmall + 1, kPiece, kSmall + 1);
  world_->windows.SetSmallestWished(0);
  Settle();
  ASSERT_EQ(held(), kSmall * kPiece + 16 * kMiB);
  const SessionId other = world_->OpenSession(world_->OpenJob({.uid = 7}));
  world_->windows.SetMergedWished(kPiece);  // No larger window helps.
  EXPECT_EQ(world_->Create(other, 1, 3 * kPiece).code, Code::kOk);
  EXPECT_LE(held(), (kSmall + 1) * kPiece + 2 * kMiB);
  EXPECT_EQ(world_->CheckEach(session_, 1, kSmall + 1), Code::kOk);
}

TEST_F(Merging, TheEndOfItsJobEndsAMerge) {
  Start();
  world_->copier.SetDelay(5, 9);
  RunShort();
  world_->Turns(4);
  world_->EndSession(session_);
  Settle();
  EXPECT_EQ(world_->windows.window_count(), 0U);
  const SessionId next = world_->Open();
  world_->PutEach(next, 1, kSmall, kPiece);
  Settle();
  EXPECT_EQ(world_->CheckEach(next, 1, kSmall), Code::kOk);
}

}  // namespace
}  // namespace tier::tiering::testing
