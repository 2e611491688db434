// Jobs that compete for the arena: who may grow, who gives windows back, and what a silent client or a host that is
// short of memory may not stop.
#include <gtest/gtest.h>

#include <tuple>

#include "daemon/tiering/memory/growth.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using std::chrono::milliseconds;
constexpr uint64_t kPiece = kBlockSize;
constexpr uint64_t kArena = 32 * kMiB;
constexpr uint64_t kWindow = 2 * kMiB;

WorldOptions SmallWindows(uint32_t device_blocks = 256) {
  return {.windows = {.window_size = kWindow, .arena_max_bytes = kArena},
          .engine = {.reclaim_deadline = std::chrono::minutes(2)},  // Requests are refused before.
          .device_blocks = device_blocks};
}

// One request, with windows returned meanwhile.
Answer Do(World& world, SessionId session, Op op, std::vector<proto::RequestItem> items) {
  const uint64_t asked = world.Send(session, op, std::move(items));
  world.TurnsReturning(session, asked, 10'000, milliseconds(1));
  return world.Answered(session, asked).value_or(Answer{.code = Code::kTimeout, .detail = "not answered"});
}

// A sealed tensor, of one piece unless said otherwise, on SSD and in RAM.
void PutClean(World& world, SessionId session, uint64_t tensor, uint64_t size = kPiece) {
  const Answer created = Do(world, session, Op::kCreate, {{tensor, 0, 0, size}});
  ASSERT_EQ(created.code, Code::kOk) << created.detail;
  ASSERT_EQ(Do(world, session, Op::kRelease, {{0, 0, 0, World::LeaseOf(created)}}).code, Code::kOk);
  ASSERT_EQ(Do(world, session, Op::kFlush, {{tensor, 0, 0, 0}}).code, Code::kOk);
}

// A client that acquires its tensors in a circle, one after the other.
class Cycle {
 public:
  Cycle(World& world, JobId job, uint64_t tensors, uint64_t size = kPiece)
      : world_(world), job_(job), session_(world.OpenSession(job)), count_(tensors) {
    for (uint64_t tensor = 1; tensor <= tensors; ++tensor) PutClean(world, session_, tensor, size);
  }

  void Step() {
    if (asked_ != 0) {
      const auto answer = world_.Answered(session_, asked_);
      if (!answer) return;
      ASSERT_EQ(answer->code, Code::kOk) << answer->detail;
      world_.Send(session_, Op::kRelease, {{0, 0, 0, World::LeaseOf(*answer)}});
      ++granted_;
      asked_ = 0;
      if (rests_) return;
    }
    asked_ = world_.Send(session_, Op::kAcquire, {{next_ + 1, 0, 0, 0}});
    next_ = (next_ + 1) % count_;
  }
  void Rest() { rests_ = true; }  // From now on a step ends the lease, and the next one asks again.
  uint64_t held() const { return world_.Job(job_).held_bytes; }
  uint64_t granted() const { return granted_; }

 private:
  World& world_;
  JobId job_;
  SessionId session_;
  uint64_t count_;
  uint64_t next_ = 0;
  uint64_t asked_ = 0;
  uint64_t granted_ = 0;
  bool rests_ = false;
};

struct Rivals {
  uint64_t hog_guarantee = 0;
  uint64_t other_guarantee = 0;
  bool hog_first = true;  // It was opened first.
};

class Contention : public ::testing::TestWithParam<Rivals> {};

// The least that two rivals hold in the end, of which each cycles over twice the arena. The hog has all of it before
// the other comes.
struct Least {
  uint64_t hog = UINT64_MAX;
  uint64_t hog_promise = 0;
  uint64_t other = UINT64_MAX;
  uint64_t other_promise = 0;
};

Least Compete(const WorldOptions& options, const Rivals& rivals, uint64_t tensor_size) {
  const uint64_t arena = options.windows.arena_max_bytes;
  const uint64_t tensors = 2 * arena / tensor_size;
  World world(options);
  JobId other{};
  if (!rivals.hog_first) other = world.OpenJob({.uid = 2, .guarantee_bytes = rivals.other_guarantee});
  const JobId hog = world.OpenJob({.uid = 1, .guarantee_bytes = rivals.hog_guarantee});
  if (rivals.hog_first) other = world.OpenJob({.uid = 2, .guarantee_bytes = rivals.other_guarantee});
  Cycle greedy(world, hog, tensors, tensor_size);
  EXPECT_GE(greedy.held(), arena / 8 * 7) << "idle memory is borrowable";
  Cycle late(world, other, tensors, tensor_size);
  Least least;
  for (uint32_t turn = 0; turn < 1500; ++turn) {
    greedy.Step();
    late.Step();
    world.Turn();
    world.ReturnWindows();
    world.Advance(milliseconds(1));
    if (turn < 1000) continue;
    least.hog = std::min(least.hog, greedy.held());
    least.other = std::min(least.other, late.held());
  }
  least.hog_promise = world.Job(hog).guarantee_bytes;
  least.other_promise = world.Job(other).guarantee_bytes;
  return least;
}

TEST_P(Contention, EachHungryJobHoldsItsPromise) {
  const Least least = Compete(SmallWindows(), GetParam(), kPiece);
  EXPECT_GE(least.hog * 20, least.hog_promise * 19);
  EXPECT_GE(least.other * 20, least.other_promise * 19);
}

INSTANTIATE_TEST_SUITE_P(Guarantees, Contention,
                         ::testing::Values(Rivals{}, Rivals{.hog_first = false}, Rivals{14 * kMiB, 14 * kMiB},
                                           Rivals{7 * kMiB, 21 * kMiB}, Rivals{7 * kMiB, 21 * kMiB, false},
                                           Rivals{21 * kMiB, 7 * kMiB}));

// A request of more than its job is promised is served with memory of all other jobs, but never with what one of them
// is guaranteed: that job has its guarantee to within a window, and the request is served beside it.
TEST(HandOver, AGuaranteeIsKeptFromRequestsBeyondAPromise) {
  World world(SmallWindows());
  constexpr uint64_t kGuarantee = 12 * kMiB;
  constexpr uint64_t kLarge = 16 * kMiB;
  const JobId hog = world.OpenJob({.uid = 1});
  const JobId other = world.OpenJob({.uid = 2, .guarantee_bytes = kGuarantee});
  const JobId third = world.OpenJob({.uid = 3});
  Cycle equal(world, third, 2 * kArena / kPiece);
  Cycle late(world, other, 2 * kArena / kPiece);
  Cycle greedy(world, hog, 4, kLarge);
  greedy.Rest();
  ASSERT_LT(world.Job(hog).guarantee_bytes, kLarge);
  uint64_t least = UINT64_MAX;
  for (uint32_t turn = 0; turn < 3000; ++turn) {
    if (turn % 4 == 0) greedy.Step();  // Its leases end before it asks again.
    late.Step();
    equal.Step();
    world.Turn();
    world.ReturnWindows();
    world.Advance(milliseconds(1));
    if (turn >= 500) least = std::min(least, late.held());
  }
  EXPECT_GT(least + kWindow, kGuarantee);
  EXPECT_GT(greedy.granted(), 10u);
}

// A window that is handed over while both jobs ask for it in one turn.
TEST(HandOver, AWindowThatComesBackGoesToWhoIsOwed) {
  World world(SmallWindows());
  const JobId hog_job = world.OpenJob({.uid = 1});
  const JobId late_job = world.OpenJob({.uid = 2});
  const SessionId hog = world.OpenSession(hog_job);
  for (uint64_t tensor = 1; tensor <= 2 * kArena / kPiece; ++tensor) PutClean(world, hog, tensor);
  const SessionId late = world.OpenSession(late_job);
  PutClean(world, late, 1);
  const uint64_t hog_before = world.Job(hog_job).window_count;
  const uint64_t late_before = world.Job(late_job).window_count;
  const uint64_t held = world.Send(late, Op::kAcquire, {{1, 0, 0, 0}});
  world.Turn();
  ASSERT_TRUE(world.Answered(late, held).has_value());
  const uint64_t asked = world.Send(late, Op::kCreate, {{2, 0, 0, kPiece}});
  for (uint32_t turn = 0; turn < 100 && world.sink.returns.empty(); ++turn) {
    world.Turn();
    world.Advance(milliseconds(1));
  }
  ASSERT_FALSE(world.sink.returns.empty()) << "a window of the hog is asked back";
  const uint64_t given = world.sink.returns.size();
  world.ReturnWindows();
  world.Send(hog, Op::kCreate, {{1000, 0, 0, 8 * kPiece}});  // It is looked at first.
  world.Turns(3);
  ASSERT_TRUE(world.Answered(late, asked).has_value());
  EXPECT_EQ(given, 1u);
  EXPECT_EQ(world.Job(late_job).window_count, late_before + 1);
  EXPECT_LT(world.Job(hog_job).window_count, hog_before);
}

// Block windows of 8 MiB in huge pages, slot windows of 2 MiB. No promise is a multiple of 8 MiB.
class ContentionOfTwoKinds : public ::testing::TestWithParam<std::tuple<Rivals, uint64_t>> {};

TEST_P(ContentionOfTwoKinds, EachHungryJobHoldsItsPromise) {
  const auto& [rivals, tensor_size] = GetParam();
  const WorldOptions options{.windows = {.window_size = 8 * kMiB,
                                         .slot_window_size = 2 * kMiB,
                                         .arena_max_bytes = 64 * kMiB,
                                         .page_size = kBlockSize},
                             .device_blocks = 512};
  const Least least = Compete(options, rivals, tensor_size);
  EXPECT_GE(least.hog * 20, least.hog_promise * 19);
  EXPECT_GE(least.other * 20, least.other_promise * 19);
}

INSTANTIATE_TEST_SUITE_P(
    Guarantees, ContentionOfTwoKinds,
    ::testing::Combine(::testing::Values(Rivals{}, Rivals{.hog_first = false}, Rivals{28 * kMiB, 28 * kMiB},
                                         Rivals{14 * kMiB, 42 * kMiB}, Rivals{45 * kMiB, 11 * kMiB, false}),
                       ::testing::Values(kPiece, kPiece + 5000)));

// `largest` and `second` have borrowed all of the arena, of which `owner` is guaranteed 8 MiB.
struct ThreeJobs {
  ThreeJobs() {
    for (uint64_t tensor = 1; tensor <= 9; ++tensor) PutClean(world, largest, tensor);
    for (uint64_t tensor = 1; tensor <= 7; ++tensor) PutClean(world, second, tensor);
  }
  // Takes turns, until the owner has its answer, in which `largest` answers nothing.
  void TurnsWithoutLargest(uint64_t asked, base::Duration most) {
    for (const base::TimePoint end = world.now + most; world.now < end && !world.Answered(owner, asked);) {
      world.Turn();
      std::erase_if(world.sink.returns, [&](const auto& entry) {
        if (entry.first == static_cast<uint64_t>(largest)) return false;
        world.engine->WindowReturned(SessionId{entry.first}, WindowIndex{entry.second});
        return true;
      });
      world.Advance(milliseconds(10));
    }
  }

  World world{SmallWindows()};
  JobId owner_job = world.OpenJob({.key = "3/owner", .uid = 3, .guarantee_bytes = 8 * kMiB});
  JobId largest_job = world.OpenJob({.key = "1/largest", .uid = 1, .guarantee_bytes = kWindow});
  JobId second_job = world.OpenJob({.key = "2/second", .uid = 2, .guarantee_bytes = kWindow});
  SessionId largest = world.OpenSession(largest_job);
  SessionId second = world.OpenSession(second_job);
  SessionId owner = world.OpenSession(owner_job);
};

TEST(HandOver, AHolderThatNeverAnswersIsPassedOver) {
  ThreeJobs jobs;
  const uint64_t second_before = jobs.world.Job(jobs.second_job).window_count;
  ASSERT_GT(jobs.world.Job(jobs.largest_job).window_count, second_before);
  const base::TimePoint start = jobs.world.now;
  const uint64_t asked = jobs.world.Send(jobs.owner, Op::kCreate, {{1, 0, 0, 8 * kMiB}});
  jobs.TurnsWithoutLargest(asked, milliseconds(2500));
  ASSERT_TRUE(jobs.world.Answered(jobs.owner, asked).has_value());
  EXPECT_EQ(jobs.world.Answered(jobs.owner, asked)->code, Code::kOk) << jobs.world.Answered(jobs.owner, asked)->detail;
  EXPECT_GE(jobs.world.now - start, milliseconds(1900)) << "the largest holder was asked first";
  EXPECT_LT(jobs.world.Job(jobs.second_job).window_count, second_before);
}

// A request of more than a promise is served in vain while `largest` answers nothing: it does not delay a guarantee.
TEST(HandOver, AGuaranteeIsNotDelayedByARequestThatIsServed) {
  ThreeJobs jobs;
  const uint64_t served = jobs.world.Send(jobs.second, Op::kCreate, {{100, 0, 0, 16 * kMiB}});
  jobs.TurnsWithoutLargest(0, milliseconds(3000));
  ASSERT_FALSE(jobs.world.Answered(jobs.second, served).has_value());
  for (uint64_t tensor = 1; tensor <= 4; ++tensor) {
    const base::TimePoint start = jobs.world.now;
    const uint64_t asked = jobs.world.Send(jobs.owner, Op::kCreate, {{tensor, 0, 0, kPiece}});
    jobs.TurnsWithoutLargest(asked, milliseconds(1000));
    ASSERT_TRUE(jobs.world.Answered(jobs.owner, asked).has_value());
    EXPECT_EQ(jobs.world.Answered(jobs.owner, asked)->code, Code::kOk);
    EXPECT_LE(jobs.world.now - start, milliseconds(60));
    jobs.TurnsWithoutLargest(0, milliseconds(130));
  }
}

// A job that borrowed memory and swaps out waits for its own writes: that is no reason to take from an equal part.
TEST(HandOver, AJobThatWaitsForItsWritesTakesNothingFromAnEqualPart) {
  World world(SmallWindows());
  const JobId neighbour_job = world.OpenJob({.key = "1/neighbour", .uid = 1});
  const JobId swapper_job = world.OpenJob({.key = "2/swapper", .uid = 2});
  const SessionId neighbour = world.OpenSession(neighbour_job);
  const SessionId swapper = world.OpenSession(swapper_job);
  for (uint64_t tensor = 1; tensor <= 7; ++tensor) PutClean(world, neighbour, tensor);
  world.Advance(kAheadKept);  // What was made ahead for it goes.
  world.Turn();
  world.ReturnWindows();
  const uint64_t before = world.Job(neighbour_job).held_bytes;
  world.transfers.Hold();
  uint64_t tensor = 1;
  uint64_t asked = 0;
  for (;; ++tensor) {
    asked = world.Send(swapper, Op::kCreate, {{tensor, 0, 0, kPiece}});
    world.TurnsReturning(swapper, asked, 200, milliseconds(10));
    const auto created = world.Answered(swapper, asked);
    if (!created) break;
    ASSERT_EQ(created->code, Code::kOk) << created->detail;
    ASSERT_EQ(Do(world, swapper, Op::kRelease, {{0, 0, 0, World::LeaseOf(*created)}}).code, Code::kOk);
  }
  EXPECT_GT(tensor * kPiece, kArena / 2) << "it borrowed nothing";
  EXPECT_EQ(world.Job(neighbour_job).held_bytes, before);
  world.transfers.Release();
  world.TurnsReturning(swapper, asked, 200, milliseconds(10));
  ASSERT_TRUE(world.Answered(swapper, asked).has_value());
  EXPECT_EQ(world.Answered(swapper, asked)->code, Code::kOk);
  EXPECT_EQ(world.Job(neighbour_job).held_bytes, before);
}

TEST(HandOver, TheRefusalNamesWhoOwesWindows) {
  ThreeJobs jobs;
  const Status guaranteed = jobs.world.engine->SetJob(jobs.second_job, {.guarantee_bytes = 20 * kMiB});
  ASSERT_TRUE(guaranteed.has_value()) << guaranteed.error().message;
  const uint64_t asked = jobs.world.Send(jobs.owner, Op::kCreate, {{1, 0, 0, 8 * kMiB}});
  jobs.TurnsWithoutLargest(asked, std::chrono::seconds(61));
  ASSERT_TRUE(jobs.world.Answered(jobs.owner, asked).has_value());
  const Answer refused = *jobs.world.Answered(jobs.owner, asked);
  EXPECT_EQ(refused.code, Code::kNoMemory);
  EXPECT_NE(refused.detail.find("job 1/largest was asked for windows 60.0 s ago and has not returned 4 MiB of them"),
            std::string::npos)
      << refused.detail;
}

TEST(HandOver, AWindowThatComesLateIsWelcome) {
  ThreeJobs jobs;
  const Status guaranteed = jobs.world.engine->SetJob(jobs.second_job, {.guarantee_bytes = 20 * kMiB});
  ASSERT_TRUE(guaranteed.has_value()) << guaranteed.error().message;
  const uint64_t asked = jobs.world.Send(jobs.owner, Op::kCreate, {{1, 0, 0, 8 * kMiB}});
  jobs.TurnsWithoutLargest(asked, std::chrono::seconds(10));
  ASSERT_FALSE(jobs.world.Answered(jobs.owner, asked).has_value());
  jobs.world.TurnsReturning(jobs.owner, asked, 100, milliseconds(10));
  EXPECT_EQ(jobs.world.Answered(jobs.owner, asked)->code, Code::kOk);
}

TEST(HandOver, ARefusalForWantOfMemorySaysWhoHoldsIt) {
  World world(SmallWindows());
  for (uint32_t uid = 1; uid <= 4; ++uid) {
    const SessionId session = world.Open({.key = std::to_string(uid) + "/holder", .uid = uid});
    EXPECT_EQ(world.Create(session, 1, (uid + 1) * kWindow).code, Code::kOk);
    if (uid == 4) {
      EXPECT_EQ(world.Create(session, 2, 2 * kWindow).code, Code::kOk);
    }
  }
  const SessionId late = world.Open({.key = "9/late", .uid = 9});
  const Answer refused = world.Create(late, 1, kWindow);
  EXPECT_EQ(refused.code, Code::kNoMemory);
  EXPECT_NE(refused.detail.find(
                "all jobs hold 32 MiB: job 4/holder holds 14 MiB, of which 14 MiB are leased or torn, job "
                "3/holder holds 8 MiB, of which 8 MiB are leased or torn, job 2/holder holds 6 MiB, of which 6 "
                "MiB are leased or torn; wait until the other jobs release leases"),
            std::string::npos)
      << refused.detail;
  EXPECT_EQ(refused.detail.find("1/holder"), std::string::npos) << "the largest are named";
}

// The host has half the memory for a while.
TEST(HostShortage, EvictsWhatTheHostGetsAndNotMore) {
  World world(WithArena(64 * kMiB));
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);
  for (uint64_t tensor = 1; tensor <= 27; ++tensor) PutClean(world, session, tensor);
  ASSERT_EQ(world.windows.window_count(), 7u);
  world.windows.SetArenaMax(32 * kMiB);
  PutClean(world, session, 28);  // There is room for it in the last window.
  world.Turns(10);
  world.windows.SetArenaMax(64 * kMiB);
  world.Turns(10);
  EXPECT_EQ(world.Job(job).ram_bytes, 32 * kMiB);
  EXPECT_EQ(world.Job(job).evicted_bytes, 28 * kPiece - 32 * kMiB);
}

TEST(HostShortage, ARequestWithinTheConfiguredMaximumWaits) {
  World world(WithArena(64 * kMiB));
  const SessionId session = world.Open();
  world.Put(session, 1, kPiece);
  world.windows.SetArenaMax(16 * kMiB);
  world.Turns(3);
  const uint64_t asked = world.Send(session, Op::kCreate, {{2, 0, 0, 40 * kMiB}}, proto::kFlagNoWaitOwn);
  world.Turns(20);
  ASSERT_FALSE(world.Answered(session, asked).has_value()) << world.Answered(session, asked)->detail;
  world.windows.SetArenaMax(64 * kMiB);
  EXPECT_EQ(world.Wait(session, asked).code, Code::kOk);
}

TEST(Guarantee, EmptyJobsOfOneUserTakeNothingFromAnother) {
  World world(WithArena(64 * kMiB));
  for (int i = 0; i < 64; ++i) world.OpenJob({.uid = 1});
  const Status opened = world.engine->OpenJob(JobId{999}, {.key = "2/quarter", .uid = 2, .guarantee_bytes = 16 * kMiB});
  EXPECT_TRUE(opened.has_value()) << opened.error().message;
}

// The first job has filled RAM and SSD with what cannot go elsewhere.
TEST(Guarantee, ANewcomerGetsThePartPromisedToNobody) {
  World world(SmallWindows(16));
  const SessionId first = world.Open({.uid = 1});
  for (uint64_t tensor = 1;; ++tensor) {
    ASSERT_LT(tensor, 2000u);
    const Answer created = world.Create(first, tensor, kPiece / 32);
    if (created.code != Code::kOk) break;
    world.Release(first, World::LeaseOf(created));
  }
  const SessionId late = world.Open({.uid = 2});
  const Answer created = Do(world, late, Op::kCreate, {{1, 0, 0, kMiB}});
  EXPECT_EQ(created.code, Code::kOk) << created.detail;
}

}  // namespace
}  // namespace tier::tiering::testing
