// Quotas as the engine keeps them: what jobs of a user get, what they are told, and what a change at run time does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
constexpr uint64_t kPiece = kBlockSize;

UserQuota Ram(uint64_t bytes) {
  return {.ram = {.most = bytes, .origin = {.level = QuotaLevel::kUser, .at_run_time = true, .id = 7}}};
}

WorldOptions Roomy() { return {.windows = {.window_size = 2 * kMiB, .arena_max_bytes = 64 * kMiB}}; }

TEST(Quota, RamOfAllJobsOfAUserStaysWithinIt) {
  World world(Roomy());
  const JobId one = world.OpenJob({.uid = 7, .quota = Ram(16 * kMiB)});
  const JobId two = world.OpenJob({.uid = 7, .quota = Ram(16 * kMiB)});
  const JobId other = world.OpenJob({.uid = 8});
  const SessionId sessions[] = {world.OpenSession(one), world.OpenSession(two), world.OpenSession(other)};
  for (const SessionId session : sessions) world.PutEach(session, 1, 16, kPiece);
  EXPECT_LE(world.Job(one).ram_bytes, 8 * kMiB);
  EXPECT_LE(world.Job(two).ram_bytes, 8 * kMiB);
  EXPECT_EQ(world.Job(other).ram_bytes, 16 * kPiece) << "32 MiB, which another user may have";
  for (const SessionId session : sessions) EXPECT_EQ(world.CheckEach(session, 1, 16), Code::kOk);
}

TEST(Quota, ARequestThatItCannotHoldIsToldWhoSetIt) {
  World world(Roomy());
  const SessionId session = world.Open({.uid = 7, .quota = Ram(16 * kMiB)});
  world.Open({.uid = 7, .quota = Ram(16 * kMiB)});
  const Answer refused = world.Create(session, 1, 9 * kMiB);
  EXPECT_EQ(refused.code, Code::kNoMemory);
  EXPECT_THAT(refused.detail, AllOf(HasSubstr("user 7 may have 16 MiB of RAM (the quota of user 7, set at run time)"),
                                    HasSubstr("this job may have 8 MiB, with 2 jobs of the user that have sessions"),
                                    HasSubstr("close other jobs of this user, or have an administrator raise")));
  const SessionId limited = world.Open({.uid = 9, .limit_bytes = 8 * kMiB, .quota = Ram(32 * kMiB)});
  EXPECT_THAT(world.Create(limited, 1, 9 * kMiB).detail,
              AllOf(HasSubstr("raise the job's limit"), Not(HasSubstr("quota"))));
}

TEST(Quota, ALoweredOneIsReachedByEvictionAndARaisedOneServesWhoWaits) {
  World world(Roomy());
  const JobId job = world.OpenJob({.uid = 7});
  const SessionId session = world.OpenSession(job);
  world.PutEach(session, 1, 20, kPiece);
  ASSERT_EQ(world.Job(job).ram_bytes, 40 * kMiB);
  world.engine->SetQuota(7, Ram(8 * kMiB));
  world.Turns(200);
  EXPECT_LE(world.Job(job).ram_bytes, 8 * kMiB);
  EXPECT_EQ(world.CheckEach(session, 1, 20), Code::kOk) << "from SSD";
  const Answer held = world.Create(session, 50, 8 * kMiB);
  ASSERT_EQ(held.code, Code::kOk);
  const SessionId second = world.OpenSession(job);
  const uint64_t waiting = world.Send(second, proto::Op::kCreate, {{51, 0, 0, kPiece}});
  world.Turns(20);
  ASSERT_FALSE(world.Answered(second, waiting).has_value()) << "all of it is leased";
  world.engine->SetQuota(7, Ram(16 * kMiB));
  EXPECT_EQ(world.Wait(second, waiting).code, Code::kOk);
}

TEST(Quota, OfZeroIsNothingAtAllAndNotAMissingBound) {
  World world(Roomy());
  const SessionId no_ram = world.Open({.uid = 7, .quota = Ram(0)});
  const Answer refused = world.Create(no_ram, 1, 1);
  EXPECT_EQ(refused.code, Code::kNoMemory);
  EXPECT_THAT(refused.detail, AllOf(HasSubstr("more than the job can ever have in RAM at once"),
                                    HasSubstr("user 7 may have 0 bytes of RAM (the quota of user 7, set at run time)"),
                                    HasSubstr("have an administrator raise the quota"), Not(HasSubstr("close other"))));
  const SessionId no_ssd = world.Open({.uid = 8, .quota = UserQuota{.ssd = {.most = 0}}});
  const Answer unstored = world.Create(no_ssd, 1, 1);
  EXPECT_EQ(unstored.code, Code::kNoSpace);
  EXPECT_THAT(unstored.detail, HasSubstr("user 8 may have 0 bytes on SSD (option jobs.max_ssd_per_uid)"));
}

TEST(Quota, LoweredToZeroItLeavesTensorsOnSsdUntilItIsRaised) {
  World world(Roomy());
  const JobId job = world.OpenJob({.uid = 7});
  const SessionId session = world.OpenSession(job);
  world.PutEach(session, 1, 4, kPiece);
  world.engine->SetQuota(7, Ram(0));
  world.Turns(200);
  EXPECT_EQ(world.Job(job).ram_bytes, 0u);
  EXPECT_EQ(world.Acquire(session, 1).code, Code::kNoMemory);
  EXPECT_EQ(world.Create(session, 9, kPiece).code, Code::kNoMemory);
  world.engine->SetQuota(7, {});
  EXPECT_EQ(world.CheckEach(session, 1, 4), Code::kOk);
}

TEST(Quota, AJobWithoutSessionsLeavesItsPartToThoseThatHaveSome) {
  World world(Roomy());
  const JobOptions named{.key = "7/a", .uid = 7, .quota = Ram(16 * kMiB), .named = true};
  const JobId idle = world.OpenJob(named);
  const SessionId first = world.OpenSession(idle);
  world.PutEach(first, 1, 8, kPiece, proto::kFlagShared);
  world.EndSession(first);
  world.Turns(50);
  EXPECT_GT(world.Job(idle).ram_bytes, 8 * kMiB) << "as long as the user has no other";
  const JobId live = world.OpenJob({.uid = 7, .quota = Ram(16 * kMiB)});
  const SessionId session = world.OpenSession(live);
  world.Turns(200);
  EXPECT_EQ(world.Job(idle).ram_bytes, 0u);
  EXPECT_EQ(world.Create(session, 1, 16 * kMiB).code, Code::kOk);
  const SessionId back = world.OpenSession(idle);
  for (uint64_t id = 1; id <= 8; ++id)
    EXPECT_EQ(world.Check(back, id, id, proto::kFlagShared), Code::kOk) << "from SSD";
}

TEST(Quota, GuaranteesBeyondItAreRefusedAndNothingChanges) {
  World world(Roomy());
  const UserQuota quota{.guarantee = {.most = 20 * kMiB, .origin = {.level = QuotaLevel::kDefault}}};
  const JobId job = world.OpenJob({.uid = 7, .guarantee_bytes = 12 * kMiB, .quota = quota});
  const JobOptions more{.key = "7/more", .uid = 7, .guarantee_bytes = 9 * kMiB, .quota = quota};
  const Status refused = world.engine->OpenJob(JobId{99}, more);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_THAT(refused.error().message, HasSubstr("may be guaranteed 20 MiB (the default quota, in the configuration)"));
  EXPECT_EQ(world.engine->SetJob(job, {.guarantee_bytes = 21 * kMiB}).error().code, Code::kNoMemory);
  EXPECT_EQ(world.Job(job).guarantee_bytes, 12 * kMiB);
  world.engine->SetQuota(7, {});
  EXPECT_TRUE(world.engine->SetJob(job, {.guarantee_bytes = 21 * kMiB}).has_value());
  world.engine->SetQuota(7, quota);
  EXPECT_EQ(world.Job(job).guarantee_bytes, 21 * kMiB) << "what was given stays";
  EXPECT_TRUE(world.engine->SetJob(job, {.limit_bytes = 30 * kMiB}).has_value());
}

TEST(Quota, OfSsdChangesAtRunTime) {
  World world(Roomy());
  const SessionId session = world.Open({.uid = 7});
  world.PutEach(session, 1, 4, kPiece);
  world.engine->SetQuota(7, {.ssd = {.most = 4 * kPiece, .origin = {.level = QuotaLevel::kGroup, .id = 3}}});
  const Answer refused = world.Create(session, 5, kPiece);
  EXPECT_EQ(refused.code, Code::kNoSpace);
  EXPECT_EQ(world.engine->StorageOf(7), 4 * kPiece);
  EXPECT_EQ(world.engine->StorageOf(8), 0u);
  EXPECT_THAT(refused.detail, HasSubstr("user 7 may have 8 MiB on SSD (the quota of group 3, in the configuration)"));
  world.engine->SetQuota(7, {});
  world.PutEach(session, 5, 5, kPiece);
  EXPECT_EQ(world.CheckEach(session, 1, 5), Code::kOk);
}

}  // namespace
}  // namespace tier::tiering::testing
