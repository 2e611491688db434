// What records of users may take of the daemon's own memory, and that one user's do not cost another a request.
#include <malloc.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using ::testing::HasSubstr;

constexpr uint64_t kBudget = 256 * kKiB;
constexpr uint64_t kLargerBudget = 4 * kMiB;
constexpr uint32_t kShared = proto::kFlagShared;
const std::vector<proto::RequestItem> kLongest(proto::kItemsPerRequestMax, {.tensor = 1});

WorldOptions WithBudget(uint64_t bytes) { return {.engine = {.metadata_bytes_per_uid_max = bytes}}; }

class Metadata : public ::testing::Test {
 protected:
  explicit Metadata(uint64_t budget = kBudget)
      : world(WithBudget(budget)), neighbour(world.Open({.uid = 2})), job(world.OpenJob({.uid = 1})) {
    for (int i = 0; i < 8; ++i) sessions.push_back(world.OpenSession(job));
    session = sessions.front();
  }
  uint64_t Charged(MetadataKind kind) const {
    return world.engine->Snapshot().metadata.of_kind[static_cast<size_t>(kind)];
  }
  uint64_t OfLargestUser() const { return world.engine->Snapshot().metadata.of_largest_user; }
  // Answers that are not read leave so many bytes to everything else.
  void Leave(uint64_t bytes) { world.engine->SetUnread(sessions.back(), kBudget - bytes); }
  // Another user creates, reads and frees.
  void ExpectNeighbourIsServed() {
    world.Put(neighbour, 77, 5000);
    EXPECT_EQ(world.Check(neighbour, 77), Code::kOk);
    EXPECT_EQ(world.Free(neighbour, 77).code, Code::kOk);
  }
  // A shared tensor 1 that another session writes.
  SessionId LeaseForWriting() {
    const SessionId writer = world.OpenSession(job);
    world.Put(writer, 1, 4096, 1, kShared);
    EXPECT_EQ(world.Acquire(writer, 1, kShared | proto::kFlagWrite).code, Code::kOk);
    return writer;
  }
  // Creates small tensors from `first` on until the user's metadata is used up. Returns how many.
  uint64_t FillWithTensors(uint64_t first, Answer* refusal) {
    uint64_t created = 0;
    for (const uint64_t batch : {200, 10, 1}) {
      for (;;) {
        std::vector<proto::RequestItem> items;
        for (uint64_t i = 0; i < batch; ++i) items.push_back({.tensor = first + created + i, .value = 1});
        *refusal = world.Ask(session, Op::kCreate, items);
        if (refusal->code != Code::kOk) break;
        for (uint64_t i = 0; i < batch; ++i) items[i].value = World::LeaseOf(*refusal, static_cast<uint32_t>(i));
        EXPECT_EQ(world.Ask(session, Op::kRelease, items).code, Code::kOk);
        created += batch;
      }
    }
    return created;
  }

  World world;
  SessionId neighbour;
  JobId job;
  std::vector<SessionId> sessions;
  SessionId session{};
};

class LargerMetadata : public Metadata {
 protected:
  LargerMetadata() : Metadata(kLargerBudget) {}
};

TEST_F(LargerMetadata, RequestsThatWaitForALeaseStayWithinTheBudgetOfTheirUser) {
  LeaseForWriting();
  for (const Op op : {Op::kAcquire, Op::kFree}) {
    const uint64_t heap = ::mallinfo2().uordblks;
    Answer refused;
    for (uint32_t i = 0; i < 60; ++i) {  // 20 MiB of items.
      for (const SessionId waiting : sessions) {
        const uint64_t sequence = world.Send(waiting, op, kLongest, kShared);
        world.engine->Turn(world.now);
        if (const auto answer = world.Answered(waiting, sequence)) refused = *answer;
      }
    }
    EXPECT_LE(OfLargestUser(), kLargerBudget + kLargerBudget / 16);
    EXPECT_LE(::mallinfo2().uordblks, heap + 2 * kLargerBudget) << "the test keeps the answers";
    EXPECT_EQ(refused.code, Code::kNoMemory);
    EXPECT_THAT(refused.detail, HasSubstr("the jobs of uid 1 have"));
    EXPECT_THAT(refused.detail, HasSubstr("jobs.max_metadata"));
    EXPECT_EQ(refused.error.limit, kLargerBudget);
    EXPECT_LT(refused.error.available, refused.error.requested);
    EXPECT_GE(world.engine->Snapshot().metadata.refusals, 400u);
    ExpectNeighbourIsServed();
  }
  for (const SessionId waiting : sessions) world.EndSession(waiting, "done");
  while (world.Turn()) {
  }
  EXPECT_EQ(Charged(MetadataKind::kRequests), 0u);
}

TEST_F(Metadata, TensorsStayWithinTheBudgetAndCanBeFreedAtItsEnd) {
  Leave(96 * kKiB);
  Answer refusal;
  const uint64_t created = FillWithTensors(1, &refusal);
  EXPECT_GE(created, 250u);
  EXPECT_LE(created, 450u);
  EXPECT_EQ(refusal.code, Code::kNoMemory);
  EXPECT_THAT(refusal.detail, HasSubstr("for tensors"));
  EXPECT_LE(OfLargestUser(), kBudget);
  ExpectNeighbourIsServed();
  for (uint64_t id = 1; id <= 100; ++id) ASSERT_EQ(world.Free(session, id).code, Code::kOk) << id;
  EXPECT_EQ(world.Create(session, 1, 1).code, Code::kOk);
}

TEST_F(Metadata, FreesAndReleasesAreServedWithoutAnyRoom) {
  world.Put(session, 1, 4096);
  const Answer held = world.Acquire(session, 1);
  ASSERT_EQ(held.code, Code::kOk);
  Leave(32 * kKiB);
  Answer refusal;
  FillWithTensors(2, &refusal);
  world.engine->SetUnread(sessions[1], refusal.error.available);
  EXPECT_EQ(world.engine->Snapshot().metadata.of_largest_user, kBudget);
  const uint64_t waits = world.Send(session, Op::kFree, {{.tensor = 1}});
  world.Turn();
  EXPECT_FALSE(world.Answered(session, waits)) << "it waits in the reserve";
  EXPECT_EQ(world.Free(session, 2).code, Code::kOk);
  EXPECT_EQ(world.Release(session, World::LeaseOf(held)).code, Code::kOk);
  EXPECT_EQ(world.Wait(session, waits).code, Code::kOk);
}

TEST_F(Metadata, KeysOfAllJobsOfAUserStayWithinTheBudget) {
  std::vector<SessionId> others;
  for (int i = 0; i < 4; ++i) others.push_back(world.Open({.key = "1/job" + std::to_string(i), .uid = 1}));
  const auto intern = [&](SessionId of, const std::string& key) { return world.Wait(of, world.SendText(of, key)); };
  Answer last;
  uint64_t keys = 0;
  for (; keys < 1000 && last.code == Code::kOk; ++keys) {
    const SessionId of = others[keys % others.size()];
    last = intern(of, std::to_string(keys) + std::string(1000, 'x'));
    if (last.code == Code::kOk) last = world.Create(of, last.value, 1);  // In use: never forgotten.
    if (last.code == Code::kOk) last = world.Release(of, World::LeaseOf(last));
  }
  EXPECT_EQ(last.code, Code::kNoMemory);
  EXPECT_THAT(last.detail, HasSubstr("for keys"));
  EXPECT_GE(keys, 100u);
  EXPECT_LE(OfLargestUser(), kBudget);
  EXPECT_EQ(intern(others[0], "0" + std::string(1000, 'x')).code, Code::kOk) << "known";
  EXPECT_EQ(intern(neighbour, "a key").code, Code::kOk);
  world.EndSession(others[0], "done");
  world.Turns(3);
  EXPECT_EQ(intern(others[1], "another").code, Code::kOk) << "its job is gone";
}

TEST_F(Metadata, WithoutRoomNewKeysTakeThePlaceOfUnusedOnes) {
  for (uint64_t i = 0; i < 5000; ++i) {
    const std::string key = std::to_string(i) + std::string(1000, 'x');
    ASSERT_EQ(world.Wait(session, world.SendText(session, key)).code, Code::kOk) << i;
  }
  EXPECT_LE(OfLargestUser(), kBudget);
}

TEST_F(Metadata, LeasesStayWithinTheBudget) {
  world.Put(session, 1, 4096);
  Answer last;
  uint32_t granted = 0;
  for (; granted < 60 && last.code == Code::kOk; ++granted) last = world.Ask(session, Op::kAcquire, kLongest);
  EXPECT_EQ(last.code, Code::kNoMemory);
  EXPECT_THAT(last.detail, HasSubstr("for leases"));
  EXPECT_GE(granted, 4u);
  EXPECT_LE(OfLargestUser(), kBudget);
  ExpectNeighbourIsServed();
}

// Each seal of a part leaves a record of an unfinished update, which nobody could refuse any more.
TEST_F(Metadata, UpdatesThatSessionsLeaveUnfinishedStayWithinTheBudget) {
  constexpr uint64_t kTensors = 20;
  Leave(24 * kKiB);
  for (uint64_t id = 1; id <= kTensors; ++id) world.Put(session, id, kBlockSize + 1, 1, kShared);
  Answer last;
  uint64_t updates = 0;
  for (const SessionId writer : sessions) {
    for (uint64_t id = 1; id <= kTensors && last.code == Code::kOk; ++id) {
      last = world.Acquire(writer, id, kShared | proto::kFlagWrite, kBlockSize, 1);
      if (last.code != Code::kOk) break;
      EXPECT_EQ(world.Release(writer, World::LeaseOf(last)).code, Code::kOk);
      ++updates;
    }
  }
  EXPECT_EQ(last.code, Code::kNoMemory);
  EXPECT_THAT(last.detail, HasSubstr("for updates"));
  EXPECT_GE(updates, 2 * kTensors);
  EXPECT_LE(OfLargestUser(), kBudget);
  for (const SessionId writer : sessions) world.SendArgument(writer, Op::kStep, UINT64_MAX);
  world.Turn();
  EXPECT_EQ(Charged(MetadataKind::kUpdates), 0u) << "a step ends them";
}

TEST_F(Metadata, RangesOfACreationStayWithinTheBudget) {
  Leave(16 * kKiB);
  Answer last;
  uint64_t tensors = 0;
  uint64_t ranges = 0;
  while (tensors < 1000 && last.code == Code::kOk) {
    last = world.CreateRange(session, ++tensors, 4096, 0, 1);
    for (uint64_t offset = 2; offset < 4096 && last.code == Code::kOk; offset += 2, ++ranges) {
      EXPECT_EQ(world.Release(session, World::LeaseOf(last)).code, Code::kOk);
      last = world.Acquire(session, tensors, proto::kFlagWrite, offset, 1);
    }
  }
  EXPECT_EQ(last.code, Code::kNoMemory);
  EXPECT_THAT(last.detail, HasSubstr("for updates"));
  EXPECT_GE(ranges, 200u);
  EXPECT_LE(OfLargestUser(), kBudget + 32 * kKiB) << "a list of ranges doubles";
}

TEST_F(Metadata, TensorWhoseRecordsDoNotFitIsRefusedBeforeItIsMade) {
  const uint64_t before = OfLargestUser();
  world.engine->SetUnread(session, kBudget - kKiB);
  const uint64_t sent = world.Send(session, Op::kCreate, {{.tensor = 1, .length = 1, .value = 64 * kMiB}});
  EXPECT_EQ(world.Wait(session, sent).code, Code::kNoMemory) << "33 records of pieces";
  world.engine->SetUnread(session, 0);
  const Answer doubled =
      world.Ask(session, Op::kCreate, std::vector<proto::RequestItem>(100, {.tensor = 9, .length = 1, .value = 1}));
  EXPECT_EQ(doubled.code, Code::kAlreadyExists) << "the first of them stood when the second came";
  EXPECT_EQ(OfLargestUser(), before);
}

TEST_F(Metadata, ListsOfRequestsOnEverythingAreCharged) {
  constexpr uint64_t kTensors = 100;
  Leave(64 * kKiB);
  world.PutEach(session, 1, kTensors, 1);
  const Answer writing = world.Acquire(session, 1, proto::kFlagWrite);
  const uint64_t flushing = world.Send(session, Op::kFlush, {});
  world.Turns(3);
  EXPECT_FALSE(world.Answered(session, flushing));
  EXPECT_GE(Charged(MetadataKind::kRequests), kTensors * sizeof(uint64_t) * 4);
  EXPECT_EQ(world.Release(session, World::LeaseOf(writing)).code, Code::kOk);
  EXPECT_EQ(world.Wait(session, flushing).code, Code::kOk);
  EXPECT_EQ(Charged(MetadataKind::kRequests), 0u);
  Answer refusal;
  FillWithTensors(kTensors + 1, &refusal);
  const Answer refused = world.Ask(session, Op::kFlush, {});
  EXPECT_EQ(refused.code, Code::kOk) << "the reserve has room for this list";
}

TEST_F(Metadata, SessionThatLeavesMostUnreadEndsWhereAnswersDoNotFit) {
  world.engine->SetUnread(sessions[1], 225 * kKiB);
  world.engine->SetUnread(sessions[2], 25 * kKiB);
  EXPECT_EQ(world.Create(session, 1, 4096 * 1000).code, Code::kOk);
  EXPECT_EQ(Charged(MetadataKind::kAnswers), 250 * kKiB);
  world.engine->SetUnread(sessions[3], 25 * kKiB);
  world.Turn();
  ASSERT_EQ(world.sink.ended.size(), 1u);
  const auto& [code, reason] = world.sink.ended.at(static_cast<uint64_t>(sessions[1]));
  EXPECT_EQ(code, Code::kRevoked);
  EXPECT_THAT(reason, HasSubstr("225 KiB of answers wait"));
  EXPECT_THAT(reason, HasSubstr("jobs.max_metadata"));
  EXPECT_EQ(Charged(MetadataKind::kAnswers), 50 * kKiB);
  world.engine->SetUnread(sessions[2], 0);
  world.EndSession(sessions[3], "gone");
  EXPECT_EQ(Charged(MetadataKind::kAnswers), 0u);
}

TEST(MetadataOfManifests, JobWhoseRecordsDoNotFitIsNotResumedAndStaysPersisted) {
  World world({.engine = {.metadata_bytes_per_uid_max = kBudget}, .manifests = true});
  const JobOptions options{.key = "1/kept", .uid = 1, .named = true, .resume = false};
  const JobId job = world.OpenJob(options);
  const SessionId session = world.OpenSession(job);
  world.PutEach(session, 1, 200, 1);
  ASSERT_EQ(world.Ask(session, Op::kPersist, {}).code, Code::kOk);
  world.engine->CloseJob(job, "closed", false);
  world.Turns(5);
  const SessionId other = world.Open({.uid = 1});
  world.engine->SetUnread(other, kBudget - 20 * kKiB);
  JobOptions again = options;
  again.resume = true;
  ASSERT_TRUE(world.engine->OpenJob(JobId{1000}, again));
  const Status refused = world.WaitUntilOpened(JobId{1000});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNoMemory);
  EXPECT_THAT(refused.error().message, HasSubstr("jobs.max_metadata"));
  world.EndSession(other, "done");
  world.Turns(5);
  ASSERT_TRUE(world.engine->OpenJob(JobId{1001}, again));
  ASSERT_TRUE(world.WaitUntilOpened(JobId{1001}));
  EXPECT_EQ(world.Check(world.OpenSession(JobId{1001}), 200, 200), Code::kOk);
}

TEST(Deadline, IsADayAtMost) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId writer = world.OpenSession(job);
  const SessionId reader = world.OpenSession(job);
  world.Put(writer, 1, 4096, 1, kShared);
  ASSERT_EQ(world.Acquire(writer, 1, kShared | proto::kFlagWrite).code, Code::kOk);
  const proto::RequestItem item{.tensor = 1};
  world.engine->Submit(
      reader,
      {.sequence = 1, .op = Op::kAcquire, .flags = kShared, .timeout_ms = UINT32_MAX, .items = {&item, 1}, .text = {}});
  world.Turn();
  world.Advance(std::chrono::hours(24) - std::chrono::seconds(1));
  world.Turn();
  EXPECT_FALSE(world.Answered(reader, 1));
  world.Advance(std::chrono::seconds(1));
  world.Turn();
  ASSERT_TRUE(world.Answered(reader, 1));
  EXPECT_EQ(world.Answered(reader, 1)->code, Code::kTimeout);
}

}  // namespace
}  // namespace tier::tiering::testing
