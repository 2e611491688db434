// A world in which jobs borrow what others are promised, for the tests of forced return.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/tiering/jobs/forced_return.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {

class ForcedReturn : public ::testing::Test {
 protected:
  static constexpr uint64_t kArena = 32 * kMiB;
  static constexpr uint64_t kWindow = 2 * kMiB;
  static constexpr base::Duration kReclaimDeadline = std::chrono::seconds(10);
  static constexpr base::Duration kPace = std::chrono::milliseconds(10);

  explicit ForcedReturn(base::Duration request_deadline = std::chrono::seconds(300))
      : world_(Options(request_deadline)) {}
  explicit ForcedReturn(const WorldOptions& options) : world_(options) {}
  static WorldOptions Options(base::Duration request_deadline) {
    WorldOptions options{.windows = {.window_size = kWindow, .arena_max_bytes = kArena}, .device_blocks = 256};
    options.engine.deadline_default = request_deadline;
    options.engine.reclaim_deadline = kReclaimDeadline;
    return options;
  }
  // Clients return what they are asked for, until the request is answered. 0: until the time has passed.
  void Run(base::Duration longest, SessionId session = {}, uint64_t asked = 0) {
    for (const base::TimePoint end = world_.now + longest; world_.now < end;) {
      if (asked != 0 && world_.Answered(session, asked)) return;
      world_.Turn();
      world_.ReturnWindows();
      world_.Advance(kPace);
    }
  }
  // A lease on so many bytes.
  void Lease(SessionId session, uint64_t tensor, uint64_t bytes) {
    const Answer created = world_.Create(session, tensor, bytes);
    ASSERT_EQ(created.code, Code::kOk) << created.detail;
  }
  uint64_t Ask(SessionId session, uint64_t bytes) {
    return world_.Send(session, proto::Op::kCreate, {{1, 0, 0, bytes}});
  }
  bool Ended(SessionId session) const { return world_.sink.ended.contains(static_cast<uint64_t>(session)); }
  uint64_t ForcedSessions() const {
    return world_.engine->Snapshot().forced_returns[static_cast<size_t>(ForcedReturnKind::kSession)];
  }

  World world_;
};

}  // namespace tier::tiering::testing
