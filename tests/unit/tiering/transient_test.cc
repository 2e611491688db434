// Tensors that are of no use to a later run.
#include <gtest/gtest.h>

#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

// Such as activations, which each session numbers in the same way.
TEST_F(Persist, WhatIsTransientIsLeftOutUnlessItIsNamed) {
  const SessionId other = world.OpenSession(job);
  for (const SessionId each : {session, other}) world.Put(each, 7, kPiece, 7, proto::kFlagTransient);
  world.Put(session, 1, kPiece, 1);
  world.Put(session, 2, kPiece, 2, kShared | proto::kFlagTransient);
  EXPECT_EQ(world.Ask(session, proto::Op::kFlush, {}).code, Code::kOk) << "a flush means it too";
  EXPECT_EQ(world.Job(job).dirty_bytes, kPiece) << "of the other session";
  ASSERT_EQ(PersistAll().code, Code::kOk);
  world.EndSession(other, "left");
  Reopen();
  EXPECT_EQ(world.Check(session, 1, 1), Code::kOk);
  EXPECT_EQ(world.Check(session, 2, 2, kShared), Code::kNotFound);
  EXPECT_EQ(world.Check(session, 7, 7), Code::kNotFound);
  world.Put(session, 7, kPiece, 8, proto::kFlagTransient);
  ASSERT_EQ(world.Ask(session, proto::Op::kPersist, {{7, 0, 0, 0}}).code, Code::kOk);
  Reopen();
  EXPECT_EQ(world.Check(session, 7, 8), Code::kOk);
}

}  // namespace
}  // namespace tier::tiering::testing
