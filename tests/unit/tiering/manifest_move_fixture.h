// Two devices, and jobs that persist on both and are closed.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <utility>

#include "tests/unit/tiering/persist_fixture.h"

namespace tier::tiering::testing {

inline constexpr uint64_t kArena = 16 * kMiB;
inline constexpr uint64_t kTensors = 6;
inline constexpr uint64_t kSize = 2 * kPiece + 3 * kPageSize + 100;  // The last page is not full.

inline WorldOptions TwoDevices() {
  return {.windows = {.window_size = kArena / 2, .arena_max_bytes = kArena},
          .transfers = {.device_count = 2},
          .device_blocks = 32,
          .manifests = true};
}

class ManifestMoveTest : public ::testing::Test {
 protected:
  explicit ManifestMoveTest(WorldOptions options = TwoDevices())
      : world_(std::make_unique<World>(std::move(options))) {}

  // A job persists tensors that lie on both devices, and is closed.
  void Leave(const JobOptions& job = kNamed, uint64_t tensors = kTensors) {
    const JobId id = world_->OpenJob(job);
    const SessionId session = world_->OpenSession(id);
    for (uint64_t tensor = 1; tensor <= tensors; ++tensor) world_->Put(session, tensor, kSize, tensor, kShared);
    const Answer persisted = world_->Ask(session, proto::Op::kPersist, {});
    ASSERT_EQ(persisted.code, Code::kOk) << persisted.detail;
    world_->engine->CloseJob(id, "done", false);
    Settle();
    for (uint16_t device = 0; device < 2; ++device) ASSERT_NE(Live(device), 0u);
    written_before_ = world_->transfers.traffic(1).written_bytes;
  }
  void Settle() {
    while (world_->Turn()) {
    }
  }
  // To device 1 since the last Leave.
  uint64_t Written() const { return world_->transfers.traffic(1).written_bytes - written_before_; }
  uint64_t Live(uint16_t device) const { return world_->extents.space(device).live; }
  void Drain(uint16_t device, bool draining = true) {
    ASSERT_TRUE(world_->engine->SetDeviceDraining(device, draining).has_value());
  }
  template <typename Until>
  bool Within(base::Duration most, Until until) {
    for (const base::TimePoint end = world_->now + most; world_->now < end;
         world_->Advance(std::chrono::milliseconds(1))) {
      Settle();
      if (until()) return true;
    }
    return false;
  }
  bool Empties(uint16_t device, base::Duration most = std::chrono::seconds(5)) {
    return Within(most, [&] { return Live(device) == 0; });
  }
  // Turn by turn until `until` holds.
  template <typename Until>
  void TurnUntil(Until until) {
    for (int turn = 0; turn < 2000 && !until(); ++turn) {
      if (!world_->Turn()) world_->Advance(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(until());
  }
  bool Moving() const { return world_->transfers.inflight() != 0; }
  Code CheckAll(World& world, SessionId session, uint64_t tensors = kTensors) {
    for (uint64_t tensor = 1; tensor <= tensors; ++tensor) {
      if (const Code code = world.Check(session, tensor, tensor, kShared); code != Code::kOk) return code;
    }
    return Code::kOk;
  }
  WorldOptions Next() const {
    WorldOptions options = world_->options;
    options.disk = world_->transfers.shared_disk();
    options.persisted = world_->manifests.shared_contents();
    options.extent_lists = world_->manifests.shared_extents();
    return options;
  }
  // The next daemon finds everything though this device fails all it is asked.
  void ExpectWholeWithout(uint16_t device, const JobOptions& job = kResume, uint64_t tensors = kTensors) {
    World next(Next());
    next.transfers.FailDevice(device, EIO);
    EXPECT_EQ(next.extents.space(device).live, 0u);
    EXPECT_EQ(CheckAll(next, next.OpenSession(next.OpenJob(job)), tensors), Code::kOk);
  }
  void ExpectWhole() {
    World next(Next());
    EXPECT_EQ(CheckAll(next, next.OpenSession(next.OpenJob(kResume))), Code::kOk);
  }
  // It sleeps between its looks at what stays.
  void ExpectRest() {
    int turns = 0;
    for (const base::TimePoint end = world_->now + std::chrono::seconds(1); world_->now < end;) {
      ASSERT_LE(++turns, 60) << "it is looked for again and again";
      if (world_->Turn()) continue;
      const auto next = world_->engine->NextDeadline();
      ASSERT_TRUE(next.has_value());
      world_->Advance(std::max<base::Duration>(*next - world_->now, std::chrono::milliseconds(0)));
    }
  }
  Manifest Stored() const { return *DecodeManifest(world_->manifests.shared_contents()->at(kNamed.key)); }

  std::unique_ptr<World> world_;
  uint64_t written_before_ = 0;
};

}  // namespace tier::tiering::testing
