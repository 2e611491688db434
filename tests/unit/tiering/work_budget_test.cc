// Requests over more than a turn looks at: they go on in the next, and hold nobody up.
#include <gtest/gtest.h>

#include "daemon/tiering/tables/tables.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;

// A tensor of more pieces than a turn looks at, of which one is being created.
constexpr uint64_t kHugePieces = 2 * WorkUnits{}.all();
WorldOptions Huge() {
  return {.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}, .device_blocks = 2 * kHugePieces};
}

TEST(WorkBudget, AStatGoesOnInTheNextTurn) {
  World world(Huge());
  const SessionId session = world.Open();
  ASSERT_EQ(world.CreateRange(session, 1, kHugePieces * kPiece, 0, kPiece).code, Code::kOk);
  world.Turns(3);
  const uint64_t asked = world.Send(session, Op::kStat, {{1, 0, 0, 0}});
  world.Turn();
  EXPECT_FALSE(world.Answered(session, asked).has_value());
  EXPECT_EQ(world.Wait(session, asked).tensor.size, kHugePieces * kPiece);
  const uint64_t again = world.Send(session, Op::kStat, {{1, 0, 0, 0}});
  world.Free(session, 1, proto::kFlagNoWait);
  EXPECT_EQ(world.Wait(session, again).code, Code::kOk) << "the creator's lease keeps it";
}

TEST(WorkBudget, ADropAndAnAcceptGoOnToo) {
  World world(Huge());
  const SessionId session = world.Open();
  ASSERT_EQ(world.CreateRange(session, 1, kHugePieces * kPiece, 0, kPiece).code, Code::kOk);
  world.PutOnSsd(session, 2, kPiece);
  EXPECT_EQ(world.Check(session, 2), Code::kOk);
  world.Turns(3);
  const uint64_t dropping = world.Send(session, Op::kDrop, {{1, 0, 0, 0}, {2, 0, 0, 0}});
  world.Turn();
  EXPECT_FALSE(world.Answered(session, dropping).has_value());
  EXPECT_EQ(world.Wait(session, dropping).value, kPiece);
  EXPECT_EQ(world.Ask(session, Op::kAccept, {{1, 0, 0, 0}}).code, Code::kOk);
}

TEST(WorkBudget, AnnouncedRangesAreGoneThroughTurnByTurn) {
  World world(Huge());
  const SessionId session = world.Open();
  ASSERT_EQ(world.CreateRange(session, 1, kHugePieces * kPiece, 0, kPiece).code, Code::kOk);
  world.Turns(3);
  world.Send(session, Op::kPrefetch, std::vector<proto::RequestItem>(4, {1, 0, 0, 0}));
  uint64_t turns = 0;
  while (world.Turn()) ++turns;
  EXPECT_GE(turns, 4 * kHugePieces / WorkUnits{}.maintain);
  EXPECT_LE(turns, 4 * kHugePieces / WorkUnits{}.maintain + 4);
}

TEST(WorkBudget, AScanThatReachesItsDeadlineSaysHowFarItCame) {
  World world(Huge());
  const SessionId session = world.Open();
  ASSERT_EQ(world.CreateRange(session, 1, kHugePieces * kPiece, 0, kPiece).code, Code::kOk);
  world.Turns(3);
  std::vector<proto::RequestItem> items(8, {1, 0, 0, 0});
  const uint64_t asked = world.Send(session, Op::kDrop, items);
  world.Turn();
  world.Advance(std::chrono::minutes(2));
  world.Turn();
  ASSERT_TRUE(world.Answered(session, asked).has_value());
  EXPECT_EQ(world.Answered(session, asked)->code, Code::kTimeout);
  EXPECT_NE(world.Answered(session, asked)->detail.find("of 8 tensors"), std::string::npos);
}

// More readers of the shared tensor 1 than a turn looks at, or one event wakes; their requests are numbered from 1.
constexpr uint64_t kReaders = WorkUnits{}.share + kLookMax + 500;
static_assert(kReaders > 4 * WorkUnits{}.wake);
void SendReaders(World& world, SessionId session) {
  const proto::RequestItem item{1, 0, 0, 0};
  for (uint64_t sequence = 1; sequence <= kReaders; ++sequence) {
    world.engine->Submit(
        session,
        {.sequence = sequence, .op = Op::kAcquire, .flags = proto::kFlagShared, .items = {&item, 1}, .text = {}});
  }
}

TEST(WorkBudget, ManyWaitersAreLookedAtTurnByTurn) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId writer = world.OpenSession(job);
  const SessionId reader = world.OpenSession(job);
  world.Put(writer, 1, 5000, 1, proto::kFlagShared);
  const Answer writing = world.Acquire(writer, 1, proto::kFlagShared | proto::kFlagWrite);
  SendReaders(world, reader);
  world.Turns(4);
  world.Send(writer, Op::kRelease, {{0, 0, 0, World::LeaseOf(writing)}});
  world.Turn();
  EXPECT_TRUE(world.Answered(reader, 1).has_value());
  EXPECT_FALSE(world.Answered(reader, kReaders).has_value()) << "a turn is not the whole queue";
  world.Turns(kReaders * (kWaiterCost + 2) / WorkUnits{}.look + kReaders / WorkUnits{}.wake + 3);
  EXPECT_TRUE(world.Answered(reader, kReaders).has_value());
}

// What a session sends between two turns is charged too: requests beyond the work of a turn are left to the next ones.
TEST(WorkBudget, ManyItemsSubmittedAtOnceAreLookedAtTurnByTurn) {
  constexpr uint64_t kRequests = 48;
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, 5000);
  world.Turn();
  const std::vector<proto::RequestItem> items(proto::kItemsPerRequestMax, {1, 0, 0, 0});
  static_assert(kRequests * proto::kItemsPerRequestMax > 2 * kLookMax);
  std::vector<uint64_t> asked;
  for (uint64_t i = 0; i < kRequests; ++i) {
    asked.push_back(100 + i);
    world.engine->Submit(session, {.sequence = asked.back(), .op = Op::kAcquire, .items = items, .text = {}});
  }
  world.engine->Turn(world.now);
  EXPECT_TRUE(world.Answered(session, asked.front()).has_value());
  EXPECT_FALSE(world.Answered(session, asked.back()).has_value()) << "a turn is not all that was sent";
  for (int turn = 0; turn < 4; ++turn) world.engine->Turn(world.now);
  for (const uint64_t sequence : asked) {
    ASSERT_TRUE(world.Answered(session, sequence).has_value());
    EXPECT_EQ(world.Answered(session, sequence)->code, Code::kOk);
  }
}

TEST(WorkBudget, ManyWaitersExpireTurnByTurn) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId writer = world.OpenSession(job);
  const SessionId reader = world.OpenSession(job);
  world.Put(writer, 1, 5000, 1, proto::kFlagShared);
  world.Acquire(writer, 1, proto::kFlagShared | proto::kFlagWrite);
  SendReaders(world, reader);
  world.Turns(4);
  world.Advance(std::chrono::minutes(2));
  world.Turn();
  ASSERT_TRUE(world.Answered(reader, 1).has_value());
  EXPECT_EQ(world.Answered(reader, 1)->code, Code::kTimeout);
  EXPECT_NE(world.Answered(reader, 1)->detail.find("(writing)"), std::string::npos) << "it names the holder";
  EXPECT_FALSE(world.Answered(reader, kReaders).has_value()) << "a turn is not the whole queue";
  EXPECT_LE(world.engine->NextDeadline(), world.now) << "the next one follows at once";
  world.Turns(kReaders * (2 * kWaiterCost) / WorkUnits{}.expiry + 3);
  EXPECT_TRUE(world.Answered(reader, kReaders).has_value());
}

TEST(WorkBudget, AFreeWhoseTurnHadNotComeAtItsDeadlineIsToldSo) {
  World world({.engine = {.work = {.share = 1, .look = 1}}});
  const JobId job = world.OpenJob();
  const SessionId holder = world.OpenSession(job);
  const std::vector<SessionId> sessions{world.OpenSession(job), world.OpenSession(job)};
  std::vector<proto::RequestItem> leases;
  std::vector<uint64_t> freeing;
  for (uint64_t id = 1; id <= 2; ++id) {
    world.Put(holder, id, 5000, 1, proto::kFlagShared);
    leases.push_back({0, 0, 0, World::LeaseOf(world.Acquire(holder, id, proto::kFlagShared))});
    freeing.push_back(world.Send(sessions[id - 1], Op::kFree, {{id, 0, 0, 0}}, proto::kFlagShared));
  }
  world.Turns(4);
  world.Send(holder, Op::kRelease, leases);
  world.Advance(std::chrono::minutes(2));
  world.Turn();
  const auto first = world.Answered(sessions[0], freeing[0]);
  const auto second = world.Answered(sessions[1], freeing[1]);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->code, Code::kOk);
  EXPECT_EQ(second->code, Code::kTimeout);
  EXPECT_NE(second->detail.find("its turn had not come"), std::string::npos) << second->detail;
}

// As the session layer submits: not more than the next turn takes.
uint64_t SubmitWhenTaken(World& world, SessionId session, const Request& request) {
  while (!world.engine->TakesRequests()) world.engine->Turn(world.now);
  world.engine->Submit(session, request);
  return request.sequence;
}

// Sessions of two jobs that ask for as much at once as one message may, over and over, and die with it.
TEST(WorkBudget, NoTurnSpendsMoreThanItsUnits) {
  constexpr uint64_t kTensors = 4000;
  constexpr uint64_t kRounds = 60;
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 64 * kMiB}, .device_blocks = 256});
  const std::vector<JobId> jobs{world.OpenJob(), world.OpenJob()};
  std::vector<SessionId> sessions;
  for (int i = 0; i < 6; ++i) sessions.push_back(world.OpenSession(jobs[i % 2]));
  uint64_t sequence = 0;
  for (uint64_t round = 0; round < kRounds; ++round) {
    SessionId& session = sessions[round % sessions.size()];
    std::vector<proto::RequestItem> items;
    for (uint64_t i = 0; i < proto::kItemsPerRequestMax; ++i)
      items.push_back({1 + (round * 997 + i) % kTensors, 0, 0, 1});
    const uint32_t shared = proto::kFlagShared;
    const uint64_t created = SubmitWhenTaken(
        world, session, {.sequence = ++sequence, .op = Op::kCreate, .flags = shared, .items = items, .text = {}});
    world.engine->Turn(world.now);
    const std::optional<Answer> answer = world.Answered(session, created);
    if (answer && answer->code == Code::kOk) {
      for (uint32_t i = 0; i < items.size(); ++i) items[i] = {0, 0, 0, World::LeaseOf(*answer, i)};
      SubmitWhenTaken(world, session, {.sequence = ++sequence, .op = Op::kRelease, .items = items, .text = {}});
    }
    for (proto::RequestItem& item : items) item = {1 + static_cast<uint64_t>(&item - items.data()), 0, 0, 0};
    for (const Op op : {Op::kAcquire, Op::kDrop, Op::kPrefetch, Op::kFlush, Op::kFree, Op::kStep}) {
      if (op == Op::kFree && round % 5 != 0) continue;
      const std::span<const proto::RequestItem> named = op == Op::kStep ? std::span<const proto::RequestItem>() : items;
      SubmitWhenTaken(world, session, {.sequence = ++sequence, .op = op, .flags = shared, .items = named, .text = {}});
    }
    if (round % 7 != 0) continue;
    world.EndSession(session, "killed");
    session = world.OpenSession(jobs[round % 2]);
  }
  for (int turn = 0; turn < 1000; ++turn) world.engine->Turn(world.now);
  EXPECT_LE(world.engine->Snapshot().turn_work_max, WorkUnits{}.all());
  EXPECT_GT(world.engine->Snapshot().turn_work_max, WorkUnits{}.submit) << "there was work for several stages";
}

TEST(WorkBudget, AReleaseOfMoreThanATurnEndsGoesOn) {
  constexpr uint64_t kPieces = 16;
  constexpr uint64_t kLeases = 500;
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 64 * kMiB}});
  const SessionId session = world.Open();
  world.Put(session, 1, kPieces * kPiece);
  std::vector<proto::RequestItem> items(kLeases, {1, 0, 0, 0});
  const Answer first = world.Ask(session, Op::kAcquire, items);
  const Answer second = world.Ask(session, Op::kAcquire, items);
  ASSERT_EQ(second.code, Code::kOk) << second.detail;
  std::vector<proto::RequestItem> leases;
  for (uint32_t i = 0; i < kLeases; ++i) leases.push_back({0, 0, 0, World::LeaseOf(first, i)});
  for (uint32_t i = 0; i < kLeases; ++i) leases.push_back({0, 0, 0, World::LeaseOf(second, i)});
  leases.push_back({0, 0, 0, 1u << 30});  // One that it does not hold: the others end all the same.
  const uint64_t releasing = world.Send(session, Op::kRelease, leases);
  EXPECT_FALSE(world.Answered(session, releasing).has_value()) << "it is more than a turn ends";
  const uint64_t writing = world.Send(session, Op::kAcquire, {{1, 0, 0, 0}}, proto::kFlagWrite | proto::kFlagNoWaitOwn);
  EXPECT_EQ(world.Wait(session, releasing).code, Code::kStale);
  EXPECT_EQ(world.Wait(session, writing).code, Code::kOk) << "its session was ending the leases when it came";
  EXPECT_EQ(world.engine->Snapshot().lease_count, 1u) << "the writer's";
}

TEST(WorkBudget, WhatASessionReleasedCountsThoughItEndsBeforeTheTurnThatReachesIt) {
  World world({.engine = {.work = {.submit = 8}}});
  const JobId job = world.OpenJob();
  const SessionId writer = world.OpenSession(job);
  const SessionId reader = world.OpenSession(job);
  std::vector<proto::RequestItem> leases;
  for (uint64_t id = 1; id <= 20; ++id) {
    const Answer created = world.Create(writer, id, 5000, proto::kFlagShared);
    ASSERT_EQ(created.code, Code::kOk) << created.detail;
    leases.push_back({0, 0, 0, World::LeaseOf(created)});
  }
  const uint64_t releasing = world.Send(writer, Op::kRelease, leases);
  ASSERT_FALSE(world.Answered(writer, releasing).has_value()) << "it is more than the stage has work for";
  world.EndSession(writer, "said goodbye");
  EXPECT_NE(world.engine->Snapshot().lease_count, 0u) << "that goes on turn by turn";
  world.Turns(8);
  EXPECT_EQ(world.engine->Snapshot().lease_count, 0u);
  for (uint64_t id = 1; id <= 20; ++id) {
    EXPECT_EQ(world.Acquire(reader, id, proto::kFlagShared).code, Code::kOk) << id;
  }
}

// Each of them moves those behind it.
TEST(WorkBudget, RangesOfACreationThatAreSealedInFallingOrderAreCounted) {
  constexpr uint64_t kRanges = 12000;
  World world;
  const SessionId session = world.Open();
  ASSERT_EQ(world.Release(session, World::LeaseOf(world.CreateRange(session, 1, 2 * kRanges, 0, 1))).code, Code::kOk);
  uint64_t sequence = 1u << 24;
  for (uint64_t range = kRanges - 1; range != 0; --range) {
    const proto::RequestItem item{1, 2 * range, 1, 0};
    const uint64_t asked = SubmitWhenTaken(
        world, session,
        {.sequence = ++sequence, .op = Op::kAcquire, .flags = proto::kFlagWrite, .items = {&item, 1}, .text = {}});
    world.engine->Turn(world.now);
    const proto::RequestItem release{0, 0, 0, World::LeaseOf(world.Answered(session, asked).value())};
    SubmitWhenTaken(world, session, {.sequence = ++sequence, .op = Op::kRelease, .items = {&release, 1}, .text = {}});
    world.engine->Turn(world.now);
  }
  EXPECT_GE(world.engine->Snapshot().turn_work_max, kRanges / 8);
}

// A key for which there is room only in the place of another: each namespace is asked whether that one names a tensor.
TEST(WorkBudget, ALookForAKeyThatNamesNothingIsCounted) {
  constexpr uint64_t kSessions = 300;
  World world({.engine = {.keys_per_job_max = 4}});
  const JobId job = world.OpenJob();
  std::vector<SessionId> sessions;
  for (uint64_t i = 0; i < kSessions; ++i) sessions.push_back(world.OpenSession(job));
  uint64_t sequence = 1u << 24;
  for (const std::string key : {"a", "b", "c", "d", "e", "f"}) {
    SubmitWhenTaken(world, sessions[0], {.sequence = ++sequence, .op = Op::kIntern, .items = {}, .text = key});
    world.engine->Turn(world.now);
  }
  EXPECT_GE(world.engine->Snapshot().turn_work_max, kSessions);
}

// What a session leases elsewhere is looked at in bounds, and lets it pass nobody.
TEST(WorkBudget, ManyLeasesElsewhereDoNotPassAWaitingWriter) {
  constexpr uint64_t kLeases = 600;
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 64 * kMiB}});
  const JobId job = world.OpenJob();
  const SessionId reader = world.OpenSession(job);
  const SessionId writer = world.OpenSession(job);
  const SessionId other = world.OpenSession(job);
  world.Put(reader, 1, 8 * kPiece, 1, proto::kFlagShared);
  world.Put(reader, 2, 5000, 1, proto::kFlagShared);
  const std::vector<proto::RequestItem> items(kLeases, {2, 0, 0, 0});
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(world.Ask(reader, Op::kAcquire, items, proto::kFlagShared).code, Code::kOk);
  }
  const Answer held = world.Acquire(other, 1, proto::kFlagShared);
  const uint64_t writing = world.Send(writer, Op::kAcquire, {{1, 0, 0, 0}}, proto::kFlagShared | proto::kFlagWrite);
  world.Turns(2);
  const uint64_t reading = world.Send(reader, Op::kAcquire, {{1, 0, 0, 0}}, proto::kFlagShared);
  world.Turns(2);
  EXPECT_FALSE(world.Answered(writer, writing).has_value());
  EXPECT_FALSE(world.Answered(reader, reading).has_value()) << "the writer came first";
  world.Release(other, World::LeaseOf(held));
  EXPECT_EQ(world.Wait(writer, writing).code, Code::kOk);
}

// The writer waits for a lease of one piece, the reader behind the writer's claim at another: a lease of a third piece
// does not let the reader pass.
TEST(WorkBudget, ALeaseOfAnotherPieceDoesNotPassAWaitingWriter) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 64 * kMiB}});
  const JobId job = world.OpenJob();
  const SessionId reader = world.OpenSession(job);
  const SessionId writer = world.OpenSession(job);
  const SessionId other = world.OpenSession(job);
  world.Put(reader, 1, 4 * kPiece, 1, proto::kFlagShared);
  const Answer held = world.Acquire(other, 1, proto::kFlagShared, 0, kPiece);
  const proto::RequestItem front{1, 0, 2 * kPiece, 0};
  const uint64_t writing = world.Send(writer, Op::kAcquire, {front}, proto::kFlagShared | proto::kFlagWrite);
  world.Turns(2);
  const uint64_t reading = world.Send(reader, Op::kAcquire, {{1, kPiece, 3 * kPiece, 0}}, proto::kFlagShared);
  world.Turns(2);
  EXPECT_EQ(world.Acquire(reader, 1, proto::kFlagShared, 3 * kPiece, kPiece).code, Code::kOk) << "nobody claims it";
  world.Turns(2);
  EXPECT_FALSE(world.Answered(writer, writing).has_value());
  EXPECT_FALSE(world.Answered(reader, reading).has_value());
  world.Release(other, World::LeaseOf(held));
  EXPECT_EQ(world.Wait(writer, writing).code, Code::kOk);
}

TEST(WorkBudget, TheRefusalsOfAFailedReadAreCounted) {
  constexpr uint64_t kWaiting = 600;
  World world;
  const SessionId session = world.Open();
  world.PutOnSsd(session, 1, 5000);
  world.transfers.FailNext({storage::Direction::kRead, storage::TransferOutcome::kDeviceError, 5});
  world.transfers.Hold();
  const proto::RequestItem item{1, 0, 0, 0};
  for (uint64_t i = 1; i <= kWaiting; ++i) {
    const Request request{.sequence = (1u << 24) + i, .op = Op::kAcquire, .items = {&item, 1}, .text = {}};
    SubmitWhenTaken(world, session, request);
    if (i % 20 == 0) world.engine->Turn(world.now);
  }
  const uint64_t before = world.engine->Snapshot().turn_work_max;
  EXPECT_LT(before, kWaiting * kWaiterCost);
  world.transfers.Release();
  world.Turns(4);
  for (uint64_t i = 1; i <= kWaiting; ++i) {
    ASSERT_TRUE(world.Answered(session, (1u << 24) + i).has_value()) << i;
    EXPECT_EQ(world.Answered(session, (1u << 24) + i)->code, Code::kIoError) << i;
  }
  EXPECT_GE(world.engine->Snapshot().turn_work_max, kWaiting * kWaiterCost);
}

TEST(WorkBudget, ATensorOfTerabytesIsCreatedAndFreedInATurn) {
  constexpr uint64_t kPieces = 1u << 19;
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}, .device_blocks = 2 * kPieces});
  const SessionId session = world.Open();
  const uint64_t creating = world.Send(session, Op::kCreate, {{1, 0, kPiece, kPieces * kPiece}});
  world.Turn();
  const uint64_t last = world.Send(session, Op::kAcquire, {{1, (kPieces - 1) * kPiece, kPiece, 0}}, proto::kFlagWrite);
  world.Turns(2);
  ASSERT_TRUE(world.Answered(session, creating).has_value() && world.Answered(session, last).has_value());
  world.Release(session, World::LeaseOf(*world.Answered(session, creating)));
  world.Release(session, World::LeaseOf(*world.Answered(session, last)));
  EXPECT_EQ(world.Free(session, 1).code, Code::kOk);
  world.Turn();
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
  EXPECT_LT(world.engine->Snapshot().turn_work_max, kPieces / 256);
}

// A request that is not to wait for its own session's leases is held against all of them.
TEST(WorkBudget, OwnLeasesThatARequestIsHeldAgainstAreCounted) {
  constexpr uint64_t kLeases = 4000;
  World world;
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  const SessionId reader = world.OpenSession(job);
  world.Put(session, 1, 5000, 1, proto::kFlagShared);
  world.Put(session, 2, 5000, 1, proto::kFlagShared);
  const std::vector<proto::RequestItem> items(kLeases / 4, {2, 0, 0, 0});
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(world.Ask(session, Op::kAcquire, items, proto::kFlagShared).code, Code::kOk);
  }
  ASSERT_EQ(world.Acquire(reader, 1, proto::kFlagShared).code, Code::kOk);
  world.Turns(4);
  ASSERT_LT(world.engine->Snapshot().turn_work_max, kLeases);
  const uint32_t flags = proto::kFlagShared | proto::kFlagWrite | proto::kFlagNoWaitOwn;
  const proto::RequestItem item{1, 0, 0, 0};
  for (uint64_t sequence = 100; sequence < 132; ++sequence) {
    world.engine->Submit(session,
                         {.sequence = sequence, .op = Op::kAcquire, .flags = flags, .items = {&item, 1}, .text = {}});
  }
  EXPECT_TRUE(world.engine->Turn(world.now)) << "some of them go on in the next turn";
  EXPECT_GE(world.engine->Snapshot().turn_work_max, kLeases);
  EXPECT_LE(world.engine->Snapshot().turn_work_max, WorkUnits{}.all());
}

TEST(WorkBudget, EachMessageIsChargedByItsItems) {
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, 5000);
  world.Turns(4);
  const std::vector<proto::RequestItem> items(proto::kItemsPerRequestMax, {1, 0, 0, 0});
  uint64_t taken = 0;
  for (; taken < 20 && world.engine->TakesRequests(); ++taken) {
    world.engine->Submit(session, {.sequence = 100 + taken, .op = Op::kPrefetch, .items = items, .text = {}});
  }
  EXPECT_LT(taken, 20u) << "what arrives in one turn is bounded";
}

}  // namespace
}  // namespace tier::tiering::testing
