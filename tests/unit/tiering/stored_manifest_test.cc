// What jobs that are not open have persisted: seen, removed, replaced.
#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

TEST_F(Persist, WhatAClosedJobKeepsIsListedAndCanBeRemoved) {
  world.Put(session, 1, 3 * kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  EXPECT_TRUE(world.engine->StoredManifests("", 100).empty()) << "its job is open";
  EXPECT_EQ(world.engine->DeleteStoredManifest(kNamed.key).error().code, Code::kNotFound);
  world.engine->CloseJob(job, "done", false);
  world.Turns(5);
  const std::vector<StoredManifest> kept = world.engine->StoredManifests("", 100);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].key, kNamed.key);
  EXPECT_EQ(kept[0].ssd_bytes, 3 * kPiece);
  EXPECT_EQ(kept[0].damage, "");
  EXPECT_TRUE(world.engine->DeleteStoredManifest(kNamed.key).has_value());
  world.Turns(5);
  EXPECT_TRUE(world.engine->StoredManifests("", 100).empty());
  EXPECT_EQ(world.extents.total().live, 0u);
  EXPECT_EQ(world.engine->OpenJob(JobId{77}, kResume).error().code, Code::kNotFound);
}

TEST_F(Persist, StoredManifestsAreListedByPrefixInOrderUpToAMaximum) {
  EXPECT_EQ(PersistAll().code, Code::kOk);
  auto& contents = *world.manifests.shared_contents();
  for (const char* key : {"1001/b", "1001/a", "10/a"}) contents[key] = contents[kNamed.key];
  NextDaemon next(world);
  EXPECT_EQ(next.engine->StoredManifests("", 100).size(), 4u);
  const std::vector<StoredManifest> kept = next.engine->StoredManifests("1001/", 100);
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].key, "1001/a");
  EXPECT_EQ(kept[1].key, "1001/b");
  EXPECT_EQ(next.engine->StoredManifests("", 3).size(), 3u);
}

TEST_F(Persist, ARunWaitsForTheRemovalOfWhatTheLastOnePersisted) {
  world.Put(session, 1, kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  world.engine->CloseJob(job, "done", false);
  world.Turns(5);
  world.manifests.SetDelay(10);
  ASSERT_TRUE(world.engine->DeleteStoredManifest(kNamed.key).has_value());
  EXPECT_TRUE(world.engine->StoredManifests("", 100).empty()) << "it is going";
  EXPECT_EQ(world.engine->DeleteStoredManifest(kNamed.key).error().code, Code::kTimeout);
  EXPECT_EQ(world.engine->OpenJob(JobId{77}, kNamed).error().code, Code::kTimeout);
  EXPECT_EQ(world.engine->OpenJob(JobId{77}, kResume).error().code, Code::kTimeout);
  world.Turns(20);
  EXPECT_EQ(world.engine->OpenJob(JobId{77}, kResume).error().code, Code::kNotFound);
  job = world.OpenJob(kNamed);
  session = world.OpenSession(job);
  world.Put(session, 2, kPiece, 2);
  EXPECT_EQ(PersistAll().code, Code::kOk);
}

TEST_F(Persist, ARemovalThatFailsLeavesTheManifestListed) {
  world.Put(session, 1, kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  (*world.manifests.shared_contents())[kNamed.key][70] ^= std::byte{1};
  NextDaemon next(world);
  next.manifests.FailNext(Code::kNoSpace, "the store is full");
  ASSERT_TRUE(next.engine->DeleteStoredManifest(kNamed.key).has_value());
  next.Turns(5);
  ASSERT_EQ(next.engine->StoredManifests("", 100).size(), 1u);
  EXPECT_NE(next.engine->StoredManifests("", 100)[0].damage, "");
  EXPECT_TRUE(next.engine->DeleteStoredManifest(kNamed.key).has_value());
  next.Turns(5);
  EXPECT_TRUE(next.engine->StoredManifests("", 100).empty());
}

TEST_F(Persist, AJobIsClosedWhenTheStoreHasItsManifest) {
  world.manifests.SetDelay(20);
  world.Send(session, Op::kPersist, {});  // Of nothing: neither an extent nor the store tells of it yet.
  world.Turns(3);
  world.engine->CloseJob(job, "closed", false);
  EXPECT_EQ(world.engine->OpenJob(JobId{77}, kNamed).error().code, Code::kTimeout) << "there would be two";
  EXPECT_EQ(world.engine->DeleteStoredManifest(kNamed.key).error().code, Code::kTimeout);
  world.Turns(40);
  EXPECT_EQ(world.manifests.shared_contents()->size(), 1u);
  EXPECT_EQ(world.engine->StoredManifests("", 100).size(), 1u);
  EXPECT_TRUE(world.engine->DeleteStoredManifest(kNamed.key).has_value());
}

// Who gives up a user's name looks for what it has: nothing is listed of a job that is being closed.
TEST_F(Persist, ManifestsAreNotSettledWhileOneIsWrittenOrRemoved) {
  world.manifests.SetDelay(20);
  world.Send(session, Op::kPersist, {});
  world.Turns(3);
  EXPECT_EQ(world.engine->CheckSettled("1000/").error().code, Code::kTimeout);
  world.engine->CloseJob(job, "closed", false);
  world.Turns(3);
  EXPECT_TRUE(world.engine->StoredManifests("1000/", 1).empty());
  EXPECT_EQ(world.engine->CheckSettled("1000/").error().code, Code::kTimeout) << "it is on its way";
  EXPECT_TRUE(world.engine->CheckSettled("100/")) << "of another user";
  world.Turns(40);
  EXPECT_TRUE(world.engine->CheckSettled("1000/"));
  EXPECT_EQ(world.engine->StoredManifests("1000/", 1).size(), 1u);
  ASSERT_TRUE(world.engine->DeleteStoredManifest(kNamed.key));
  EXPECT_EQ(world.engine->CheckSettled("1000/").error().code, Code::kTimeout) << "its removal may fail";
  world.Turns(40);
  EXPECT_TRUE(world.engine->CheckSettled("1000/"));
}

TEST_F(Persist, AClosingJobThatHasPersistedIsNotSettled) {
  world.Put(session, 1, kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  world.engine->CloseJob(job, "closed", false);
  EXPECT_TRUE(world.engine->StoredManifests("1000/", 1).empty()) << "it is closing";
  EXPECT_EQ(world.engine->CheckSettled("1000/").error().code, Code::kTimeout);
  world.Turns(5);
  EXPECT_TRUE(world.engine->CheckSettled("1000/"));
  EXPECT_EQ(world.engine->StoredManifests("1000/", 1).size(), 1u);
}

TEST_F(Persist, NothingIsSettledWhereTheStoreDoesNotKnowWhatItHas) {
  world.manifests.LoseNext(true);
  EXPECT_NE(PersistAll().code, Code::kOk);
  world.engine->CloseJob(job, "closed", false);
  world.Turns(5);
  const Status settled = world.engine->CheckSettled("1000/");
  ASSERT_FALSE(settled);
  EXPECT_NE(settled.error().code, Code::kTimeout) << "not before a restart";
}

TEST_F(Persist, AManifestThatNamesAnothersExtentsIsListedOnceAsDamaged) {
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  auto& contents = *world.manifests.shared_contents();
  contents["1000/training2"] = contents[kNamed.key];
  NextDaemon next(world);
  const std::vector<StoredManifest> kept = next.engine->StoredManifests("", 100);
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ((kept[0].damage.empty() ? 1 : 0) + (kept[1].damage.empty() ? 1 : 0), 1);
  const StoredManifest& damaged = kept[0].damage.empty() ? kept[1] : kept[0];
  const StoredManifest& whole = kept[0].damage.empty() ? kept[0] : kept[1];
  ASSERT_TRUE(next.engine->DeleteStoredManifest(damaged.key).has_value());
  next.Turns(5);
  EXPECT_EQ(next.engine->StoredManifests("", 100).size(), 1u);
  EXPECT_EQ(next.extents.total().live, 2 * kPiece);
  ASSERT_TRUE(next.engine->OpenJob(JobId{2}, {.key = whole.key, .named = true, .resume = true}).has_value());
  next.Turns(5);
  EXPECT_TRUE(next.sink.opened.at(2).has_value());
}

TEST_F(Persist, ADamagedManifestIsListedWithItsDamageAndCanBeRemoved) {
  world.Put(session, 1, 2 * kPiece, 1, kShared);
  EXPECT_EQ(PersistAll().code, Code::kOk);
  (*world.manifests.shared_contents())[kNamed.key][70] ^= std::byte{1};
  NextDaemon next(world);
  const std::vector<StoredManifest> kept = next.engine->StoredManifests("", 100);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_NE(kept[0].damage, "");
  ASSERT_TRUE(next.engine->DeleteStoredManifest(kNamed.key).has_value());
  EXPECT_EQ(next.engine->DeleteStoredManifest(kNamed.key).error().code, Code::kTimeout);
  EXPECT_EQ(next.engine->OpenJob(JobId{1}, kResume).error().code, Code::kTimeout) << "it is being removed";
  next.Turns(5);
  EXPECT_TRUE(next.engine->StoredManifests("", 100).empty());
  EXPECT_EQ(next.engine->OpenJob(JobId{2}, kResume).error().code, Code::kNotFound);
}

TEST_F(Persist, ADamagedManifestThatWasReplacedIsInNobodysWay) {
  EXPECT_EQ(PersistAll().code, Code::kOk);
  (*world.manifests.shared_contents())[kNamed.key][20] ^= std::byte{1};
  NextDaemon next(world);
  EXPECT_EQ(next.engine->OpenJob(JobId{1}, kResume).error().code, Code::kCorrupt);
  JobOptions replace = kNamed;
  replace.replace_existing = true;
  ASSERT_TRUE(next.engine->OpenJob(JobId{2}, replace).has_value());
  EXPECT_TRUE(next.engine->StoredManifests("", 100).empty()) << "its job is open";
  EXPECT_EQ(next.engine->DeleteStoredManifest(kNamed.key).error().code, Code::kNotFound);
  ASSERT_TRUE(next.engine->OpenSession(SessionId{2}, JobId{2}).has_value());
  next.engine->Submit(SessionId{2}, {.sequence = 1, .op = Op::kPersist, .items = {}, .text = {}});
  next.Turns(10);
  next.engine->CloseJob(JobId{2}, "done", false);
  next.Turns(5);
  ASSERT_TRUE(next.engine->OpenJob(JobId{3}, kResume).has_value()) << "one that is whole is in its place";
  next.Turns(5);
  EXPECT_TRUE(next.sink.opened.at(3).has_value());
}

}  // namespace
}  // namespace tier::tiering::testing
