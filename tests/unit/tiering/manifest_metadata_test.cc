// What manifests take of the daemon's own memory is charged to their users, also while their jobs are closed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "daemon/tiering/tables/tables.h"
#include "proto/manifest_record.h"
#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using ::testing::HasSubstr;

constexpr uint64_t kBudget = 256 * kKiB;

TEST(MetadataOfManifests, WhatTheyNameIsChargedToTheirUserUntilTheyAreGone) {
  World world({.engine = {.metadata_bytes_per_uid_max = kBudget}, .manifests = true});
  const auto charged = [](const Engine& engine) {
    return engine.Snapshot().metadata.of_kind[static_cast<size_t>(MetadataKind::kManifests)];
  };
  const JobOptions options{.key = "1/kept", .uid = 1, .named = true, .resume = false};
  const JobId job = world.OpenJob(options);
  const SessionId session = world.OpenSession(job);
  world.PutEach(session, 1, 50, 1);
  EXPECT_EQ(charged(*world.engine), 0u);
  const uint64_t persisting = world.Send(session, Op::kPersist, {});
  uint64_t most = 0;
  while (!world.Answered(session, persisting)) {
    world.Turn();
    most = std::max(most, charged(*world.engine));
  }
  EXPECT_EQ(charged(*world.engine), 50 * kHoldCost);
  EXPECT_GE(most, 50 * (kHoldCost + sizeof(proto::ManifestTensorRecord) + sizeof(proto::ManifestPieceRecord)))
      << "and its records, until they are written";
  world.engine->CloseJob(job, "closed", false);
  world.Turns(5);
  EXPECT_EQ(charged(*world.engine), 50 * kHoldCost) << "its extents are still held";

  NextDaemon next(world);
  EXPECT_EQ(charged(*next.engine), 50 * kHoldCost);
  ASSERT_TRUE(world.engine->DeleteStoredManifest(options.key));
  world.Turns(5);
  EXPECT_EQ(charged(*world.engine), 0u);
}

TEST(MetadataOfManifests, APersistForWhichThereIsNoRoomIsRefused) {
  World world({.engine = {.metadata_bytes_per_uid_max = kBudget}, .manifests = true});
  const SessionId session = world.Open({.key = "1/kept", .uid = 1, .named = true});
  const SessionId other = world.Open({.uid = 1});
  world.PutEach(session, 1, 50, 1);
  const uint64_t used = world.engine->Snapshot().metadata.of_largest_user;
  world.engine->SetUnread(other, kBudget - used + 8 * kKiB);  // Some of the reserve too.
  const Answer refused = world.Ask(session, Op::kPersist, {});
  EXPECT_EQ(refused.code, Code::kNoMemory);
  EXPECT_THAT(refused.detail, HasSubstr("jobs.max_metadata"));
  world.engine->SetUnread(other, 0);
  EXPECT_EQ(world.Ask(session, Op::kPersist, {}).code, Code::kOk);
}

// A persist may use the reserve, so a resume may: what was accepted can be had again under the same limit.
TEST(MetadataOfManifests, AResumeMayUseTheReserve) {
  World world({.engine = {.metadata_bytes_per_uid_max = kBudget}, .manifests = true});
  const JobOptions options{.key = "1/kept", .uid = 1, .named = true};
  const SessionId other = world.Open({.uid = 1});
  const JobId job = world.OpenJob(options);
  const SessionId session = world.OpenSession(job);
  world.PutEach(session, 1, 50, 1, proto::kFlagShared);
  ASSERT_EQ(world.Ask(session, Op::kPersist, {}).code, Code::kOk);
  world.engine->CloseJob(job, "closed", false);
  world.Turns(5);
  const uint64_t used = world.engine->Snapshot().metadata.of_largest_user;
  const uint64_t needed = 50 * TensorCost(1) + world.manifests.shared_contents()->at(options.key).size();
  world.engine->SetUnread(other, kBudget - used - needed / 2);
  JobOptions resume = options;
  resume.resume = true;
  const JobId again{1000};
  ASSERT_TRUE(world.engine->OpenJob(again, resume));
  EXPECT_TRUE(world.WaitUntilOpened(again).has_value());
  world.engine->SetUnread(other, 0);
  EXPECT_EQ(world.Job(again).tensor_count, 50u);
}

}  // namespace
}  // namespace tier::tiering::testing
