// What jobs that are not open have persisted: seen, removed, replaced.
#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

TEST_F(Persist, WhatAClosedJobKeepsIsListedAndCanBeRemoved) {
  world.Put(session, 1, 3 * kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  EXPECT_TRUE(world.engine->KeptManifests().empty()) << "its job is open";
  EXPECT_EQ(world.engine->ForgetKept(kNamed.key).error().code, Code::kNotFound);
  world.engine->CloseJob(job, "done", false);
  world.Turns(5);
  const std::vector<KeptManifest> kept = world.engine->KeptManifests();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].key, kNamed.key);
  EXPECT_EQ(kept[0].ssd_bytes, 3 * kPiece);
  EXPECT_EQ(kept[0].damage, "");
  EXPECT_TRUE(world.engine->ForgetKept(kNamed.key).has_value());
  world.Turns(5);
  EXPECT_TRUE(world.engine->KeptManifests().empty());
  EXPECT_EQ(world.extents.total().live, 0u);
  EXPECT_EQ(world.engine->OpenJob(JobId{77}, kResume).error().code, Code::kNotFound);
}

TEST_F(Persist, ADamagedManifestIsListedWithItsDamageAndCanBeRemoved) {
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  (*world.manifests.shared_contents())[kNamed.key][70] ^= std::byte{1};
  NextDaemon next(world);
  const std::vector<KeptManifest> kept = next.engine->KeptManifests();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_NE(kept[0].damage, "");
  ASSERT_TRUE(next.engine->ForgetKept(kNamed.key).has_value());
  EXPECT_EQ(next.engine->ForgetKept(kNamed.key).error().code, Code::kNotFound);
  EXPECT_EQ(next.engine->OpenJob(JobId{1}, kResume).error().code, Code::kTimeout) << "it is being removed";
  next.Turns(5);
  EXPECT_TRUE(next.engine->KeptManifests().empty());
  EXPECT_EQ(next.engine->OpenJob(JobId{2}, kResume).error().code, Code::kNotFound);
}

TEST_F(Persist, ADamagedManifestThatWasReplacedIsInNobodysWay) {
  EXPECT_EQ(PersistAll().code, Code::kOk);
  (*world.manifests.shared_contents())[kNamed.key][20] ^= std::byte{1};
  NextDaemon next(world);
  EXPECT_EQ(next.engine->OpenJob(JobId{1}, kResume).error().code, Code::kCorrupt);
  ASSERT_TRUE(next.engine->OpenJob(JobId{2}, kNamed).has_value());
  EXPECT_TRUE(next.engine->KeptManifests().empty()) << "its job is open";
  ASSERT_TRUE(next.engine->OpenSession(SessionId{2}, JobId{2}).has_value());
  next.engine->Submit(SessionId{2}, {.sequence = 1, .op = Op::kPersist, .items = {}, .text = {}});
  next.Turns(10);
  next.engine->CloseJob(JobId{2}, "done", false);
  next.Turns(5);
  EXPECT_TRUE(next.engine->OpenJob(JobId{3}, kResume).has_value()) << "one that is whole is in its place";
}

}  // namespace
}  // namespace tier::tiering::testing
