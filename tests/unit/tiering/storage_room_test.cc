// What is accepted can be read: how much of the SSD devices the tensors of each job may take, through the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using ::testing::HasSubstr;
using ::testing::Not;

// 32 MiB of RAM, and a device of 126 MiB: 124 MiB of tensors, 116.25 MiB for one job alone.
WorldOptions Small(uint32_t blocks = 63, uint16_t devices = 1) {
  return {.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 32 * kMiB},
          .transfers = {.device_count = devices},
          .device_blocks = blocks,
          .returns_windows = true};
}

TEST(StorageRoom, AFullTierIsReadToTheLastPiece) {
  World world(Small());
  const SessionId session = world.Open();
  Answer refused;
  const uint64_t accepted = PutUntilRefused(world, session, 1, &refused);
  EXPECT_EQ(accepted, 58u);
  EXPECT_EQ(refused.code, Code::kNoSpace);
  EXPECT_EQ(refused.error.limit, 124 * kMiB - 124 * kMiB / 16);
  EXPECT_THAT(refused.detail, HasSubstr("SSD devices can hold 124 MiB of tensors"));
  EXPECT_THAT(refused.detail, HasSubstr("a larger ssd.file_size or one more device in ssd.devices"));
  EXPECT_THAT(refused.detail, Not(HasSubstr("--ssd-guarantee"))) << "none is given beyond what it may have anyway";
  EXPECT_THAT(refused.detail, Not(HasSubstr("of others"))) << "there are none";
  for (int round = 0; round < 3; ++round) ASSERT_EQ(world.CheckEach(session, 1, accepted), Code::kOk);
  for (uint64_t tensor = 1; tensor <= accepted; ++tensor) {
    ASSERT_EQ(world.Rewrite(session, tensor, tensor).code, Code::kOk) << "tensor " << tensor;
  }
  EXPECT_EQ(world.CheckEach(session, 1, accepted), Code::kOk);
}

TEST(StorageRoom, JobsThatFillTheTierTogetherReadAllOfTheirs) {
  World world(Small(32, 2));
  std::vector<std::pair<SessionId, uint64_t>> jobs;
  for (int i = 0; i < 4; ++i) {
    const SessionId session = world.Open();
    Answer refused;
    jobs.emplace_back(session, PutUntilRefused(world, session, 1, &refused));
    EXPECT_EQ(refused.code, Code::kNoSpace);
  }
  EXPECT_GE(jobs[1].second, 1u) << "the first one leaves something";
  for (int round = 0; round < 2; ++round) {
    for (const auto& [session, count] : jobs) {
      EXPECT_TRUE(count == 0 || world.CheckEach(session, 1, count) == Code::kOk);
    }
  }
}

// One job without limit fills all that it may with small tensors; the next one gets its first megabyte at once.
TEST(StorageRoom, ANewcomerStartsBesideAJobThatFillsTheTier) {
  constexpr uint64_t kSmall = 16 * kPageSize;
  World world(Small(32));
  const SessionId first = world.Open();
  uint64_t accepted = 0;
  while (true) {
    const Answer created = world.Create(first, accepted + 1, kSmall - 1);
    if (created.code != Code::kOk) {
      EXPECT_EQ(created.code, Code::kNoSpace);
      break;
    }
    ++accepted;
    world.Release(first, World::LeaseOf(created));
  }
  EXPECT_EQ(accepted, (62 * kMiB - 62 * kMiB / 16) / kSmall);
  const SessionId second = world.Open({.uid = 7});
  const base::TimePoint asked = world.now;
  world.Put(second, 1, kMiB);
  EXPECT_LT(world.now - asked, std::chrono::seconds(2));
  EXPECT_EQ(world.Check(second, 1), Code::kOk);
}

TEST(StorageRoom, AGuaranteeIsThereWhenItsJobComesToIt) {
  World world(Small());
  const SessionId late = world.Open({.ssd_guarantee_bytes = 60 * kMiB});
  const SessionId early = world.Open();
  Answer refused;
  const uint64_t accepted = PutUntilRefused(world, early, 1, &refused);
  EXPECT_EQ(accepted, 30u) << "all but a sixteenth of the other 64 MiB";
  EXPECT_THAT(refused.detail, HasSubstr("other jobs have or are guaranteed 60 MiB"));
  EXPECT_THAT(refused.detail, HasSubstr("free tensors of this job or of others, or lower what others are guaranteed"));
  world.PutEach(late, 1, 30, kPiece);
  EXPECT_EQ(world.CheckEach(late, 1, 30), Code::kOk);
  EXPECT_EQ(world.CheckEach(early, 1, accepted), Code::kOk);
}

TEST(StorageRoom, WhoIsBoundByThePartForTheNextUserIsToldSo) {
  World world(Small());
  const SessionId first = world.Open({.uid = 7});
  const SessionId second = world.Open({.uid = 7});
  Answer refused;
  const uint64_t accepted = PutUntilRefused(world, first, 1, &refused);
  EXPECT_THAT(refused.detail, HasSubstr("a sixteenth of the rest is left for the next job"));
  ASSERT_GT(PutUntilRefused(world, second, 1, &refused), 0u);
  EXPECT_EQ(refused.error.limit, 124 * kMiB - 124 * kMiB / 32 - accepted * kPiece);
  EXPECT_THAT(refused.detail, HasSubstr("other jobs of user 7 have or are guaranteed 116 MiB"));
  EXPECT_THAT(refused.detail, HasSubstr("a thirty-second of what other users leave is for the next user"));
  EXPECT_THAT(refused.detail, ::testing::Not(HasSubstr("--ssd-guarantee"))) << "that would give it nothing";
}

// What a closed job persisted is its user's too, and no other job's claim.
TEST(StorageRoom, WhoIsBoundByWhatItsUserPersistedIsToldSo) {
  WorldOptions options = Small();
  options.manifests = true;
  World world(options);
  const JobId closed = world.OpenJob({.key = "7/closed", .uid = 7, .named = true});
  const SessionId writer = world.OpenSession(closed);
  world.PutEach(writer, 1, 40, kPiece);
  ASSERT_EQ(world.Ask(writer, Op::kPersist, {}).code, Code::kOk);
  world.engine->CloseJob(closed, "closed", false);
  world.Turns(50);
  Answer refused;
  (void)PutUntilRefused(world, world.Open({.uid = 7}), 100, &refused);
  EXPECT_EQ(refused.code, Code::kNoSpace);
  EXPECT_THAT(refused.detail,
              HasSubstr("what that user persisted takes 80 MiB beside it, jobs of other users 0 bytes"));
  EXPECT_THAT(refused.detail, HasSubstr("tierctl job remove --purge of closed jobs"));
  EXPECT_THAT(refused.detail, Not(HasSubstr("that user's other jobs"))) << "none is open";
}

TEST(StorageRoom, AGuaranteeThatCannotBeGivenIsRefusedAndNothingChanges) {
  World world(Small());
  const JobId job = world.OpenJob({.ssd_guarantee_bytes = 60 * kMiB});
  const Error beyond = world.engine->OpenJob(JobId{77}, {.ssd_guarantee_bytes = 60 * kMiB}).error();
  EXPECT_EQ(beyond.code, Code::kNoSpace);
  EXPECT_THAT(beyond.message, HasSubstr("SSD guarantee of 60 MiB cannot be given"));
  EXPECT_EQ(world.engine->SetJob(job, {.ssd_guarantee_bytes = 120 * kMiB}).error().code, Code::kNoSpace);
  EXPECT_EQ(world.engine->SetJob(job, {.ssd_limit_bytes = 59 * kMiB}).error().code, Code::kInvalid);
  EXPECT_EQ(world.Job(job).ssd_guarantee_bytes, 60 * kMiB);
  EXPECT_TRUE(world.engine->SetJob(job, {.ssd_guarantee_bytes = 116 * kMiB}).has_value());
  EXPECT_EQ(world.Job(job).ssd_guarantee_bytes, 116 * kMiB);
}

TEST(StorageRoom, ALimitHoldsFromTheMomentItIsSet) {
  World world(Small());
  const JobId job = world.OpenJob({.ssd_limit_bytes = 40 * kMiB});
  const SessionId session = world.OpenSession(job);
  Answer refused;
  EXPECT_EQ(PutUntilRefused(world, session, 1, &refused), 20u);
  EXPECT_THAT(refused.detail, HasSubstr("the job may have 40 MiB on SSD by its own limit; free tensors of this job, or "
                                        "raise the limit (tierctl job set --ssd-limit)"));
  ASSERT_TRUE(world.engine->SetJob(job, {.ssd_limit_bytes = 10 * kMiB}).has_value());
  EXPECT_EQ(world.CheckEach(session, 1, 20), Code::kOk) << "what is there stays";
  EXPECT_EQ(world.Create(session, 99, 1).code, Code::kNoSpace);
  ASSERT_TRUE(world.engine->SetJob(job, {.ssd_limit_bytes = 0}).has_value());
  world.Put(session, 99, kPiece);
  EXPECT_EQ(world.Job(job).logical_bytes, 42 * kMiB);
}

// Of several bounds the refusal names the first, and no remedy that the next one refuses.
TEST(StorageRoom, ARefusalNamesOnlyRemediesThatTheNextBoundLetsThrough) {
  WorldOptions options = Small();
  options.engine.quota.ssd.most = 50 * kMiB;
  World world(options);
  const auto ask = [&](SessionId session, uint64_t size) { return world.CreateRange(session, 1, size, 0, kPageSize); };
  const SessionId limited = world.Open({.uid = 7, .ssd_limit_bytes = 40 * kMiB});
  const Answer by_quota = ask(limited, 52 * kMiB);
  EXPECT_EQ(by_quota.code, Code::kNoSpace);
  EXPECT_THAT(by_quota.detail, HasSubstr("the job may have 40 MiB on SSD by its own limit"));
  EXPECT_THAT(by_quota.detail, HasSubstr("a higher limit gives no more than 50 MiB, which the quota of user 7 leaves"));
  EXPECT_THAT(by_quota.detail, Not(HasSubstr("--ssd-limit")));
  EXPECT_THAT(ask(limited, 45 * kMiB).detail, HasSubstr("raise the limit (tierctl job set --ssd-limit)"));
  const SessionId one_user = world.Open({.uid = 8});
  const Answer by_devices = ask(one_user, 130 * kMiB);
  EXPECT_THAT(by_devices.detail, HasSubstr("user 8 may have 50 MiB on SSD"));
  EXPECT_THAT(by_devices.detail, HasSubstr("no more than 124 MiB could be had otherwise"));
  EXPECT_THAT(by_devices.detail, Not(HasSubstr("tierctl quota set")));
  EXPECT_THAT(by_devices.detail, Not(HasSubstr("other jobs, or"))) << "that user has no other job";
  EXPECT_THAT(ask(one_user, 60 * kMiB).detail, HasSubstr("raise the quota (tierctl quota set)"));
}

TEST(StorageRoom, AQuotaIsOfAllJobsOfAUser) {
  WorldOptions options = Small();
  options.engine.quota.ssd.most = 50 * kMiB;
  World world(options);
  const SessionId one = world.Open({.uid = 7});
  const SessionId two = world.Open({.uid = 7});
  const SessionId other = world.Open({.uid = 8});
  world.PutEach(one, 1, 10, kPiece);
  Answer refused;
  EXPECT_EQ(PutUntilRefused(world, two, 1, &refused), 15u);
  EXPECT_THAT(refused.detail, HasSubstr("jobs.max_ssd_per_uid"));
  EXPECT_THAT(refused.detail, HasSubstr("user 7"));
  EXPECT_EQ(PutUntilRefused(world, other, 1, &refused), 25u);
}

TEST(StorageRoom, AGuaranteeOfRamIsHadWhileNoDeviceTakesAnything) {
  World world(Small());
  const SessionId owner = world.Open({.key = "2/owner", .uid = 2, .guarantee_bytes = 8 * kMiB});
  const SessionId before = world.Open({.key = "1/before", .uid = 1});
  for (uint64_t tensor = 1; tensor <= 20; ++tensor) {
    const Answer created = world.Create(before, tensor, 2 * kMiB);
    ASSERT_EQ(created.code, Code::kOk);
    world.Release(before, World::LeaseOf(created));
  }
  ASSERT_TRUE(world.engine->SetDeviceDraining(0, true).has_value());
  for (uint64_t tensor = 1; tensor <= 4; ++tensor) {
    const Answer created = world.Create(owner, tensor, 2 * kMiB);
    ASSERT_EQ(created.code, Code::kOk) << created.detail;
    world.Release(owner, World::LeaseOf(created));
  }
  EXPECT_EQ(world.Create(owner, 5, 2 * kMiB).code, Code::kNoSpace) << "it is guaranteed no more";
  for (const auto& [session, count] : {std::pair(owner, 4), std::pair(before, 20)}) {
    for (int tensor = 1; tensor <= count; ++tensor) {
      const Answer read = world.Acquire(session, tensor);
      ASSERT_EQ(read.code, Code::kOk) << read.detail;
      world.Release(session, World::LeaseOf(read));
    }
  }
}

TEST(StorageRoom, WithoutDevicesAJobMayHaveWhatItMayAlwaysHoldInRam) {
  World world(Small(0, 0));
  const SessionId session = world.Open();
  Answer refused;
  EXPECT_EQ(PutUntilRefused(world, session, 1, &refused), 12u) << "a window is promised to no job";
  EXPECT_THAT(refused.detail, HasSubstr("the job may always hold 24 MiB in RAM, and this daemon has no SSD tier"));
  EXPECT_THAT(refused.detail, HasSubstr("with an SSD tier (ssd.devices, ssd.file_size"));
  EXPECT_EQ(world.CheckEach(session, 1, 12), Code::kOk);
}

TEST(StorageRoom, WithoutDevicesEachJobMayFillItsPartBesideTheOthers) {
  World world({.windows = {.window_size = kPiece, .arena_max_bytes = 64 * kPiece}, .transfers = {.device_count = 0}});
  const SessionId first = world.Open({.uid = 1});
  const SessionId second = world.Open({.uid = 2});
  Answer refused;
  EXPECT_EQ(PutUntilRefused(world, first, 1, &refused), 30u) << refused.detail;
  EXPECT_EQ(PutUntilRefused(world, second, 1, &refused), 30u) << refused.detail;
  EXPECT_EQ(world.CheckEach(first, 1, 30), Code::kOk);
  EXPECT_EQ(world.CheckEach(second, 1, 30), Code::kOk);
}

// The sentence says who has the RAM, the job that has most first, and what guarantees keep from this one.
TEST(StorageRoom, WithLittleOrNoSsdARefusalNamesTheJobsThatHoldTheRam) {
  for (const uint16_t devices : {uint16_t{0}, uint16_t{1}}) {
    World world({.windows = {.window_size = kPiece, .arena_max_bytes = 64 * kPiece},
                 .transfers = {.device_count = devices},
                 .device_blocks = 4});
    const SessionId less = world.OpenSession(world.OpenJob({.key = "1/less", .uid = 1}));
    const SessionId most =
        world.OpenSession(world.OpenJob({.key = "2/most", .uid = 2, .guarantee_bytes = 16 * kPiece}));
    const SessionId session = world.OpenSession(world.OpenJob({.key = "3/refused", .uid = 3}));
    world.PutEach(less, 1, 4, kPiece);
    world.PutEach(most, 1, 12, kPiece);
    Answer refused;
    (void)PutUntilRefused(world, session, 1, &refused);
    EXPECT_EQ(refused.code, Code::kNoSpace);
    EXPECT_THAT(refused.detail, HasSubstr(devices == 0 ? "no SSD tier; of the arena" : "of all jobs; of the arena"));
    EXPECT_THAT(refused.detail, HasSubstr("of the arena of 128 MiB job 2/most holds 28 MiB"));
    EXPECT_THAT(refused.detail, HasSubstr(", job 1/less holds 10 MiB, of which 0 bytes are leased or torn; the job may "
                                          "lease 96 MiB of the arena of 128 MiB, the rest is guaranteed to other "
                                          "jobs; free tensors"));
  }
}

TEST(StorageRoom, WithoutDevicesJobsThatComeAfterAFullOneReadAllThatIsAccepted) {
  World world({.windows = {.window_size = kPiece, .arena_max_bytes = 64 * kPiece},
               .transfers = {.device_count = 0},
               .returns_windows = true});
  const SessionId first = world.Open({.uid = 1});
  Answer refused;
  const uint64_t of_first = PutUntilRefused(world, first, 1, &refused);
  EXPECT_GE(of_first, 56u) << refused.detail;
  std::vector<std::pair<SessionId, uint64_t>> later;
  for (uint32_t uid = 2; uid < 6; ++uid) {
    const SessionId session = world.Open({.uid = uid});
    const uint64_t accepted = PutUntilRefused(world, session, 1, &refused);
    EXPECT_EQ(refused.code, Code::kNoSpace) << "user " << uid << " waited for its deadline: " << refused.detail;
    later.emplace_back(session, accepted);
  }
  EXPECT_EQ(world.CheckEach(first, 1, of_first), Code::kOk);
  uint64_t of_later = 0;
  for (const auto& [session, accepted] : later) {
    of_later += accepted;
    if (accepted == 0) continue;
    EXPECT_EQ(world.CheckEach(session, 1, accepted), Code::kOk);
  }
  EXPECT_GT(of_later, 0U);
}

// Room cannot be freed where there is none, and a data directory alone gives none.
TEST(StorageRoom, WithoutDevicesPersistIsRefusedForTheLackOfAnSsdTier) {
  for (const bool index : {true, false}) {
    World world({.windows = {.window_size = kPiece, .arena_max_bytes = 64 * kPiece},
                 .transfers = {.device_count = 0},
                 .manifests = index});
    const SessionId session = world.OpenSession(world.OpenJob(kNamed));
    world.Put(session, 1, kPiece, 1);
    const Answer refused = world.Ask(session, Op::kPersist, {});
    EXPECT_EQ(refused.code, Code::kDenied);
    EXPECT_THAT(refused.detail, HasSubstr("this daemon has no SSD tier"));
    EXPECT_THAT(refused.detail, HasSubstr("restart tierd with ssd.devices other than"));
    EXPECT_THAT(refused.detail, Not(HasSubstr("free tensors")));
    EXPECT_EQ(refused.detail.find("daemon.data_directory") == std::string::npos, index) << refused.detail;
    EXPECT_EQ(world.Check(session, 1, 1), Code::kOk);
  }
}

// 64 windows, four of them promised to no job.
TEST(StorageRoom, WithoutDevicesAGuaranteeIsGivenOnlyBesideTensorsThatStay) {
  World world({.windows = {.window_size = kPiece, .arena_max_bytes = 64 * kPiece},
               .transfers = {.device_count = 0},
               .returns_windows = true});
  const SessionId first = world.Open({.uid = 1});
  world.PutEach(first, 1, 50, kPiece);
  const Error refused = world.engine->OpenJob(JobId{77}, {.uid = 2, .guarantee_bytes = 12 * kPiece}).error();
  EXPECT_EQ(refused.code, Code::kNoMemory);
  EXPECT_THAT(refused.message, HasSubstr("tensors of other jobs take 100 MiB, SSD devices can hold 0 bytes"));
  EXPECT_THAT(refused.message, HasSubstr("20 MiB are left"));
  const JobId job = world.OpenJob({.uid = 2, .guarantee_bytes = 10 * kPiece});
  EXPECT_EQ(world.engine->SetJob(job, {.guarantee_bytes = 11 * kPiece}).error().code, Code::kNoMemory);
  const Error twice = world.engine->OpenJob(JobId{78}, {.uid = 3, .guarantee_bytes = kPiece}).error();
  EXPECT_THAT(twice.message, HasSubstr("other jobs are guaranteed 20 MiB beyond theirs"));
  const SessionId second = world.OpenSession(job);
  world.PutEach(second, 1, 10, kPiece);
  EXPECT_EQ(world.CheckEach(second, 1, 10), Code::kOk);
  EXPECT_EQ(world.CheckEach(first, 1, 50), Code::kOk);
}

TEST(StorageRoom, AGuaranteeIsLoweredAlsoWhereItCouldNotBeGivenAnyMore) {
  World world(Small());
  const JobId job = world.OpenJob({.uid = 2, .guarantee_bytes = 12 * kMiB});
  const SessionId first = world.Open({.uid = 1});
  world.PutEach(first, 1, 20, kPiece);
  ASSERT_TRUE(world.engine->SetDeviceDraining(0, true));
  world.Turns(50);
  ASSERT_TRUE(world.engine->SetJob(job, {.guarantee_bytes = 11 * kMiB}));
  EXPECT_TRUE(world.engine->SetJob(job, {.guarantee_bytes = 11 * kMiB})) << "as it is";
  EXPECT_EQ(world.engine->SetJob(job, {.guarantee_bytes = 12 * kMiB}).error().code, Code::kNoMemory);
}

TEST(StorageRoom, OnDevicesSmallerThanRamAJobThatComesTakesNothingFromTheOther) {
  World world(Small(4));
  const SessionId first = world.Open({.uid = 1});
  Answer refused;
  const uint64_t accepted = PutUntilRefused(world, first, 1, &refused);
  EXPECT_EQ(accepted, 12u);
  const SessionId second = world.Open({.uid = 2});
  world.Put(second, 1, kMiB);
  EXPECT_EQ(PutUntilRefused(world, second, 2, &refused), 2u) << refused.detail;
  EXPECT_EQ(refused.code, Code::kNoSpace) << "and it did not wait for its deadline: " << refused.detail;
  EXPECT_EQ(world.CheckEach(first, 1, accepted), Code::kOk);
  EXPECT_EQ(world.CheckEach(second, 1, 3), Code::kOk);
}

TEST(StorageRoom, OnDevicesSmallerThanRamTermsHoldToo) {
  World world(Small(11));
  const SessionId guaranteed = world.Open({.ssd_guarantee_bytes = 18 * kMiB});
  const SessionId limited = world.Open({.uid = 1, .ssd_limit_bytes = 4 * kMiB});
  Answer refused;
  EXPECT_EQ(PutUntilRefused(world, limited, 1, &refused), 2u);
  world.PutEach(guaranteed, 1, 9, kPiece);
  EXPECT_EQ(world.CheckEach(guaranteed, 1, 9), Code::kOk);
}

TEST_F(Persist, WhatManifestsKeepBesidePiecesIsNotPromisedTwice) {
  const uint64_t before = world.options.device_blocks;
  const uint64_t kept = before / 4;
  world.PutEach(session, 1, kept, kPiece, kShared);
  ASSERT_EQ(PersistAll().code, Code::kOk);
  for (uint64_t tensor = 1; tensor <= kept; ++tensor) world.Free(session, tensor, kShared);
  world.Turns(5);
  Answer refused;
  const uint64_t accepted = PutUntilRefused(world, session, 1000, &refused);
  EXPECT_EQ(accepted, (before - kept - 1) * 15 / 16);
  EXPECT_EQ(refused.code, Code::kNoSpace);
  EXPECT_EQ(world.CheckEach(session, 1000, 1000 + accepted - 1), Code::kOk);
}

// What its manifest keeps counts as kept beside pieces until the job is resumed: its guarantee is of just these bytes.
TEST_F(Persist, AJobIsResumedWithTheGuaranteeThatItsTensorsNeed) {
  const uint64_t persisted = world.options.device_blocks * 3 / 4;
  world.PutEach(session, 1, persisted, kPiece, kShared);
  ASSERT_EQ(PersistAll().code, Code::kOk);
  world.engine->CloseJob(job, "closed", false);
  world.Turns(5);
  JobOptions resume = kResume;
  resume.ssd_guarantee_bytes = persisted * kPiece;
  job = world.OpenJob(resume);
  session = world.OpenSession(job);
  EXPECT_EQ(world.Check(session, persisted, persisted, kShared), Code::kOk);
  EXPECT_EQ(world.Job(job).logical_bytes, persisted * kPiece);
  EXPECT_EQ(world.Job(job).ssd_guarantee_bytes, persisted * kPiece);
}

// A newcomer has come meanwhile: what the job persisted is its own all the same.
TEST_F(Persist, AJobIsResumedWithItsGuaranteeBesideANewcomer) {
  const uint64_t persisted = world.options.device_blocks * 5 / 8;
  world.PutEach(session, 1, persisted, kPiece, kShared);
  ASSERT_EQ(PersistAll().code, Code::kOk);
  world.engine->CloseJob(job, "closed", false);
  world.options.returns_windows = true;
  world.Turns(5);
  const SessionId newcomer = world.Open();
  Answer refused;
  ASSERT_GE(PutUntilRefused(world, newcomer, 1, &refused), 16u);
  JobOptions resume = kResume;
  resume.ssd_guarantee_bytes = persisted * kPiece;
  job = world.OpenJob(resume);
  EXPECT_EQ(world.Job(job).ssd_guarantee_bytes, persisted * kPiece);
}

TEST(StorageRoom, ADeviceThatDrainsOrIsAwayIsNotCounted) {
  World world(Small(32, 2));
  const SessionId session = world.Open();
  ASSERT_TRUE(world.engine->SetDeviceDraining(1, true).has_value());
  Answer refused;
  const uint64_t accepted = PutUntilRefused(world, session, 1, &refused);
  EXPECT_EQ(accepted, 29u);
  EXPECT_THAT(refused.detail, HasSubstr("draining"));
  ASSERT_TRUE(world.engine->SetDeviceDraining(1, false).has_value());
  EXPECT_EQ(PutUntilRefused(world, session, 100, &refused), 58u - accepted);
}

}  // namespace
}  // namespace tier::tiering::testing
