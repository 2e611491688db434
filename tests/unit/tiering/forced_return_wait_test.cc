// Forced return and the deadlines of requests: what is taken by force comes to the request that waits for it, and
// nothing is taken where no request waits any more.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "daemon/tiering/jobs/forced_return.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr uint64_t kArena = 32 * kMiB;
constexpr base::Duration kPace = milliseconds(10);

// A job leases what another one is promised, and goes on doing so.
class ForcedReturnWait : public ::testing::Test {
 protected:
  explicit ForcedReturnWait(const EngineOptions& engine = {}) : world_(Options(engine)) {
    EXPECT_EQ(world_.Create(hog_, 1, 28 * kMiB).code, Code::kOk);
  }
  static WorldOptions Options(const EngineOptions& engine) {
    return {.windows = {.window_size = 2 * kMiB, .arena_max_bytes = kArena}, .engine = engine, .device_blocks = 256};
  }
  uint64_t Ask(uint32_t flags = 0) { return world_.Send(late_, Op::kCreate, {{++tensors_, 0, 0, 12 * kMiB}}, flags); }
  // Clients return what they are asked for, until the request is answered. 0: until the time has passed.
  std::optional<Answer> Run(base::Duration longest, uint64_t asked = 0) {
    for (const base::TimePoint end = world_.now + longest; world_.now < end;) {
      if (asked != 0 && world_.Answered(late_, asked)) break;
      world_.Turn();
      world_.ReturnWindows();
      world_.Advance(kPace);
    }
    return world_.Answered(late_, asked);
  }
  bool Ended(SessionId session) const { return world_.sink.ended.contains(static_cast<uint64_t>(session)); }

  World world_;
  SessionId hog_ = world_.Open({.key = "1/hog", .uid = 1});
  SessionId late_ = world_.Open({.key = "2/late", .uid = 2});
  uint64_t tensors_ = 0;
};

// As the daemon is shipped: no option says otherwise.
TEST_F(ForcedReturnWait, ByDefaultWhatIsTakenComesToTheRequestThatAsksForIt) {
  const std::optional<Answer> answer = Run(seconds(120), Ask());
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code, Code::kOk) << answer->detail;
  EXPECT_TRUE(Ended(hog_));
}

// The deadlines of requests and of forced return are one.
class ForcedReturnOfOneDeadline : public ForcedReturnWait {
 protected:
  ForcedReturnOfOneDeadline() : ForcedReturnWait({.deadline_default = kDeadline, .reclaim_deadline = kDeadline}) {}
  static constexpr base::Duration kDeadline = seconds(10);
};

TEST_F(ForcedReturnOfOneDeadline, ARequestThatWasRefusedEndsNoSession) {
  const std::optional<Answer> answer = Run(2 * kDeadline, Ask());
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code, Code::kNoMemory);
  Run(2 * kDeadline);
  EXPECT_FALSE(Ended(hog_)) << "no request waits for what it leases";
}

TEST_F(ForcedReturnOfOneDeadline, TheNextRequestOfTheJobIsServed) {
  ASSERT_EQ(Run(2 * kDeadline, Ask())->code, Code::kNoMemory);
  const std::optional<Answer> answer = Run(seconds(1), Ask());
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code, Code::kOk) << answer->detail;
  EXPECT_TRUE(Ended(hog_));
}

TEST_F(ForcedReturnOfOneDeadline, AnotherRequestThatStillWaitsIsServed) {
  const uint64_t first = Ask();
  Run(seconds(5));
  const uint64_t second = Ask();
  ASSERT_EQ(Run(2 * kDeadline, first)->code, Code::kNoMemory);
  const std::optional<Answer> answer = Run(seconds(1), second);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code, Code::kOk) << answer->detail;
}

TEST_F(ForcedReturnOfOneDeadline, RequestsThatMustNotWaitCountAsLongAsTheyComeAgain) {
  for (const base::TimePoint end = world_.now + 2 * kDeadline; world_.now < end && !Ended(hog_);) {
    EXPECT_EQ(world_.Ask(late_, Op::kCreate, {{++tensors_, 0, 0, 12 * kMiB}}, proto::kFlagNoWait).code, Code::kTimeout);
    Run(milliseconds(50));
  }
  EXPECT_TRUE(Ended(hog_));
}

}  // namespace
}  // namespace tier::tiering::testing
