// The other requests, hostile ones, figures for operators, and the orderly stop.
#include <gtest/gtest.h>

#include <bit>

#include "daemon/tiering/memory/growth.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;

TEST(Requests, AFlushOfEverythingWritesTheSessionsDirtyPieces) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.PutEach(session, 1, 5, 3 * kPiece + 100);
  EXPECT_EQ(world.Ask(session, Op::kFlush, {}).code, Code::kOk);
  EXPECT_EQ(world.Job(job).dirty_bytes, 0u);
  EXPECT_EQ(world.Ask(session, Op::kFlush, {}).code, Code::kOk) << "nothing to do";
}

TEST(Requests, AFlushOfEverythingTakesInWhatTheJobSharesButNotWhatOthersWrite) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  world.Put(a, 1, kPiece, 1, proto::kFlagShared);
  world.Put(a, 2, kPiece, 1, proto::kFlagShared);
  world.Acquire(b, 2, proto::kFlagShared | proto::kFlagWrite);
  EXPECT_EQ(world.Ask(a, Op::kFlush, {}).code, Code::kOk);
  EXPECT_EQ(world.Job(job).dirty_bytes, kPiece);
}

TEST(Requests, ADropOfEverythingDropsTheSessionsCleanCopies) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, kPiece);
  world.Put(session, 2, 5000);
  ASSERT_EQ(world.Ask(session, Op::kFlush, {}).code, Code::kOk);
  world.Put(session, 3, kPiece);
  const Answer dropped = world.Ask(session, Op::kDrop, {});
  EXPECT_EQ(dropped.code, Code::kOk);
  EXPECT_EQ(dropped.value, kPiece + 5000);
  for (uint64_t id = 1; id <= 3; ++id) EXPECT_EQ(world.Check(session, id, 1), Code::kOk) << id;
}

TEST(Requests, ReleasesCanWaitOnlyWhileNothingWouldFollowFromThem) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  world.PutOnSsd(a, 1, kPiece, 1, proto::kFlagShared);
  EXPECT_FALSE(world.engine->ReleasesCanWait()) << "there is no lease";
  const Answer reading = world.Acquire(a, 1, proto::kFlagShared);
  world.Turns(20);
  EXPECT_TRUE(world.engine->ReleasesCanWait());
  const uint64_t writing = world.Send(b, Op::kAcquire, {{1, 0, 0, 0}}, proto::kFlagShared | proto::kFlagWrite);
  world.Turn();
  EXPECT_FALSE(world.engine->ReleasesCanWait()) << "a writer waits";
  world.Release(a, World::LeaseOf(reading));
  EXPECT_EQ(world.Wait(b, writing).code, Code::kOk);
}

TEST(Requests, AFlushWaitsForAWriterAndThenWrites) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  world.Put(a, 1, kPiece, 1, proto::kFlagShared);
  const Answer writing = world.Acquire(a, 1, proto::kFlagShared | proto::kFlagWrite);
  const uint64_t flushing = world.Send(b, Op::kFlush, {{1, 0, 0, 0}}, proto::kFlagShared);
  world.Turns(5);
  EXPECT_FALSE(world.Answered(b, flushing).has_value());
  world.Release(a, World::LeaseOf(writing));
  EXPECT_EQ(world.Wait(b, flushing).code, Code::kOk);
}

TEST(Requests, AFlushOfATornTensorIsRefused) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  world.Put(a, 1, kPiece, 1, proto::kFlagShared);
  world.Acquire(a, 1, proto::kFlagShared | proto::kFlagWrite);
  world.EndSession(a, "killed");
  EXPECT_EQ(world.Flush(b, 1, proto::kFlagShared).code, Code::kTorn);
}

TEST(Requests, AFlushOfSomethingFreedMeanwhileIsDone) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, 3 * kPiece);
  world.transfers.Hold();
  const uint64_t flushing = world.Send(session, Op::kFlush, {{1, 0, 0, 0}});
  world.Turns(2);
  EXPECT_EQ(world.Free(session, 1).code, Code::kOk);
  EXPECT_EQ(world.Wait(session, flushing).code, Code::kOk);
  world.transfers.Release();
  world.Turns(3);
  EXPECT_EQ(world.extents.total().live, 0u);
}

TEST(Requests, AFlushThatReachesItsDeadlineNamesTheTensorItWaitsFor) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 0x2a, kPiece);
  world.transfers.Hold();
  const uint64_t flushing = world.Send(session, Op::kFlush, {{0x2a, 0, 0, 0}});
  world.Turns(2);
  world.Advance(std::chrono::minutes(2));
  const Answer refused = world.Wait(session, flushing);
  EXPECT_EQ(refused.code, Code::kTimeout);
  EXPECT_NE(refused.detail.find("0 of 1 tensors were on SSD at the deadline, tensor 0x2a was not"), std::string::npos)
      << refused.detail;
  world.transfers.Release();
}

TEST(Requests, DropTakesCleanIdlePiecesOnly) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, 2 * kPiece);
  EXPECT_EQ(world.Drop(session, 1).value, 0u) << "dirty";
  EXPECT_EQ(world.Flush(session, 1).code, Code::kOk);
  const Answer lease = world.Acquire(session, 1, 0, 0, 10);
  EXPECT_EQ(world.Drop(session, 1).value, kPiece) << "the other piece is leased";
  EXPECT_TRUE(world.Matches(lease.spans, 1, 1));
}

TEST(Requests, StatOfSeveralTensorsIsRefusedAndNotAnsweredForOne) {
  World world;
  const SessionId session = world.Open();
  world.PutEach(session, 1, 2, kPageSize);
  const Answer stat = world.Ask(session, Op::kStat, {{1, 0, 0, 0}, {2, 0, 0, 0}});
  EXPECT_EQ(stat.code, Code::kInvalid);
  EXPECT_NE(stat.detail.find("ask for each of them"), std::string::npos) << stat.detail;
}

TEST(Requests, StatTellsSizeGenerationAndCopies) {
  World world;
  const SessionId session = world.Open();
  world.PutOnSsd(session, 1, kPiece + 100);
  const Answer stat = world.Ask(session, Op::kStat, {{1, 0, 0, 0}});
  EXPECT_EQ(stat.tensor.size, kPiece + 100);
  EXPECT_EQ(stat.tensor.generation, 1u);
  EXPECT_EQ(stat.tensor.ram_bytes, 0u);
  EXPECT_EQ(stat.tensor.ssd_bytes, kPiece + 100);
  EXPECT_EQ(stat.value, proto::kTensorSealed);
}

TEST(Requests, StepsCountUpOrAreNamed) {
  World world;
  const SessionId session = world.Open();
  EXPECT_EQ(world.Wait(session, world.SendArgument(session, Op::kStep, UINT64_MAX)).value, 1u);
  EXPECT_EQ(world.Wait(session, world.SendArgument(session, Op::kStep, 40)).value, 40u);
  EXPECT_EQ(world.Wait(session, world.SendArgument(session, Op::kStep, UINT64_MAX)).value, 41u);
}

TEST(Requests, NothingAHostileClientSendsBreaksAnything) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, 5000);
  const uint64_t values[] = {
      0, 1, 4095, 4999, 5000, 5001, kBlockSize, UINT64_MAX, UINT64_MAX - 4999, uint64_t{1} << 63};
  for (uint16_t op = 0; op <= proto::kOpCount; ++op) {
    if (op == static_cast<uint16_t>(Op::kFree)) continue;
    for (const uint64_t offset : values) {
      for (const uint64_t length : values) {
        world.Send(session, static_cast<Op>(op), {{op % 2 == 0 ? 1 : offset, offset, length, length}},
                   proto::kFlagNoWait);
      }
    }
    world.Turns(2);
  }
  for (int bit = std::bit_width(proto::kFlagsKnown); bit < 32; ++bit) {
    EXPECT_EQ(world.Ask(session, Op::kStat, {{1, 0, 0, 0}}, 1u << bit).code, Code::kInvalid);
  }
  EXPECT_EQ(world.Ask(session, static_cast<Op>(999), {{1, 0, 0, 0}}).code, Code::kInvalid);
  EXPECT_EQ(world.Ask(session, Op::kAcquire, {}).code, Code::kInvalid);
  EXPECT_EQ(world.Ask(session, Op::kAcquire, std::vector<proto::RequestItem>(proto::kItemsPerRequestMax + 1)).code,
            Code::kInvalid);
  world.EndSession(session, "enough");
  world.Turns(5);
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
  EXPECT_EQ(world.extents.total().live, 0u);
}

TEST(Requests, RangesBeyondTheTensorAreInvalidWithoutOverflow) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, 5000);
  EXPECT_EQ(world.Acquire(session, 1, 0, 5000, 1).code, Code::kInvalid);
  EXPECT_EQ(world.Acquire(session, 1, 0, 1, UINT64_MAX).code, Code::kInvalid);
  EXPECT_EQ(world.Acquire(session, 1, 0, UINT64_MAX, 2).code, Code::kInvalid);
  EXPECT_EQ(world.Acquire(session, 1, 0, 4999, 1).code, Code::kOk);
  EXPECT_EQ(world.CreateRange(session, 2, 100, 50, 51).code, Code::kInvalid);
  EXPECT_EQ(world.CreateRange(session, 2, UINT64_MAX, 0, 1).code, Code::kNoSpace);
}

TEST(Requests, MorePiecesThanACompletionHoldsAreInvalid) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}, .device_blocks = 20'000});
  const SessionId session = world.Open();
  const uint64_t size = (proto::kSpansPerCompletionMax + 1) * kBlockSize;
  EXPECT_EQ(world.Create(session, 1, size).code, Code::kInvalid);
}

TEST(Requests, OneByteOfAPieceNeedsRoomForAllOfIt) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 8 * kMiB}});
  const SessionId session = world.Open();
  for (uint64_t id = 1; id <= 8; ++id) world.PutOnSsd(session, id, kPiece, id);
  std::vector<proto::RequestItem> items;
  for (uint64_t id = 1; id <= 8; ++id) items.push_back({id, 77, 1, 0});
  const uint64_t asked = world.Send(session, Op::kAcquire, items);
  world.Turn();
  ASSERT_TRUE(world.Answered(session, asked).has_value()) << "at once, not at its deadline";
  EXPECT_EQ(world.Answered(session, asked)->code, Code::kNoMemory);
  EXPECT_EQ(world.Answered(session, asked)->error.requested, 8 * kPiece);
  // The same piece again and again is one piece.
  items.assign(100, {1, 77, 1, 0});
  EXPECT_EQ(world.Ask(session, Op::kAcquire, items).code, Code::kOk);
}

TEST(Requests, AFreeIsToldWhoLeasesAnyPieceOfTheTensor) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  world.Put(a, 1, 4 * kPiece, 1, proto::kFlagShared);
  const Answer own = world.Acquire(a, 1, proto::kFlagShared, 3 * kPiece, kPiece);
  EXPECT_EQ(world.Free(a, 1, proto::kFlagShared | proto::kFlagNoWaitOwn).code, Code::kWouldDeadlock);
  const Answer others = world.Acquire(b, 1, proto::kFlagShared, 2 * kPiece, kPiece);
  const Answer refused = world.Free(a, 1, proto::kFlagShared | proto::kFlagNoWait);
  EXPECT_EQ(refused.code, Code::kTimeout);
  EXPECT_NE(refused.detail.find("freeing tensor 0x1 has to wait for session"), std::string::npos) << refused.detail;
  EXPECT_NE(refused.detail.find("(reading)"), std::string::npos) << refused.detail;
  const uint64_t waiting = world.Send(a, Op::kFree, {{1, 0, 0, 0}}, proto::kFlagShared | proto::kFlagNoWaitOwn);
  world.Turns(3);
  EXPECT_FALSE(world.Answered(a, waiting).has_value()) << "not only its own leases stand in the way";
  world.Release(a, World::LeaseOf(own));
  world.Turns(3);
  EXPECT_FALSE(world.Answered(a, waiting).has_value());
  world.Release(b, World::LeaseOf(others));
  EXPECT_EQ(world.Wait(a, waiting).code, Code::kOk);
}

TEST(Requests, AFlushTellsOfACorruptCopyWhenTheRestIsWritten) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.PutOnSsd(session, 1, 2 * kPiece);
  world.transfers.FailNext({storage::Direction::kRead, storage::TransferOutcome::kCorrupt, 0}, 2);
  EXPECT_EQ(world.Acquire(session, 1, 0, kPiece, kPiece).code, Code::kCorrupt);
  world.Put(session, 2, 5000);
  const Answer refused = world.Ask(session, Op::kFlush, {{1, 0, 0, 0}, {1, 0, 0, 0}, {2, 0, 0, 0}});
  EXPECT_EQ(refused.code, Code::kCorrupt);
  EXPECT_EQ(refused.error.tensor, 1u);
  EXPECT_EQ(refused.error.requested, kPiece);
  EXPECT_EQ(world.Job(job).dirty_bytes, 0u);
  const Answer writing = world.Acquire(session, 1, proto::kFlagWrite | proto::kFlagDiscard, kPiece, kPiece);
  ASSERT_EQ(writing.code, Code::kOk) << writing.detail;
  const uint64_t flushing = world.Send(session, Op::kFlush, {});
  world.Release(session, World::LeaseOf(writing));
  EXPECT_EQ(world.Wait(session, flushing).code, Code::kOk) << "written again";
}

TEST(Requests, ASessionThatIsUnknownIsIgnored) {
  World world;
  world.engine->Submit(SessionId{77}, {.sequence = 1, .op = Op::kStep, .items = {}, .text = {}});
  world.engine->EndSession(SessionId{77}, Code::kOk, "never was", std::nullopt);
  world.engine->WindowReturned(SessionId{77}, WindowIndex{3});
  world.engine->CloseJob(JobId{77}, "never was", true);
  EXPECT_EQ(world.engine->outstanding(SessionId{77}), 0u);
  EXPECT_EQ(world.engine->OpenSession(SessionId{78}, JobId{77}).error().code, Code::kNotFound);
  EXPECT_EQ(world.engine->SetJob(JobId{77}, {}).error().code, Code::kNotFound);
  world.Turns(2);
}

TEST(Requests, AnIdleTurnDoesNothingAndSaysSo) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, 5000);
  world.Advance(kAheadKept);  // The window that the job got is looked at again.
  world.Turns(5);
  EXPECT_FALSE(world.Turn());
  EXPECT_FALSE(world.engine->NextDeadline().has_value());
  EXPECT_TRUE(world.engine->idle());
}

TEST(Requests, AnOrderlyStopRefusesNewWorkAndEndsWhatWaits) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId a = world.OpenSession(job);
  const SessionId b = world.OpenSession(job);
  world.Put(a, 1, 5000, 1, proto::kFlagShared);
  const Answer lease = world.Acquire(a, 1, proto::kFlagShared | proto::kFlagWrite);
  const uint64_t waiting = world.Send(b, Op::kAcquire, {{1, 0, 0, 0}}, proto::kFlagShared);
  world.Turns(2);
  world.engine->StartDrain("tierd is stopping");
  const Answer refused = world.Wait(b, waiting);
  EXPECT_EQ(refused.code, Code::kDisconnected);
  EXPECT_EQ(refused.detail, "tierd is stopping");
  EXPECT_EQ(world.Create(a, 2, 100).code, Code::kDisconnected);
  EXPECT_EQ(world.Release(a, World::LeaseOf(lease)).code, Code::kOk) << "what is held can be given back";
  EXPECT_TRUE(world.engine->idle());
}

TEST(Requests, TheSnapshotAddsUp) {
  World world;
  const JobId job = world.OpenJob({.guarantee_bytes = 16 * kMiB, .limit_bytes = 32 * kMiB});
  const SessionId session = world.OpenSession(job);
  world.Put(session, 1, kPiece);
  world.Put(session, 2, 5000);
  const Answer lease = world.Acquire(session, 2);
  const EngineSnapshot snapshot = world.engine->Snapshot();
  EXPECT_EQ(snapshot.arena_bytes, snapshot.window_count * snapshot.window_size_max);
  EXPECT_EQ(snapshot.tensor_count, 2u);
  EXPECT_EQ(snapshot.lease_count, 1u);
  EXPECT_EQ(snapshot.lease_bound_bytes, kPiece - 8192) << "the rest of the slot's block";
  ASSERT_EQ(snapshot.jobs.size(), 1u);
  const JobCounters& counters = snapshot.jobs[0].counters;
  EXPECT_EQ(counters.ram_bytes, kPiece + 8192);
  EXPECT_EQ(counters.dirty_bytes, kPiece + 8192);
  EXPECT_EQ(counters.leased_bytes, 5000u);
  EXPECT_EQ(counters.guarantee_bytes, 16 * kMiB);
  EXPECT_EQ(counters.limit_bytes, 32 * kMiB);
  EXPECT_EQ(counters.share_bytes, 32 * kMiB);
  EXPECT_EQ(counters.acquire_hits, 1u);
  EXPECT_EQ(snapshot.arena_free_bytes, snapshot.arena_bytes - counters.ram_bytes);
  EXPECT_EQ(snapshot.requests[static_cast<size_t>(Op::kCreate)][0], 2u);
}

TEST(Requests, WhatIsFreeBesideLeasedSlotsIsCountedOnceABlock) {
  World world;
  const SessionId session = world.Open();
  world.PutEach(session, 1, 3, 5000);
  EXPECT_EQ(world.engine->Snapshot().lease_bound_bytes, 0u);
  const Answer reading = world.Acquire(session, 1);
  const Answer again = world.Acquire(session, 1);
  EXPECT_EQ(world.engine->Snapshot().lease_bound_bytes, kPiece - 3 * 8192) << "what others take is not free";
  const Answer writing = world.Acquire(session, 2, proto::kFlagWrite);
  EXPECT_EQ(world.engine->Snapshot().lease_bound_bytes, kPiece - 3 * 8192);
  for (const Answer* lease : {&reading, &again}) world.Release(session, World::LeaseOf(*lease));
  world.Free(session, 3);
  EXPECT_EQ(world.engine->Snapshot().lease_bound_bytes, kPiece - 2 * 8192);
  world.Release(session, World::LeaseOf(writing));
  EXPECT_EQ(world.engine->Snapshot().lease_bound_bytes, 0u);
}

TEST(Requests, WaitsAreCountedAndTimed) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.PutOnSsd(session, 1, kPiece);
  EXPECT_EQ(world.Check(session, 1), Code::kOk);
  EXPECT_EQ(world.Check(session, 1), Code::kOk);
  EXPECT_EQ(world.Job(job).acquire_misses, 1u);
  EXPECT_EQ(world.Job(job).acquire_hits, 1u);
  EXPECT_GT(world.Job(job).stall_ns, 0u);
}

TEST(Requests, WhatAClosedJobCountedStaysInTheTotals) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}});
  const SessionId first = world.Open();
  world.PutOnSsd(first, 1, kPiece);
  EXPECT_EQ(world.Check(first, 1), Code::kOk);
  world.Drop(first, 1);
  world.Put(first, 2, kPiece);
  world.EndSession(first, "done");
  const auto check = [&](const char* when) {
    const JobCounters totals = world.engine->Snapshot().totals;
    EXPECT_EQ(totals.evicted_bytes, 2 * kPiece) << when;
    EXPECT_EQ(totals.write_avoided_bytes, 2 * kPiece) << when << ": dropped unchanged once, freed before written once";
    EXPECT_EQ(totals.swap_out_bytes, kPiece) << when;
    EXPECT_EQ(totals.swap_in_bytes, kPiece) << when;
    EXPECT_EQ(totals.acquire_misses, 1u) << when;
    EXPECT_EQ(totals.ram_bytes, 0u) << when << ": a gauge";
  };
  check("closing");
  world.Turns(5);
  EXPECT_TRUE(world.engine->Snapshot().jobs.empty());
  check("closed");
  world.PutOnSsd(world.Open(), 1, kPiece);
  EXPECT_EQ(world.engine->Snapshot().totals.swap_out_bytes, 2 * kPiece);
}

}  // namespace
}  // namespace tier::tiering::testing
