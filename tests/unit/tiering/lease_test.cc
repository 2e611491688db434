// Leases: shared and exclusive, conflicts, order, deadlines, deadlocks, forged ids.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "daemon/tiering/memory/growth.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

class Leases : public ::testing::Test {
 protected:
  Leases() : job(world.OpenJob()), a(world.OpenSession(job)), b(world.OpenSession(job)), c(world.OpenSession(job)) {
    world.Put(a, 1, 5 * kMiB, 1, proto::kFlagShared);
    world.Put(a, 2, 4096, 1, proto::kFlagShared);
  }
  uint64_t Ask(SessionId session, uint64_t tensor, uint32_t flags = 0, uint64_t offset = 0, uint64_t length = 0) {
    return world.Send(session, Op::kAcquire, {{tensor, offset, length, 0}}, flags | proto::kFlagShared);
  }
  bool Waits(SessionId session, uint64_t sequence) {
    world.Turns(5);
    return !world.Answered(session, sequence).has_value();
  }
  uint64_t Granted(SessionId session, uint64_t sequence) {
    const Answer answer = world.Wait(session, sequence);
    EXPECT_EQ(answer.code, Code::kOk) << answer.detail;
    return World::LeaseOf(answer);
  }

  World world;
  JobId job;
  SessionId a;
  SessionId b;
  SessionId c;
};

TEST_F(Leases, ManyMayReadAtOnce) {
  for (const SessionId session : {a, b, c}) EXPECT_EQ(world.Wait(session, Ask(session, 1)).code, Code::kOk);
}

TEST_F(Leases, AWriterWaitsForReadersAndReadersForTheWriter) {
  const uint64_t reading = Granted(a, Ask(a, 1));
  const uint64_t writer = Ask(b, 1, proto::kFlagWrite);
  EXPECT_TRUE(Waits(b, writer));
  world.Release(a, reading);
  const uint64_t writing = Granted(b, writer);
  const uint64_t reader = Ask(c, 1);
  EXPECT_TRUE(Waits(c, reader));
  world.Release(b, writing);
  EXPECT_EQ(world.Wait(c, reader).code, Code::kOk);
}

TEST_F(Leases, WritersOfDifferentPiecesDoNotMeet) {
  EXPECT_EQ(world.Wait(a, Ask(a, 1, proto::kFlagWrite, 0, 2 * kMiB)).code, Code::kOk);
  EXPECT_EQ(world.Wait(b, Ask(b, 1, proto::kFlagWrite, 2 * kMiB, 2 * kMiB)).code, Code::kOk);
  EXPECT_TRUE(Waits(c, Ask(c, 1, 0, kMiB, 10)));
}

// It waits for a lease of a piece that is whole, and the tear is in another one.
TEST(LeasesOfATornTensor, AReaderThatWaitsIsToldAtOnce) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId writer = world.OpenSession(job);
  const SessionId reader = world.OpenSession(job);
  world.Put(writer, 1, 2 * kBlockSize, 1, proto::kFlagShared);
  constexpr uint32_t kWriting = proto::kFlagShared | proto::kFlagWrite;
  const Answer first = world.Acquire(writer, 1, kWriting, 0, kBlockSize);
  const Answer second = world.Acquire(writer, 1, kWriting, kBlockSize, kBlockSize);
  ASSERT_TRUE(first.code == Code::kOk && second.code == Code::kOk);
  const uint64_t reading = world.Send(reader, Op::kAcquire, {{1, 0, 0, 0}}, proto::kFlagShared);
  world.Turns(2);
  ASSERT_FALSE(world.Answered(reader, reading).has_value());
  ASSERT_EQ(world.Release(writer, World::LeaseOf(second), proto::kFlagAbandon).code, Code::kOk);
  world.Turns(2);
  ASSERT_TRUE(world.Answered(reader, reading).has_value()) << "and not when the other lease ends";
  EXPECT_EQ(world.Answered(reader, reading)->code, Code::kTorn);
}

TEST_F(Leases, AWaitingWriterIsNotOvertakenByReadersThatComeLater) {
  const uint64_t reading = Granted(a, Ask(a, 1));
  const uint64_t writer = Ask(b, 1, proto::kFlagWrite);
  const uint64_t late = Ask(c, 1);
  EXPECT_TRUE(Waits(c, late));
  world.Release(a, reading);
  const uint64_t writing = Granted(b, writer);
  EXPECT_TRUE(Waits(c, late));
  world.Release(b, writing);
  EXPECT_EQ(world.Wait(c, late).code, Code::kOk);
}

TEST_F(Leases, ASessionThatReadsAPieceMayReadItAgainPastAWaitingWriter) {
  Granted(a, Ask(a, 1));
  Ask(b, 1, proto::kFlagWrite);
  world.Turns(3);
  EXPECT_EQ(world.Wait(a, Ask(a, 1)).code, Code::kOk) << "else it would wait for a writer that waits for it";
}

TEST_F(Leases, ABatchIsGrantedAllOrNothing) {
  const uint64_t writing = Granted(a, Ask(a, 2, proto::kFlagWrite));
  const uint64_t batch = world.Send(b, Op::kAcquire, {{1, 0, 0, 0}, {2, 0, 0, 0}}, proto::kFlagShared);
  EXPECT_TRUE(Waits(b, batch));
  EXPECT_EQ(world.Job(job).lease_count, 1u) << "it holds nothing while it waits";
  EXPECT_EQ(world.Wait(c, Ask(c, 1, proto::kFlagWrite)).code, Code::kOk) << "and keeps nobody from what it waits for";
  world.Release(a, writing);
  EXPECT_TRUE(Waits(b, batch)) << "now the other one is taken";
}

TEST_F(Leases, TwoBatchesInOppositeOrderBothComeThrough) {
  const uint64_t hold = Granted(c, Ask(c, 2, proto::kFlagWrite));
  const uint64_t first =
      world.Send(a, Op::kAcquire, {{1, 0, 0, 0}, {2, 0, 0, 0}}, proto::kFlagShared | proto::kFlagWrite);
  const uint64_t second =
      world.Send(b, Op::kAcquire, {{2, 0, 0, 0}, {1, 0, 0, 0}}, proto::kFlagShared | proto::kFlagWrite);
  world.Release(c, hold);
  const Answer granted = world.Wait(a, first);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_TRUE(Waits(b, second));
  world.Release(a, World::LeaseOf(granted, 0));
  world.Release(a, World::LeaseOf(granted, 1));
  EXPECT_EQ(world.Wait(b, second).code, Code::kOk);
}

TEST_F(Leases, OnePieceTwiceInAWriteRequestIsInvalid) {
  EXPECT_EQ(world.Ask(a, Op::kAcquire, {{2, 0, 10, 0}, {2, 20, 10, 0}}, proto::kFlagShared | proto::kFlagWrite).code,
            Code::kInvalid);
  EXPECT_EQ(world.Ask(a, Op::kAcquire, {{2, 0, 10, 0}, {2, 20, 10, 0}}, proto::kFlagShared).code, Code::kOk);
}

TEST_F(Leases, AtTheDeadlineTheWaiterHearsWhoStandsInTheWay) {
  Granted(a, Ask(a, 1, proto::kFlagWrite));
  const uint64_t reader = Ask(b, 1);
  world.Turn();
  world.Advance(std::chrono::seconds(59));
  EXPECT_TRUE(Waits(b, reader));
  world.Advance(std::chrono::seconds(1));
  const Answer refused = world.Wait(b, reader);
  EXPECT_EQ(refused.code, Code::kTimeout);
  EXPECT_NE(refused.detail.find("session " + std::to_string(static_cast<uint64_t>(a)) + " (writing)"),
            std::string::npos)
      << refused.detail;
}

TEST_F(Leases, NextDeadlineIsThatOfTheWaiter) {
  world.Advance(kAheadKept);  // The windows that the job got are looked at again.
  world.Turns(2);
  EXPECT_FALSE(world.engine->NextDeadline().has_value());
  Granted(a, Ask(a, 1, proto::kFlagWrite));
  Ask(b, 1);
  const base::TimePoint before = world.now;
  world.Turn();
  EXPECT_EQ(world.engine->NextDeadline(), before + world.options.engine.deadline_default);
}

TEST_F(Leases, ACallerThatBlocksItselfIsToldAtOnceWhenItAsks) {
  Granted(a, Ask(a, 1));
  const Answer refused = world.Wait(a, Ask(a, 1, proto::kFlagWrite | proto::kFlagNoWaitOwn));
  EXPECT_EQ(refused.code, Code::kWouldDeadlock);
  EXPECT_NE(refused.detail.find("reading of tensor 0x1 bytes 0 + 5242880"), std::string::npos) << refused.detail;
}

TEST_F(Leases, ACallerThatBlocksItselfIsToldAtTheDeadlineOtherwise) {
  Granted(a, Ask(a, 1));
  const uint64_t writer = Ask(a, 1, proto::kFlagWrite);
  EXPECT_TRUE(Waits(a, writer));
  world.Advance(std::chrono::seconds(60));
  EXPECT_EQ(world.Wait(a, writer).code, Code::kWouldDeadlock);
}

TEST_F(Leases, NoWaitOwnWaitsWhenSomebodyElseBlocksToo) {
  Granted(a, Ask(a, 1));
  const uint64_t other = Granted(b, Ask(b, 1));
  const uint64_t writer = Ask(a, 1, proto::kFlagWrite | proto::kFlagNoWaitOwn);
  EXPECT_TRUE(Waits(a, writer));
  world.Release(b, other);
  EXPECT_EQ(world.Wait(a, writer).code, Code::kWouldDeadlock) << "now only its own lease is left";
}

TEST_F(Leases, NoWaitAnswersAtOnce) {
  Granted(a, Ask(a, 1, proto::kFlagWrite));
  const uint64_t reader = Ask(b, 1, proto::kFlagNoWait);
  world.Turn();
  ASSERT_TRUE(world.Answered(b, reader).has_value());
  EXPECT_EQ(world.Answered(b, reader)->code, Code::kTimeout);
}

TEST_F(Leases, ForgedForeignAndEndedLeasesAreStale) {
  const uint64_t lease = Granted(a, Ask(a, 1));
  EXPECT_EQ(world.Release(b, lease).code, Code::kStale);
  EXPECT_EQ(world.Release(a, lease + 1).code, Code::kStale);
  EXPECT_EQ(world.Release(a, 0).code, Code::kStale);
  EXPECT_EQ(world.Release(a, UINT64_MAX).code, Code::kStale);
  EXPECT_EQ(world.Release(a, lease).code, Code::kOk);
  EXPECT_EQ(world.Release(a, lease).code, Code::kStale);
}

TEST_F(Leases, AReleaseWithOneStaleItemEndsTheOthers) {
  const uint64_t lease = Granted(a, Ask(a, 1));
  const Answer refused = world.Ask(a, Op::kRelease, {{0, 0, 0, 99}, {0, 0, 0, lease}});
  EXPECT_EQ(refused.code, Code::kStale);
  EXPECT_EQ(refused.value, 0u);
  EXPECT_EQ(world.Job(job).lease_count, 0u);
}

TEST_F(Leases, TooManyLeasesOfASessionAreRefusedWithFigures) {
  World small({.engine = {.leases_per_session_max = 2}});
  const SessionId session = small.Open();
  small.Put(session, 1, 100);
  EXPECT_EQ(small.Acquire(session, 1).code, Code::kOk);
  EXPECT_EQ(small.Acquire(session, 1).code, Code::kOk);
  const Answer refused = small.Acquire(session, 1);
  EXPECT_EQ(refused.code, Code::kNoMemory);
  EXPECT_EQ(refused.error.limit, 2u);
}

TEST_F(Leases, FreeWaitsForLeasesAndTakesTheTensorThen) {
  const uint64_t lease = Granted(a, Ask(a, 1));
  const uint64_t freeing = world.Send(b, Op::kFree, {{1, 0, 0, 0}}, proto::kFlagShared);
  EXPECT_TRUE(Waits(b, freeing));
  world.Release(a, lease);
  EXPECT_EQ(world.Wait(b, freeing).code, Code::kOk);
  EXPECT_EQ(world.Check(a, 1, 1, proto::kFlagShared), Code::kNotFound);
}

TEST_F(Leases, AWaiterForATensorThatIsFreedHearsSo) {
  const uint64_t lease = Granted(a, Ask(a, 1, proto::kFlagWrite));
  const uint64_t freeing = world.Send(b, Op::kFree, {{1, 0, 0, 0}}, proto::kFlagShared);
  const uint64_t reading = Ask(c, 1);
  world.Turn();
  world.Release(a, lease);
  EXPECT_EQ(world.Wait(b, freeing).code, Code::kOk);
  const Answer refused = world.Wait(c, reading);
  EXPECT_EQ(refused.code, Code::kNotFound);
  EXPECT_EQ(refused.error.tensor, 1u);
  EXPECT_NE(refused.detail.find("tensor 0x1 was freed"), std::string::npos) << refused.detail;
}

TEST_F(Leases, OneGivenBackUntouchedLeavesWhatWasThere) {
  world.Put(a, 5, 2 * kBlockSize, 5);
  world.PutOnSsd(a, 6, 2 * kBlockSize, 6);
  for (const uint64_t id : {uint64_t{5}, uint64_t{6}}) {
    for (const uint32_t flags : {uint32_t{0}, proto::kFlagDiscard}) {
      const Answer granted = world.Acquire(a, id, proto::kFlagWrite | flags, kBlockSize, kBlockSize);
      ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
      EXPECT_EQ(world.Release(a, World::LeaseOf(granted), proto::kFlagUntouched).code, Code::kOk);
      world.engine->CheckInvariants();
      EXPECT_EQ(world.Check(a, id, id), Code::kOk);
    }
  }
}

TEST_F(Leases, WhatWasGivenBackUntouchedIsNoChangeOfADeadSession) {
  world.Put(b, 7, 2 * kBlockSize, 7, proto::kFlagShared);
  EXPECT_EQ(world.Flush(b, 7, proto::kFlagShared).code, Code::kOk);
  const uint32_t writing = proto::kFlagShared | proto::kFlagWrite;
  const Answer untouched = world.Acquire(a, 7, writing, 0, kBlockSize);
  EXPECT_EQ(world.Release(a, World::LeaseOf(untouched), proto::kFlagUntouched).code, Code::kOk);
  ASSERT_EQ(world.Acquire(a, 7, writing, kBlockSize, kBlockSize).code, Code::kOk);
  world.EndSession(a, "killed");
  EXPECT_EQ(world.Check(b, 7, 7, proto::kFlagShared), Code::kOk) << "every byte is the old one";
}

TEST_F(Leases, ACreationGivenBackUntouchedLeavesNothing) {
  const Answer granted = world.Create(a, 5, 2 * kBlockSize);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_EQ(world.Release(a, World::LeaseOf(granted), proto::kFlagUntouched).code, Code::kOk);
  EXPECT_EQ(world.Check(a, 5), Code::kNotFound);
}

TEST_F(Leases, FreeAfterTakesTheNameAtOnceAndTheBytesWithTheLastLease) {
  const uint64_t first = Granted(a, Ask(a, 1));
  const Answer second = world.Wait(b, Ask(b, 1));
  EXPECT_EQ(world.Release(a, first, proto::kFlagFreeAfter).code, Code::kOk);
  EXPECT_EQ(world.Check(c, 1, 1, proto::kFlagShared), Code::kNotFound);
  EXPECT_TRUE(world.Matches(second.spans, 1, 1)) << "what is leased stays where it is";
  world.Put(c, 1, 100, 9, proto::kFlagShared);
  EXPECT_TRUE(world.Matches(second.spans, 1, 1));
  EXPECT_EQ(world.Release(b, World::LeaseOf(second)).code, Code::kOk);
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 2u);
}

TEST_F(Leases, AFreeThatIsRefusedHoldsUpNobodyElsesInTheSameTurn) {
  const uint64_t lease = Granted(a, Ask(a, 1));
  const uint64_t waiting = Ask(b, 1, proto::kFlagWrite);
  ASSERT_TRUE(Waits(b, waiting));
  const uint64_t refused = world.Send(c, Op::kFree, {{1, 0, 0, 0}}, proto::kFlagShared | proto::kFlagNoWait);
  const uint64_t freeing = world.Send(a, Op::kRelease, {{0, 0, 0, lease}}, proto::kFlagFreeAfter);
  EXPECT_EQ(world.Wait(c, refused).code, Code::kTimeout) << "the tensor was leased when it was asked";
  EXPECT_EQ(world.Wait(a, freeing).code, Code::kOk);
  EXPECT_EQ(world.Wait(b, waiting).code, Code::kNotFound);
}

TEST_F(Leases, AWriteRaisesTheGeneration) {
  const uint64_t before = world.Ask(a, Op::kStat, {{1, 0, 0, 0}}, proto::kFlagShared).tensor.generation;
  EXPECT_EQ(world.Rewrite(b, 1, 2, proto::kFlagShared).code, Code::kOk);
  EXPECT_GT(world.Ask(a, Op::kStat, {{1, 0, 0, 0}}, proto::kFlagShared).tensor.generation, before);
  EXPECT_EQ(world.Check(c, 1, 2, proto::kFlagShared), Code::kOk);
}

TEST_F(Leases, AContentHasItsNumberUntilTheTensorIsWrittenOrReplaced) {
  const auto content = [&](uint64_t tensor, uint64_t offset = 0) {
    const Answer answer = world.Wait(a, Ask(a, tensor, 0, offset, 100));
    EXPECT_EQ(answer.code, Code::kOk) << answer.detail;
    EXPECT_EQ(world.Release(a, World::LeaseOf(answer)).code, Code::kOk);
    return answer.value;
  };
  const uint64_t first = content(1);
  EXPECT_EQ(content(1, 4 * kMiB), first);
  EXPECT_NE(content(2), first) << "of another tensor";
  EXPECT_EQ(world.Rewrite(b, 2, 2, proto::kFlagShared).code, Code::kOk);
  EXPECT_EQ(content(1), first);
  const Answer writing = world.Wait(b, Ask(b, 1, proto::kFlagWrite, 2 * kMiB, 100));
  EXPECT_NE(writing.value, first);
  EXPECT_EQ(content(1, 4 * kMiB), writing.value) << "of bytes that are not being written";
  world.Release(b, World::LeaseOf(writing));
  EXPECT_EQ(content(1), writing.value);
  EXPECT_EQ(world.Free(b, 1, proto::kFlagShared).code, Code::kOk);
  world.Put(b, 1, 5 * kMiB, 1, proto::kFlagShared);
  EXPECT_NE(content(1), first) << "of the same name, size and number of writes";
  EXPECT_NE(content(1), writing.value);
}

TEST_F(Leases, AnAcquireThatNamesAnotherSizeIsRefused) {
  const auto of_size = [&](uint64_t size) {
    return world.Ask(a, Op::kAcquire, {{1, 0, 4096, size}}, proto::kFlagShared);
  };
  EXPECT_EQ(world.Release(a, World::LeaseOf(of_size(5 * kMiB))).code, Code::kOk);
  for (const uint64_t size : {uint64_t{1}, 5 * kMiB - 1, 5 * kMiB + 1, UINT64_MAX}) {
    const Answer refused = of_size(size);
    EXPECT_EQ(refused.code, Code::kInvalid) << size;
    EXPECT_NE(refused.detail.find(fmt::format("has 5242880 bytes, not the {} of the request", size)), std::string::npos)
        << refused.detail;
    EXPECT_EQ(refused.error.limit, 5 * kMiB);
  }
  EXPECT_EQ(world.engine->Snapshot().lease_count, 0u);
}

TEST_F(Leases, AGrantAndAReplyAreAnsweredOnlyByATurn) {
  const uint64_t reading = Ask(a, 1);
  EXPECT_FALSE(world.Answered(a, reading).has_value());
  EXPECT_EQ(world.engine->outstanding(a), 0u);
  world.Turn();
  EXPECT_TRUE(world.Answered(a, reading).has_value());
}

}  // namespace
}  // namespace tier::tiering::testing
