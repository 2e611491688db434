// What a caller may see of the pool, and how often the engine is asked for it.
#include "daemon/session/pool_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/manual_clock.h"
#include "tests/support/session/session_world.h"

namespace tier::session {
namespace {

using std::chrono::milliseconds;
using testing::ManualClock;
using testing::SessionWorld;
using tiering::JobId;
using tiering::PoolCondition;

const Caller kAlice{.uid = 1000};
const Caller kBob{.uid = 1001};
const Caller kAdmin{.uid = 0, .admin = true};

PoolSnapshot Example() {
  PoolSnapshot pool;
  pool.view.arena_bytes = 100;
  pool.view.arena_max_bytes = 200;
  pool.view.stock_bytes = 50;
  pool.jobs = {{.id = JobId{1}, .uid = 1000, .name = "train", .token = std::string(64, 'a')},
               {.id = JobId{2}, .uid = 1001, .name = "secret", .token = std::string(64, 'b')},
               {.id = JobId{3}, .uid = 1002, .name = "hidden", .token = std::string(64, 'c')},
               {.id = JobId{4}, .uid = 1000, .name = "eval", .token = std::string(64, 'd')}};
  for (uint64_t id = 1; id <= 4; ++id) {
    pool.view.jobs.push_back(
        {.id = JobId{id}, .figures = {.held_bytes = {10 * id, 0}, .largest_run_bytes = id, .owed_bytes = id}});
    pool.view.windows.push_back({.index = WindowIndex{static_cast<uint32_t>(id)},
                                 .job = JobId{id},
                                 .size = 10 * id,
                                 .place = 100 - 10 * id,
                                 .used_pages = {1, 2, 3}});
  }
  pool.view.windows.push_back({.index = WindowIndex{5}, .condition = PoolCondition::kClosing, .size = 5, .place = 5});
  pool.view.windows.push_back({.index = WindowIndex{6}, .condition = PoolCondition::kMaking, .job = JobId{1}});
  return pool;
}

const PoolOwner* Find(const PoolDescription& pool, PoolOwnerKind kind, const std::string& job = {}) {
  for (const PoolOwner& owner : pool.owners) {
    if (owner.kind == kind && owner.job == job) return &owner;
  }
  return nullptr;
}

TEST(PoolDescription, AUserSeesOwnJobsByNameAndAllOthersAsOne) {
  const PoolDescription pool = PartOf(Example(), kAlice);
  ASSERT_EQ(pool.owners.size(), 4u);
  EXPECT_EQ(pool.owners[0].job, "eval");
  EXPECT_EQ(pool.owners[1].job, "train");
  EXPECT_EQ(pool.owners[1].figures.held(), 10u);
  const PoolOwner* others = Find(pool, PoolOwnerKind::kOtherUsers);
  ASSERT_NE(others, nullptr);
  EXPECT_EQ(others->figures.held(), 20u + 30u);
  EXPECT_EQ(others->figures.owed_bytes, 2u + 3u);
  EXPECT_EQ(others->figures.largest_run_bytes, 3u) << "runs of two jobs do not meet";
  EXPECT_EQ(others->uid, 0u);
  ASSERT_NE(Find(pool, PoolOwnerKind::kEnded), nullptr);
  for (const PoolOwner& owner : pool.owners) {
    EXPECT_NE(owner.job, "secret");
    EXPECT_NE(owner.job, "hidden");
  }
}

TEST(PoolDescription, AnAdminSeesEveryNameAndNobodyElse) {
  const PoolDescription pool = PartOf(Example(), kAdmin);
  EXPECT_NE(Find(pool, PoolOwnerKind::kJob, "secret"), nullptr);
  EXPECT_EQ(Find(pool, PoolOwnerKind::kOtherUsers), nullptr);
  EXPECT_EQ(pool.owners.size(), 5u);
}

TEST(PoolDescription, ATokenShowsItsJobAlone) {
  const Caller holder{.uid = 1000, .admin = false, .token = std::string(64, 'b')};
  const PoolDescription pool = PartOf(Example(), holder);
  ASSERT_EQ(pool.owners.size(), 3u);
  EXPECT_EQ(pool.owners[0].job, "secret");
}

TEST(PoolDescription, WindowsStandByPlaceAndPointToTheirOwners) {
  const PoolDescription pool = PartOf(Example(), kBob);
  std::vector<uint32_t> indices;
  for (const PoolWindow& window : pool.windows) indices.push_back(Value(window.now.index));
  EXPECT_EQ(indices, (std::vector<uint32_t>{5, 4, 3, 2, 1, 6})) << "the one that is being made has no place";
  for (const PoolWindow& window : pool.windows) {
    ASSERT_LT(window.owner, pool.owners.size());
    const PoolOwner& owner = pool.owners[window.owner];
    EXPECT_EQ(owner.kind == PoolOwnerKind::kJob, window.now.job == JobId{2});
    EXPECT_EQ(owner.kind == PoolOwnerKind::kEnded, window.now.job == JobId{});
  }
}

TEST(PoolDescription, ComesFromTheEngineThroughTheControlServer) {
  SessionWorld world;
  ASSERT_TRUE(world.control().OpenJob(kAlice, {.name = "train"}));
  const auto job = world.OnEngine([&] { return JobId{world.engine.jobs.begin()->first}; });
  world.OnEngine([&] {
    world.engine.pool.windows = {{.job = job, .size = 2 << 20}};
    world.engine.pool.jobs = {{.id = job, .figures = {.owed_bytes = 7}}};
  });
  const auto own = world.control().DescribePool(kAlice);
  ASSERT_TRUE(own) << own.error().message;
  ASSERT_EQ(own->owners.size(), 1u);
  EXPECT_EQ(own->owners[0].job, "train");
  EXPECT_EQ(own->owners[0].figures.owed_bytes, 7u);
  const auto others = world.control().DescribePool(kBob);
  ASSERT_TRUE(others);
  ASSERT_EQ(others->owners.size(), 1u);
  EXPECT_EQ(others->owners[0].kind, PoolOwnerKind::kOtherUsers);
}

TEST(PoolDescription, ManyCallsTakeFewViewsAndNoSnapshotsTime) {
  ManualClock clock;
  SessionWorld world({.clock = &clock});
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(world.control().DescribePool(kBob));
  EXPECT_EQ(world.OnEngine([&] { return world.engine.pools; }), kPoolViewsPerTickMax);
  EXPECT_TRUE(world.control().Describe());
  EXPECT_EQ(world.OnEngine([&] { return world.engine.snapshots; }), 1u) << "who asks for status still gets it";
}

TEST(PoolDescription, SlowViewsTakeAFiftiethOfTheEnginesTime) {
  ManualClock clock;
  SessionWorld world({.clock = &clock});
  constexpr auto kSlow = milliseconds(3);
  const base::TimePoint begin = clock.now;
  world.OnEngine([&] { world.engine.on_pool = [&] { clock.now = clock.now + kSlow; }; });
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(world.control().DescribePool(kBob));
    world.OnEngine([&] { clock.now = clock.now + milliseconds(5); });
  }
  const auto taken = static_cast<int64_t>(world.OnEngine([&] { return world.engine.pools; }));
  EXPECT_GE(taken, 3) << "figures become new";
  EXPECT_LE((taken - 1) * kSlow * kPoolViewTimeShare, clock.now - begin);
}

}  // namespace
}  // namespace tier::session
