// Pieces that lie on SSD in several runs, because no single one is free: written, read, persisted, resumed, failed.
#include <memory>
#include <vector>

#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using storage::TransferOutcome;

constexpr uint64_t kQuarter = kBlockSize / 4;
constexpr uint32_t kSmall = 4 * kPagesPerBlock;  // Tensors of one page, in all blocks but one.

class Scattered : public ::testing::Test {
 protected:
  Scattered() : Scattered(WorldOptions{.device_blocks = 5, .manifests = true}) {}
  explicit Scattered(WorldOptions options)
      : world(std::make_unique<World>(std::move(options))),
        job(world->OpenJob(kNamed)),
        session(world->OpenSession(job)) {
    for (uint32_t i = 0; i < kSmall; ++i) world->Put(session, FirstSmall() + i, kPageSize, 1, kShared);
    EXPECT_EQ(world->Ask(session, Op::kFlush, {}).code, Code::kOk);
    for (uint32_t i = 1; i < kSmall; i += 2) world->Free(session, FirstSmall() + i, kShared);
    world->Turns(5);
    world->Put(session, FirstSmall() - 1, kBlockSize, 1, kShared);
    EXPECT_EQ(world->Flush(session, FirstSmall() - 1, kShared).code, Code::kOk);
  }
  static uint64_t FirstSmall() { return 1000; }

  storage::Extent ExtentOf(uint64_t tensor) const {
    for (const PiecePlace& place : world->engine->NamedPlaces()) {
      if (place.tensor == tensor) return place.extent;
    }
    return {};
  }
  void CheckAll() {
    EXPECT_EQ(world->CheckEach(session, 1, 4), Code::kOk);
    for (uint32_t i = 0; i < kSmall; i += 2) {
      ASSERT_EQ(world->Check(session, FirstSmall() + i, 1, kShared), Code::kOk) << i;
    }
  }

  std::unique_ptr<World> world;
  JobId job;
  SessionId session;
};

TEST_F(Scattered, WhatFitsOnlyInHolesIsWrittenAndReadBack) {
  for (uint64_t tensor = 1; tensor <= 4; ++tensor) world->PutOnSsd(session, tensor, kQuarter, tensor);
  EXPECT_TRUE(ExtentOf(1).scattered);
  EXPECT_EQ(world->extents.total().free, kBlockSize) << "what is kept for exchange";
  CheckAll();
  world->Free(session, 2);
  world->Turns(5);
  world->PutOnSsd(session, 2, kQuarter, 2);
  CheckAll();
}

TEST_F(Scattered, WhatIsPersistedInHolesIsResumed) {
  for (uint64_t tensor = 1; tensor <= 4; ++tensor) world->Put(session, tensor, kQuarter, tensor, kShared);
  ASSERT_EQ(world->Ask(session, Op::kPersist, {}).code, Code::kOk);
  EXPECT_TRUE(ExtentOf(1).scattered);
  ExpectListOfManifest(*world);
  const uint64_t live = world->extents.total().live;
  WorldOptions options = After(*world);
  options.device_blocks = world->options.device_blocks;
  world = std::make_unique<World>(std::move(options));
  EXPECT_EQ(world->extents.total().live, live);
  job = world->OpenJob(kResume);
  session = world->OpenSession(job);
  for (uint64_t tensor = 1; tensor <= 4; ++tensor) {
    EXPECT_EQ(world->Check(session, tensor, tensor, kShared), Code::kOk) << tensor;
    EXPECT_TRUE(ExtentOf(tensor).scattered);
  }
  for (uint64_t tensor = 1; tensor <= 4; ++tensor) world->Free(session, tensor, kShared);
  ASSERT_EQ(world->Ask(session, Op::kPersist, {}).code, Code::kOk);
  world->Turns(50);
  EXPECT_EQ(world->extents.total().live, live - 4 * kQuarter);
}

TEST_F(Scattered, ARunThatFailsIsPutAsideAndTheOthersAreUsedAgain) {
  world->Put(session, 1, kQuarter);
  world->transfers.FailNext({.outcome = TransferOutcome::kDeviceError, .failed_at = kQuarter - kPageSize});
  world->Send(session, Op::kFlush, {});
  for (int turn = 0; turn < 50 && world->extents.total().doubtful == 0; ++turn) {
    world->Turn();
    world->Advance(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(world->extents.total().doubtful, kPageSize);
  EXPECT_EQ(world->Flush(session, 1).code, Code::kOk);
  EXPECT_EQ(world->Check(session, 1), Code::kOk);
}

}  // namespace
}  // namespace tier::tiering::testing
