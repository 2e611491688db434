// Requests for more than their job is promised: whose memory serves them, whose turn it is, and that a job of another
// user that works within its part feels nothing of them.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr uint64_t kWindow = 2 * kMiB;
constexpr base::Duration kPace = milliseconds(1);

WorldOptions Arena(uint64_t bytes) {
  return {.windows = {.window_size = kWindow, .arena_max_bytes = bytes}, .device_blocks = 1024};
}

// One request, with windows returned meanwhile.
Answer Do(World& world, SessionId session, Op op, std::vector<proto::RequestItem> items, uint32_t flags = 0) {
  const uint64_t asked = world.Send(session, op, std::move(items), flags);
  world.TurnsReturning(session, asked, 10'000, kPace);
  return world.Answered(session, asked).value_or(Answer{.code = Code::kTimeout, .detail = "not answered"});
}

// A sealed tensor, in RAM and on SSD: by ranges, so that it may be larger than what the job can have at once.
void Put(World& world, SessionId session, uint64_t tensor, uint64_t size) {
  constexpr uint64_t kRange = 2 * kWindow;
  for (uint64_t at = 0; at < size; at += kRange) {
    const uint64_t length = std::min(kRange, size - at);
    const Answer granted = at == 0 ? Do(world, session, Op::kCreate, {{tensor, at, length, size}})
                                   : Do(world, session, Op::kAcquire, {{tensor, at, length, 0}}, proto::kFlagWrite);
    ASSERT_EQ(granted.code, Code::kOk) << granted.detail;
    ASSERT_EQ(Do(world, session, Op::kRelease, {{0, 0, 0, World::LeaseOf(granted)}}).code, Code::kOk);
  }
  ASSERT_EQ(Do(world, session, Op::kFlush, {{tensor, 0, 0, 0}}).code, Code::kOk);
}

// A client that leases one of its tensors after the other, chosen by `random`. It asks when it has none.
class Reader {
 public:
  Reader(World& world, JobId job, uint64_t tensors, uint64_t size, uint64_t seed = 1)
      : world_(world), session_(world.OpenSession(job)), count_(tensors), random_(seed) {
    for (uint64_t tensor = 1; tensor <= count_; ++tensor) Put(world, session_, tensor, size);
  }

  void Step() {
    if (asked_ == 0) {
      asked_ = world_.Send(session_, Op::kAcquire, {{1 + random_() % count_, 0, 0, 0}});
      return;
    }
    const auto answer = world_.Answered(session_, asked_);
    if (!answer) return;
    asked_ = 0;
    if (answer->code != Code::kOk) return;
    ++granted_;
    world_.Send(session_, Op::kRelease, {{0, 0, 0, World::LeaseOf(*answer)}});
  }
  uint64_t granted() const { return granted_; }

 private:
  World& world_;
  SessionId session_;
  uint64_t count_;
  std::mt19937_64 random_;
  uint64_t asked_ = 0;
  uint64_t granted_ = 0;
};

void Steps(World& world, std::vector<Reader*> readers, uint32_t turns) {
  for (uint32_t turn = 0; turn < turns; ++turn) {
    for (Reader* reader : readers) reader->Step();
    world.Turn();
    world.ReturnWindows();
    world.Advance(kPace);
  }
}

class Neighbour : public ::testing::TestWithParam<uint64_t> {
 protected:
  static constexpr uint64_t kArena = 64 * kMiB;
  World world_{Arena(kArena)};
  std::mt19937_64 random_{GetParam()};
};

// It has no guarantee; its part is 30 MiB. The other one leases a tensor of 56 MiB in a loop, several times in each
// half second for which a request is served.
TEST_P(Neighbour, OfAClientThatLeasesNearlyAllInALoopKeepsWhatItUses) {
  const JobId job = world_.OpenJob({.key = "1/neighbour", .uid = 1});
  const JobId hostile_job = world_.OpenJob({.key = "2/hostile", .uid = 2});
  const uint64_t tensors = 5 + random_() % 9;
  Reader neighbour(world_, job, tensors, kWindow, GetParam());
  Steps(world_, {&neighbour}, 200);
  Reader hostile(world_, hostile_job, 1, 56 * kMiB);
  constexpr uint32_t kTurns = 4000;
  const uint64_t before = neighbour.granted();
  const uint64_t evicted = world_.Job(job).evicted_bytes;
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    Steps(world_, {&neighbour, &hostile}, 1);
    ASSERT_GE(world_.Job(job).ram_bytes, tensors * kWindow) << "turn " << turn << ", seed " << GetParam();
  }
  EXPECT_EQ(world_.Job(job).evicted_bytes, evicted);
  EXPECT_GE(neighbour.granted() - before, kTurns / 2 * 95 / 100) << "one in two turns";
}

// One that comes to use more of its part has that too, though the other one waits to be served.
TEST_P(Neighbour, OfAClientThatWaitsForNearlyAllGrowsToItsPart) {
  constexpr uint64_t kTensors = 13;
  const JobId job = world_.OpenJob({.key = "1/neighbour", .uid = 1});
  const SessionId neighbour = world_.OpenSession(job);
  Put(world_, neighbour, kTensors, kWindow);
  Reader hostile(world_, world_.OpenJob({.key = "2/hostile", .uid = 2}), 1, 62 * kMiB);
  Steps(world_, {&hostile}, static_cast<uint32_t>(1 + random_() % 700));
  const auto lease = [&](Op op, uint64_t tensor) {
    const base::TimePoint begin = world_.now;
    const uint64_t asked = world_.Send(neighbour, op, {{tensor, 0, 0, op == Op::kCreate ? kWindow : 0}});
    while (!world_.Answered(neighbour, asked) && world_.now < begin + seconds(5)) Steps(world_, {&hostile}, 1);
    ASSERT_TRUE(world_.Answered(neighbour, asked).has_value()) << "tensor " << tensor << ", seed " << GetParam();
    EXPECT_LE(world_.now - begin, milliseconds(50)) << "tensor " << tensor << ", seed " << GetParam();
    world_.Send(neighbour, Op::kRelease, {{0, 0, 0, World::LeaseOf(*world_.Answered(neighbour, asked))}});
    Steps(world_, {&hostile}, static_cast<uint32_t>(random_() % 50));
  };
  for (uint64_t tensor = 1; tensor < kTensors; ++tensor) lease(Op::kCreate, tensor);
  for (uint64_t n = 0; n < 6 * kTensors; ++n) lease(Op::kAcquire, 1 + n % kTensors);
  const uint64_t evicted = world_.Job(job).evicted_bytes;
  for (uint64_t n = 0; n < 6 * kTensors; ++n) lease(Op::kAcquire, 1 + n % kTensors);
  EXPECT_EQ(world_.Job(job).evicted_bytes, evicted) << "all that it uses is in RAM, seed " << GetParam();
  EXPECT_GE(world_.Job(job).ram_bytes, kTensors * kWindow);
}
INSTANTIATE_TEST_SUITE_P(Seeds, Neighbour, ::testing::Range<uint64_t>(1, 9));

TEST(Stalled, ARequestIsServedWithTheMemoryOfAnIdleJobOfAnotherUser) {
  World world(Arena(64 * kMiB));
  const JobId idle = world.OpenJob({.key = "1/idle", .uid = 1});
  const SessionId its = world.OpenSession(idle);
  for (uint64_t tensor = 1; tensor <= 12; ++tensor) Put(world, its, tensor, kWindow);
  Reader large(world, world.OpenJob({.key = "2/large", .uid = 2}), 1, 56 * kMiB);
  Steps(world, {&large}, 1000);
  EXPECT_EQ(large.granted(), 0u) << "it may go on in a moment";
  world.Advance(world.options.engine.idle_after);
  Steps(world, {&large}, 1000);
  EXPECT_GE(large.granted(), 1u);
}

// Each asks for more than it is promised: none works within its part, and all share in time.
TEST(Stalled, UsersHaveTurnsInEqualNumberHoweverManyJobsEachHas) {
  World world(Arena(32 * kMiB));
  std::vector<Reader> of_one;
  for (uint32_t i = 0; i < 3; ++i) of_one.emplace_back(world, world.OpenJob({.uid = 1}), 3, 24 * kMiB, i);
  Reader of_other(world, world.OpenJob({.uid = 2}), 3, 24 * kMiB, 9);
  std::vector<Reader*> readers{&of_other};
  for (Reader& reader : of_one) readers.push_back(&reader);
  std::array<uint64_t, 2> before{};
  const auto granted = [&] {
    return std::array{of_one[0].granted() + of_one[1].granted() + of_one[2].granted(), of_other.granted()};
  };
  Steps(world, readers, 1000);
  before = granted();
  Steps(world, readers, 6000);
  const uint64_t one = granted()[0] - before[0];
  const uint64_t other = granted()[1] - before[1];
  EXPECT_GE(one, 10u);
  EXPECT_GE(other * 10, one * 7) << one << " and " << other;
  for (const Reader& reader : of_one) EXPECT_GE(reader.granted(), one / 6);
}

}  // namespace
}  // namespace tier::tiering::testing
