// Persists that take several turns.
#include <gtest/gtest.h>

#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

// A manifest is put together with little of each turn, while another session goes on changing a tensor: whatever the
// moment, what is resumed is one content of it.
TEST(PersistOverTurns, ATensorThatChangesMeanwhileIsPersistedWhole) {
  constexpr uint64_t kSize = 6 * kPiece;
  uint32_t later = 0;
  for (int turns = 1; turns < 40; turns += 3) {
    World world({.engine = {.work = {.submit = 64, .store = 2, .share = 32, .look = 32}}, .manifests = true});
    const JobId job = world.OpenJob(kNamed);
    const SessionId session = world.OpenSession(job);
    const SessionId other = world.OpenSession(job);
    world.Put(other, 1, kSize, 1, kShared);
    world.Put(other, 2, kSize, 2, kShared);
    for (uint64_t id = 3; id < 60; ++id) world.Put(other, id, 100, id, kShared);
    ASSERT_EQ(world.Ask(session, Op::kFlush, {}, kShared).code, Code::kOk);
    const uint64_t persisting = world.Send(session, Op::kPersist, {});
    world.Turns(turns);
    ASSERT_EQ(world.Rewrite(other, 1, 10, kShared).code, Code::kOk);
    ASSERT_EQ(world.Rewrite(other, 2, 20, kShared).code, Code::kOk);
    const Answer persisted = world.Wait(session, persisting);
    ASSERT_EQ(persisted.code, Code::kOk) << persisted.detail << " after " << turns;
    ExpectListOfManifest(world);
    world.engine->CloseJob(job, "closed", false);
    world.Turns(200);
    const SessionId resumed = world.OpenSession(world.OpenJob(kResume));
    for (const uint64_t id : {1, 2}) {
      const Answer read = world.Acquire(resumed, id, kShared);
      ASSERT_EQ(read.code, Code::kOk) << read.detail;
      const bool changed = world.Matches(read.spans, id, 10 * id);
      EXPECT_TRUE(changed || world.Matches(read.spans, id, id)) << id << " after " << turns;
      later += changed ? 1 : 0;
    }
  }
  EXPECT_GT(later, 0u) << "some were captured again";
}

TEST(PersistOverTurns, OneThatEndsInTheMiddleHoldsNothing) {
  World world({.engine = {.work = {.submit = 64, .store = 2, .share = 32, .look = 32}}, .manifests = true});
  const JobId job = world.OpenJob(kNamed);
  const SessionId dying = world.OpenSession(job);
  const SessionId session = world.OpenSession(job);
  world.Put(session, 1, 6 * kPiece, 1, kShared);
  ASSERT_EQ(world.Ask(session, Op::kFlush, {}, kShared).code, Code::kOk);
  world.Send(dying, Op::kPersist, {});
  world.Turns(8);
  const uint64_t next = world.Send(session, Op::kPersist, {});
  world.EndSession(dying, "killed");
  EXPECT_EQ(world.Wait(session, next).code, Code::kOk)
      << "one manifest of a job at a time, and the first came to nothing";
  EXPECT_EQ(world.Free(session, 1, kShared).code, Code::kOk);
  EXPECT_EQ(world.Ask(session, Op::kPersist, {}).code, Code::kOk);
  world.Turns(100);
  EXPECT_EQ(world.extents.space(0).live, 0u) << "nothing names the extents any more";
}

// Its last tensors may be of that step, and none is of a later one.
TEST(PersistOverTurns, ItsStepIsTheOneInWhichItEnds) {
  World world({.engine = {.work = {.submit = 64, .store = 64, .share = 32, .look = 32}}, .manifests = true});
  const JobId job = world.OpenJob(kNamed);
  const SessionId session = world.OpenSession(job);
  const SessionId other = world.OpenSession(job);
  for (uint64_t id = 1; id <= 20; ++id) world.Put(session, id, kPiece, id, kShared);
  world.manifests.SetDelay(50);
  const uint64_t persisting = world.Send(session, Op::kPersist, {}, kShared);
  uint64_t step = 0;
  while (!world.engine->Snapshot().jobs.front().counters.persisting) {
    world.Wait(other, world.SendArgument(other, Op::kStep, ++step));
  }
  EXPECT_GT(step, 3u) << "it took so many turns";
  EXPECT_EQ(world.Wait(session, persisting).code, Code::kOk);
  world.engine->CloseJob(job, "closed", false);
  world.Turns(9);
  const SessionId resumed = world.OpenSession(world.OpenJob(kResume));
  const uint64_t next = world.Wait(resumed, world.SendArgument(resumed, Op::kStep, UINT64_MAX)).value;
  EXPECT_GE(next, step) << "the manifest was captured in steps up to that";
  EXPECT_LE(next, step + 1);
}

}  // namespace
}  // namespace tier::tiering::testing
