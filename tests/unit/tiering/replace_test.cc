// Replacing a tensor by one of another size: until the new one is granted the old one stays, whole and readable.
#include <gtest/gtest.h>

#include "daemon/tiering/requests/replace.h"
#include "daemon/tiering/tables/tables.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;
constexpr uint32_t kReplace = proto::kFlagShared | proto::kFlagReplace;

// Four blocks of RAM, and devices for five: tensor 1 of one block is to be replaced by one of two, and tensors 2 and 3
// are leased, so that there is no room for it.
class Replace : public ::testing::Test {
 protected:
  Replace() {
    world_.Put(us_, 1, kPiece, 7, proto::kFlagShared);
    two_ = world_.Create(other_, 2, kPiece, proto::kFlagShared);
    three_ = world_.Create(other_, 3, 2 * kPiece, proto::kFlagShared);
    EXPECT_EQ(three_.code, Code::kOk) << three_.detail;
  }
  uint64_t Send(uint64_t size, uint32_t flags = 0) {
    return world_.Send(us_, Op::kCreate, {{1, 0, 0, size}}, kReplace | flags);
  }
  void ExpectOld() { EXPECT_EQ(world_.Check(other_, 1, 7, proto::kFlagShared), Code::kOk); }
  uint64_t SizeOf(uint64_t tensor) {
    return world_.Ask(other_, Op::kStat, {{tensor, 0, 0, 0}}, proto::kFlagShared).tensor.size;
  }
  uint64_t tensors() const { return world_.engine->Snapshot().tensor_count; }

  World world_{{.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 8 * kMiB}, .device_blocks = 7}};
  JobId job_ = world_.OpenJob();
  SessionId us_ = world_.OpenSession(job_);
  SessionId other_ = world_.OpenSession(job_);
  Answer two_;
  Answer three_;
};

TEST_F(Replace, RefusedAfterWaitingTheOldBytesAreThere) {
  const uint64_t asked = Send(2 * kPiece);
  world_.Turns(50);
  ASSERT_FALSE(world_.Answered(us_, asked).has_value()) << "it waits";
  ExpectOld();
  const Answer refused = world_.Wait(us_, asked);
  EXPECT_EQ(refused.code, Code::kNoMemory) << refused.detail;
  ExpectOld();
  EXPECT_EQ(tensors(), 3u);
}

TEST_F(Replace, RefusedAtOnceTheOldBytesAreThere) {
  const Answer refused = world_.Wait(us_, Send(2 * kPiece, proto::kFlagNoWait));
  EXPECT_EQ(refused.code, Code::kTimeout) << refused.detail;
  ExpectOld();
  EXPECT_EQ(tensors(), 3u);
}

TEST_F(Replace, WhoDiesWhileWaitingLeavesTheOldBytes) {
  (void)Send(2 * kPiece);
  (void)Send(kPiece + 1);
  world_.Turns(20);
  world_.EndSession(us_, "killed");
  world_.Turns(2);
  ExpectOld();
  EXPECT_EQ(tensors(), 3u) << "the nameless ones went with their creator";
}

TEST_F(Replace, WhatFitsOnlyInTheOldOnesPlaceIsGrantedAtOnce) {
  world_.Release(other_, World::LeaseOf(two_), proto::kFlagAbandon);
  world_.Put(us_, 1, 2 * kPiece, 7, kReplace);  // Two of the four blocks; the others are leased.
  const uint64_t asked = Send(kPiece + 4096);
  world_.Turn();
  const auto granted = world_.Answered(us_, asked);
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(granted->code, Code::kOk) << granted->detail;
  EXPECT_EQ(SizeOf(1), kPiece + 4096);
  EXPECT_EQ(tensors(), 2u);
}

TEST_F(Replace, RoomThatComesIsAddedToWhatTheOldOneGivesUp) {
  const uint64_t asked = Send(2 * kPiece);
  world_.Turns(20);
  ASSERT_FALSE(world_.Answered(us_, asked).has_value());
  world_.Release(other_, World::LeaseOf(two_), proto::kFlagAbandon);
  const Answer granted = world_.Wait(us_, asked);
  ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
  world_.Fill(granted.spans, 1, 8);
  EXPECT_EQ(world_.Release(us_, World::LeaseOf(granted)).code, Code::kOk);
  EXPECT_EQ(world_.Check(other_, 1, 8, proto::kFlagShared), Code::kOk);
  EXPECT_EQ(tensors(), 2u);
}

TEST_F(Replace, WhatWasWrittenMeanwhileIsStillTheOldTensor) {
  const uint64_t asked = Send(2 * kPiece);
  world_.Turns(5);
  EXPECT_EQ(world_.Rewrite(other_, 1, 9, proto::kFlagShared).code, Code::kOk);
  EXPECT_EQ(world_.Check(other_, 1, 9, proto::kFlagShared), Code::kOk);
  const Answer writing = world_.Acquire(other_, 1, proto::kFlagShared | proto::kFlagWrite);
  ASSERT_EQ(writing.code, Code::kOk);
  world_.Release(other_, World::LeaseOf(three_), proto::kFlagAbandon);
  EXPECT_EQ(world_.Wait(us_, asked).code, Code::kOk);
  EXPECT_EQ(world_.Release(other_, World::LeaseOf(writing)).code, Code::kStale) << "it was replaced under its lease";
}

TEST_F(Replace, FreedMeanwhileTheNameIsTakenAllTheSame) {
  const uint64_t asked = Send(2 * kPiece);
  world_.Turns(5);
  EXPECT_EQ(world_.Free(other_, 1, proto::kFlagShared).code, Code::kOk);
  world_.Release(other_, World::LeaseOf(two_), proto::kFlagAbandon);
  EXPECT_EQ(world_.Wait(us_, asked).code, Code::kOk);
  EXPECT_EQ(SizeOf(1), 2 * kPiece);
}

TEST_F(Replace, ALaterOneThatFoundTheNameFreeIsReplacedByAnEarlierOne) {
  const uint64_t earlier = Send(2 * kPiece);
  world_.Turns(5);
  EXPECT_EQ(world_.Free(other_, 1, proto::kFlagShared).code, Code::kOk);
  const uint64_t later = Send(2 * kPiece - 4096);  // The name means it from now on, and it waits.
  world_.Release(other_, World::LeaseOf(two_), proto::kFlagAbandon);
  EXPECT_EQ(world_.Wait(us_, earlier).code, Code::kOk);
  const Answer refused = world_.Wait(us_, later);
  EXPECT_EQ(refused.code, Code::kNotFound) << refused.detail;
  EXPECT_EQ(SizeOf(1), 2 * kPiece);
}

TEST_F(Replace, WhatSomebodyElseBeganToCreateMeanwhileIsNotReplaced) {
  const uint64_t asked = Send(2 * kPiece);
  world_.Turns(5);
  EXPECT_EQ(world_.Free(other_, 1, proto::kFlagShared).code, Code::kOk);
  (void)world_.Send(other_, Op::kCreate, {{1, 0, 0, 4096}}, proto::kFlagShared);
  world_.Release(other_, World::LeaseOf(two_), proto::kFlagAbandon);
  const Answer refused = world_.Wait(us_, asked);
  EXPECT_EQ(refused.code, Code::kAlreadyExists) << refused.detail;
  EXPECT_NE(refused.detail.find("still being created"), std::string::npos) << refused.detail;
}

TEST_F(Replace, WithoutSpaceForItAnyMoreItIsRefusedBeforeAByteIsLost) {
  const uint64_t asked = Send(2 * kPiece);  // RAM and device are five blocks, of which two and three take three.
  world_.Turns(5);
  (void)world_.Send(other_, Op::kCreate, {{4, 0, 0, kPiece}}, proto::kFlagShared);  // It waits too, with its name.
  world_.Release(other_, World::LeaseOf(two_));
  const Answer refused = world_.Wait(us_, asked);
  EXPECT_EQ(refused.code, Code::kNoSpace) << refused.detail;
  world_.Release(other_, World::LeaseOf(three_), proto::kFlagAbandon);  // Room to read it back, if it is on SSD.
  ExpectOld();
}

TEST_F(Replace, TwoThatWaitForOnePlaceTakeItOneAfterTheOther) {
  const uint64_t first = Send(2 * kPiece);
  const uint64_t second = Send(2 * kPiece - 4096);
  world_.Turns(5);
  world_.Release(other_, World::LeaseOf(three_), proto::kFlagAbandon);
  const Answer granted = world_.Wait(us_, first);
  ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
  EXPECT_EQ(SizeOf(1), 2 * kPiece);
  world_.Fill(granted.spans, 1, 8);
  EXPECT_EQ(world_.Release(us_, World::LeaseOf(granted)).code, Code::kOk);
  EXPECT_EQ(world_.Wait(us_, second).code, Code::kOk);
  EXPECT_EQ(SizeOf(1), 2 * kPiece - 4096);
}

TEST_F(Replace, WhatReadersHaveDoneWithMakesRoomThoughTheyReadOn) {
  world_.Release(other_, World::LeaseOf(three_), proto::kFlagAbandon);
  world_.Put(us_, 1, 2 * kPiece, 7, kReplace);
  ASSERT_EQ(world_.Create(other_, 4, kPiece).code, Code::kOk);  // Two of the four blocks are leased.
  const Answer first = world_.Acquire(other_, 1, proto::kFlagShared, 0, kPiece);
  const Answer second = world_.Acquire(other_, 1, proto::kFlagShared, kPiece, kPiece);
  ASSERT_EQ(second.code, Code::kOk);
  const uint64_t asked = Send(kPiece);
  world_.Turns(5);
  ASSERT_FALSE(world_.Answered(us_, asked).has_value());
  EXPECT_EQ(world_.Release(other_, World::LeaseOf(first)).code, Code::kOk);
  world_.Turns(20);
  EXPECT_TRUE(world_.Answered(us_, asked).has_value()) << "one piece can go to SSD";
}

TEST_F(Replace, WhatWaitsToReplaceIsNotMoreThanTheJobMayHold) {
  const uint64_t first = Send(2 * kPiece);
  const uint64_t second = Send(2 * kPiece);
  const uint64_t third = Send(2 * kPiece);
  world_.Turn();
  EXPECT_FALSE(world_.Answered(us_, second).has_value());
  ASSERT_TRUE(world_.Answered(us_, third).has_value()) << "its pieces would be in nobody's books";
  EXPECT_EQ(world_.Answered(us_, third)->code, Code::kTimeout);
  EXPECT_EQ(world_.Answered(us_, third)->error.limit, 12 * kMiB - 12 * kMiB / 16);
  EXPECT_EQ(world_.Answered(us_, third)->error.available, 12 * kMiB - 12 * kMiB / 16 - 4 * kPiece);
  world_.Release(other_, World::LeaseOf(three_), proto::kFlagAbandon);
  const Answer granted = world_.Wait(us_, first);
  EXPECT_EQ(world_.Release(us_, World::LeaseOf(granted)).code, Code::kOk);
  EXPECT_EQ(world_.Wait(us_, second).code, Code::kOk);
  EXPECT_EQ(world_.Wait(us_, Send(kPiece)).code, Code::kOk) << "none waits any more";
}

// Each look at a request goes over all of the tensor that it replaces: a turn has so many.
TEST(ReplaceLarge, WorkOnWhatIsReplacedIsSpreadOverTurns) {
  constexpr uint64_t kPieces = kPlacePiecesMax;
  constexpr uint64_t kWaiters = 10;  // One look fills a turn.
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 8 * kMiB}, .device_blocks = 2 * kPieces});
  const JobId job = world.OpenJob();
  const SessionId us = world.OpenSession(job);
  const SessionId other = world.OpenSession(job);
  const Answer lease = world.CreateRange(us, 1, kPieces * kPiece, 0, 4096);
  ASSERT_EQ(world.Release(us, World::LeaseOf(lease)).code, Code::kOk);
  ASSERT_EQ(world.Create(other, 2, 2 * kPiece).code, Code::kOk);
  world.Put(other, 3, 100);
  const Answer small = world.Acquire(other, 3);
  for (uint64_t i = 0; i < kWaiters; ++i) world.Send(us, Op::kCreate, {{1, 0, 0, 4 * kPiece}}, proto::kFlagReplace);
  uint64_t turns = 0;
  while (world.Turn()) ++turns;
  EXPECT_GE(turns, kWaiters - 2);
  world.Release(other, World::LeaseOf(small));  // The first that waits for room looks again, and no other.
  turns = 0;
  while (world.Turn()) ++turns;
  EXPECT_LE(turns, 2u);
}

TEST(ReplaceSmall, InWindowsOfWholeBlocksASlotTakesTheOldOnesBlock) {
  World world({.windows = {.window_size = 2 * kMiB, .arena_max_bytes = 2 * kMiB, .page_size = 2 << 20}});
  world.windows.RefuseSlotWindows(true);
  const SessionId session = world.Open();
  world.Put(session, 1, 100, 7);
  const uint64_t asked = world.Send(session, Op::kCreate, {{1, 0, 0, 5000}}, proto::kFlagReplace);
  world.Turn();
  ASSERT_TRUE(world.Answered(session, asked).has_value());
  EXPECT_EQ(world.Answered(session, asked)->code, Code::kOk);
}

TEST(ReplaceBesideGuarantees, WhatTheOldOneHoldsCountsAsGivenUp) {
  World world({.windows = {.window_size = 2 * kMiB, .arena_max_bytes = 8 * kMiB}});
  (void)world.Open({.guarantee_bytes = 4 * kMiB});
  const SessionId session = world.Open();
  const Answer half = world.CreateRange(session, 1, 5 * kMiB, 0, 4 * kMiB);  // All that it may lease.
  ASSERT_EQ(half.code, Code::kOk) << half.detail;
  ASSERT_EQ(world.Release(session, World::LeaseOf(half)).code, Code::kOk);
  const uint64_t asked = world.Send(session, Op::kCreate, {{1, 0, 0, 4 * kMiB}}, proto::kFlagReplace);
  world.Turns(5);
  ASSERT_TRUE(world.Answered(session, asked).has_value()) << "what its own half-made tensor held is free";
  EXPECT_EQ(world.Answered(session, asked)->code, Code::kOk);
}

}  // namespace
}  // namespace tier::tiering::testing
