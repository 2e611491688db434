// Manifests that a daemon cannot read: what they name stays on SSD until the operator gives it up.
#include <cstring>

#include <gmock/gmock.h>

#include "daemon/storage/checksum.h"
#include "daemon/storage/extent_list.h"
#include "daemon/tiering/durability/manifest_codec.h"
#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using ::testing::HasSubstr;

constexpr uint64_t kTensors = 8;

// Three pieces and a tail, so that extents are of many sizes.
constexpr uint64_t kSize = 3 * kPiece + 5 * kPageSize;

class Unreadable : public Persist {
 protected:
  Unreadable() {
    world.PutEach(session, 1, kTensors, kSize, kShared);
    EXPECT_EQ(PersistAll().code, Code::kOk);
    live_ = world.extents.total().live;
  }
  std::vector<std::byte>& manifest() { return (*world.manifests.shared_contents())[kNamed.key]; }
  std::vector<std::byte>& list() { return (*world.manifests.shared_extents())[kNamed.key]; }

  static void ExpectEach(World& daemon, SessionId session) {
    for (uint64_t tensor = 1; tensor <= kTensors; ++tensor) {
      EXPECT_EQ(daemon.Check(session, tensor, tensor, kShared), Code::kOk) << "tensor " << tensor;
    }
  }
  void ExpectWhole() {
    World next(After(world));
    const SessionId resumed = next.OpenSession(next.OpenJob(kResume));
    ExpectEach(next, resumed);
  }

  uint64_t live_ = 0;
};

TEST_F(Unreadable, AManifestOfALaterFormatSurvivesADaemonThatCannotReadIt) {
  const std::vector<std::byte> later = manifest();
  manifest()[offsetof(proto::ManifestHeader, version)] = static_cast<std::byte>(proto::kManifestVersion + 1);
  {
    World older(After(world));
    EXPECT_EQ(older.engine->OpenJob(JobId{77}, kResume).error().code, Code::kVersion);
    EXPECT_EQ(older.extents.total().live, live_);
    older.EraseFree();
  }
  manifest() = later;
  ExpectWhole();
}

TEST_F(Unreadable, ADamagedManifestKeepsItsExtentsUntilItIsRemoved) {
  const std::vector<std::byte> whole = manifest();
  manifest()[70] ^= std::byte{1};
  {
    World next(After(world));
    const std::vector<StoredManifest> stored = next.engine->StoredManifests("", 10);
    ASSERT_EQ(stored.size(), 1u);
    EXPECT_EQ(stored[0].ssd_bytes, live_);
    EXPECT_THAT(stored[0].damage, HasSubstr("checksum"));
    next.EraseFree();
  }
  manifest() = whole;
  ExpectWhole();
  manifest()[70] ^= std::byte{1};
  World next(After(world));
  ASSERT_TRUE(next.engine->DeleteStoredManifest(kNamed.key).has_value());
  next.Turns(10);
  EXPECT_EQ(next.extents.total().live, 0u);
  EXPECT_TRUE(world.manifests.shared_extents()->empty());
}

TEST_F(Unreadable, WithADamagedListNothingIsWrittenUntilItIsRemoved) {
  manifest()[70] ^= std::byte{1};
  list()[30] ^= std::byte{1};
  World next(After(world));
  const SessionId writer = next.Open({.key = "1000/writer"});
  next.Put(writer, 1, kPiece, 1, kShared);
  const Answer refused = next.Flush(writer, 1, kShared);
  EXPECT_EQ(refused.code, Code::kNoSpace);
  EXPECT_THAT(refused.detail, HasSubstr("nothing is written to SSD"));
  EXPECT_THAT(refused.detail, HasSubstr("tierctl job remove --purge 1000/training"));
  EXPECT_EQ(next.extents.total().live, 0u);
  EXPECT_EQ(next.Check(writer, 1, 1, kShared), Code::kOk) << "RAM is not affected";
  ASSERT_TRUE(next.engine->DeleteStoredManifest(kNamed.key).has_value());
  next.Turns(10);
  EXPECT_EQ(next.Flush(writer, 1, kShared).code, Code::kOk);
}

TEST_F(Unreadable, OfTwoWithoutAListTheSecondIsNamedOnceTheFirstIsRemoved) {
  auto& contents = *world.manifests.shared_contents();
  contents["1000/a"] = contents[kNamed.key];
  world.manifests.shared_extents()->clear();
  for (auto& [key, bytes] : contents) bytes[70] ^= std::byte{1};
  World next(After(world));
  EXPECT_THAT(next.extents.Allocate(1).error().message, HasSubstr("--purge 1000/a"));
  ASSERT_TRUE(next.engine->DeleteStoredManifest("1000/a").has_value());
  next.Turns(10);
  EXPECT_THAT(next.extents.Allocate(1).error().message, HasSubstr("--purge 1000/training"));
  ASSERT_TRUE(next.engine->DeleteStoredManifest(kNamed.key).has_value());
  next.Turns(10);
  EXPECT_TRUE(next.extents.Allocate(1).has_value());
}

TEST_F(Unreadable, AManifestThatTheIndexLostIsToldFromOneThatNeverWas) {
  world.manifests.shared_contents()->clear();
  World next(After(world));
  EXPECT_EQ(next.extents.total().live, live_);
  const Error lost = next.engine->OpenJob(JobId{77}, kResume).error();
  EXPECT_EQ(lost.code, Code::kCorrupt);
  EXPECT_THAT(lost.message, HasSubstr("lost the manifest"));
  const JobOptions never{.key = "1000/never", .named = true, .resume = true};
  EXPECT_EQ(next.engine->OpenJob(JobId{78}, never).error().code, Code::kNotFound);
}

// A byte of the job's name was damaged in one place: the manifest is found by another name.
TEST_F(Unreadable, AListTakesNothingFromAManifestThatCanBeRead) {
  auto& contents = *world.manifests.shared_contents();
  contents["1000/zraining"] = contents[kNamed.key];
  contents.erase(kNamed.key);
  World next(After(world));
  EXPECT_EQ(next.extents.total().live, live_);
  const SessionId resumed = next.OpenSession(next.OpenJob({.key = "1000/zraining", .named = true, .resume = true}));
  ExpectEach(next, resumed);
}

// It would take hours to go through pages that no device has.
TEST_F(Unreadable, AListThatNamesMoreThanTheDeviceHasIsTakenAsFarAsThatGoes) {
  manifest().back() ^= std::byte{1};
  storage::ExtentListWriter writer(0);
  for (uint32_t block = 0; block < 20'000'000; ++block) {
    writer.Add({.run = {.block = block, .page = 0, .pages = kPagesPerBlock}});  // They become three runs.
  }
  list() = std::move(writer).Take();
  const World next(After(world));
  EXPECT_EQ(next.extents.total().live, next.extents.total().capacity);
}

TEST_F(Unreadable, ARunThatDidNotResumeItCannotReplaceIt) {
  manifest()[70] ^= std::byte{1};
  World next(After(world));
  JobOptions replaces = kNamed;
  replaces.replace_existing = true;
  for (const JobOptions& options : {kNamed, replaces}) {
    const JobId opened = next.OpenJob(options);
    const SessionId writer = next.OpenSession(opened);
    next.Put(writer, 1, kPiece, 2, kShared | proto::kFlagReplace);
    const Answer persisted = next.Ask(writer, Op::kPersist, {});
    EXPECT_EQ(persisted.code, options.replace_existing ? Code::kOk : Code::kDenied) << persisted.detail;
    next.engine->CloseJob(opened, "done", false);
    next.Turns(10);
  }
  EXPECT_EQ(next.extents.total().live, kPiece);
}

TEST_F(Unreadable, TheListNamesWhatTheManifestNames) { ExpectListOfManifest(world); }

}  // namespace
}  // namespace tier::tiering::testing
