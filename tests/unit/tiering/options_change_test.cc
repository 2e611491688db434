// Options that change while the engine runs: they hold for what comes, and take nothing from what is there.
#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/tiering/jobs/options_change.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
constexpr uint64_t kPiece = kBlockSize;

WorldOptions Roomy() { return {.windows = {.window_size = 2 * kMiB, .arena_max_bytes = 64 * kMiB}}; }

// Every field that differs here is one line of ChangeOptions.
TEST(OptionsChange, EachThatMayChangeIsTakenOverAndNoOther) {
  memory::testing::FakeWindowSource windows(Roomy().windows);
  storage::ExtentStore extents;
  storage::testing::FakeTransferPort transfers;
  RecordingSink sink;
  const EngineOptions before;
  Tables tables(
      before, {.windows = windows, .extents = extents, .transfers = transfers, .manifests = nullptr, .replies = sink});
  EngineOptions other;
  other.deadline_default = seconds(7);
  other.reclaim_deadline = seconds(11);
  other.idle_after = seconds(13);
  other.tensors_per_job_max = 17;
  other.leases_per_session_max = 19;
  other.metadata_bytes_per_uid_max = 23 * kMiB;
  other.write_behind_start = 0.29;
  other.evict_start = 0.31;
  other.prefetch_bytes_max = 37 * kMiB;
  other.stall_threshold = seconds(41);
  other.kills_keepers = true;
  other.keys_per_job_max = 43;
  other.hash_seed = 47;
  other.write_budget_per_day = 53;
  ChangeOptions(tables, other);
  const EngineOptions& now = tables.options;
  EXPECT_EQ(now.deadline_default, seconds(7));
  EXPECT_EQ(now.reclaim_deadline, seconds(11));
  EXPECT_TRUE(now.kills_keepers);
  EXPECT_EQ(now.idle_after, seconds(13));
  EXPECT_EQ(now.tensors_per_job_max, 17u);
  EXPECT_EQ(now.leases_per_session_max, 19u);
  EXPECT_EQ(now.metadata_bytes_per_uid_max, 23 * kMiB);
  EXPECT_EQ(tables.metadata.figures().limit, 23 * kMiB);
  EXPECT_EQ(now.write_behind_start, 0.29);
  EXPECT_EQ(now.evict_start, 0.31);
  EXPECT_EQ(now.prefetch_bytes_max, 37 * kMiB);
  EXPECT_EQ(now.stall_threshold, seconds(41));
  EXPECT_EQ(now.write_budget_per_day, 53u);
  EXPECT_EQ(tables.write_budget.figures(tables.turn.now()).bytes_per_day, 53u);
  EXPECT_TRUE(tables.turn.TakeProgress()) << "what is overdue by now is looked at";
  EXPECT_EQ(now.keys_per_job_max, before.keys_per_job_max);
  EXPECT_EQ(now.hash_seed, before.hash_seed);
}

TEST(OptionsChange, FewerLeasesAreForRequestsThatCome) {
  World world(Roomy());
  const SessionId session = world.Open();
  world.PutEach(session, 1, 4, kPiece);
  std::vector<uint64_t> leases;
  for (uint64_t tensor = 1; tensor <= 3; ++tensor) leases.push_back(World::LeaseOf(world.Acquire(session, tensor)));
  EngineOptions options = world.options.engine;
  options.leases_per_session_max = 2;
  world.engine->SetOptions(options);
  const Answer refused = world.Acquire(session, 4);
  EXPECT_EQ(refused.code, Code::kNoMemory);
  EXPECT_THAT(refused.detail, HasSubstr("would hold 4 leases, at most 2"));
  EXPECT_EQ(refused.error.available, 0u) << "it has more than it may have by now";
  for (const uint64_t lease : leases) EXPECT_EQ(world.Release(session, lease).code, Code::kOk);
  EXPECT_EQ(world.Acquire(session, 4).code, Code::kOk);
}

TEST(OptionsChange, FewerTensorsLeaveThoseThatAreThere) {
  World world(Roomy());
  const SessionId session = world.Open();
  world.PutEach(session, 1, 4, kPiece);
  EngineOptions options = world.options.engine;
  options.tensors_per_job_max = 2;
  world.engine->SetOptions(options);
  EXPECT_EQ(world.CheckEach(session, 1, 4), Code::kOk);
  EXPECT_EQ(world.Create(session, 5, kPiece).code, Code::kNoMemory);
  options.tensors_per_job_max = 5;
  world.engine->SetOptions(options);
  EXPECT_EQ(world.Create(session, 5, kPiece).code, Code::kOk);
}

TEST(OptionsChange, WriteBehindBeginsWithoutAnotherRequest) {
  WorldOptions options = Roomy();
  options.engine.write_behind_start = 1;
  options.engine.evict_start = 1;
  World world(options);
  const JobId job = world.OpenJob();
  world.PutEach(world.OpenSession(job), 1, 20, kPiece);
  world.Turns(20);
  ASSERT_EQ(world.Job(job).swap_out_bytes, 0u);
  options.engine.write_behind_start = 0.1;
  world.engine->SetOptions(options.engine);
  world.Turns(200);
  EXPECT_GT(world.Job(job).swap_out_bytes, 0u);
}

// A client calls the daemon hung when an answer comes later than the deadline that it was told.
TEST(OptionsChange, AnotherDeadlineIsForSessionsThatCome) {
  World world(Roomy());
  const JobId job = world.OpenJob();
  const SessionId one = world.OpenSession(job);
  const SessionId two = world.OpenSession(job);
  world.Put(one, 1, kPiece, 1, proto::kFlagShared);
  const uint64_t lease = World::LeaseOf(world.Acquire(one, 1, proto::kFlagShared | proto::kFlagWrite));
  EngineOptions options = world.options.engine;
  options.deadline_default = seconds(1);
  world.engine->SetOptions(options);
  const SessionId three = world.OpenSession(job);
  const proto::RequestItem item{.tensor = 1, .offset = 0, .length = 0, .value = 0};
  const uint64_t before = world.Send(two, proto::Op::kAcquire, {item}, proto::kFlagShared);
  const uint64_t after = world.Send(three, proto::Op::kAcquire, {item}, proto::kFlagShared);
  world.Turn();
  world.Advance(seconds(2));
  world.Turns(2);
  EXPECT_FALSE(world.Answered(two, before)) << "it has the deadline that it attached with";
  ASSERT_TRUE(world.Answered(three, after));
  EXPECT_EQ(world.Answered(three, after)->code, Code::kTimeout);
  world.Advance(seconds(50));
  world.Turns(2);
  EXPECT_FALSE(world.Answered(two, before));
  EXPECT_EQ(world.Release(one, lease).code, Code::kOk);
  EXPECT_EQ(world.Wait(two, before).code, Code::kOk);
}

TEST(OptionsChange, LessMetadataEndsNoSession) {
  World world(Roomy());
  const SessionId session = world.Open();
  world.PutEach(session, 1, 20, 4096);
  EngineOptions options = world.options.engine;
  options.metadata_bytes_per_uid_max = kMiB / 1024;
  world.engine->SetOptions(options);
  world.engine->SetUnread(session, 16);
  world.Turns(2);
  EXPECT_TRUE(world.sink.ended.empty());
  EXPECT_EQ(world.Create(session, 50, 4096).code, Code::kNoMemory);
  options.metadata_bytes_per_uid_max = kGiB;
  world.engine->SetOptions(options);
  EXPECT_EQ(world.Create(session, 50, 4096).code, Code::kOk);
  EXPECT_EQ(world.CheckEach(session, 1, 20), Code::kOk);
}

}  // namespace
}  // namespace tier::tiering::testing
