// Pieces in several runs of RAM: sizes of which no whole number fills a block leave nothing unused, and whatever comes
// meanwhile the bytes are there.
#include <string>

#include <gtest/gtest.h>

#include "daemon/tiering/tables/scattered_ram.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using memory::CopyOutcome;
using proto::Op;

constexpr uint64_t kBlocks = 30;

WorldOptions RamOnly() {
  return {.windows = {.window_size = kBlockSize, .arena_max_bytes = 64 * kBlockSize}, .transfers = {.device_count = 0}};
}
JobOptions Of(uint64_t blocks) { return {.key = {}, .limit_bytes = blocks * kBlockSize}; }

uint64_t SizeOf(uint64_t pages) { return pages * kPageSize; }

// Puts tensors of one size until they fill what the job may use.
uint64_t PutAll(World& world, SessionId session, uint64_t bytes) {
  const uint64_t fit = kBlocks * kPagesPerBlock / PagesFor(bytes);
  for (uint64_t id = 1; id <= fit; ++id) world.Put(session, id, bytes, id);
  return fit;
}

class OddSizes : public ::testing::TestWithParam<uint64_t> {};

TEST_P(OddSizes, FillTheRam) {
  World world(RamOnly());
  const JobId job = world.OpenJob(Of(kBlocks));
  const SessionId session = world.OpenSession(job);
  const base::TimePoint before = world.now;
  const uint64_t count = PutAll(world, session, GetParam());
  EXPECT_LT(world.now - before, std::chrono::seconds(1)) << "none of them waited for its deadline";
  EXPECT_EQ(world.CheckEach(session, 1, count), Code::kOk);
  EXPECT_EQ(world.Job(job).ram_bytes, count * AlignUp(GetParam(), kPageSize));
  for (uint64_t id = 1; id <= count; id += 2) EXPECT_EQ(world.Free(session, id).code, Code::kOk);
  for (uint64_t id = 1; id <= count; id += 2) world.Put(session, id, GetParam(), 100 + id);
  for (uint64_t id = 1; id <= count; ++id) {
    EXPECT_EQ(world.Check(session, id, id % 2 == 1 ? 100 + id : id), Code::kOk) << id;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, OddSizes,
                         ::testing::Values(kMiB + kPageSize, 3 * kMiB + kPageSize, 704 * 1024, kMiB * 11 / 10,
                                           SizeOf(510), SizeOf(420), SizeOf(103), 5 * kMiB + 1));

// What is fine in one run stays in one.
TEST(ScatteredPieces, SizesThatFillBlocksLieInOneRun) {
  World world(RamOnly());
  const SessionId session = world.Open(Of(kBlocks));
  for (uint64_t id = 1; id <= 40; ++id) {
    const Answer created = world.Create(session, id, SizeOf(256));
    ASSERT_EQ(created.code, Code::kOk);
    EXPECT_EQ(created.spans.size(), 1U);
    world.Fill(created.spans, id, id);
    EXPECT_EQ(world.Release(session, World::LeaseOf(created)).code, Code::kOk);
  }
}

// Leases of ranges name the bytes wherever their runs begin and end.
TEST(ScatteredPieces, AreLeasedByRanges) {
  World world(RamOnly());
  const SessionId session = world.Open(Of(kBlocks));
  const uint64_t size = SizeOf(257);
  PutAll(world, session, size);
  uint32_t several = 0;
  for (uint64_t id = 1; id <= 40; ++id) {
    const Answer whole = world.Acquire(session, id);
    ASSERT_EQ(whole.code, Code::kOk);
    several += whole.spans.size() > 1 ? 1 : 0;
    EXPECT_LE(whole.spans.size(), kRamRunsMax);
    EXPECT_TRUE(world.Matches(whole.spans, id, id));
    EXPECT_EQ(world.Release(session, World::LeaseOf(whole)).code, Code::kOk);
    const uint64_t first = whole.spans.front().length;
    for (const uint64_t at : {std::min(first - 1, size - 2), std::min(first, size - 2)}) {
      const Answer part = world.Acquire(session, id, 0, at, 2);
      ASSERT_EQ(part.code, Code::kOk);
      uint64_t length = 0;
      for (const proto::SpanRecord& span : part.spans) length += span.length;
      EXPECT_EQ(length, 2U);
      EXPECT_EQ(world.Release(session, World::LeaseOf(part)).code, Code::kOk);
    }
  }
  EXPECT_GT(several, 5U);
}

// They go to SSD, come back, and are evicted and rewritten as all others.
TEST(ScatteredPieces, AreWrittenAndReadBack) {
  World world({.windows = {.window_size = kBlockSize, .arena_max_bytes = 16 * kBlockSize}, .device_blocks = 64});
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  for (uint64_t id = 1; id <= 50; ++id) world.Put(session, id, kMiB + kPageSize + 17, id);
  EXPECT_EQ(world.CheckEach(session, 1, 50), Code::kOk);
  for (uint64_t id = 1; id <= 50; id += 3) EXPECT_EQ(world.Rewrite(session, id, 200 + id).code, Code::kOk);
  for (uint64_t id = 50; id >= 1; --id) {
    EXPECT_EQ(world.Check(session, id, id % 3 == 1 ? 200 + id : id), Code::kOk) << id;
  }
  EXPECT_GT(world.Job(job).evicted_bytes, 0U);
}

// Slots of more than half a block: no hole of another block takes one whole, but several do.
TEST(ScatteredPieces, SlotsOfMoreThanHalfABlockMakeRoomForBlocks) {
  World world(RamOnly());
  const JobId job = world.OpenJob(Of(6));
  const SessionId session = world.OpenSession(job);
  for (uint64_t id = 1; id <= 6; ++id) {
    world.Put(session, id, SizeOf(300), id);
    world.Put(session, 10 + id, SizeOf(212), id);
  }
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_EQ(world.Free(session, 10 + id).code, Code::kOk);
  const base::TimePoint before = world.now;
  world.Put(session, 20, 2 * kBlockSize, 20);
  EXPECT_LT(world.now - before, std::chrono::seconds(1));
  EXPECT_EQ(world.Check(session, 20, 20), Code::kOk);
  EXPECT_EQ(world.CheckEach(session, 1, 6), Code::kOk);
}

// Of a piece in several runs one may be on its way while a lease comes.
class MovingRuns : public ::testing::Test {
 protected:
  MovingRuns() : world(RamOnly()), job(world.OpenJob(Of(6))), session(world.OpenSession(job)) {
    for (uint64_t id = 1; id <= 6; ++id) {
      world.Put(session, id, SizeOf(300), id);
      world.Put(session, 10 + id, SizeOf(212), id);
    }
    for (uint64_t id = 1; id <= 6; ++id) EXPECT_EQ(world.Free(session, 10 + id).code, Code::kOk);
    world.copier.SetDelay(3, 3);
    asked = world.Send(session, Op::kCreate, {{20, 0, 0, kBlockSize}});
    world.Turns(2);
    EXPECT_GT(world.copier.inflight(), 1U) << "a slot goes to several holes";
  }
  World world;
  JobId job;
  SessionId session;
  uint64_t asked = 0;
};

TEST_F(MovingRuns, AreReadAtOnce) {
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_EQ(world.Check(session, id, id), Code::kOk);
  EXPECT_EQ(world.Wait(session, asked).code, Code::kOk);
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_EQ(world.Check(session, id, id), Code::kOk);
}

TEST_F(MovingRuns, AreRewrittenAtOnce) {
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_EQ(world.Rewrite(session, id, 50 + id).code, Code::kOk);
  EXPECT_EQ(world.Wait(session, asked).code, Code::kOk);
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_EQ(world.Check(session, id, 50 + id), Code::kOk);
}

TEST_F(MovingRuns, AreFreedAtOnce) {
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_EQ(world.Free(session, id).code, Code::kOk);
  EXPECT_EQ(world.Wait(session, asked).code, Code::kOk);
  world.Turns(10);
  EXPECT_EQ(world.Job(job).ram_bytes, kBlockSize);
}

TEST_F(MovingRuns, StayWhereOneOfTheirCopiesFails) {
  world.copier.FaultNext(CopyOutcome::kTargetFault);
  world.Turns(20);
  EXPECT_TRUE(world.sink.ended.contains(static_cast<uint64_t>(session)));
  world.EndSession(session);
  world.Turns(50);
  EXPECT_EQ(world.windows.window_count(), 0U);
}

TEST_F(MovingRuns, LeaveNothingWhenTheirJobIsClosed) {
  world.engine->CloseJob(job, "closed", true);
  world.Turns(50);
  EXPECT_EQ(world.windows.window_count(), 0U);
  EXPECT_TRUE(world.engine->idle());
}

}  // namespace
}  // namespace tier::tiering::testing
