// In which order pieces are read from devices, and how long what was prefetched stays.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "daemon/tiering/tables/flight_table.h"
#include "daemon/tiering/tables/job_queues.h"
#include "daemon/tiering/transfers/devices.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr uint64_t kPiece = kBlockSize;
constexpr uint64_t kAhead = kReadAheadPagesMax / kPagesPerBlock;       // Pieces in the port that no request waits for …
constexpr uint64_t kAlone = kReadAheadAlonePagesMax / kPagesPerBlock;  // … where no other job waits for reads.

void Prefetch(World& world, SessionId session, uint64_t first, uint64_t last) {
  std::vector<proto::RequestItem> items;
  for (uint64_t id = first; id <= last; ++id) items.push_back({id, 0, 0, 0});
  EXPECT_EQ(world.Ask(session, Op::kPrefetch, items).code, Code::kOk);
  world.Turns(2);
}

void PutAllOnSsd(World& world, SessionId session, uint64_t first, uint64_t last) {
  for (uint64_t id = first; id <= last; ++id) world.PutOnSsd(session, id, kPiece, id);
}

struct TwoJobs {
  TwoJobs() {
    PutAllOnSsd(world, ahead, 1, 12);
    PutAllOnSsd(world, other, 1, 4);
    ReadByOther();
  }
  // The other job waits for a read: from now on the prefetches of `ahead` are few at a time.
  void ReadByOther() {
    EXPECT_EQ(world.Check(other, 4, 4), Code::kOk);
    EXPECT_EQ(world.Drop(other, 4).code, Code::kOk);
  }
  // How many pieces the port has of prefetches of `ahead`.
  uint64_t Announced() {
    world.transfers.Hold();
    Prefetch(world, ahead, 1, 12);
    return world.transfers.inflight();
  }
  // Asks for a tensor while the prefetches of `ahead` fill their places in the port; it is answered before the others.
  void DemandBehindPrefetches(SessionId session, uint64_t tensor, const char* why) {
    world.transfers.Hold();
    Prefetch(world, ahead, 1, 12);
    ASSERT_EQ(world.transfers.inflight(), kAhead);
    const uint64_t asked = world.Send(session, Op::kAcquire, {{tensor, 0, 0, 0}});
    world.Turns(3);
    EXPECT_EQ(world.transfers.inflight(), kAhead + 1) << why;
    world.transfers.Release();
    for (uint32_t turn = 0; turn < 4 && !world.Answered(session, asked); ++turn) world.Turn();
    ASSERT_TRUE(world.Answered(session, asked).has_value());
  }

  World world{{.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 128 * kMiB},
               .transfers = {.delay_turns_min = 1, .delay_turns_max = 1},
               .engine = {.prefetch_bytes_max = 12 * kPiece}}};
  JobId ahead_job = world.OpenJob({.uid = 1});
  JobId other_job = world.OpenJob({.uid = 2});
  SessionId ahead = world.OpenSession(ahead_job);
  SessionId other = world.OpenSession(other_job);
};

TEST(ReadOrder, ADemandGoesBeforeThePrefetchesOfAnotherJob) {
  TwoJobs jobs;
  ASSERT_NO_FATAL_FAILURE(jobs.DemandBehindPrefetches(jobs.other, 1, "it waits for no place behind them"));
  EXPECT_LT(jobs.world.Job(jobs.ahead_job).prefetched_bytes, 12 * kPiece) << "others were to be read before it";
  jobs.world.Turns(40);
  EXPECT_EQ(jobs.world.Job(jobs.ahead_job).prefetched_bytes, 12 * kPiece);
}

TEST(ReadOrder, ADemandForAQueuedPrefetchMakesItOne) {
  TwoJobs jobs;
  ASSERT_NO_FATAL_FAILURE(jobs.DemandBehindPrefetches(jobs.ahead, 12, "the last in the queue"));
  jobs.world.Turns(40);
  EXPECT_EQ(jobs.world.Job(jobs.ahead_job).prefetched_bytes, 11 * kPiece) << "one was no prefetch any more";
  EXPECT_EQ(jobs.world.transfers.traffic(0).read_bytes, (1 + 12) * kPiece) << "each once, beside the other job's";
}

TEST(ReadOrder, AJobThatIsAloneAtADeviceHasMorePrefetchesUnderWay) {
  TwoJobs jobs;
  jobs.world.Advance(kAloneAfter);
  EXPECT_EQ(jobs.Announced(), kAlone);
  jobs.world.transfers.Release();
  jobs.world.Turns(20);
  EXPECT_EQ(jobs.world.Job(jobs.ahead_job).prefetched_bytes, 12 * kPiece);
}

TEST(ReadOrder, ItIsNotAloneUntilAnotherJobHasWaitedForNoReadForATime) {
  TwoJobs jobs;
  jobs.world.Advance(kAloneAfter - seconds(1));
  EXPECT_EQ(jobs.Announced(), kAhead);
}

TEST(ReadOrder, ItsOwnDemandsLeaveItAlone) {
  TwoJobs jobs;
  jobs.world.Advance(kAloneAfter);
  EXPECT_EQ(jobs.world.Check(jobs.ahead, 12, 12), Code::kOk);
  jobs.world.transfers.Hold();
  Prefetch(jobs.world, jobs.ahead, 1, 11);
  EXPECT_EQ(jobs.world.transfers.inflight(), kAlone);
}

// What the demands of jobs come to, against a list of all of them.
TEST(DemandOfJobs, KnowsTheLastOneOfAnotherJob) {
  std::mt19937 random(1);
  DemandOfJobs demand;
  std::map<uint32_t, base::TimePoint> last;
  for (uint32_t second = 1; second <= 2'000; ++second) {
    const base::TimePoint now{seconds(second)};
    const uint32_t by = random() % 4;
    demand.Note(JobIndex{by}, now);
    last[by] = now;
    for (uint32_t job = 0; job < 5; ++job) {
      const bool any = std::ranges::any_of(
          last, [&](const auto& each) { return each.first != job && now - each.second < seconds(3); });
      ASSERT_EQ(demand.ByAnother(JobIndex{job}, now, seconds(3)), any) << "job " << job << " after " << second;
    }
  }
}

TEST(ReadOrder, PrefetchesOfTwoJobsTakeTurns) {
  TwoJobs jobs;
  jobs.world.transfers.Hold();
  Prefetch(jobs.world, jobs.ahead, 1, 12);
  Prefetch(jobs.world, jobs.other, 1, 4);
  jobs.world.transfers.Release();
  const auto fetched = [&](JobId job) { return jobs.world.Job(job).prefetched_bytes; };
  for (uint32_t turn = 0; turn < 60 && fetched(jobs.other_job) < 4 * kPiece; ++turn) jobs.world.Turn();
  EXPECT_EQ(fetched(jobs.other_job), 4 * kPiece);
  EXPECT_LE(fetched(jobs.ahead_job), (4 + 2 * kAhead) * kPiece) << "the later ones did not wait for all of the first";
}

// Demand that fills the port all the time does not hold up what others have announced, and the memory given to it.
TEST(ReadOrder, OneReadAheadOfNeedIsAlwaysUnderWay) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 128 * kMiB},
               .transfers = {.inflight_max = 2, .delay_turns_min = 1, .delay_turns_max = 1},
               .device_blocks = 128});
  const JobId ahead_job = world.OpenJob({.uid = 1});
  const SessionId ahead = world.OpenSession(ahead_job);
  const SessionId other = world.Open({.uid = 2});
  PutAllOnSsd(world, ahead, 1, 4);
  world.PutOnSsd(other, 1, 20 * kPiece);
  const uint64_t asked = world.Send(other, Op::kAcquire, {{1, 0, 0, 0}});
  world.Turns(2);
  Prefetch(world, ahead, 1, 4);
  for (uint32_t turn = 0; turn < 100 && world.Job(ahead_job).prefetched_bytes < 2 * kPiece; ++turn) world.Turn();
  EXPECT_EQ(world.Job(ahead_job).prefetched_bytes, 2 * kPiece);
  EXPECT_FALSE(world.Answered(other, asked).has_value()) << "it was to be read all the time";
}

// A session that reads ahead of a cycle through more than fits.
class ReadAhead : public ::testing::Test {
 protected:
  ReadAhead() { PutAllOnSsd(world, session, 1, kTensors); }
  uint64_t read_bytes() const { return world.transfers.traffic(0).read_bytes; }

  static constexpr uint64_t kShare = 8;  // Pieces that fit into RAM.
  static constexpr uint64_t kTensors = 4 * kShare;
  World world{{.windows = {.window_size = 4 * kMiB, .arena_max_bytes = kShare * kPiece},
               .engine = {.write_behind_start = 1.0, .evict_start = 1.0, .prefetch_bytes_max = kTensors * kPiece},
               .device_blocks = 128}};
  JobId job = world.OpenJob();
  SessionId session = world.OpenSession(job);
};

TEST_F(ReadAhead, WhatWasPrefetchedIsReadOnce) {
  Prefetch(world, session, 1, kTensors);
  world.Turns(50);
  EXPECT_EQ(read_bytes(), kShare * kPiece) << "then it waits for what is there to be used";
  for (uint64_t id = 1; id <= kTensors; ++id) {
    EXPECT_EQ(world.Check(session, id, id), Code::kOk);
    world.Turns(5);
  }
  EXPECT_EQ(read_bytes(), kTensors * kPiece);
}

TEST_F(ReadAhead, ItGoesOnAsWhatItBroughtIsUsed) {
  Prefetch(world, session, 1, kTensors);
  world.Turns(50);
  EXPECT_EQ(world.CheckEach(session, 1, kShare), Code::kOk);
  world.Turns(20);
  EXPECT_EQ(read_bytes(), 2 * kShare * kPiece) << "without a request that misses";
}

TEST_F(ReadAhead, AWriterWaitsForAWriteAndNotForWhatWasPrefetched) {
  for (uint64_t id = 1; id <= kShare / 2; ++id) EXPECT_EQ(world.Rewrite(session, id, id + 100).code, Code::kOk);
  Prefetch(world, session, kShare / 2 + 1, kShare);
  world.Turns(20);
  const uint64_t before = read_bytes();
  // All memory is dirty, or prefetched and not used yet.
  ASSERT_EQ(world.Job(job).dirty_bytes, kShare / 2 * kPiece);
  ASSERT_EQ(world.Job(job).ram_bytes, kShare * kPiece);
  for (uint64_t id = 20; id < 24; ++id) EXPECT_EQ(world.Check(session, id, id), Code::kOk);
  for (uint64_t id = kShare / 2 + 1; id <= kShare; ++id) EXPECT_EQ(world.Check(session, id, id), Code::kOk);
  EXPECT_EQ(read_bytes(), before + 4 * kPiece) << "what was prefetched was there still";
}

TEST_F(ReadAhead, DirtyPiecesAreWrittenForAPrefetchThatHasNoOtherRoom) {
  for (uint64_t id = 1; id <= kShare / 2; ++id) EXPECT_EQ(world.Rewrite(session, id, id + 100).code, Code::kOk);
  Prefetch(world, session, kShare / 2 + 1, kShare + 1);
  world.Turns(50);
  EXPECT_EQ(read_bytes(), (kShare + 1) * kPiece) << "half of them to be rewritten";
  EXPECT_LT(world.Job(job).dirty_bytes, kShare / 2 * kPiece);
}

TEST_F(ReadAhead, WhereNothingElseCanGoTheLastPrefetchedGoesFirst) {
  Prefetch(world, session, 1, kShare);
  world.Turns(20);
  ASSERT_EQ(read_bytes(), kShare * kPiece);
  EXPECT_EQ(world.Check(session, 20, 20), Code::kOk);
  const uint64_t before = read_bytes();
  EXPECT_EQ(world.CheckEach(session, 1, kShare - 1), Code::kOk);
  EXPECT_EQ(read_bytes(), before) << "the first ones are there";
  EXPECT_EQ(world.Check(session, kShare, kShare), Code::kOk);
  EXPECT_EQ(read_bytes(), before + kPiece);
}

TEST_F(ReadAhead, AStepEndsIt) {
  Prefetch(world, session, 1, kShare);
  world.Turns(20);
  Prefetch(world, session, 11, 12);
  world.Turns(20);
  ASSERT_EQ(read_bytes(), kShare * kPiece) << "no prefetch evicts another";
  world.Wait(session, world.SendArgument(session, Op::kStep, UINT64_MAX));
  Prefetch(world, session, 13, 13);
  world.Turns(20);
  EXPECT_EQ(read_bytes(), (kShare + 3) * kPiece) << "what was not used in the step before may go";
}

TEST_F(ReadAhead, SoDoTenSeconds) {
  Prefetch(world, session, 1, kShare);
  world.Turns(20);
  world.Advance(seconds(9));
  Prefetch(world, session, 11, 11);
  world.Turns(20);
  EXPECT_EQ(read_bytes(), kShare * kPiece);
  world.Advance(seconds(2));
  Prefetch(world, session, 12, 12);
  world.Turns(20);
  EXPECT_EQ(read_bytes(), (kShare + 2) * kPiece);
}

TEST(PrefetchAge, EndsWithAStepOrAfterItsTime) {
  PrefetchAge age;
  const base::TimePoint start{seconds(1'000'000)};
  const uint32_t first = age.EpochAt(start);
  EXPECT_FALSE(age.IsOver(first));
  age.EpochAt(start + PrefetchAge::kKept);
  EXPECT_FALSE(age.IsOver(first));
  age.EpochAt(start + PrefetchAge::kKept + seconds(1));
  EXPECT_TRUE(age.IsOver(first));
  const uint32_t second = age.EpochAt(start + seconds(60));
  EXPECT_FALSE(age.IsOver(second));
  age.EndStep(5);
  EXPECT_TRUE(age.IsOver(second));
  const uint32_t third = age.EpochAt(start + seconds(60));
  age.EndStep(5);
  EXPECT_FALSE(age.IsOver(third)) << "another rank's marker of the same step";
  age.EndStep(4);
  EXPECT_TRUE(age.IsOver(third)) << "a trainer that went back to a checkpoint";
}

// The queue itself, against the rule: by priority, jobs in turn, oldest first.
class ReadQueue : public ::testing::Test {
 protected:
  FlightIndex Add(uint32_t job, ReadPriority priority, uint32_t pages = kPagesPerBlock) {
    const FlightIndex index = flights.Add({.piece = PieceId{next_},
                                           .extent = {{next_, 0, static_cast<uint16_t>(pages)}, 0},
                                           .direction = storage::Direction::kRead,
                                           .priority = priority,
                                           .job = JobIndex{job}});
    ++next_;
    flights.Queue(index);
    return index;
  }
  std::vector<FlightIndex> TakeAll(ReadPriority priority) {
    std::vector<FlightIndex> taken;
    while (const auto next = flights.NextQueued(priority)) {
      flights.CheckInvariants();
      flights.TakeQueued(*next);
      flights.Start(*next);
      taken.push_back(*next);
    }
    flights.CheckInvariants();
    return taken;
  }

  FlightTable flights;
  uint32_t next_ = 1;
};

TEST_F(ReadQueue, JobsTakeTurnsByBytes) {
  const FlightIndex a1 = Add(1, ReadPriority::kDemand);
  const FlightIndex a2 = Add(1, ReadPriority::kDemand);
  const FlightIndex b1 = Add(2, ReadPriority::kDemand, kPagesPerBlock / 2);
  const FlightIndex b2 = Add(2, ReadPriority::kDemand, kPagesPerBlock / 2);
  const FlightIndex b3 = Add(2, ReadPriority::kDemand);
  EXPECT_EQ(TakeAll(ReadPriority::kDemand), (std::vector{a1, b1, b2, a2, b3}));
  EXPECT_TRUE(flights.queue_empty());
}

TEST_F(ReadQueue, APromotedReadComesBehindTheDemandsOfItsJob) {
  Add(1, ReadPriority::kPrefetch);
  const FlightIndex middle = Add(1, ReadPriority::kPrefetch);
  Add(1, ReadPriority::kPrefetch);
  const FlightIndex demand = Add(1, ReadPriority::kDemand);
  EXPECT_EQ(flights.Promote(flights[middle].piece), ReadPriority::kPrefetch);
  EXPECT_EQ(flights.Promote(flights[middle].piece), std::nullopt);
  flights.CheckInvariants();
  EXPECT_EQ(TakeAll(ReadPriority::kDemand), (std::vector{demand, middle}));
  EXPECT_EQ(flights.reading_ahead_pages(), 0u);
  EXPECT_EQ(TakeAll(ReadPriority::kPrefetch).size(), 2u);
  EXPECT_EQ(flights.reading_ahead_pages(), 2 * kPagesPerBlock);
}

TEST_F(ReadQueue, AJobWhoseOnlyReadWasPromotedHasNoTurn) {
  const FlightIndex only = Add(1, ReadPriority::kBackground);
  const FlightIndex other = Add(2, ReadPriority::kBackground);
  EXPECT_EQ(flights.Promote(flights[only].piece), ReadPriority::kBackground);
  EXPECT_EQ(TakeAll(ReadPriority::kBackground), (std::vector{other}));
  EXPECT_EQ(TakeAll(ReadPriority::kDemand), (std::vector{only}));
}

}  // namespace
}  // namespace tier::tiering::testing
