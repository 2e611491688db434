// Progress: random jobs, ranks and arenas. Every request is granted, or ends by its deadline with a code that says why;
// and where every client ends its leases before it asks for more, every request is granted long before.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/support/tiering/sanitizer_divisor.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;

constexpr base::Duration kPace = std::chrono::milliseconds(2);
constexpr base::Duration kDeadline = std::chrono::seconds(20);
constexpr base::Duration kShortDeadline = std::chrono::seconds(1);
// What a grant may take where nothing but the engine is in its way.
constexpr base::Duration kGrantedWithin = std::chrono::seconds(5);
constexpr uint32_t kRoundsMax = 12000;

struct Plan {
  uint64_t arena = 0;
  uint64_t block_window = 2 * kMiB;  // Slot windows are 2 MiB.
  uint64_t page_size = kPageSize;    // Of block windows.
  uint32_t jobs = 0;
  uint32_t ranks = 0;    // Of each job.
  uint64_t tensor = 0;   // Bytes of each of a rank's tensors.
  uint32_t tensors = 0;  // Of each rank.
  uint32_t asks = 0;     // Requests that each rank makes.
  bool nested = false;   // A rank may ask for a second tensor while it leases one.
  bool stopped = false;  // One rank stops without end while it holds a lease, and returns no window.
};

enum class Kinds : uint8_t { kOneSize, kTwoSizes };

Plan Draw(std::mt19937_64& random, Kinds kinds) {
  const auto pick = [&](uint64_t low, uint64_t high) { return low + random() % (high - low + 1); };
  Plan plan;
  plan.arena = pick(4, 14) * 2 * kMiB;
  plan.jobs = static_cast<uint32_t>(pick(1, 4));
  plan.ranks = static_cast<uint32_t>(pick(1, 3));
  // Often more than a job is promised; never more than one could have beside the part that is promised to nobody.
  const uint64_t most = plan.arena - std::max(plan.arena / 16, 2 * kMiB) - 2 * kMiB;
  plan.tensor = std::min(pick(1, 5) * 2 * kMiB - pick(0, 1) * 5000, most);
  plan.tensors = static_cast<uint32_t>(pick(2, 4));
  plan.asks = 10;
  if (kinds == Kinds::kOneSize) return plan;
  plan.block_window = pick(1, 2) * 4 * kMiB;
  plan.page_size = pick(0, 1) == 0 ? kPageSize : kBlockSize;
  plan.arena = AlignUp(plan.arena, plan.block_window) + plan.block_window;  // The part for nobody is larger.
  return plan;
}

// A rank: leases its tensors in turn, one or two at a time.
struct Rank {
  SessionId session{};
  uint64_t waiting = 0;  // Sequence of its request. 0: none.
  base::TimePoint asked;
  std::vector<uint64_t> leases;
  uint32_t hold = 0;  // Rounds for which it goes on to hold them.
  uint32_t next = 0;
  uint32_t asks_left = 0;
  bool stopped = false;
};

// Where requests may end only by their deadline it is short.
base::Duration DeadlineOf(const Plan& plan) { return plan.nested || plan.stopped ? kShortDeadline : kDeadline; }

class Run {
 public:
  Run(const Plan& plan, uint64_t seed)
      : plan_(plan),
        random_(seed),
        world_({.windows = {.window_size = plan.block_window,
                            .slot_window_size = 2 * kMiB,
                            .arena_max_bytes = plan.arena,
                            .windows_max = 64,
                            .page_size = static_cast<uint32_t>(plan.page_size)},
                .engine = {.deadline_default = DeadlineOf(plan)},
                .device_blocks = 256}) {
    for (uint32_t j = 0; j < plan.jobs; ++j) {
      const JobId job = world_.OpenJob();
      for (uint32_t r = 0; r < plan.ranks; ++r) {
        ranks_.push_back({.session = world_.OpenSession(job), .asks_left = plan.asks});
      }
    }
  }

  void Go() {
    for (uint32_t round = 0; round < kRoundsMax && !Done(); ++round) {
      for (Rank& rank : ranks_) Act(rank);
      world_.Turn();
      ReturnWindows();
      world_.Advance(kPace);
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_TRUE(Done()) << "some rank still waits";
  }

 private:
  bool Done() const {
    for (const Rank& rank : ranks_) {
      if (!rank.stopped && (rank.asks_left != 0 || rank.waiting != 0)) return false;
    }
    return true;
  }

  void ReturnWindows() {
    const auto stopped = [&](uint64_t session) {
      for (const Rank& rank : ranks_) {
        if (rank.stopped && static_cast<uint64_t>(rank.session) == session) return true;
      }
      return false;
    };
    for (const auto& [session, window] : std::exchange(world_.sink.returns, {})) {
      if (stopped(session)) continue;
      world_.engine->WindowReturned(SessionId{session}, WindowIndex{window});
    }
  }

  void Act(Rank& rank) {
    if (rank.stopped) return;
    if (rank.waiting != 0) return Take(rank);
    if (!rank.leases.empty()) {
      if (plan_.stopped && &rank == &ranks_.front() && rank.next > 2) {
        rank.stopped = true;
        return;
      }
      if (rank.hold != 0) {
        --rank.hold;
        return;
      }
      if (plan_.nested && rank.leases.size() == 1 && rank.asks_left != 0 && random_() % 2 == 0) return Ask(rank);
      for (const uint64_t lease : std::exchange(rank.leases, {})) {
        world_.Send(rank.session, Op::kRelease, {{0, 0, 0, lease}});
      }
      return;
    }
    if (rank.asks_left != 0) Ask(rank);
  }

  void Ask(Rank& rank) {
    --rank.asks_left;
    const uint64_t id = 1 + rank.next % plan_.tensors;
    const bool create = rank.next < plan_.tensors;
    ++rank.next;
    rank.waiting =
        create ? world_.Send(rank.session, Op::kCreate, {{id, 0, 0, plan_.tensor}})
               : world_.Send(rank.session, Op::kAcquire, {{id, 0, 0, 0}}, random_() % 2 == 0 ? proto::kFlagWrite : 0);
    rank.asked = world_.now;
  }

  void Take(Rank& rank) {
    const auto answer = world_.Answered(rank.session, rank.waiting);
    const base::Duration waited = world_.now - rank.asked;
    if (!answer) {
      ASSERT_LE(waited, DeadlineOf(plan_) + 100 * kPace) << "a request outlived its deadline";
      if (!plan_.nested && !plan_.stopped) {
        ASSERT_LE(waited, kGrantedWithin) << "a request is not served";
      }
      return;
    }
    rank.waiting = 0;
    if (answer->code == Code::kOk) {
      for (const proto::SpanRecord& span : answer->spans) {
        if (rank.leases.empty() || rank.leases.back() != span.lease) rank.leases.push_back(span.lease);
      }
      rank.hold = static_cast<uint32_t>(random_() % 4);
      return;
    }
    const bool typed = answer->code == Code::kTimeout || answer->code == Code::kNoMemory ||
                       answer->code == Code::kWouldDeadlock || answer->code == Code::kNotFound;
    ASSERT_TRUE(typed && (plan_.nested || plan_.stopped)) << CodeName(answer->code) << ": " << answer->detail;
    ASSERT_FALSE(answer->detail.empty());
  }

  const Plan plan_;
  std::mt19937_64 random_;
  World world_;
  std::vector<Rank> ranks_;
};

enum class Clients : uint8_t { kPatient, kNested, kStopped };

void RunSeeds(uint64_t first, uint64_t count, Clients clients, Kinds kinds) {
  for (uint64_t seed = first; seed < first + count; ++seed) {
    std::mt19937_64 random(seed);
    Plan plan = Draw(random, kinds);
    plan.nested = clients == Clients::kNested;
    plan.stopped = clients == Clients::kStopped;
    SCOPED_TRACE("seed " + std::to_string(seed) + ": arena " + std::to_string(plan.arena / kMiB) + " MiB, " +
                 std::to_string(plan.jobs) + " jobs of " + std::to_string(plan.ranks) + " ranks, tensors of " +
                 std::to_string(plan.tensor) + " bytes, block windows of " + std::to_string(plan.block_window / kMiB) +
                 " MiB in pages of " + std::to_string(plan.page_size));
    Run run(plan, seed);
    run.Go();
    if (::testing::Test::HasFailure()) return;
  }
}

class Progress : public ::testing::TestWithParam<Kinds> {};

TEST_P(Progress, EveryRequestIsGrantedWhereNobodyAsksForMoreThanItHolds) {
  RunSeeds(1, 40 / kSanitizerDivisor, Clients::kPatient, GetParam());
}
TEST_P(Progress, EveryRequestEndsByItsDeadlineWhereRanksHoldAndAsk) {
  RunSeeds(1001, 15 / kSanitizerDivisor, Clients::kNested, GetParam());
}
TEST_P(Progress, EveryRequestEndsByItsDeadlineBesideAStoppedClient) {
  RunSeeds(2001, 15 / kSanitizerDivisor, Clients::kStopped, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Windows, Progress, ::testing::Values(Kinds::kOneSize, Kinds::kTwoSizes));

}  // namespace
}  // namespace tier::tiering::testing
