// A named job with one session over a store of manifests.
#pragma once

#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {

inline constexpr uint64_t kPiece = kBlockSize;
inline constexpr uint32_t kShared = proto::kFlagShared;
inline const JobOptions kNamed{.key = "1000/training", .named = true};
inline const JobOptions kResume{.key = "1000/training", .named = true, .resume = true};

class Persist : public ::testing::Test {
 protected:
  Persist() : world({.manifests = true}), job(world.OpenJob(kNamed)), session(world.OpenSession(job)) {}

  Answer PersistAll() { return world.Ask(session, proto::Op::kPersist, {}); }
  // With a tensor of its own; the store has not answered yet.
  void EndTheLastSessionWhileItPersists() {
    world.manifests.SetDelay(5);
    world.Put(session, 1, kPiece, 1);
    world.Send(session, proto::Op::kPersist, {});
    world.Turns(4);
    world.EndSession(session, "left");
  }
  void Reopen() {
    world.engine->CloseJob(job, "closed", false);
    world.Turns(5);
    job = world.OpenJob(kResume);
    session = world.OpenSession(job);
  }

  World world;
  JobId job;
  SessionId session;
};

// The next daemon: the same device and the same manifests, a new engine.
class NextDaemon {
 public:
  explicit NextDaemon(World& before)
      : windows({}), manifests(before.manifests.shared_contents()), transfers({}, before.transfers.shared_disk()) {
    extents.AddDevice(before.options.device_blocks);
    engine = std::make_unique<Engine>(EngineOptions{}, EnginePorts{windows, extents, transfers, &manifests, sink});
  }
  memory::testing::FakeWindowSource windows;
  storage::ExtentStore extents;
  storage::testing::FakeManifestStore manifests;
  storage::testing::FakeTransferPort transfers;
  RecordingSink sink;
  std::unique_ptr<Engine> engine;
  void Turns(int count) {
    for (int turn = 0; turn < count; ++turn) engine->Turn(now_ = now_ + std::chrono::milliseconds(1));
  }

 private:
  base::TimePoint now_;
};

}  // namespace tier::tiering::testing
