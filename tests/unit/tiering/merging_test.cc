// While indices run short, small windows of a job become larger ones: what lies in them is moved there and nothing is
// lost or evicted, what is leased stays, and memory that others are owed comes first.
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
constexpr uint64_t kSmall = 32;  // Windows of one piece each.

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
  void Start(uint16_t devices = 0, const JobOptions& options = {}) {
    world_.emplace(Options(devices));
    job_ = world_->OpenJob(options);
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
  // Until what was made ahead is given back, and no merge is left to do.
  void Settle() {
    for (int i = 0; i < 8; ++i) {
      world_->Turns(40);
      world_->Advance(kAheadKept);
    }
  }
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
