// Devices that fail altogether, in places, for a while or for good, and that hang: what becomes of the other devices,
// of the bytes on them, and of the requests.
#include <algorithm>
#include <cerrno>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::milliseconds;
using std::chrono::seconds;
using storage::DeviceState;
constexpr uint64_t kPiece = kBlockSize;
constexpr uint64_t kArena = 16 * kMiB;

class DeviceStateTest : public ::testing::Test {
 protected:
  explicit DeviceStateTest(uint16_t devices = 2)
      : world_({.windows = {.window_size = kArena, .arena_max_bytes = kArena},
                .transfers = {.device_count = devices},
                .device_blocks = 32}) {
    session_ = world_.Open();
  }

  DeviceState StateOf(uint16_t device) { return world_.engine->Snapshot().devices[device].state; }
  // Takes turns until `until` holds, for so long at most.
  template <typename Until>
  bool Within(base::Duration most, Until until) {
    for (const base::TimePoint end = world_.now + most; world_.now < end; world_.Advance(milliseconds(1))) {
      while (world_.Turn()) {
      }
      if (until()) return true;
    }
    return false;
  }
  // Lets so much time pass, with the turns of an engine that is woken every 10 ms.
  void Pass(base::Duration time) {
    for (const base::TimePoint end = world_.now + time; world_.now < end;) {
      world_.Advance(milliseconds(10));
      while (world_.Turn()) {
      }
    }
  }
  bool Becomes(uint16_t device, DeviceState state, base::Duration most = seconds(60)) {
    return Within(most, [&] { return StateOf(device) == state; });
  }
  // A tensor of several pieces, written to both devices, and the device of its first piece.
  uint16_t PutStriped(uint64_t tensor) {
    world_.PutOnSsd(session_, tensor, 4 * kPiece);
    for (uint16_t device = 0; device < 2; ++device) EXPECT_NE(world_.extents.space(device).live, 0u);
    for (const PiecePlace& place : world_.engine->NamedPlaces()) {
      if (place.tensor == tensor && place.piece == 0) return place.extent.device;
    }
    ADD_FAILURE() << "tensor " << tensor << " has no place";
    return 0;
  }
  uint64_t Usable() const {
    const storage::DeviceSpace total = world_.extents.total();
    return total.capacity - total.quarantined;
  }

  World world_;
  SessionId session_{};
};

class OneDeviceTest : public DeviceStateTest {
 protected:
  OneDeviceTest() : DeviceStateTest(1) {}
};

TEST_F(DeviceStateTest, WhatLiesInRamIsNotDroppedWhileItsDeviceIsOffline) {
  const uint64_t last = world_.options.windows.arena_max_bytes / kPiece / 2;
  world_.PutEach(session_, 1, last, kPiece);
  ASSERT_EQ(world_.Ask(session_, Op::kFlush, {}).code, Code::kOk);
  ASSERT_NE(world_.extents.space(0).live, 0u);
  world_.transfers.FailDevice(0, EIO);
  for (uint64_t tensor : {100, 101}) {  // Their writes find out.
    world_.Put(session_, tensor, 2 * kPiece);
    ASSERT_EQ(world_.Flush(session_, tensor).code, Code::kOk);
    world_.Free(session_, tensor);
  }
  ASSERT_TRUE(Becomes(0, DeviceState::kOffline));
  ASSERT_EQ(world_.CheckEach(session_, 1, last), Code::kOk) << "in RAM";
  for (uint64_t tensor = 1; tensor <= last; ++tensor) world_.Drop(session_, tensor);
  EXPECT_EQ(world_.CheckEach(session_, 1, last), Code::kOk) << "dropped";
  world_.PutEach(session_, 200, 200 + 3 * last, kPiece);
  EXPECT_EQ(world_.CheckEach(session_, 1, last), Code::kOk) << "others needed the room";
  EXPECT_EQ(world_.extents.space(0).live, 0u) << "all was written to the other device";
}

TEST_F(DeviceStateTest, WhatOneDeviceFailsTheOtherTakes) {
  world_.transfers.FailDevice(0, EIO);
  for (uint64_t tensor = 1; tensor <= 12; ++tensor) {
    world_.Put(session_, tensor, kPiece, tensor);
    const base::TimePoint asked = world_.now;
    ASSERT_EQ(world_.Flush(session_, tensor).code, Code::kOk);
    EXPECT_LE(world_.now - asked, milliseconds(10)) << "no backoff for what another device takes";
  }
  EXPECT_EQ(world_.extents.space(0).live, 0u);
  EXPECT_EQ(world_.extents.space(1).live, 12 * kPiece);
  ASSERT_TRUE(Becomes(0, DeviceState::kOffline));
  EXPECT_EQ(StateOf(1), DeviceState::kOnline);
  EXPECT_EQ(Usable(), world_.extents.total().capacity) << "nothing is known of any place";
}

TEST_F(DeviceStateTest, ADeviceThatIsBackTakesItsPartAgain) {
  world_.transfers.FailDevice(0, EIO);
  world_.PutEach(session_, 1, 8, kPiece);
  for (uint64_t tensor = 1; tensor <= 8; ++tensor) ASSERT_EQ(world_.Flush(session_, tensor).code, Code::kOk);
  ASSERT_TRUE(Becomes(0, DeviceState::kOffline));
  Pass(base::TimePoint(seconds(50)) - world_.now);
  world_.transfers.HealDevice(0);
  ASSERT_TRUE(Becomes(0, DeviceState::kSuspect, seconds(6)));
  for (uint64_t tensor = 9; tensor <= 24; ++tensor) {
    world_.Put(session_, tensor, kPiece, tensor);
    ASSERT_EQ(world_.Flush(session_, tensor).code, Code::kOk);
  }
  EXPECT_EQ(StateOf(0), DeviceState::kOnline);
  EXPECT_GE(world_.extents.space(0).live, 6 * kPiece);
  EXPECT_EQ(Usable(), world_.extents.total().capacity);
  EXPECT_EQ(world_.CheckEach(session_, 1, 24), Code::kOk);
}

TEST_F(DeviceStateTest, AReadOfADeviceThatIsAwayIsRefusedAtOnceAndSucceedsLater) {
  const uint16_t device = PutStriped(1);
  world_.transfers.FailDevice(device, EIO);
  EXPECT_EQ(world_.Acquire(session_, 1).code, Code::kIoError);
  ASSERT_TRUE(Becomes(device, DeviceState::kOffline));
  const uint64_t asked = world_.Send(session_, Op::kAcquire, {{1, 0, 0, 0}});
  world_.Turn();
  world_.Turn();
  ASSERT_TRUE(world_.Answered(session_, asked).has_value()) << "it does not try the device";
  const Answer refused = *world_.Answered(session_, asked);
  EXPECT_EQ(refused.code, Code::kIoError);
  EXPECT_EQ(refused.error.tensor, 1u);
  const std::string why = "device " + std::to_string(device) + " is offline (Input/output error)";
  EXPECT_NE(refused.detail.find(why), std::string::npos) << refused.detail;
  world_.transfers.HealDevice(device);
  ASSERT_TRUE(Becomes(device, DeviceState::kSuspect, seconds(6)));
  EXPECT_EQ(world_.Check(session_, 1), Code::kOk);
}

TEST_F(DeviceStateTest, FetchingAheadLeavesADeviceThatIsAwayAlone) {
  const uint16_t device = PutStriped(1);
  world_.transfers.FailDevice(device, EIO);
  EXPECT_EQ(world_.Acquire(session_, 1).code, Code::kIoError);
  ASSERT_TRUE(Becomes(device, DeviceState::kOffline));
  const uint64_t errors = world_.transfers.traffic(device).errors;
  ASSERT_EQ(world_.Ask(session_, Op::kPrefetch, {{1, 0, 0, 0}}).code, Code::kOk);
  Pass(seconds(1));
  EXPECT_EQ(world_.transfers.traffic(device).errors, errors);
}

TEST_F(DeviceStateTest, ADeviceThatHangsLeavesThePortToTheOther) {
  world_.transfers.HangDevice(0);
  // Nothing comes back from device 0: the pieces that went there stay in RAM, and all others are written.
  for (uint64_t tensor = 1; tensor <= 60; ++tensor) {
    const Answer created = world_.Create(session_, tensor, kPiece / 8);
    ASSERT_EQ(created.code, Code::kOk) << created.detail;
    ASSERT_EQ(world_.Release(session_, World::LeaseOf(created)).code, Code::kOk);
    world_.Send(session_, Op::kFlush, {{tensor, 0, 0, 0}});
    Pass(seconds(1));
  }
  EXPECT_EQ(StateOf(0), DeviceState::kOffline);
  EXPECT_EQ(StateOf(1), DeviceState::kOnline);
  EXPECT_GE(world_.transfers.traffic(1).written_bytes, 30 * kPiece / 8);
  world_.transfers.HealDevice(0);
  ASSERT_TRUE(Within(seconds(6), [&] { return StateOf(0) != DeviceState::kOffline; }));
  EXPECT_EQ(Usable(), world_.extents.total().capacity);
}

TEST_F(DeviceStateTest, AReadThatHangsIsAnsweredWhenItsDeviceIsBack) {
  const uint16_t device = PutStriped(1);
  world_.transfers.HangDevice(device);
  const uint64_t first = world_.Send(session_, Op::kAcquire, {{1, 0, kPiece, 0}});
  ASSERT_TRUE(Becomes(device, DeviceState::kOffline));
  EXPECT_FALSE(world_.Answered(session_, first).has_value()) << "its memory is still the device's";
  world_.transfers.HealDevice(device);
  ASSERT_TRUE(Within(seconds(1), [&] { return world_.Answered(session_, first).has_value(); }));
  EXPECT_EQ(world_.Answered(session_, first)->code, Code::kOk);
}

TEST_F(OneDeviceTest, APlaceThatFailsIsPutAsideAndQuarantinedWhenItFailsAgain) {
  for (const uint32_t block : {3, 4}) {
    world_.transfers.FailExtent({.run = {.block = block, .page = 0, .pages = kPagesPerBlock}},
                                storage::TransferOutcome::kDeviceError);
  }
  // Round and round over the device.
  for (uint64_t tensor = 1; tensor <= 100; ++tensor) {
    world_.Put(session_, tensor, kPiece, tensor);
    ASSERT_EQ(world_.Flush(session_, tensor).code, Code::kOk);
    if (tensor > 16) {
      ASSERT_EQ(world_.Free(session_, tensor - 16).code, Code::kOk);
    }
  }
  EXPECT_EQ(world_.extents.total().doubtful, 2 * kPiece);
  EXPECT_EQ(world_.transfers.traffic(0).errors, 2u) << "the places are not tried while there are others";
  EXPECT_EQ(StateOf(0), DeviceState::kOnline);
  // 29 blocks for this job, one for the next; then there are only these two.
  for (uint64_t tensor = 101; tensor <= 113; ++tensor) {
    world_.Put(session_, tensor, kPiece, tensor);
    ASSERT_EQ(world_.Flush(session_, tensor).code, Code::kOk);
  }
  world_.options.returns_windows = true;
  const SessionId next = world_.Open({.uid = 1});
  world_.PutOnSsd(next, 1, kPiece);
  const SessionId last = world_.Open({.uid = 2});
  world_.Put(last, 1, kMiB);
  EXPECT_EQ(world_.Flush(last, 1).code, Code::kIoError) << "nothing else is left";
  ASSERT_EQ(world_.Free(session_, 113).code, Code::kOk);
  EXPECT_EQ(world_.Flush(last, 1).code, Code::kOk);
  EXPECT_EQ(world_.extents.total().quarantined, 2 * kMiB) << "of both blocks what failed twice";
  EXPECT_EQ(world_.CheckEach(session_, 101, 112), Code::kOk);
}

TEST_F(OneDeviceTest, AMinuteWithoutTheOnlyDeviceCostsNothing) {
  world_.PutOnSsd(session_, 1, kPiece);
  world_.transfers.FailDevice(0, EIO);
  world_.PutEach(session_, 2, 7, kPiece);
  const Answer refused = world_.Flush(session_, 2);
  EXPECT_EQ(refused.code, Code::kIoError) << refused.detail;
  ASSERT_TRUE(Becomes(0, DeviceState::kOffline));
  Pass(seconds(60));
  const Answer later = world_.Flush(session_, 3);
  EXPECT_EQ(later.code, Code::kIoError);
  EXPECT_NE(later.detail.find("1 device of 64 MiB is offline"), std::string::npos) << later.detail;
  world_.transfers.HealDevice(0);
  ASSERT_TRUE(Within(seconds(6), [&] { return StateOf(0) != DeviceState::kOffline; }));
  EXPECT_EQ(world_.Flush(session_, 2).code, Code::kOk);
  EXPECT_EQ(StateOf(0), DeviceState::kOnline);
  EXPECT_EQ(Usable(), world_.extents.total().capacity);
  EXPECT_EQ(world_.CheckEach(session_, 2, 7), Code::kOk);
  EXPECT_EQ(world_.Check(session_, 1), Code::kOk);
}

TEST_F(OneDeviceTest, ADeviceThatTakesNoWritesIsStillRead) {
  world_.PutOnSsd(session_, 1, kPiece);
  world_.transfers.FailWritesOf(0, EROFS);
  world_.Put(session_, 2, kPiece);
  EXPECT_EQ(world_.Flush(session_, 2).code, Code::kIoError);
  Pass(seconds(60));
  EXPECT_EQ(StateOf(0), DeviceState::kSuspect);
  EXPECT_EQ(world_.Check(session_, 1), Code::kOk);
  EXPECT_EQ(world_.Check(session_, 2), Code::kOk);
}

TEST_F(OneDeviceTest, ADeviceThatIsGoneIsNotProbedAnyMore) {
  world_.PutOnSsd(session_, 1, kPiece);
  world_.transfers.FailDevice(0, ENODEV);
  EXPECT_EQ(world_.Acquire(session_, 1).code, Code::kIoError);
  ASSERT_TRUE(Becomes(0, DeviceState::kGone));
  const uint64_t probes = world_.transfers.probes();
  Pass(seconds(30));
  EXPECT_EQ(world_.transfers.probes(), probes);
  const Answer refused = world_.Acquire(session_, 1);
  EXPECT_NE(refused.detail.find("device 0 is gone (No such device)"), std::string::npos) << refused.detail;
}

TEST_F(OneDeviceTest, AnIdleEngineWithASuspectDeviceSleeps) {
  world_.transfers.FailWritesOf(0, EROFS);
  world_.Put(session_, 1, kPiece);
  EXPECT_EQ(world_.Flush(session_, 1).code, Code::kIoError);
  Pass(seconds(30));
  ASSERT_EQ(world_.Free(session_, 1).code, Code::kOk);
  Pass(seconds(5));
  EXPECT_FALSE(world_.Turn());
  const auto next = world_.engine->NextDeadline();
  EXPECT_TRUE(!next || *next > world_.now) << "it would look again and again";
}

TEST_F(DeviceStateTest, APieceThatCannotLeaveDoesNotKeepTheEngineAwake) {
  const uint16_t device = PutStriped(1);
  for (const PiecePlace& place : world_.engine->NamedPlaces()) {
    if (place.extent.device == device) world_.transfers.disk().FlipByte(place.extent, 7);
  }
  ASSERT_TRUE(world_.engine->SetDeviceDraining(device, true));
  Pass(seconds(2));
  EXPECT_NE(world_.extents.space(device).live, 0u) << "what is corrupt stays, it is the only copy";
  int turns = 0;
  for (const base::TimePoint end = world_.now + seconds(1); world_.now < end;) {
    ASSERT_LE(++turns, 40) << "it is looked for again and again";
    if (world_.Turn()) continue;
    const auto next = world_.engine->NextDeadline();
    ASSERT_TRUE(next.has_value());
    world_.Advance(std::max<base::Duration>(*next - world_.now, milliseconds(0)));
  }
}

TEST_F(DeviceStateTest, AnIdleEngineEmptiesADeviceByItself) {
  const uint16_t device = PutStriped(1);
  ASSERT_TRUE(world_.engine->SetDeviceDraining(device, true));
  const base::TimePoint begin = world_.now;
  while (world_.extents.space(device).live != 0) {
    ASSERT_LE(world_.now - begin, seconds(1));
    if (world_.Turn()) continue;
    const auto next = world_.engine->NextDeadline();
    ASSERT_TRUE(next.has_value()) << "nothing would wake it";
    world_.Advance(std::max<base::Duration>(*next - world_.now, milliseconds(0)));
  }
  EXPECT_EQ(world_.Check(session_, 1), Code::kOk);
}

TEST_F(DeviceStateTest, ADrainThatIsUndoneLeavesWhatItMoved) {
  const uint16_t device = PutStriped(1);
  ASSERT_TRUE(world_.engine->SetDeviceDraining(device, true));
  ASSERT_TRUE(Within(seconds(2), [&] { return world_.extents.space(device).live == 0; }));
  ASSERT_TRUE(world_.engine->SetDeviceDraining(device, false));
  Pass(seconds(1));
  EXPECT_EQ(world_.extents.space(device).live, 0u);
  EXPECT_FALSE(world_.engine->Snapshot().devices[device].draining);
  PutStriped(2);
  EXPECT_EQ(world_.CheckEach(session_, 1, 1), Code::kOk);
}

// A write fails, another succeeds, a read fails, all told in one turn: the probe makes it online, not a write.
TEST_F(OneDeviceTest, ADeviceThatAProbeMakesOnlineTakesWritesAgain) {
  world_.PutOnSsd(session_, 1, kPiece);
  world_.PutEach(session_, 2, 3, kPiece);
  world_.transfers.FailNext({storage::Direction::kWrite, storage::TransferOutcome::kDeviceError, EIO});
  world_.transfers.FailNext({storage::Direction::kRead, storage::TransferOutcome::kDeviceError, EIO});
  const uint64_t flush = world_.Send(session_, Op::kFlush, {{2, 0, 0, 0}});
  world_.Send(session_, Op::kFlush, {{3, 0, 0, 0}});
  world_.Send(session_, Op::kAcquire, {{1, 0, 0, 0}});
  ASSERT_TRUE(Within(seconds(1), [&] { return world_.Answered(session_, flush).has_value(); }));
  EXPECT_EQ(world_.Answered(session_, flush)->code, Code::kOk);
  EXPECT_FALSE(world_.extents.AnyShut());
}

TEST_F(DeviceStateTest, ADeviceThatHangsLeavesReadingAheadToTheOther) {
  std::map<uint16_t, std::vector<uint64_t>> on;
  for (uint64_t tensor = 1; tensor <= 10; ++tensor) world_.PutOnSsd(session_, tensor, kPiece);
  for (const PiecePlace& place : world_.engine->NamedPlaces()) on[place.extent.device].push_back(place.tensor);
  ASSERT_GE(on[0].size(), 4u);
  world_.transfers.HangDevice(0);
  for (size_t i = 0; i < 4; ++i) world_.Ask(session_, Op::kPrefetch, {{on[0][i], 0, 0, 0}});
  ASSERT_TRUE(Becomes(0, DeviceState::kOffline));
  const uint64_t before = world_.transfers.traffic(1).read_bytes;
  world_.Ask(session_, Op::kPrefetch, {{on[1][0], 0, 0, 0}});
  EXPECT_TRUE(Within(seconds(6), [&] { return world_.transfers.traffic(1).read_bytes > before; }));
}

TEST_F(OneDeviceTest, ShortOutagesQuarantineNothing) {
  world_.PutEach(session_, 1, 6, kPiece);
  for (int outage = 0; outage < 60; ++outage) {
    for (uint64_t tensor = 1; tensor <= 6; ++tensor) {
      world_.Rewrite(session_, tensor, tensor);
      world_.Send(session_, Op::kFlush, {{tensor, 0, 0, 0}});
    }
    world_.transfers.FailWritesOf(0, EIO);
    world_.Turns(3);
    world_.transfers.HealDevice(0);
    ASSERT_TRUE(Within(seconds(3), [&] { return world_.engine->Snapshot().waiting_count == 0; }));
  }
  EXPECT_EQ(world_.extents.total().quarantined, 0u);
  EXPECT_EQ(world_.CheckEach(session_, 1, 6), Code::kOk);
}

TEST_F(OneDeviceTest, AReadIsRefusedAtOnceAlsoWhereThereIsNoRoomForIt) {
  world_.PutOnSsd(session_, 1, kPiece);
  world_.transfers.FailDevice(0, EIO);
  EXPECT_EQ(world_.Acquire(session_, 1).code, Code::kIoError);
  ASSERT_TRUE(Becomes(0, DeviceState::kOffline));
  for (uint64_t tensor = 2; tensor <= 9; ++tensor) world_.Send(session_, Op::kCreate, {{tensor, 0, 0, kPiece}});
  ASSERT_FALSE(Within(milliseconds(10), [] { return false; }));
  const base::TimePoint asked = world_.now;
  const Answer refused = world_.Acquire(session_, 1);
  EXPECT_EQ(refused.code, Code::kIoError);
  EXPECT_NE(refused.detail.find("device 0 is offline"), std::string::npos) << refused.detail;
  EXPECT_LE(world_.now - asked, milliseconds(10));
}

TEST_F(OneDeviceTest, WhatLiesInRamStaysUntilAProbeHasToldOfItsDevice) {
  world_.PutOnSsd(session_, 100, kPiece);
  world_.PutEach(session_, 1, 4, kPiece);
  ASSERT_EQ(world_.Ask(session_, Op::kFlush, {}).code, Code::kOk);
  world_.transfers.FailDevice(0, EIO);
  world_.Put(session_, 5, kPiece, 5);
  world_.Send(session_, Op::kFlush, {{5, 0, 0, 0}});
  world_.Turns(4);
  EXPECT_EQ(world_.Acquire(session_, 100).code, Code::kIoError);
  ASSERT_EQ(StateOf(0), DeviceState::kSuspect);
  world_.Send(session_, Op::kCreate, {{300, 0, 0, 5 * kPiece}});
  world_.Send(session_, Op::kPrefetch, {{100, 0, 0, 0}});
  ASSERT_TRUE(Becomes(0, DeviceState::kOffline));
  EXPECT_EQ(world_.CheckEach(session_, 1, 5), Code::kOk);
}

TEST_F(OneDeviceTest, RoomComesAgainWhenTheDeviceAnswers) {
  world_.PutOnSsd(session_, 100, kPiece);
  world_.PutEach(session_, 1, 7, kPiece);
  ASSERT_EQ(world_.Ask(session_, Op::kFlush, {}).code, Code::kOk);
  world_.transfers.FailDevice(0, EIO);
  EXPECT_EQ(world_.Acquire(session_, 100).code, Code::kIoError);
  const uint64_t first = world_.Send(session_, Op::kCreate, {{300, 0, 0, 2 * kPiece}});
  world_.Turns(1);
  world_.transfers.HealDevice(0);
  EXPECT_EQ(world_.Wait(session_, first).code, Code::kOk);
}

TEST_F(OneDeviceTest, AFlushThatFailsSaysSo) {
  world_.Put(session_, 1, kPiece);
  world_.transfers.FailWritesOf(0, EIO);
  const Answer refused = world_.Flush(session_, 1);
  EXPECT_EQ(refused.code, Code::kIoError);
  EXPECT_NE(refused.detail.find("not all of it could be written to SSD"), std::string::npos) << refused.detail;
  EXPECT_NE(refused.detail.find("Input/output error"), std::string::npos) << refused.detail;
}

}  // namespace
}  // namespace tier::tiering::testing
