// Tensors that are written anew by ranges, and writers that end before the last of them.
#include <gtest/gtest.h>

#include "daemon/tiering/leases/rewrite.h"
#include "daemon/tiering/tables/core.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;
constexpr uint64_t kSize = 3 * kPiece;
constexpr uint32_t kShared = proto::kFlagShared;
constexpr uint32_t kMore = proto::kFlagMore;

class Rewrites : public ::testing::Test {
 protected:
  Rewrites()
      : world({.engine = {.rewrites_per_session_max = 3}, .manifests = true}),
        job(world.OpenJob({.key = "1000/training", .named = true})),
        writer(world.OpenSession(job)),
        reader(world.OpenSession(job)) {
    world.Put(writer, 1, kSize, 1, kShared);
  }
  uint64_t Lease(uint64_t offset, uint64_t length, uint64_t tensor = 1) {
    const Answer granted = world.Acquire(writer, tensor, kShared | proto::kFlagWrite, offset, length);
    EXPECT_EQ(granted.code, Code::kOk) << granted.detail;
    world.Fill(granted.spans, tensor, 2, offset);
    return World::LeaseOf(granted);
  }
  Answer Release(uint64_t lease, uint32_t flags, uint64_t offset = 0, uint64_t length = kSize) {
    return world.Ask(writer, Op::kRelease, {{0, offset, length, lease}}, flags);
  }
  Answer Write(uint32_t piece, uint32_t flags) { return Release(Lease(piece * kPiece, kPiece), flags); }
  bool Torn() { return (world.Ask(reader, Op::kStat, {{1, 0, 0, 0}}, kShared).value & proto::kTensorTorn) != 0; }

  World world;
  JobId job;
  SessionId writer;
  SessionId reader;
};

TEST_F(Rewrites, OfAWriterThatDiesBetweenRangesAreTorn) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  EXPECT_EQ(Write(2, kMore).code, Code::kOk);
  EXPECT_FALSE(Torn()) << "its writer may still end it";
  world.engine->EndSession(writer, "killed");
  EXPECT_EQ(world.Check(reader, 1, 1, kShared), Code::kTorn);
  EXPECT_EQ(world.Acquire(reader, 1, kShared, kPiece, 10).code, Code::kTorn) << "its old part as well";
  EXPECT_EQ(world.Rewrite(reader, 1, 3, kShared | proto::kFlagDiscard).code, Code::kOk);
  EXPECT_EQ(world.Check(reader, 1, 3, kShared), Code::kOk);
}

TEST_F(Rewrites, ThatWereEndedAreWhole) {
  for (const uint32_t piece : {0u, 2u}) EXPECT_EQ(Write(piece, kMore).code, Code::kOk);
  EXPECT_EQ(Write(1, 0).code, Code::kOk);
  world.engine->EndSession(writer, "killed");
  EXPECT_EQ(world.Check(reader, 1, 2, kShared), Code::kOk);
}

TEST_F(Rewrites, OfAPartTearThatPartOnly) {
  EXPECT_EQ(Release(Lease(0, kPiece), kMore, 0, 2 * kPiece).code, Code::kOk);
  world.engine->EndSession(writer, "killed");
  EXPECT_TRUE(Torn());
  const Answer rest = world.Acquire(reader, 1, kShared | proto::kFlagWrite | proto::kFlagDiscard, 0, 2 * kPiece);
  EXPECT_EQ(world.Release(reader, World::LeaseOf(rest)).code, Code::kOk);
  EXPECT_FALSE(Torn());
}

TEST_F(Rewrites, ThatLieOverEachOtherTearTheirUnionOnce) {
  EXPECT_EQ(Release(Lease(0, kPiece), kMore, 0, 2 * kPiece).code, Code::kOk);
  EXPECT_EQ(Release(Lease(kPiece, kPiece), kMore, 0, kSize).code, Code::kOk);
  EXPECT_EQ(Release(Lease(kPiece, kPiece), kMore, kPiece, kPiece).code, Code::kOk);
  world.engine->EndSession(writer, "killed");
  EXPECT_TRUE(Torn());
  EXPECT_EQ(world.Ask(reader, Op::kAccept, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  EXPECT_FALSE(Torn());
}

TEST_F(Rewrites, ThatTheWriterTearsItselfAreEnded) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  EXPECT_EQ(world.Ask(writer, Op::kTear, {{1, 0, kSize, 0}}, kShared).code, Code::kOk);
  EXPECT_EQ(world.Ask(reader, Op::kAccept, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  world.engine->EndSession(writer, "killed");
  EXPECT_FALSE(Torn());
}

TEST_F(Rewrites, WhoseTearWaitsForItsTurnAreNotForgottenMeanwhile) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  std::vector<proto::RequestItem> many(proto::kItemsPerRequestMax, {1, 0, 0, 0});
  for (uint32_t looks = 0; looks < 2 * kWorkPerTurn; looks += 3 * proto::kItemsPerRequestMax) {
    world.Send(reader, Op::kDrop, many, kShared);  // All the looks of this turn.
  }
  const uint64_t tearing = world.Send(writer, Op::kTear, {{1, 0, kSize, 0}}, kShared);
  ASSERT_FALSE(world.Answered(writer, tearing));
  world.engine->EndSession(writer, "killed");
  EXPECT_TRUE(Torn());
}

TEST_F(Rewrites, ThatSomebodyWroteWholeSinceAreForgotten) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  EXPECT_EQ(world.Rewrite(reader, 1, 5, kShared).code, Code::kOk);
  EXPECT_EQ(world.Ask(reader, Op::kPersist, {}).code, Code::kOk) << "nothing to wait for";
  world.engine->EndSession(writer, "killed");
  EXPECT_EQ(world.Check(reader, 1, 5, kShared), Code::kOk);
}

TEST_F(Rewrites, ThatSomebodyAcceptedSinceAreForgotten) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  EXPECT_EQ(world.Ask(reader, Op::kTear, {{1, 0, 1, 0}}, kShared).code, Code::kOk);
  EXPECT_EQ(world.Ask(reader, Op::kAccept, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  world.engine->EndSession(writer, "killed");
  EXPECT_FALSE(Torn());
}

TEST_F(Rewrites, GoWithTheirTensor) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  EXPECT_EQ(world.Free(reader, 1, kShared).code, Code::kOk);
  world.Put(reader, 1, kSize, 7, kShared);
  world.engine->EndSession(writer, "killed");
  EXPECT_EQ(world.Check(reader, 1, 7, kShared), Code::kOk);
}

TEST_F(Rewrites, UnderALeaseAtDeathTearWhatWasSealedToo) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  Lease(kPiece, kPiece);
  world.engine->EndSession(writer, "killed");
  EXPECT_TRUE(Torn());
  EXPECT_EQ(world.Ask(reader, Op::kAccept, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  EXPECT_FALSE(Torn());
}

TEST_F(Rewrites, AreWaitedForByManifests) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  const uint64_t persisting = world.Send(reader, Op::kPersist, {});
  world.Turns(30);
  EXPECT_FALSE(world.Answered(reader, persisting)) << "half of it is old";
  for (const uint32_t piece : {1u, 2u}) EXPECT_EQ(Write(piece, piece == 1 ? kMore : 0).code, Code::kOk);
  EXPECT_EQ(world.Wait(reader, persisting).code, Code::kOk);
}

TEST_F(Rewrites, HoldUpNothingElseThatAManifestHasToWrite) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  world.Put(writer, 0x2a, 100, 1, kShared);
  const uint64_t persisting = world.Send(reader, Op::kPersist, {{1, 0, 0, 0}, {0x2a, 0, 0, 0}}, kShared);
  world.Turns(30);
  EXPECT_FALSE(world.Answered(reader, persisting));
  EXPECT_EQ(world.Ask(reader, Op::kStat, {{0x2a, 0, 0, 0}}, kShared).tensor.ssd_bytes, 100u);
  for (const uint32_t piece : {1u, 2u}) EXPECT_EQ(Write(piece, piece == 1 ? kMore : 0).code, Code::kOk);
  EXPECT_EQ(world.Wait(reader, persisting).code, Code::kOk);
}

TEST_F(Rewrites, ThatAManifestWaitedForTooLongAreNamed) {
  world.Put(writer, 0x2a, kSize, 1, kShared);
  EXPECT_EQ(Release(Lease(0, kPiece, 0x2a), kMore).code, Code::kOk);
  const uint64_t persisting = world.Send(reader, Op::kPersist, {{1, 0, 0, 0}, {0x2a, 0, 0, 0}}, kShared);
  world.Turns(30);
  world.Advance(std::chrono::minutes(2));
  const Answer refused = world.Wait(reader, persisting);
  EXPECT_EQ(refused.code, Code::kTimeout);
  EXPECT_EQ(refused.error.tensor, 0x2au);
  EXPECT_NE(refused.detail.find("tensor 0x2a was half rewritten"), std::string::npos) << refused.detail;
}

TEST_F(Rewrites, OfATornTensorAreRefusedToManifestsAtOnce) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  EXPECT_EQ(world.Ask(reader, Op::kTear, {{1, 0, 0, 0}}, kShared).code, Code::kOk);
  EXPECT_EQ(world.Ask(reader, Op::kPersist, {}).code, Code::kTorn);
}

TEST_F(Rewrites, ThatNeverEndAreInNoManifest) {
  EXPECT_EQ(Write(0, kMore).code, Code::kOk);
  const uint64_t persisting = world.Send(reader, Op::kPersist, {});
  world.Turns(30);
  world.engine->EndSession(writer, "killed");
  EXPECT_EQ(world.Wait(reader, persisting).code, Code::kTorn);
}

TEST_F(Rewrites, OfACreationNeedNoNote) {
  const Answer granted = world.CreateRange(writer, 2, kSize, 0, kPiece);
  EXPECT_EQ(Release(World::LeaseOf(granted), kMore).code, Code::kOk);
  EXPECT_EQ(world.Acquire(writer, 2, proto::kFlagWrite, kPiece, 2 * kPiece).code, Code::kOk);
}

TEST_F(Rewrites, AskedForInNonsenseAreRefusedAndTheLeaseEnds) {
  const std::pair<uint64_t, uint64_t> nonsense[] = {{0, 0}, {kPiece, kPiece}, {0, kSize + 1}, {UINT64_MAX, 2}, {1, 0}};
  for (const auto& [offset, length] : nonsense) {
    const Answer refused = Release(Lease(0, kPiece), kMore, offset, length);
    EXPECT_EQ(refused.code, Code::kInvalid) << offset << " + " << length;
    EXPECT_NE(refused.detail.find("a lease of bytes 0 + 2097152 of tensor 0x1"), std::string::npos) << refused.detail;
    EXPECT_EQ(world.engine->Snapshot().lease_count, 0u);
  }
  const Answer reading = world.Acquire(writer, 1, kShared);
  EXPECT_EQ(Release(World::LeaseOf(reading), 0).code, Code::kInvalid) << "nothing was written";
  EXPECT_EQ(world.engine->Snapshot().lease_count, 0u);
  world.engine->EndSession(writer, "killed");
  EXPECT_FALSE(Torn());
}

TEST_F(Rewrites, MoreThanASessionMayHaveAreRefused) {
  for (const uint64_t id : {10, 11, 12}) {
    world.Put(writer, id, 2 * kPiece, 1, kShared);
    ASSERT_EQ(Release(Lease(0, kPiece, id), kMore, 0, 2 * kPiece).code, Code::kOk) << id;
  }
  const Answer refused = Write(0, kMore);
  EXPECT_EQ(refused.code, Code::kInvalid);
  EXPECT_NE(refused.detail.find("3 tensors half rewritten"), std::string::npos) << refused.detail;
  EXPECT_EQ(world.Free(writer, 10, kShared).code, Code::kOk);
  EXPECT_EQ(Write(0, kMore).code, Code::kOk) << "that one is gone";
}

}  // namespace
}  // namespace tier::tiering::testing
