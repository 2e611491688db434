// Creating tensors: whole, by ranges, in batches; what is refused before anything happens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/tiering/tables/tensor.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using ::testing::HasSubstr;

TEST(Create, ATensorOfZeroBytesIsInvalid) {
  World world;
  const SessionId session = world.Open();
  EXPECT_EQ(world.Create(session, 1, 0).code, Code::kInvalid);
}

TEST(Create, ANameThatIsTakenIsRefused) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, 100);
  const Answer again = world.Create(session, 1, 200);
  EXPECT_EQ(again.code, Code::kAlreadyExists);
  EXPECT_EQ(again.error.tensor, 1u);
  EXPECT_EQ(again.error.limit, 100u);
  EXPECT_EQ(world.Check(session, 1), Code::kOk);
}

TEST(Create, AReplacementThatIsRefusedLeavesTheOldTensor) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}, .device_blocks = 16});
  const SessionId session = world.Open();
  world.Put(session, 1, 5000, 3);
  EXPECT_EQ(world.Ask(session, Op::kCreate, {{1, 0, kMiB, 33 * kMiB}}, proto::kFlagReplace).code, Code::kNoSpace);
  EXPECT_EQ(world.Ask(session, Op::kCreate, {{1, 0, 0, 20 * kMiB}}, proto::kFlagReplace).code, Code::kNoMemory)
      << "all of it at once is more than RAM";
  EXPECT_EQ(world.Check(session, 1, 3), Code::kOk);
}

TEST(Create, AReplacementTakesThePlaceOfTheOldTensor) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}, .device_blocks = 16});
  const SessionId session = world.Open();
  world.Put(session, 1, 12 * kMiB, 3);
  const Answer reading = world.Acquire(session, 1, 0, 0, 4096);
  const Answer created = world.Ask(session, Op::kCreate, {{1, 0, 2 * kMiB, 24 * kMiB}}, proto::kFlagReplace);
  EXPECT_EQ(created.code, Code::kOk) << "beside the old one it would not fit: " << created.detail;
  EXPECT_TRUE(world.Matches(reading.spans, 1, 3)) << "who reads the old one reads on";
  EXPECT_EQ(world.Release(session, World::LeaseOf(reading)).code, Code::kOk);
  EXPECT_EQ(world.Ask(session, Op::kStat, {{1, 0, 0, 0}}).tensor.size, 24 * kMiB);
}

TEST(Create, WhatAnotherSessionIsCreatingIsNotReplaced) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  ASSERT_EQ(world.Create(a, 7, 4096, proto::kFlagShared).code, Code::kOk);
  const uint32_t replace = proto::kFlagShared | proto::kFlagReplace;
  EXPECT_EQ(world.Ask(b, Op::kCreate, {{7, 0, 0, 5000}}, replace).code, Code::kAlreadyExists);
  EXPECT_EQ(world.Ask(b, Op::kCreate, {{8, 0, 0, 5000}}, replace).code, Code::kOk) << "nothing there to replace";
}

TEST(Create, WhoSealsWhatWasReplacedMeanwhileIsTold) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  const uint32_t replace = proto::kFlagShared | proto::kFlagReplace;
  for (const uint32_t how : {0u, proto::kFlagAbandon}) {
    world.Put(a, 7, 4096, 1, replace);
    const Answer writing = world.Acquire(b, 7, proto::kFlagShared | proto::kFlagWrite);
    ASSERT_EQ(writing.code, Code::kOk);
    world.Put(a, 7, 5000, 2, replace);
    const Answer sealed = world.Release(b, World::LeaseOf(writing), how);
    EXPECT_EQ(sealed.code, how == 0 ? Code::kStale : Code::kOk) << "its bytes are nowhere: " << sealed.detail;
    EXPECT_EQ(world.Release(b, World::LeaseOf(writing)).code, Code::kStale) << "the lease has ended all the same";
    EXPECT_EQ(world.Check(b, 7, 2, proto::kFlagShared), Code::kOk);
  }
}

TEST(Create, TwoRanksWithTheSameSharedKeyGetOneTensor) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  const uint64_t first = world.Send(a, Op::kCreate, {{7, 0, 0, 4096}}, proto::kFlagShared);
  const uint64_t second = world.Send(b, Op::kCreate, {{7, 0, 0, 4096}}, proto::kFlagShared);
  EXPECT_EQ(world.Wait(a, first).code, Code::kOk);
  EXPECT_EQ(world.Wait(b, second).code, Code::kAlreadyExists);
}

TEST(Create, SessionsHaveNamespacesOfTheirOwn) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  world.Put(a, 1, 5000, 10);
  EXPECT_EQ(world.Check(b, 1), Code::kNotFound);
  world.Put(b, 1, 6000, 20);
  EXPECT_EQ(world.Check(a, 1, 10), Code::kOk);
  EXPECT_EQ(world.Check(b, 1, 20), Code::kOk);
}

TEST(Create, WhoAsksInTheWrongNamespaceIsToldOfTheOtherOne) {
  World world(WithArena());
  const JobId job = world.OpenJob();
  const SessionId first = world.OpenSession(job);
  const SessionId second = world.OpenSession(job);
  const SessionId stranger = world.Open();
  world.Put(first, 1, kBlockSize, 1, proto::kFlagShared);
  world.Put(first, 2, kBlockSize, 2);
  EXPECT_THAT(world.Acquire(first, 1).detail, HasSubstr("0x1 in the session's namespace; its job has a shared one"));
  EXPECT_THAT(world.Acquire(second, 1).detail, HasSubstr("pass shared=True"));
  EXPECT_THAT(world.Acquire(first, 2, proto::kFlagShared).detail,
              HasSubstr("0x2 in the shared namespace; the session has one of its own"));
  for (const Answer& other : {world.Acquire(second, 2, proto::kFlagShared), world.Acquire(stranger, 1)}) {
    EXPECT_EQ(other.code, Code::kNotFound);
    EXPECT_TRUE(other.detail.ends_with("namespace")) << other.detail << ": others' tensors are not told of";
  }
}

TEST(Create, JobsCannotSeeEachOther) {
  World world;
  const SessionId a = world.Open();
  const SessionId b = world.Open();
  world.Put(a, 1, 5000, 1, proto::kFlagShared);
  EXPECT_EQ(world.Check(b, 1, 1, proto::kFlagShared), Code::kNotFound);
}

TEST(Create, MoreThanTheDevicesHoldIsRefusedBeforeAnythingHappens) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}, .device_blocks = 8});
  const SessionId session = world.Open();
  const Answer refused = world.CreateRange(session, 1, 33 * kMiB, 0, kMiB);
  EXPECT_EQ(refused.code, Code::kNoSpace);
  EXPECT_EQ(refused.error.requested, 33 * kMiB);
  EXPECT_EQ(refused.error.limit, 14 * kMiB - 14 * kMiB / 16) << "one block for exchange, a sixteenth for others";
  EXPECT_EQ(world.windows.window_count(), 0u) << "not a window was made for it";
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
}

TEST(Create, TensorsThatTogetherExceedTheDevicesAreRefusedToo) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}, .device_blocks = 8});
  const SessionId session = world.Open();
  EXPECT_EQ(world.CreateRange(session, 1, 10 * kMiB, 0, kMiB).code, Code::kOk);
  EXPECT_EQ(world.CreateRange(session, 2, 10 * kMiB, 0, kMiB).code, Code::kNoSpace);
  EXPECT_EQ(world.Free(session, 1).code, Code::kWouldDeadlock) << "its range is leased, by the caller";
}

TEST(Create, ARangeLargerThanTheShareIsRefusedAtOnceWithFigures) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}});
  const SessionId session = world.Open();
  const uint64_t sequence = world.Send(session, Op::kCreate, {{1, 0, 0, 20 * kMiB}});
  world.Turn();
  const auto refused = world.Answered(session, sequence);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, Code::kNoMemory);
  EXPECT_EQ(refused->error.requested, 20 * kMiB);
  EXPECT_EQ(refused->error.limit, 16 * kMiB);
}

TEST(Create, ATensorLargerThanTheArenaIsCreatedAndReadByRanges) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}});
  const SessionId session = world.Open();
  constexpr uint64_t kSize = 40 * kMiB + 12345;
  constexpr uint64_t kRange = 4 * kMiB;
  for (uint64_t offset = 0; offset < kSize; offset += kRange) {
    const uint64_t length = std::min(kRange, kSize - offset);
    const Answer granted = offset == 0 ? world.CreateRange(session, 1, kSize, 0, length)
                                       : world.Acquire(session, 1, proto::kFlagWrite, offset, length);
    ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
    world.Fill(granted.spans, 1, 1, offset);
    ASSERT_EQ(world.Release(session, World::LeaseOf(granted)).code, Code::kOk);
  }
  for (uint64_t offset = 0; offset < kSize; offset += kRange) {
    const Answer granted = world.Acquire(session, 1, 0, offset, std::min(kRange, kSize - offset));
    ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
    EXPECT_TRUE(world.Matches(granted.spans, 1, 1, offset));
    ASSERT_EQ(world.Release(session, World::LeaseOf(granted)).code, Code::kOk);
  }
}

TEST(Create, RangesMayMeetInTheMiddleOfAPieceAndComeInAnyOrder) {
  World world;
  const SessionId session = world.Open();
  constexpr uint64_t kSize = 5 * kMiB;
  const Answer middle = world.CreateRange(session, 1, kSize, kMiB, 2 * kMiB);
  world.Fill(middle.spans, 1, 1, kMiB);
  world.Release(session, World::LeaseOf(middle));
  for (const auto& [offset, length] : {std::pair{3 * kMiB, 2 * kMiB}, std::pair{uint64_t{0}, kMiB}}) {
    EXPECT_EQ(world.Ask(session, Op::kStat, {{1, 0, 0, 0}}).value & proto::kTensorSealed, 0u);
    const Answer granted = world.Acquire(session, 1, proto::kFlagWrite, offset, length);
    ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
    world.Fill(granted.spans, 1, 1, offset);
    world.Release(session, World::LeaseOf(granted));
  }
  EXPECT_NE(world.Ask(session, Op::kStat, {{1, 0, 0, 0}}).value & proto::kTensorSealed, 0u);
  EXPECT_EQ(world.Check(session, 1), Code::kOk);
}

TEST(Create, AReaderOfAnUnsealedTensorWaitsUntilTheLastRangeIsSealed) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId writer = world.OpenSession(job);
  const SessionId reader = world.OpenSession(job);
  const Answer created = world.Create(writer, 1, 9000, proto::kFlagShared);
  const uint64_t asked = world.Send(reader, Op::kAcquire, {{1, 0, 0, 0}}, proto::kFlagShared);
  world.Turns(10);
  EXPECT_FALSE(world.Answered(reader, asked).has_value());
  world.Fill(created.spans, 1, 3);
  world.Release(writer, World::LeaseOf(created));
  const Answer granted = world.Wait(reader, asked);
  ASSERT_EQ(granted.code, Code::kOk);
  EXPECT_TRUE(world.Matches(granted.spans, 1, 3));
}

TEST(Create, AReaderOfATensorThatIsNeverSealedGetsATimeout) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId writer = world.OpenSession(job);
  const SessionId reader = world.OpenSession(job);
  world.Create(writer, 1, 9000, proto::kFlagShared);
  const uint64_t asked = world.Send(reader, Op::kAcquire, {{1, 0, 0, 0}}, proto::kFlagShared);
  world.Turn();
  world.Advance(std::chrono::seconds(61));
  EXPECT_EQ(world.Wait(reader, asked).code, Code::kTimeout);
}

TEST(Create, TheCreatorReadingItsOwnUnsealedTensorIsToldAtOnceWhenItAsksNotToWait) {
  World world;
  const SessionId session = world.Open();
  world.Create(session, 1, 9000);
  const Answer refused = world.Acquire(session, 1, proto::kFlagNoWaitOwn);
  EXPECT_EQ(refused.code, Code::kWouldDeadlock);
  EXPECT_NE(refused.detail.find("0x1"), std::string::npos) << refused.detail;
}

TEST(Create, AbandoningARangeFreesTheWholeCreation) {
  World world;
  const SessionId session = world.Open();
  const Answer first = world.CreateRange(session, 1, 6 * kMiB, 0, 2 * kMiB);
  const Answer second = world.Acquire(session, 1, proto::kFlagWrite, 2 * kMiB, 2 * kMiB);
  world.Release(session, World::LeaseOf(first), proto::kFlagAbandon);
  EXPECT_EQ(world.Check(session, 1), Code::kNotFound);
  EXPECT_EQ(world.Create(session, 1, 100).code, Code::kOk) << "the name is free at once";
  EXPECT_EQ(world.Release(session, World::LeaseOf(second)).code, Code::kOk) << "what is leased ends as ever";
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 1u);
}

TEST(Create, ABatchIsCreatedWholeOrNotAtAll) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 3, 100);
  const Answer refused = world.Ask(session, Op::kCreate, {{1, 0, 0, 100}, {2, 0, 0, 100}, {3, 0, 0, 100}});
  EXPECT_EQ(refused.code, Code::kAlreadyExists);
  EXPECT_EQ(refused.value, 2u) << "the failing item";
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 1u);
  const Answer granted = world.Ask(session, Op::kCreate, {{1, 0, 0, 100}, {2, 0, 0, 5 * kMiB}, {4, 0, 0, 4096}});
  ASSERT_EQ(granted.code, Code::kOk);
  for (uint32_t item = 0; item < 3; ++item) {
    EXPECT_EQ(world.Release(session, World::LeaseOf(granted, item)).code, Code::kOk);
  }
}

TEST(Create, TheSameNameTwiceInOneBatchLeavesNothing) {
  World world;
  const SessionId session = world.Open();
  EXPECT_EQ(world.Ask(session, Op::kCreate, {{1, 0, 0, 100}, {1, 0, 0, 100}}).code, Code::kAlreadyExists);
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
}

TEST(Create, ContiguousPiecesAreOneSpan) {
  World world({.windows = {.window_size = 16 * kMiB, .arena_max_bytes = 32 * kMiB}});
  const SessionId session = world.Open();
  const Answer granted = world.Create(session, 1, 7 * kMiB);
  ASSERT_EQ(granted.spans.size(), 1u);
  EXPECT_EQ(granted.spans[0].length, 7 * kMiB);
}

TEST(Create, ALeaseCoversExactlyTheBytesAskedFor) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, 5 * kMiB);
  const Answer granted = world.Acquire(session, 1, 0, 2 * kMiB - 7, 1001);
  uint64_t length = 0;
  for (const proto::SpanRecord& span : granted.spans) length += span.length;
  EXPECT_EQ(length, 1001u);
  EXPECT_TRUE(world.Matches(granted.spans, 1, 1, 2 * kMiB - 7));
}

TEST(Create, TooManyTensorsAreRefusedWithFigures) {
  World world({.engine = {.tensors_per_job_max = 3}});
  const SessionId session = world.Open();
  for (uint64_t id = 1; id <= 3; ++id) world.Put(session, id, 10);
  const Answer refused = world.Create(session, 4, 10);
  EXPECT_EQ(refused.code, Code::kNoMemory);
  EXPECT_EQ(refused.error.limit, 3u);
}

TEST(Create, WhatDiesYoungIsNeverWritten) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 64 * kMiB}});
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  for (uint64_t id = 1; id <= 100; ++id) {
    world.Put(session, id, 4 * kMiB);
    EXPECT_EQ(world.Free(session, id).code, Code::kOk);
  }
  EXPECT_EQ(world.transfers.traffic(0).written_bytes, 0u);
  EXPECT_EQ(world.Job(job).write_avoided_bytes, 400 * kMiB);
}

TEST(CreateByRanges, MoreSeparateRangesThanTheLimitAreRefusedAndAdjoiningOnesAreNot) {
  World world;
  const SessionId session = world.Open();
  constexpr uint64_t kSize = 2 * (kCreationRangesMax + 8);
  ASSERT_EQ(world.Release(session, World::LeaseOf(world.CreateRange(session, 1, kSize, 0, 1))).code, Code::kOk);
  // Every other byte, without a proof of the books at each.
  uint64_t sequence = 1u << 24;
  for (uint64_t range = 1; range < kCreationRangesMax; ++range) {
    const proto::RequestItem item{1, 2 * range, 1, 0};
    world.engine->Submit(session, {.sequence = ++sequence,
                                   .op = proto::Op::kAcquire,
                                   .flags = proto::kFlagWrite,
                                   .items = {&item, 1},
                                   .text = {}});
    world.engine->Turn(world.now);
    const Answer granted = world.Answered(session, sequence).value();
    ASSERT_EQ(granted.code, Code::kOk) << range;
    const proto::RequestItem release{0, 0, 0, World::LeaseOf(granted)};
    world.engine->Submit(session,
                         {.sequence = ++sequence, .op = proto::Op::kRelease, .items = {&release, 1}, .text = {}});
  }
  const Answer refused = world.Acquire(session, 1, proto::kFlagWrite, kSize - 3, 1);
  EXPECT_EQ(refused.code, Code::kNoMemory);
  EXPECT_EQ(refused.error.limit, kCreationRangesMax);
  const Answer between = world.Acquire(session, 1, proto::kFlagWrite, 1, 1);
  ASSERT_EQ(between.code, Code::kOk) << between.detail;
  EXPECT_EQ(world.Release(session, World::LeaseOf(between)).code, Code::kOk);
  EXPECT_EQ(world.Acquire(session, 1, proto::kFlagWrite, kSize - 3, 1).code, Code::kOk) << "there is one range less";
}

// A create of two waits for room; the range that one of them already has is sealed meanwhile by a lease of its own.
TEST(Create, OneThatIsGrantedAfterItsTensorWasSealedTakesNothingAwayWhenItIsGivenBackUntouched) {
  World world(WithArena());
  const SessionId session = world.Open();
  world.Put(session, 1, 3 * kBlockSize);
  const Answer reading = world.Acquire(session, 1);
  ASSERT_EQ(reading.code, Code::kOk);
  const uint64_t creating = world.Send(session, Op::kCreate, {{2, 0, 0, kBlockSize}, {3, 0, 0, kBlockSize}});
  const Answer writing = world.Acquire(session, 2, proto::kFlagWrite);
  ASSERT_EQ(writing.code, Code::kOk) << writing.detail;
  world.Fill(writing.spans, 2, 1);
  ASSERT_EQ(world.Release(session, World::LeaseOf(writing)).code, Code::kOk);
  ASSERT_FALSE(world.Answered(session, creating).has_value());
  ASSERT_EQ(world.Release(session, World::LeaseOf(reading)).code, Code::kOk);
  const Answer created = world.Wait(session, creating);
  ASSERT_EQ(created.code, Code::kOk) << created.detail;
  EXPECT_EQ(world.Release(session, World::LeaseOf(created, 0), proto::kFlagUntouched).code, Code::kOk);
  EXPECT_EQ(world.Release(session, World::LeaseOf(created, 1), proto::kFlagUntouched).code, Code::kOk);
  EXPECT_EQ(world.Check(session, 2), Code::kOk) << "it was sealed, and that was told";
  EXPECT_EQ(world.Check(session, 3), Code::kNotFound);
}

}  // namespace
}  // namespace tier::tiering::testing
