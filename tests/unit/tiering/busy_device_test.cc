// Devices that hang, are full or busy, or were found bad in places by an earlier run: who is told, and what goes on.
#include <cerrno>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr uint64_t kPiece = kBlockSize;
constexpr uint64_t kArena = 16 * kMiB;

// Every block of the device; the block `bad` fails, the others do not.
void TakeAllAndFail(storage::ExtentStore& store, uint32_t bad) {
  std::vector<storage::Extent> taken;
  while (const auto extent = store.Allocate(kPagesPerBlock)) taken.push_back(*extent);
  for (const storage::Extent extent : taken) {
    extent.run.block == bad ? store.SetInDoubt(extent, true) : store.Free(extent);
  }
  store.EndDoubts(0, storage::Doubt::kOfPlaces);
}

// It fails, and once more when nothing else is left.
void QuarantineBlock(storage::ExtentStore& store, uint32_t bad) {
  TakeAllAndFail(store, bad);
  std::vector<storage::Extent> taken;
  while (const auto extent = store.Allocate(kPagesPerBlock)) taken.push_back(*extent);
  store.OnTurnEnded();
  for (const storage::Extent extent : taken) store.Free(extent);
  TakeAllAndFail(store, bad);
}

// What is refused at the deadline names the device that hangs, and says nothing of leases.
void ExpectHangNamed(const Answer& refused, Code code, const char* transfers) {
  EXPECT_EQ(refused.code, code);
  EXPECT_NE(refused.detail.find(transfers), std::string::npos) << refused.detail;
  EXPECT_EQ(refused.detail.find("release leases"), std::string::npos) << refused.detail;
  EXPECT_EQ(refused.detail.find("end write leases"), std::string::npos) << refused.detail;
}

TEST(QuarantineTest, IsKeptOverARestartUntilTheDeviceIsRetried) {
  WorldOptions options{
      .windows = {.window_size = 64 * kMiB, .arena_max_bytes = 128 * kMiB}, .device_blocks = 16, .manifests = true};
  World first(options);
  const storage::Extent bad{.run = {.block = 3, .page = 0, .pages = kPagesPerBlock}};
  QuarantineBlock(first.extents, bad.run.block);
  ASSERT_EQ(first.extents.total().quarantined, kPiece);
  first.Turn();
  EXPECT_EQ(first.manifests.Quarantined(0), std::vector{bad.run});

  options.quarantines = first.manifests.shared_quarantines();
  World second(options);
  const SessionId session = second.Open();
  EXPECT_EQ(second.extents.total().quarantined, kPiece) << "before anything is allocated";
  for (uint64_t tensor = 1; tensor <= 14; ++tensor) second.PutOnSsd(session, tensor, kPiece);
  for (const PiecePlace& place : second.engine->NamedPlaces()) {
    if (!place.extent) continue;
    EXPECT_NE(place.extent.run.block, bad.run.block);
  }
  EXPECT_EQ(second.engine->RetryDevice(1).error().code, Code::kNotFound);
  ASSERT_TRUE(second.engine->RetryDevice(0));
  second.Turn();
  EXPECT_TRUE(second.manifests.Quarantined(0).empty());
  EXPECT_EQ(second.extents.total().quarantined, 0u);
  second.Put(session, 100, kPiece, 100);
  EXPECT_EQ(second.Flush(session, 100).code, Code::kOk) << "the place is what is kept for exchange now";
  EXPECT_EQ(second.extents.total().live, 15 * kPiece);
  EXPECT_EQ(second.CheckEach(session, 100, 100), Code::kOk);
  EXPECT_FALSE(second.extents.Allocate(kPagesPerBlock)) << "not before this turn ends";
  second.extents.OnTurnEnded();
  const auto last = second.extents.Allocate(kPagesPerBlock);
  ASSERT_TRUE(last) << "nothing else is left";
  EXPECT_EQ(last->run.block, bad.run.block);
  second.extents.Free(*last);
}

TEST(DeviceStates, RefusalsNameADeviceThatHangs) {
  World world({.windows = {.window_size = kArena, .arena_max_bytes = kArena},
               .engine = {.deadline_default = seconds(4)},
               .device_blocks = 32});
  const SessionId session = world.Open();
  world.PutOnSsd(session, 100, kPiece);
  world.PutEach(session, 1, 4, kPiece);
  world.transfers.HangDevice(0);
  ExpectHangNamed(world.Acquire(session, 100), Code::kTimeout, "reads from SSD device 0 are not finishing");
  ExpectHangNamed(world.Flush(session, 1), Code::kTimeout, "writes to SSD device 0 are not finishing");
  world.transfers.HealDevice(0);
  world.Turns(20);
  world.Free(session, 100);
  world.PutEach(session, 5, 8, kPiece);
  world.Rewrite(session, 1, 1);
  world.transfers.HangDevice(0);
  ExpectHangNamed(world.Create(session, 9, 8 * kPiece), Code::kNoMemory, "writes to SSD device 0 are not finishing");
}

TEST(DeviceStates, AFullDeviceIsNoOther) {
  World world({.windows = {.window_size = 32 * kMiB, .arena_max_bytes = 32 * kMiB},
               .transfers = {.device_count = 2},
               .device_blocks = 4});
  const SessionId session = world.Open();
  world.transfers.FailWritesOf(1, EROFS);
  for (uint64_t tensor = 1; tensor <= 4; ++tensor) {
    world.Put(session, tensor, kPiece, tensor);
    ASSERT_EQ(world.Flush(session, tensor).code, Code::kOk);
  }
  world.Put(session, 5, kPiece, 5);
  const base::TimePoint asked = world.now;
  const Answer refused = world.Flush(session, 5);
  EXPECT_EQ(refused.code, Code::kIoError) << refused.detail;
  EXPECT_NE(refused.detail.find("Read-only file system"), std::string::npos) << refused.detail;
  EXPECT_LE(world.now - asked, seconds(10)) << "device 0 has no room, and nothing waits for it";
}

TEST(DeviceStates, ABusyDeviceIsAnother) {
  World world({.windows = {.window_size = 32 * kMiB, .arena_max_bytes = 32 * kMiB},
               .transfers = {.inflight_max = 64, .device_count = 2},
               .device_blocks = 64});
  const SessionId session = world.Open();
  world.PutEach(session, 1, 80, kPiece / 8);
  world.transfers.HangDevice(1);  // For 2 ms: it has its part under way.
  world.transfers.FailDevice(0, EIO);
  std::vector<uint64_t> asked;
  for (uint64_t tensor = 1; tensor <= 80; ++tensor)
    asked.push_back(world.Send(session, Op::kFlush, {{tensor, 0, 0, 0}}));
  for (int turn = 0; turn < 2; ++turn) {
    world.Turn();
    world.Advance(milliseconds(1));
  }
  world.transfers.HealDevice(1);
  for (int turn = 0; turn < 100; ++turn) {
    world.Turn();
    world.Advance(milliseconds(1));
  }
  for (const uint64_t flush : asked) {
    ASSERT_TRUE(world.Answered(session, flush).has_value()) << "the healthy device is left idle";
    EXPECT_EQ(world.Answered(session, flush)->code, Code::kOk);
  }
}

TEST(DeviceStates, ReadsThatHangLeaveThePortToTheOtherDevice) {
  World world({.windows = {.window_size = 16 * kMiB, .arena_max_bytes = 160 * kMiB},
               .transfers = {.inflight_max = 8, .device_count = 2},
               .device_blocks = 64});
  const SessionId a = world.Open();
  const SessionId b = world.Open();
  for (uint64_t tensor = 1; tensor <= 20; ++tensor) world.PutOnSsd(a, tensor, kPiece);
  world.Put(b, 1, kPiece);
  world.transfers.HangDevice(0);
  for (const PiecePlace& place : world.engine->NamedPlaces()) {
    if (place.extent && place.extent.device == 0) world.Send(a, Op::kAcquire, {{place.tensor, 0, 0, 0}});
  }
  world.Turns(10);
  const Answer flushed = world.Flush(b, 1);
  EXPECT_EQ(flushed.code, Code::kOk) << flushed.detail;
}

}  // namespace
}  // namespace tier::tiering::testing
