// A commit whose outcome is unknown: whichever manifest the next daemon finds, its bytes are whole.
#include <gmock/gmock.h>

#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using ::testing::HasSubstr;

constexpr uint64_t kTensors = 8;
constexpr uint64_t kNewer = 100;  // Added to the seed of a tensor that was written again.

// `GetParam()`: the lost commit was made, and the next daemon finds the newer manifest.
class UnknownCommit : public Persist, public ::testing::WithParamInterface<bool> {
 protected:
  // Two generations of each tensor; the second one's manifest is lost on its way.
  Answer LoseSecondManifest() {
    world.PutEach(session, 1, kTensors, kPiece, kShared);
    EXPECT_EQ(PersistAll().code, Code::kOk);
    for (uint64_t tensor = 1; tensor <= kTensors; ++tensor) {
      EXPECT_EQ(world.Rewrite(session, tensor, kNewer + tensor, kShared).code, Code::kOk);
    }
    world.manifests.LoseNext(GetParam());
    return PersistAll();
  }
  // Everything is freed, and what is free erased.
  void EraseWhatIsFree() {
    for (uint64_t tensor = 1; tensor <= kTensors; ++tensor) world.Free(session, tensor, kShared);
    EXPECT_EQ(world.EraseFree(), world.options.device_blocks - 2 * kTensors);
  }
  void ExpectWholeManifest() {
    World next(After(world));
    const SessionId resumed = next.OpenSession(next.OpenJob(kResume));
    for (uint64_t tensor = 1; tensor <= kTensors; ++tensor) {
      const uint64_t seed = GetParam() ? kNewer + tensor : tensor;
      EXPECT_EQ(next.Check(resumed, tensor, seed, kShared), Code::kOk) << "tensor " << tensor;
    }
  }
};

TEST_P(UnknownCommit, KeepsTheBytesOfBothManifestsUntilARestart) {
  const Answer lost = LoseSecondManifest();
  EXPECT_EQ(lost.code, Code::kIoError);
  EXPECT_THAT(lost.detail, HasSubstr("unknown"));
  EXPECT_THAT(lost.detail, HasSubstr("restart of tierd will tell"));
  EraseWhatIsFree();
  ExpectWholeManifest();
}

TEST_P(UnknownCommit, KeepsTheBytesOfBothManifestsAfterTheJobWasClosed) {
  (void)LoseSecondManifest();
  world.engine->CloseJob(job, "closed", true);
  world.Turns(10);
  EXPECT_EQ(world.EraseFree(), world.options.device_blocks - 2 * kTensors);
  ExpectWholeManifest();
}

TEST_P(UnknownCommit, RefusesEveryLaterPersistAndResumeWithTheSameReason) {
  EXPECT_EQ(world.engine->Snapshot().index_failure, "");
  const std::string reason = LoseSecondManifest().detail;
  EXPECT_THAT(world.engine->Snapshot().index_failure, HasSubstr("unknown")) << "administrators see it too";
  const auto expect_refused = [&](Code code, const std::string& detail) {
    EXPECT_EQ(code, Code::kIoError);
    EXPECT_EQ(detail, reason);
  };
  const Answer again = PersistAll();
  expect_refused(again.code, again.detail);
  const SessionId other = world.Open({.key = "1000/other", .named = true});
  world.Put(other, 1, kPiece, 1, kShared);
  const Answer others = world.Ask(other, Op::kPersist, {});
  expect_refused(others.code, others.detail);
  world.engine->CloseJob(job, "closed", false);
  world.Turns(5);
  const Error resumed = world.engine->OpenJob(JobId{77}, kResume).error();
  expect_refused(resumed.code, resumed.message);
  const Error removed = world.engine->DeleteStoredManifest(kNamed.key).error();
  expect_refused(removed.code, removed.message);
}

// Nothing was persisted before, so the job has no manifest that it could be removed or resumed by.
TEST_P(UnknownCommit, OfAFirstManifestKeepsItsBytesToo) {
  world.PutEach(session, 1, kTensors, kPiece, kShared);
  world.manifests.LoseNext(GetParam());
  EXPECT_EQ(PersistAll().code, Code::kIoError);
  world.engine->CloseJob(job, "closed", false);
  world.Turns(10);
  EXPECT_EQ(world.extents.total().live, kTensors * kPiece);
  EXPECT_EQ(world.engine->OpenJob(JobId{77}, kResume).error().code, Code::kIoError);
}

INSTANTIATE_TEST_SUITE_P(Outcomes, UnknownCommit, ::testing::Bool(),
                         [](const auto& made) { return made.param ? "Made" : "NotMade"; });

}  // namespace
}  // namespace tier::tiering::testing
