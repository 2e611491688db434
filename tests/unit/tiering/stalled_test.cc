// Requests for more than their job is promised: when they are served, and how much of the time they take from a job of
// another user that works within its part.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "daemon/tiering/tables/serving.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::milliseconds;
using std::chrono::seconds;
constexpr uint64_t kWindow = 2 * kMiB;
constexpr base::Duration kPace = milliseconds(1);

// Reads and writes take so many turns.
WorldOptions Arena(uint64_t bytes, uint32_t delay = 5) {
  return {.windows = {.window_size = kWindow, .arena_max_bytes = bytes},
          .transfers = {.delay_turns_min = delay, .delay_turns_max = delay},
          .device_blocks = 1024};
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

constexpr uint64_t kArena = 64 * kMiB;

class Neighbour : public ::testing::TestWithParam<uint64_t> {
 protected:
  World world_{Arena(kArena, static_cast<uint32_t>(GetParam() % 3 * 3))};
  std::mt19937_64 random_{GetParam()};
};

// It has no guarantee; its part is 30 MiB. The others, each of another user, lease a tensor of 56 MiB in a loop.
TEST_P(Neighbour, OfClientsThatLeaseNearlyAllInALoopLosesATenthOfTheTimeAtMost) {
  const auto clients = static_cast<uint32_t>(1 + random_() % 3);
  const JobId job = world_.OpenJob({.key = "1/neighbour", .uid = 1});
  const uint64_t tensors = 2 + random_() % 5;
  Reader neighbour(world_, job, tensors, kWindow, GetParam());
  Steps(world_, {&neighbour}, 200);
  std::vector<Reader> hostile;
  for (uint32_t uid = 2; uid < 2 + clients; ++uid)
    hostile.emplace_back(world_, world_.OpenJob({.uid = uid}), 1, 56 * kMiB);
  std::vector<Reader*> all{&neighbour};
  for (Reader& reader : hostile) all.push_back(&reader);
  Steps(world_, all, 1000);
  constexpr uint32_t kTurns = 10'000;
  const uint64_t before = neighbour.granted();
  Steps(world_, all, kTurns);
  EXPECT_GE(neighbour.granted() - before, kTurns / 2 * 85 / 100) << "one in two turns, seed " << GetParam();
  for (const Reader& reader : hostile) EXPECT_GE(reader.granted(), 2u) << "seed " << GetParam();
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
    const uint64_t asked = world_.Send(neighbour, op, {{tensor, 0, 0, op == Op::kCreate ? kWindow : 0}});
    const base::TimePoint begin = world_.now;
    while (!world_.Answered(neighbour, asked) && world_.now < begin + seconds(5)) Steps(world_, {&hostile}, 1);
    ASSERT_TRUE(world_.Answered(neighbour, asked).has_value()) << "tensor " << tensor << ", seed " << GetParam();
    EXPECT_LE(world_.now - begin, milliseconds(600)) << "tensor " << tensor << ", seed " << GetParam();
    world_.Send(neighbour, Op::kRelease, {{0, 0, 0, World::LeaseOf(*world_.Answered(neighbour, asked))}});
    Steps(world_, {&hostile}, static_cast<uint32_t>(random_() % 50));
  };
  for (uint64_t tensor = 1; tensor < kTensors; ++tensor) lease(Op::kCreate, tensor);
  for (uint64_t n = 0; n < 12 * kTensors; ++n) lease(Op::kAcquire, 1 + n % kTensors);
  EXPECT_GE(hostile.granted(), 1u) << "seed " << GetParam();
}
INSTANTIATE_TEST_SUITE_P(Seeds, Neighbour, ::testing::Range<uint64_t>(1, 6));

uint64_t GrantedOf(const std::vector<Reader>& readers) {
  uint64_t sum = 0;
  for (const Reader& reader : readers) sum += reader.granted();
  return sum;
}

// Each asks for more than it is promised: none works within its part, and all have their turns without a pause.
TEST(Stalled, RequestsOfTwoUsersBeyondTheirPartsAreServedAsThoseOfOne) {
  const auto granted = [](uint32_t second_uid) {
    World world(Arena(32 * kMiB));
    std::vector<Reader> readers;
    for (const uint32_t uid : {1U, second_uid})
      readers.emplace_back(world, world.OpenJob({.uid = uid}), 3, 24 * kMiB, uid);
    Steps(world, {&readers[0], &readers[1]}, 300);
    const uint64_t before = GrantedOf(readers);
    Steps(world, {&readers[0], &readers[1]}, 2000);
    return GrantedOf(readers) - before;
  };
  const uint64_t of_one_user = granted(1);
  EXPECT_GE(of_one_user, 10u);
  EXPECT_GE(granted(2) * 10, of_one_user * 9);
}

TEST(Stalled, UsersTakeTurnsHoweverManyJobsTheyHave) {
  World world(Arena(32 * kMiB));
  std::vector<Reader> readers;
  for (uint32_t n = 0; n < 5; ++n)
    readers.emplace_back(world, world.OpenJob({.uid = n == 0 ? 1U : 2U}), 1, 24 * kMiB, n);
  std::vector<Reader*> all;
  for (Reader& reader : readers) all.push_back(&reader);
  Steps(world, all, 5000);
  for (const Reader& reader : readers) EXPECT_GE(reader.granted(), 5u);
  EXPECT_GE(readers[0].granted() * 10, (GrantedOf(readers) - readers[0].granted()) * 8);
}

// Nobody misses its memory, so there is no pause.
TEST(Stalled, RequestsAreServedWithTheMemoryOfAJobThatDoesNothing) {
  World world(Arena(kArena));
  const SessionId still = world.OpenSession(world.OpenJob({.key = "1/still", .uid = 1}));
  for (uint64_t tensor = 1; tensor <= 12; ++tensor) Put(world, still, tensor, kWindow);
  Reader large(world, world.OpenJob({.key = "2/large", .uid = 2}), 2, 36 * kMiB);
  Steps(world, {&large}, 1000);
  EXPECT_GE(large.granted(), 10u);
}

// What is owed may not be to be had. Nothing but the clock tells then that leases are held back no longer.
TEST(Stalled, LeasesAreHeldBackForAMomentOnly) {
  World world(Arena(kArena));
  const SessionId large = world.OpenSession(world.OpenJob({.key = "2/large", .uid = 2}));
  ASSERT_EQ(Do(world, large, Op::kCreate, {{1, 0, 48 * kMiB, 48 * kMiB}}).code, Code::kOk);
  const Answer small = Do(world, large, Op::kCreate, {{2, 0, 64 * kKiB, 64 * kKiB}});
  const Answer beside = Do(world, large, Op::kCreate, {{3, 0, 64 * kKiB, 64 * kKiB}});
  ASSERT_EQ(beside.code, Code::kOk) << beside.detail;
  ASSERT_EQ(Do(world, large, Op::kRelease, {{0, 0, 0, World::LeaseOf(small)}}).code, Code::kOk);
  const SessionId neighbour = world.OpenSession(world.OpenJob({.key = "1/neighbour", .uid = 1}));
  const uint64_t owed = world.Send(neighbour, Op::kCreate, {{1, 0, 24 * kMiB, 24 * kMiB}});
  world.Turn();
  const uint64_t held_back = world.Send(large, Op::kAcquire, {{2, 0, 0, 0}});
  const base::TimePoint begin = world.now;
  while (world.Turn()) {
  }
  EXPECT_FALSE(world.Answered(large, held_back).has_value()) << "it would be a lease beyond its promise";
  EXPECT_FALSE(world.Answered(neighbour, owed).has_value()) << "its memory is leased";
  while (!world.Answered(large, held_back) && world.now < begin + seconds(5)) {
    ASSERT_TRUE(world.engine->NextDeadline().has_value());
    world.now = std::max(*world.engine->NextDeadline(), world.now + milliseconds(1));
    world.ReturnWindows();
    world.Turn();
  }
  ASSERT_TRUE(world.Answered(large, held_back).has_value());
  EXPECT_EQ(world.Answered(large, held_back)->code, Code::kOk);
  EXPECT_LE(world.now, begin + kHeldBackMax + milliseconds(50));
  EXPECT_FALSE(world.Answered(neighbour, owed).has_value()) << "no test: what is owed was to be had";
}

}  // namespace
}  // namespace tier::tiering::testing
