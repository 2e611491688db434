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

}  // namespace tier::tiering::testing
