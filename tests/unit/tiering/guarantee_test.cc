// Guarantees: what may be promised, what is lent meanwhile, and how it comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/tiering/memory/hand_over.h"
#include "daemon/tiering/memory/room.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;

TEST(Guarantee, GuaranteesThatDoNotFitTogetherAreRefusedWithFigures) {
  World world(WithArena(64 * kMiB));
  world.OpenJob({.guarantee_bytes = 40 * kMiB});
  const Status refused = world.engine->OpenJob(JobId{99}, {.key = "0/x", .guarantee_bytes = 30 * kMiB});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_NE(refused.error().message.find("8 MiB are promised to no job, 16 MiB are left"), std::string::npos)
      << refused.error().message;
}

TEST(Guarantee, WhoComesAfterTheGreatestGuaranteeHasAShare) {
  World world(WithArena(256 * kMiB));
  const JobOptions all{.key = "7/all", .guarantee_bytes = 256 * kMiB};
  const Status refused = world.engine->OpenJob(JobId{99}, all);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_NE(refused.error().message.find("16 MiB are promised to no job, 240 MiB are left"), std::string::npos)
      << refused.error().message;
  const JobId first = world.OpenJob({.guarantee_bytes = 240 * kMiB});
  EXPECT_FALSE(world.engine->SetJob(first, {.guarantee_bytes = 241 * kMiB}));
  const SessionId session = world.Open();
  const Answer held = world.Create(session, 1, 16 * kMiB);
  EXPECT_EQ(held.code, Code::kOk) << "under a lease, with nothing lent";
  const SessionId next = world.Open();
  const uint64_t asked = world.Send(next, Op::kCreate, {{1, 0, 0, kPiece}});
  world.Turns(20);
  EXPECT_FALSE(world.Answered(next, asked).has_value()) << "the rest is guaranteed";
  world.Release(session, World::LeaseOf(held));
  EXPECT_EQ(world.Wait(next, asked).code, Code::kOk);
}

TEST(Guarantee, OfASmallArenaHalfIsLeft) {
  World world(WithArena(16 * kMiB, 8 * kMiB));
  EXPECT_FALSE(world.engine->OpenJob(JobId{99}, {.key = "7/all", .guarantee_bytes = 9 * kMiB}));
  world.OpenJob({.guarantee_bytes = 8 * kMiB});
  EXPECT_EQ(world.Create(world.Open(), 1, 8 * kMiB).code, Code::kOk);
}

TEST(Guarantee, AnUnusedGuaranteeIsLentAndComesBack) {
  World world(WithArena(64 * kMiB));
  const JobId greedy = world.OpenJob();
  const JobId entitled = world.OpenJob({.guarantee_bytes = 32 * kMiB});
  const SessionId session = world.OpenSession(greedy);
  world.PutEach(session, 1, 30, kPiece);
  EXPECT_EQ(world.Job(greedy).window_count, 8u) << "idle memory is borrowable";
  const SessionId other = world.OpenSession(entitled);
  const uint64_t asked = world.Send(other, Op::kCreate, {{1, 0, 0, 32 * kMiB}});
  world.TurnsReturning(other, asked, 500, std::chrono::milliseconds(1));
  ASSERT_TRUE(world.Answered(other, asked).has_value());
  EXPECT_EQ(world.Answered(other, asked)->code, Code::kOk) << world.Answered(other, asked)->detail;
}

// One at a time would take an interval of hand-over for each.
TEST(Guarantee, AllWindowsThatARequestLacksAreAskedForTogether) {
  World world(WithArena(64 * kMiB));
  const SessionId session = world.Open();
  world.PutEach(session, 1, 32, kPiece);
  ASSERT_EQ(world.Ask(session, Op::kFlush, {}).code, Code::kOk);
  ASSERT_EQ(world.windows.arena_bytes(), 64 * kMiB);
  const SessionId owner = world.Open({.guarantee_bytes = 24 * kMiB});
  world.Send(owner, Op::kCreate, {{1, 0, 0, 24 * kMiB}});
  for (uint32_t turn = 0; turn < 100 && world.sink.returns.empty(); ++turn) {
    world.Turn();
    world.Advance(kHandOverInterval);
  }
  EXPECT_EQ(world.sink.returns.size(), 3u);
}

// A client that is killed while its job grows leaves windows that nobody has asked to be made for another.
TEST(Guarantee, ComesFromWindowsThatWereBeingMadeForAJobThatHasGone) {
  World world(WithArena(64 * kMiB));
  world.windows.SetDelay(50);
  const SessionId gone = world.Open();
  world.Send(gone, Op::kCreate, {{1, 0, 0, 56 * kMiB}});
  world.Turn();
  world.EndSession(gone);
  world.windows.SetDelay(0);
  const SessionId owner = world.Open({.guarantee_bytes = 32 * kMiB});
  const uint64_t asked = world.Send(owner, Op::kCreate, {{1, 0, 0, 32 * kMiB}});
  world.Turns(20);
  EXPECT_FALSE(world.Answered(owner, asked).has_value()) << "they are still being made";
  world.Turns(100);
  ASSERT_TRUE(world.Answered(owner, asked).has_value()) << "what has come for no job is free";
  EXPECT_EQ(world.Answered(owner, asked)->code, Code::kOk);
}

TEST(Guarantee, ComesWhenWindowsThatAreBeingClosedLeaveTheirIndices) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 64 * kMiB, .windows_max = 8}});
  world.windows.SetIndicesClosing(6);
  const SessionId owner = world.Open({.guarantee_bytes = 32 * kMiB});
  const uint64_t asked = world.Send(owner, Op::kCreate, {{1, 0, 0, 32 * kMiB}});
  world.Turns(20);
  EXPECT_FALSE(world.Answered(owner, asked).has_value()) << "two indices are left";
  world.windows.SetIndicesClosing(0);
  world.Turns(20);
  ASSERT_TRUE(world.Answered(owner, asked).has_value());
  EXPECT_EQ(world.Answered(owner, asked)->code, Code::kOk);
}

TEST(Guarantee, LeasesAreNotMadeRoomForInWhatOthersAreGuaranteed) {
  World world(WithArena(64 * kMiB));
  const JobId greedy = world.OpenJob();
  const JobId entitled = world.OpenJob({.guarantee_bytes = 32 * kMiB});
  const SessionId session = world.OpenSession(greedy);
  for (uint64_t id = 1; id <= 16; ++id) EXPECT_EQ(world.Create(session, id, kPiece).code, Code::kOk);
  EXPECT_EQ(world.Create(session, 17, kPiece).code, Code::kWouldDeadlock) << "its own leases hold its firm share";
  EXPECT_EQ(world.Job(greedy).window_count, 4u);
  const SessionId other = world.OpenSession(entitled);
  EXPECT_EQ(world.Create(other, 1, 32 * kMiB).code, Code::kOk);
}

TEST(Guarantee, WhatLiesInLentMemoryIsLeasedOnlyUpToTheFirmShare) {
  World world(WithArena(64 * kMiB));
  const JobId greedy = world.OpenJob();
  const JobId entitled = world.OpenJob({.guarantee_bytes = 32 * kMiB});
  const SessionId session = world.OpenSession(greedy);
  const SessionId second = world.OpenSession(greedy);
  world.PutEach(session, 1, 28, kPiece, proto::kFlagShared);
  ASSERT_GT(world.Job(greedy).window_count, 6u) << "idle memory is borrowable";
  std::vector<uint64_t> leases;
  for (uint64_t id = 1; id <= 16; ++id) {
    const Answer granted = world.Acquire(id % 2 == 0 ? session : second, id, proto::kFlagShared);
    ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
    leases.push_back(World::LeaseOf(granted));
  }
  EXPECT_EQ(world.Acquire(second, 16, proto::kFlagShared).code, Code::kOk) << "what is leased costs nothing more";
  EXPECT_EQ(world.Acquire(session, 17, proto::kFlagShared | proto::kFlagNoWait).code, Code::kTimeout);
  const uint64_t waiting = world.Send(session, Op::kAcquire, {{17, 0, 0, 0}}, proto::kFlagShared);
  const uint64_t creating = world.Send(session, Op::kCreate, {{50, 0, 0, kPiece}}, proto::kFlagShared);
  world.Turns(20);
  EXPECT_FALSE(world.Answered(session, waiting).has_value());
  const SessionId other = world.OpenSession(entitled);
  const uint64_t asked = world.Send(other, Op::kCreate, {{1, 0, 0, 32 * kMiB}});
  world.TurnsReturning(other, asked, 500, std::chrono::milliseconds(1));
  ASSERT_TRUE(world.Answered(other, asked).has_value()) << "a guarantee is kept";
  EXPECT_EQ(world.Answered(other, asked)->code, Code::kOk) << world.Answered(other, asked)->detail;
  for (const size_t i : {0, 2}) world.Release(second, leases[i]);
  EXPECT_EQ(world.Wait(session, waiting).code, Code::kOk) << world.Answered(session, waiting)->detail;
  EXPECT_EQ(world.Wait(session, creating).code, Code::kOk) << world.Answered(session, creating)->detail;
}

// Jobs without a guarantee, beside one that is guaranteed half of the arena and idle.
struct Greedy {
  uint64_t jobs = 2;
  bool one_user = true;
};

class GuaranteeAgainst : public ::testing::TestWithParam<Greedy> {
 protected:
  GuaranteeAgainst() {
    for (uint32_t i = 0; i < GetParam().jobs; ++i) {
      const uint32_t uid = GetParam().one_user ? 1 : 1 + i;
      sessions.push_back(world.Open({.key = std::to_string(uid) + "/greedy" + std::to_string(i), .uid = uid}));
    }
  }
  void ExpectGuaranteeKept() {
    const SessionId owner = world.OpenSession(entitled);
    const uint64_t asked = world.Send(owner, Op::kCreate, {{1, 0, 0, 32 * kMiB}});
    world.TurnsReturning(owner, asked, 500, std::chrono::milliseconds(1));
    ASSERT_TRUE(world.Answered(owner, asked).has_value()) << "a guarantee is kept";
    EXPECT_EQ(world.Answered(owner, asked)->code, Code::kOk) << world.Answered(owner, asked)->detail;
  }

  World world{{.windows = {.window_size = 2 * kMiB, .arena_max_bytes = 64 * kMiB},
               .engine = {.reclaim_deadline = std::chrono::minutes(5)},  // No request waits so long.
               .device_blocks = 256}};
  JobId entitled = world.OpenJob({.key = "9/entitled", .uid = 9, .guarantee_bytes = 32 * kMiB});
  std::vector<SessionId> sessions;
};

TEST_P(GuaranteeAgainst, LeasesAreNotMadeRoomForInWhatOthersAreGuaranteed) {
  std::vector<uint64_t> leases;  // Of all jobs in turn.
  for (uint64_t id = 1; id <= 16; ++id) {
    const Answer created = world.Create(sessions[id % sessions.size()], id, kPiece);
    ASSERT_EQ(created.code, Code::kOk) << id << ": " << created.detail;
    leases.push_back(World::LeaseOf(created));
  }
  std::vector<uint64_t> waiting;
  for (const SessionId session : sessions) {
    waiting.push_back(world.Send(session, Op::kCreate, {{17, 0, 0, kPiece}}, proto::kFlagNoWaitOwn));
  }
  world.Turns(20);
  for (size_t i = 0; i < sessions.size(); ++i) {
    EXPECT_FALSE(world.Answered(sessions[i], waiting[i]).has_value()) << "leases of other jobs stand in its way";
  }
  ExpectGuaranteeKept();
  // What one job releases, another may lease.
  const SessionId last = sessions.back();
  for (uint64_t id = 1; id <= 16; ++id) {
    if (sessions[id % sessions.size()] == sessions.front()) world.Release(sessions.front(), leases[id - 1]);
  }
  world.TurnsReturning(last, waiting.back(), 500, std::chrono::milliseconds(1));
  ASSERT_TRUE(world.Answered(last, waiting.back()).has_value());
  EXPECT_EQ(world.Answered(last, waiting.back())->code, Code::kOk) << world.Answered(last, waiting.back())->detail;
}

TEST_P(GuaranteeAgainst, WhatLiesInLentMemoryIsLeasedOnlyUpToTheFirmShare) {
  const uint64_t each = 28 / sessions.size();
  for (const SessionId session : sessions) {
    for (uint64_t id = 1; id <= each; ++id) {
      const uint64_t asked = world.Send(session, Op::kCreate, {{id, 0, 0, kPiece}});
      world.TurnsReturning(session, asked, 500, std::chrono::milliseconds(1));
      world.Release(session, World::LeaseOf(world.Answered(session, asked).value()));
    }
  }
  std::vector<uint64_t> leases;
  for (uint64_t id = 1; id <= each; ++id) {
    for (const SessionId session : sessions) {
      const Answer answer = world.Acquire(session, id, proto::kFlagNoWait);
      ASSERT_EQ(answer.code, leases.size() < 16 ? Code::kOk : Code::kTimeout) << "all that is not guaranteed";
      if (answer.code == Code::kOk) leases.push_back(World::LeaseOf(answer));
    }
  }
  const uint64_t waiting = world.Send(sessions.back(), Op::kAcquire, {{each, 0, 0, 0}});
  world.Turns(5);
  EXPECT_FALSE(world.Answered(sessions.back(), waiting).has_value());
  world.Release(sessions.front(), leases.front());
  world.Turns(5);
  ASSERT_TRUE(world.Answered(sessions.back(), waiting).has_value()) << "another job leases less";
  EXPECT_EQ(world.Answered(sessions.back(), waiting)->code, Code::kOk);
  ExpectGuaranteeKept();
}

TEST_P(GuaranteeAgainst, TheRefusalAtTheDeadlineSaysWhoLeasesTheRest) {
  const SessionId rival = sessions.front();
  for (uint64_t id = 1; id <= 14; ++id) ASSERT_EQ(world.Create(rival, id, kPiece).code, Code::kOk);
  const SessionId late = sessions.back();
  EXPECT_EQ(world.Create(late, 1, 33 * kMiB).code, Code::kNoMemory) << "more than it could ever lease: at once";
  const base::TimePoint start = world.now;
  const Answer refused = world.Create(late, 2, 3 * kPiece);
  EXPECT_EQ(refused.code, Code::kNoMemory);
  EXPECT_GE(world.now - start, std::chrono::seconds(60)) << "it waits until its deadline";
  EXPECT_TRUE(refused.error.requested == 3 * kPiece && refused.error.available == 2 * kPiece);
  EXPECT_NE(refused.detail.find("of 32 MiB that no job is guaranteed, jobs lease 28 MiB: job 1/greedy0 holds 28 MiB, "
                                "of which 28 MiB are leased or torn"),
            std::string::npos)
      << refused.detail;
}

// The end of a session ends its leases too.
TEST_P(GuaranteeAgainst, WhoWaitsForLeasesOfAnotherJobIsWokenWhenItEnds) {
  for (uint64_t id = 1; id <= 16; ++id) ASSERT_EQ(world.Create(sessions.front(), id, kPiece).code, Code::kOk);
  const SessionId late = sessions.back();
  const uint64_t waiting = world.Send(late, Op::kCreate, {{1, 0, 0, 16 * kPiece}});
  world.Turns(20);
  ASSERT_FALSE(world.Answered(late, waiting).has_value());
  const base::TimePoint start = world.now;
  world.EndSession(sessions.front());
  EXPECT_EQ(world.Wait(late, waiting).code, Code::kOk) << world.Answered(late, waiting)->detail;
  EXPECT_LE(world.now - start, std::chrono::milliseconds(10));
}

INSTANTIATE_TEST_SUITE_P(Jobs, GuaranteeAgainst,
                         ::testing::Values(Greedy{2, true}, Greedy{3, true}, Greedy{2, false}, Greedy{3, false}));

TEST(Guarantee, WhoseOwnLeasesHoldTheFirmShareIsToldAtOnce) {
  World world(WithArena(64 * kMiB));
  world.OpenJob({.guarantee_bytes = 32 * kMiB});
  const SessionId session = world.Open();
  world.PutEach(session, 1, 20, kPiece);
  for (uint64_t id = 1; id <= 16; ++id) ASSERT_EQ(world.Acquire(session, id).code, Code::kOk);
  const uint64_t asked = world.Send(session, Op::kAcquire, {{17, 0, 0, 0}}, proto::kFlagNoWaitOwn);
  world.Turn();
  ASSERT_TRUE(world.Answered(session, asked).has_value());
  EXPECT_EQ(world.Answered(session, asked)->code, Code::kWouldDeadlock);
  EXPECT_THAT(world.Answered(session, asked)->detail,
              ::testing::HasSubstr("the job may lease 32 MiB of the arena of 64 MiB, the rest is guaranteed to other "
                                   "jobs; release some first"));
  std::vector<proto::RequestItem> items;
  for (uint64_t id = 1; id <= 20; ++id) items.push_back({id, 0, 0, 0});
  EXPECT_EQ(world.Ask(session, Op::kAcquire, items).code, Code::kWouldDeadlock) << "four of them are new";
}

TEST(Guarantee, MoreThanTheFirmShareInOneRequestIsRefusedAtOnceThoughInRam) {
  World world(WithArena(64 * kMiB));
  const SessionId session = world.Open();
  world.Put(session, 1, 40 * kMiB);
  world.OpenJob({.guarantee_bytes = 28 * kMiB});
  const uint64_t asked = world.Send(session, Op::kAcquire, {{1, 0, 0, 0}});
  world.Turn();
  ASSERT_TRUE(world.Answered(session, asked).has_value());
  EXPECT_EQ(world.Answered(session, asked)->code, Code::kNoMemory);
  EXPECT_EQ(world.Acquire(session, 1, 0, 0, 32 * kMiB).code, Code::kOk) << "by ranges";
}

TEST(Guarantee, WhatCannotGoToSsdIsNotPutIntoLentMemory) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 64 * kMiB}, .device_blocks = 4});
  const JobId greedy = world.OpenJob();
  const JobId entitled = world.OpenJob({.guarantee_bytes = 32 * kMiB});
  const SessionId session = world.OpenSession(greedy);
  for (uint64_t id = 1; id <= 20; ++id) {
    const Answer created = world.Create(session, id, kPiece);
    if (created.code == Code::kOk) world.Release(session, World::LeaseOf(created));
  }
  EXPECT_LE(world.Job(greedy).window_count, 4u);
  const SessionId other = world.OpenSession(entitled);
  EXPECT_EQ(world.Create(other, 1, 32 * kMiB).code, Code::kOk);
}

// The same of pieces that are less than a block, which lie in windows of their own.
TEST(Guarantee, SmallTensorsThatCannotGoToSsdAreNotPutIntoLentMemory) {
  constexpr uint64_t kSmall = 16 * kPageSize;
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 64 * kMiB}, .device_blocks = 20});
  const JobId greedy = world.OpenJob({.uid = 1});
  const SessionId session = world.OpenSession(greedy);
  const SessionId other = world.Open({.uid = 2});
  world.PutEach(session, 1, 16, kPiece);
  ASSERT_EQ(world.Ask(session, Op::kFlush, {}).code, Code::kOk);
  for (uint64_t id = 1; id <= 16; ++id) ASSERT_EQ(world.Acquire(session, id).code, Code::kOk);
  world.Turns(50);
  const uint64_t windows = world.Job(greedy).window_count;
  ASSERT_LE(windows, 5u) << "8 MiB are free at most, and nothing can be evicted";
  // Of 8 MiB that SSD has left.
  std::vector<proto::RequestItem> ten;
  for (uint64_t i = 0; i < 10 * kMiB / kSmall; ++i) ten.push_back({100 + i, 0, 0, kSmall});
  const uint64_t asked = world.Send(session, Op::kCreate, ten);
  for (int i = 0; i < 100; ++i) {
    world.Turn();
    world.Advance(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(world.Job(greedy).window_count, windows);
  EXPECT_FALSE(world.Answered(session, asked).has_value() && world.Answered(session, asked)->code == Code::kOk);
  EXPECT_EQ(world.Create(other, 1, kPiece).code, Code::kOk);
}

TEST(Guarantee, AGuaranteeLeavesEveryOpenJobItsPart) {
  World world(WithArena(64 * kMiB));
  const JobId running = world.OpenJob();
  const SessionId session = world.OpenSession(running);
  world.PutEach(session, 1, 12, kPiece);
  const Status all = world.engine->OpenJob(JobId{99}, {.key = "7/greedy", .guarantee_bytes = 64 * kMiB});
  ASSERT_FALSE(all.has_value());
  EXPECT_EQ(all.error().code, Code::kNoMemory);
  EXPECT_NE(all.error().message.find("without a guarantee keep 28 MiB"), std::string::npos) << all.error().message;
  EXPECT_NE(all.error().message.find("user 0 has 28 MiB"), std::string::npos) << all.error().message;
  // As many of them as a user may open, each with all that it can have: the part is still that of equals.
  for (uint64_t part : {56 / 2, 56 / 6, 56 / 12})
    world.OpenJob({.key = "7/" + std::to_string(part), .guarantee_bytes = part * kMiB});
  EXPECT_GE(world.Job(running).guarantee_bytes, 14 * kMiB);
  EXPECT_EQ(world.CheckEach(session, 1, 12), Code::kOk);
  EXPECT_EQ(world.Create(session, 20, 16 * kMiB).code, Code::kOk);
}

// All jobs of one user are one share, however many there are and whatever they ask for.
TEST(Guarantee, UsersHaveEqualPartsAndSoHaveTheJobsOfEach) {
  World world(WithArena(64 * kMiB));
  std::vector<JobId> first;
  for (int i = 0; i < 4; ++i) first.push_back(world.OpenJob({.uid = 1}));
  const JobId second = world.OpenJob({.uid = 2});
  const JobId empty = world.OpenJob({.uid = 3});
  for (const JobId job : first) world.OpenSession(job);
  const SessionId last = world.OpenSession(second);
  for (const JobId job : first) EXPECT_EQ(world.Job(job).guarantee_bytes, 7 * kMiB);
  EXPECT_EQ(world.Job(second).guarantee_bytes, 28 * kMiB);
  EXPECT_EQ(world.Job(empty).guarantee_bytes, 0u) << "it has no session";
  const Status more = world.engine->OpenJob(JobId{99}, {.key = "1/more", .uid = 1, .guarantee_bytes = 30 * kMiB});
  EXPECT_EQ(more.error().code, Code::kNoMemory) << "half is the other user's";
  world.EndSession(last, "done");
  for (const JobId job : first) EXPECT_EQ(world.Job(job).guarantee_bytes, 14 * kMiB);
}

TEST(Guarantee, AGuaranteeLeavesWhatIsLeasedNow) {
  World world(WithArena(64 * kMiB));
  const SessionId session = world.Open();
  const Answer held = world.Create(session, 1, 48 * kMiB);
  EXPECT_EQ(world.engine->OpenJob(JobId{99}, {.key = "7/a", .guarantee_bytes = 28 * kMiB}).error().code,
            Code::kNoMemory);
  world.Release(session, World::LeaseOf(held));
  EXPECT_TRUE(world.engine->OpenJob(JobId{99}, {.key = "7/a", .guarantee_bytes = 28 * kMiB}).has_value());
}

TEST(Guarantee, WhatIsInRamIsLeasedWhateverTheShareHasBecome) {
  World world(WithArena(64 * kMiB));
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.Put(session, 1, 4 * kPiece);
  ASSERT_TRUE(world.engine->SetJob(job, {.limit_bytes = kPiece}).has_value());
  const Answer granted = world.Acquire(session, 1);
  EXPECT_EQ(granted.code, Code::kOk) << granted.detail;
}

TEST(Guarantee, ALimitIsNeverBelowOnePiece) {
  World world(WithArena(64 * kMiB));
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  world.Put(session, 1, 4 * kPiece);
  const Status limited = world.engine->SetJob(job, {.limit_bytes = kPiece - 1});
  ASSERT_FALSE(limited.has_value());
  EXPECT_EQ(limited.error().code, Code::kInvalid);
  EXPECT_THAT(limited.error().message, ::testing::HasSubstr("below 2 MiB, the least with which every tensor can be "
                                                            "read: raise it, or give 0 for none"));
  EXPECT_EQ(world.engine->OpenJob(JobId{99}, {.key = "7/a", .limit_bytes = 1}).error().code, Code::kInvalid);
  ASSERT_TRUE(world.engine->SetJob(job, {.limit_bytes = kPiece}).has_value());
  EXPECT_EQ(world.CheckEach(session, 1, 1), Code::kOk);
}

TEST(Guarantee, ALimitIsNeverBelowIt) {
  World world(WithArena(64 * kMiB));
  const JobOptions crossed{.key = "7/a", .guarantee_bytes = 16 * kMiB, .limit_bytes = 8 * kMiB};
  EXPECT_EQ(world.engine->OpenJob(JobId{99}, crossed).error().code, Code::kInvalid);
  const JobId job = world.OpenJob({.guarantee_bytes = 16 * kMiB, .limit_bytes = 24 * kMiB});
  const Status limited = world.engine->SetJob(job, {.limit_bytes = 15 * kMiB});
  ASSERT_FALSE(limited.has_value());
  EXPECT_EQ(limited.error().code, Code::kInvalid);
  EXPECT_NE(limited.error().message.find("a limit of 15 MiB is below the guarantee of 16 MiB"), std::string::npos)
      << limited.error().message;
  EXPECT_EQ(world.engine->SetJob(job, {.guarantee_bytes = 25 * kMiB}).error().code, Code::kInvalid);
  EXPECT_EQ(world.engine->SetJob(job, {.guarantee_bytes = 32 * kMiB, .limit_bytes = 31 * kMiB}).error().code,
            Code::kInvalid);
  EXPECT_EQ(world.Job(job).guarantee_bytes, 16 * kMiB) << "as it was";
  EXPECT_EQ(world.Job(job).limit_bytes, 24 * kMiB);
  EXPECT_TRUE(world.engine->SetJob(job, {.guarantee_bytes = 8 * kMiB, .limit_bytes = 8 * kMiB})) << "both at once";
  EXPECT_TRUE(world.engine->SetJob(job, {.guarantee_bytes = 16 * kMiB, .limit_bytes = 0})) << "a limit of 0 is none";
}

TEST(Guarantee, AJobThatBorrowedGivesBackWhatIsNotLeased) {
  World world(WithArena(32 * kMiB));
  const JobId first = world.OpenJob();
  const SessionId a = world.OpenSession(first);
  world.PutEach(a, 1, 16, kPiece);
  EXPECT_EQ(world.Job(first).window_count, 4u) << "alone it may have all of the arena";
  const JobId second = world.OpenJob();
  const SessionId b = world.OpenSession(second);
  const uint64_t asked = world.Send(b, Op::kCreate, {{1, 0, 0, 8 * kMiB}});
  world.TurnsReturning(b, asked, 200, std::chrono::milliseconds(1));
  ASSERT_TRUE(world.Answered(b, asked).has_value());
  EXPECT_EQ(world.Answered(b, asked)->code, Code::kOk);
  EXPECT_LT(world.Job(first).window_count, 4u);
  world.Release(b, World::LeaseOf(*world.Answered(b, asked)));
  EXPECT_EQ(world.CheckEach(a, 1, 16), Code::kOk) << "from SSD where it had to go";
}

TEST(Guarantee, WindowsChosenForOneWhoGaveUpAreNotTakenLater) {
  World world({.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 32 * kMiB}, .engine = {.work = {.compact = 1}}});
  const JobId first = world.OpenJob();
  const SessionId a = world.OpenSession(first);
  world.Put(a, 1, 1);
  const JobId second = world.OpenJob();
  const SessionId d = world.OpenSession(second);
  world.PutEach(a, 2, 7, kPiece);
  world.PutEach(d, 1, 7, kPiece);
  ASSERT_EQ(world.Ask(a, Op::kFlush, {}).code, Code::kOk);
  ASSERT_EQ(world.Ask(d, Op::kFlush, {}).code, Code::kOk);
  ASSERT_EQ(world.Job(first).window_count, 2u);
  ASSERT_EQ(world.Job(second).window_count, 2u);
  const SessionId b = world.Open();
  world.Send(b, Op::kCreate, {{1, 0, 0, kPiece}});
  for (int i = 0; i < 2; ++i) {
    world.Turn();
    world.Advance(kHandOverInterval);
  }
  ASSERT_TRUE(world.sink.returns.empty()) << "it is still looking";
  world.EndSession(b, "gave up");
  world.Turns(3);
  ASSERT_TRUE(world.engine->SetJob(second, {.guarantee_bytes = 2 * kMiB}).has_value());
  ASSERT_TRUE(world.engine->SetJob(first, {.guarantee_bytes = 16 * kMiB}).has_value());
  const SessionId c = world.Open();
  const uint64_t asked = world.Send(c, Op::kCreate, {{1, 0, 0, kPiece}});
  world.TurnsReturning(c, asked, 200, kHandOverInterval);
  ASSERT_TRUE(world.Answered(c, asked).has_value());
  EXPECT_EQ(world.Answered(c, asked)->code, Code::kOk);
  EXPECT_EQ(world.Job(first).window_count, 2u) << "it is within its guarantee";
  EXPECT_EQ(world.Job(second).window_count, 1u);
}

}  // namespace
}  // namespace tier::tiering::testing
