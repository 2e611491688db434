// A job comes back from its manifest turn by turn: whatever happens in the middle, all of it comes or nothing changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/tiering/durability/manifest_codec.h"
#include "daemon/tiering/tables/tables.h"
#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using ::testing::HasSubstr;

constexpr uint64_t kTensors = 6;
constexpr uint64_t kPieces = 3;
constexpr uint64_t kLive = kTensors * kPieces * kPiece;
constexpr JobId kAgain{1000};
constexpr SessionId kReader{2000};

// A closed job of some tensors with keys; its resume takes many turns.
class Resume : public ::testing::Test {
 protected:
  explicit Resume(uint32_t store_units = 13)
      : world({.engine = {.work = {.store = store_units}}, .device_blocks = 256, .manifests = true}) {
    const JobId job = world.OpenJob(kNamed);
    const SessionId session = world.OpenSession(job);
    for (uint64_t id = 1; id <= kTensors; ++id) {
      keys.push_back(world.Wait(session, world.SendText(session, "weights." + std::to_string(id))).value);
      world.Put(session, keys.back(), kPieces * kPiece, id, kShared);
    }
    world.Wait(session, world.SendArgument(session, Op::kStep, 7));
    EXPECT_EQ(world.Ask(session, Op::kPersist, {}).code, Code::kOk);
    world.engine->CloseJob(job, "closed", false);
    while (world.Turn()) {
    }
    EXPECT_EQ(world.extents.total().live, kLive);
  }
  Status Open(JobId job) { return world.engine->OpenJob(job, kResume); }
  // All that was persisted is there.
  void CheckWhole(JobId job) {
    const SessionId reader = world.OpenSession(job);
    EXPECT_EQ(world.Wait(reader, world.SendText(reader, "weights.3")).value, keys[2]);
    for (uint64_t id = 1; id <= kTensors; ++id) EXPECT_EQ(world.Check(reader, keys[id - 1], id, kShared), Code::kOk);
    EXPECT_EQ(world.Wait(reader, world.SendArgument(reader, Op::kStep, UINT64_MAX)).value, 8u);
  }
  // Nothing of an attempt that came to nothing is left, and the next one finds all of it.
  void CheckUnchanged() {
    while (world.Turn()) {
    }
    EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
    EXPECT_EQ(world.engine->Snapshot().jobs.size(), 0u);
    EXPECT_EQ(world.extents.total().live, kLive);
    EXPECT_EQ(world.engine->StoredManifests("", 9).size(), 1u);
    CheckWhole(world.OpenJob(kResume));
  }
  std::vector<std::byte>& stored() { return (*world.manifests.shared_contents())[kNamed.key]; }

  World world;
  std::vector<uint64_t> keys;
};

TEST_F(Resume, ComesBackTurnByTurn) {
  ASSERT_TRUE(Open(kAgain));
  uint64_t turns = 0;
  while (!world.sink.opened.contains(1000)) {
    world.Turn();
    ASSERT_LT(++turns, 1000u);
  }
  EXPECT_TRUE(world.sink.opened.at(1000).has_value());
  EXPECT_GE(turns, kTensors * kPieces) << "a turn puts one piece back";
  CheckWhole(kAgain);
}

TEST_F(Resume, AJobThatIsClosedInTheMiddleKeepsItsManifest) {
  for (uint64_t turns = 0; turns < 40; turns += 3) {
    const JobId job{kAgain};
    ASSERT_TRUE(Open(job)) << turns;
    world.Turns(static_cast<uint32_t>(turns));
    if (world.sink.opened.contains(1000)) break;
    world.engine->CloseJob(job, "closed in the middle", false);
    CheckUnchanged();
    EXPECT_FALSE(world.sink.opened.contains(1000)) << "it was closed before";
    world.engine->CloseJob(JobId{world.engine->Snapshot().jobs.front().id}, "closed", false);
    while (world.Turn()) {
    }
  }
}

TEST_F(Resume, AJobThatIsPurgedInTheMiddleLeavesNothing) {
  ASSERT_TRUE(Open(kAgain));
  world.Turns(12);
  ASSERT_FALSE(world.sink.opened.contains(1000));
  EXPECT_GT(world.engine->Snapshot().tensor_count, 0u);
  world.engine->CloseJob(kAgain, "removed", true);
  while (world.Turn()) {
  }
  EXPECT_EQ(world.engine->Snapshot().tensor_count, 0u);
  EXPECT_EQ(world.extents.total().live, 0u);
  EXPECT_TRUE(world.engine->StoredManifests("", 9).empty());
  EXPECT_EQ(Open(JobId{1001}).error().code, Code::kNotFound);
}

TEST_F(Resume, TheNextDaemonResumesWhatThisOneWasResuming) {
  ASSERT_TRUE(Open(kAgain));
  world.Turns(12);
  ASSERT_FALSE(world.sink.opened.contains(1000));
  NextDaemon next(world);
  ASSERT_TRUE(next.engine->OpenJob(JobId{1}, kResume));
  next.Turns(20);
  ASSERT_TRUE(next.sink.opened.at(1).has_value());
  EXPECT_EQ(next.engine->Snapshot().tensor_count, kTensors);
}

TEST_F(Resume, AManifestThatCannotBeReadLeavesNothingBehind) {
  ASSERT_TRUE(Open(kAgain));
  stored()[70] ^= std::byte{1};  // Between the start of the daemon and now.
  EXPECT_EQ(world.WaitUntilOpened(kAgain).error().code, Code::kCorrupt);
  stored()[70] ^= std::byte{1};
  EXPECT_FALSE(world.engine->OpenSession(kReader, kAgain).has_value()) << "the job is gone";
  CheckUnchanged();
}

TEST_F(Resume, ALoadThatFailsLeavesNothingBehind) {
  world.manifests.FailNext(Code::kIoError, "the disk is gone");
  ASSERT_TRUE(Open(kAgain));
  const Status opened = world.WaitUntilOpened(kAgain);
  EXPECT_EQ(opened.error().code, Code::kIoError);
  EXPECT_THAT(opened.error().message, HasSubstr("the disk is gone"));
  CheckUnchanged();
}

TEST_F(Resume, AManifestThatContradictsItselfInTheMiddleLeavesNothingBehind) {
  const std::vector<std::byte> whole = stored();
  Manifest manifest = *DecodeManifest(whole);
  manifest.tensors[4].pieces[1] = manifest.tensors[1].pieces[1];
  stored() = EncodeManifest(manifest);
  ASSERT_TRUE(Open(kAgain));
  const Status opened = world.WaitUntilOpened(kAgain);
  EXPECT_EQ(opened.error().code, Code::kCorrupt);
  EXPECT_THAT(opened.error().message, HasSubstr("one extent"));
  stored() = whole;
  CheckUnchanged();
}

TEST_F(Resume, WhatItWillNeedOfMetadataIsChargedBeforeItComes) {
  ASSERT_TRUE(Open(kAgain));
  const auto charged = [&] { return world.engine->Snapshot().metadata.of_largest_user; };
  uint64_t most = 0;
  uint64_t before_the_first = 0;
  while (!world.sink.opened.contains(1000)) {
    world.Turn();
    most = std::max(most, charged());
    if (world.engine->Snapshot().tensor_count <= 1) before_the_first = most;
  }
  EXPECT_EQ(before_the_first, most);
  EXPECT_GE(charged(), kTensors * TensorCost(kPieces));
  EXPECT_LE(charged(), most);
}

TEST_F(Resume, TheManifestItselfIsChargedWhileItIsRead) {
  const auto charged = [&] {
    return world.engine->Snapshot().metadata.of_kind[static_cast<size_t>(MetadataKind::kManifests)];
  };
  const uint64_t held = charged();
  ASSERT_TRUE(Open(kAgain));
  uint64_t most = 0;
  while (!world.sink.opened.contains(1000)) {
    world.Turn();
    if (world.engine->Snapshot().tensor_count == 0) most = std::max(most, charged());
  }
  EXPECT_EQ(most, held + stored().size());
  EXPECT_EQ(charged(), held);
}

TEST_F(Resume, AFlushOfTheJobHasNothingToWrite) {
  ASSERT_TRUE(Open(kAgain));
  for (uint64_t sequence = 1; !world.sink.opened.contains(1000); ++sequence) {
    ASSERT_TRUE(world.engine->FlushJob(kAgain, sequence, 1000));
    world.Turn();
    ASSERT_TRUE(world.Answered(kInternalSession, sequence).has_value()) << "turn " << sequence;
    EXPECT_EQ(world.Answered(kInternalSession, sequence)->code, Code::kOk);
    ASSERT_LT(sequence, 1000u);
  }
  CheckWhole(kAgain);
}

TEST_F(Resume, AJobThatIsBeingResumedIsNotOpenedAgain) {
  ASSERT_TRUE(Open(kAgain));
  for (uint64_t turns = 0; !world.sink.opened.contains(1000); ++turns) {
    const Status second = Open(JobId{1001 + turns});
    ASSERT_FALSE(second.has_value());
    EXPECT_EQ(second.error().code, Code::kAlreadyExists);
    world.Turn();
    ASSERT_LT(turns, 1000u) << "the resume begins again and again";
  }
  EXPECT_EQ(world.sink.opened.size(), 1u);
  CheckWhole(kAgain);
}

// Beside closed jobs whose manifests are deleted, with extents to be freed for thousands of turns.
class ResumeBesideSweeps : public Resume {
 protected:
  static constexpr uint64_t kClosed = 4;
  static constexpr uint64_t kExtents = 600;  // Of each; a turn has work for one.

  ResumeBesideSweeps() : Resume(1) {
    std::vector<JobId> jobs;
    for (uint64_t i = 0; i < kClosed; ++i) jobs.push_back(PersistMany("1000/closed-" + std::to_string(i)));
    for (const JobId job : jobs) world.engine->CloseJob(job, "removed", true);
    world.Turns(5);  // The store has deleted their manifests.
  }
  JobId PersistMany(const std::string& key) {
    const JobId job = world.OpenJob({.key = key, .named = true});
    const SessionId session = world.OpenSession(job);
    std::vector<proto::RequestItem> items;
    for (uint64_t id = 1; id <= kExtents; ++id) items.push_back({id, 0, 0, kPageSize});
    const Answer created = world.Ask(session, Op::kCreate, items, kShared);
    for (uint32_t i = 0; i < kExtents; ++i) items[i] = {0, 0, 0, World::LeaseOf(created, i)};
    EXPECT_EQ(world.Ask(session, Op::kRelease, items).code, Code::kOk);
    EXPECT_EQ(world.Ask(session, Op::kPersist, {}).code, Code::kOk);
    return job;
  }
  uint64_t Unswept() const { return (world.extents.total().live - kLive) / kPageSize; }
};

TEST_F(ResumeBesideSweeps, ComesBackLongBeforeTheyEndAndHoldsNoneOfThemUp) {
  const uint64_t unswept = Unswept();
  ASSERT_GT(unswept, kClosed * kExtents * 9 / 10);
  ASSERT_TRUE(Open(kAgain));
  uint64_t turns = 0;
  for (; !world.sink.opened.contains(1000); ++turns) {
    world.Turn();
    ASSERT_LT(turns, 200u) << "it waits for the sweeps, which have freed " << unswept - Unswept();
  }
  EXPECT_TRUE(world.sink.opened.at(1000).has_value());
  EXPECT_GE(unswept - Unswept(), turns / 4) << "it leaves them a part of the turns";
  CheckWhole(kAgain);
  for (turns = 0; world.Turn(); ++turns) ASSERT_LT(turns, 10000u);
  EXPECT_GT(turns, 2000u) << "they had work for that long";
  EXPECT_EQ(Unswept(), 0u);
}

TEST_F(Resume, ASessionThatComesBeforeTheJobIsOpenIsABug) {
  ASSERT_TRUE(Open(kAgain));
  EXPECT_DEATH((void)world.engine->OpenSession(kReader, kAgain), "before job");
}

}  // namespace
}  // namespace tier::tiering::testing
