// Jobs of one name that follow each other: named, resumed, ephemeral, removed, and whose the manifest is.
#include <gtest/gtest.h>

#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using JobName = Persist;

TEST_F(JobName, WhatIsErasedIsNotAnotherJobsOfThatNameThatStillCloses) {
  world.Put(session, 1, 5000, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  world.engine->CloseJob(job, "closed", false);
  world.Turns(5);
  const SessionId passing = world.Open({.key = "1000/training"});  // An ephemeral job: the manifest stays inactive.
  world.Put(passing, 7, 5000, 7);
  world.transfers.Hold();
  world.Send(passing, Op::kFlush, {{7, 0, 0, 0}});
  world.Turns(2);
  world.EndSession(passing, "killed");
  const JobId resumed = world.OpenJob(kResume);
  world.engine->CloseJob(resumed, "removed", true);
  world.Turns(5);
  world.transfers.Release();
  world.Turns(10);
  EXPECT_EQ(world.extents.total().live, 0u);
}

TEST_F(JobName, PurgingAJobFreesWhatItsManifestHeld) {
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  world.engine->CloseJob(job, "removed", true);
  world.Turns(5);
  EXPECT_EQ(world.extents.total().live, 0u);
  EXPECT_FALSE(world.manifests.Load("1000/training").has_value());
  EXPECT_EQ(world.engine->OpenJob(JobId{60}, kResume).error().code, Code::kNotFound);
}

TEST_F(JobName, AJobClosedWithoutPurgeKeepsItsExtents) {
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  world.engine->CloseJob(job, "closed", false);
  world.Turns(5);
  EXPECT_EQ(world.extents.total().live, 2 * kPiece);
}

TEST_F(JobName, ANamedJobOutlivesItsSessions) {
  world.Put(session, 1, 5000, 1, kShared);
  world.EndSession(session, "gone");
  world.Turns(3);
  session = world.OpenSession(job);
  EXPECT_EQ(world.Check(session, 1, 1, kShared), Code::kOk);
}

TEST_F(JobName, AnEphemeralJobOfTheSameNameLeavesTheManifestAlone) {
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  world.engine->CloseJob(job, "closed", false);
  world.Turns(5);
  const SessionId ephemeral = world.Open({.key = kNamed.key});
  world.Put(ephemeral, 1, 5000, 9, kShared);
  const Answer refused = world.Ask(ephemeral, Op::kPersist, {});
  EXPECT_EQ(refused.code, Code::kDenied) << "its manifest would go with it";
  EXPECT_NE(refused.detail.find("ephemeral"), std::string::npos) << refused.detail;
  world.EndSession(ephemeral, "done");
  world.Turns(5);
  EXPECT_EQ(world.extents.total().live, 2 * kPiece);
  job = world.OpenJob(kResume);
  session = world.OpenSession(job);
  EXPECT_EQ(world.Check(session, 1, 1, kShared), Code::kOk);
}

TEST_F(JobName, WhatAnEphemeralJobCommittedGoesWithIt) {
  const JobOptions ephemeral{.key = "1000/notebook"};
  for (int run = 0; run < 2; ++run) {
    const SessionId one = world.Open(ephemeral);
    world.Put(one, 1, kPiece, 1, kShared);
    EXPECT_EQ(world.Ask(one, Op::kPersist, {}).code, Code::kOk) << "run " << run;
    world.EndSession(one, "done");
    world.Turns(5);
    EXPECT_EQ(world.extents.total().live, 0u);
    EXPECT_FALSE(world.manifests.Load(ephemeral.key).has_value());
  }
}

TEST_F(JobName, AJobThatOpensWhileAnEphemeralOnesManifestIsErasedCanPersist) {
  const JobOptions ephemeral{.key = "1000/notebook"};
  const SessionId one = world.Open(ephemeral);
  world.Put(one, 1, kPiece, 1, kShared);
  EXPECT_EQ(world.Ask(one, Op::kPersist, {}).code, Code::kOk);
  world.manifests.SetDelay(20);
  world.EndSession(one, "done");
  world.Turns(3);
  const SessionId two = world.Open(ephemeral);
  world.Put(two, 1, kPiece, 2, kShared);
  EXPECT_EQ(world.Ask(two, Op::kPersist, {}).code, Code::kOk) << "once the old one is gone";
  world.EndSession(two, "done");
  world.Turns(60);
  EXPECT_EQ(world.extents.total().live, 0u);
}

TEST_F(JobName, WhatIsBeingCommittedWhenAnEphemeralJobDiesGoesToo) {
  const JobOptions ephemeral{.key = "1000/notebook"};
  for (const bool tensors : {true, false}) {
    const SessionId one = world.Open(ephemeral);
    if (tensors) world.Put(one, 1, kPiece, 1, kShared);
    world.manifests.SetDelay(20);
    world.Send(one, Op::kPersist, {});
    world.Turns(10);
    world.EndSession(one, "killed");
    world.Turns(60);
    EXPECT_FALSE(world.manifests.Load(ephemeral.key).has_value()) << "the next daemon would keep it forever";
    EXPECT_EQ(world.extents.total().live, 0u);
  }
}

TEST_F(JobName, AJobThatIsBeingRemovedIsNotResumed) {
  world.Put(session, 1, kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  world.manifests.SetDelay(20);
  world.engine->CloseJob(job, "removed", true);
  world.Turns(5);
  const Status early = world.engine->OpenJob(JobId{50}, kResume);
  ASSERT_FALSE(early.has_value()) << "what it would resume is about to go";
  EXPECT_EQ(early.error().code, Code::kTimeout) << early.error().message;
  world.Turns(30);
  EXPECT_EQ(world.engine->OpenJob(JobId{50}, kResume).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace tier::tiering::testing
