// Requests over more than a turn looks at: they go on in the next, and hold nobody up.
#include <gtest/gtest.h>

#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/tables/core.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
constexpr uint64_t kPiece = kBlockSize;

// A tensor of more pieces than a turn looks at, of which one is being created.
constexpr uint64_t kHugePieces = 2 * kWorkPerTurn + 100;
WorldOptions Huge() {
  return {.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB}, .device_blocks = kHugePieces};
}

TEST(WorkBudget, AStatGoesOnInTheNextTurn) {
  World world(Huge());
  const SessionId session = world.Open();
  ASSERT_EQ(world.CreateRange(session, 1, kHugePieces * kPiece, 0, kPiece).code, Code::kOk);
  world.Turns(3);
  const uint64_t asked = world.Send(session, Op::kStat, {{1, 0, 0, 0}});
  world.Turn();
  EXPECT_FALSE(world.Answered(session, asked).has_value());
  EXPECT_EQ(world.Wait(session, asked).tensor.size, kHugePieces * kPiece);
  const uint64_t again = world.Send(session, Op::kStat, {{1, 0, 0, 0}});
  world.Free(session, 1, proto::kFlagNoWait);
  EXPECT_EQ(world.Wait(session, again).code, Code::kOk) << "the creator's lease keeps it";
}

TEST(WorkBudget, ADropAndAnAcceptGoOnToo) {
  World world(Huge());
  const SessionId session = world.Open();
  ASSERT_EQ(world.CreateRange(session, 1, kHugePieces * kPiece, 0, kPiece).code, Code::kOk);
  world.PutOnSsd(session, 2, kPiece);
  EXPECT_EQ(world.Check(session, 2), Code::kOk);
  world.Turns(3);
  const uint64_t dropping = world.Send(session, Op::kDrop, {{1, 0, 0, 0}, {2, 0, 0, 0}});
  world.Turn();
  EXPECT_FALSE(world.Answered(session, dropping).has_value());
  EXPECT_EQ(world.Wait(session, dropping).value, kPiece);
  EXPECT_EQ(world.Ask(session, Op::kAccept, {{1, 0, 0, 0}}).code, Code::kOk);
}

TEST(WorkBudget, AnnouncedRangesAreGoneThroughTurnByTurn) {
  World world(Huge());
  const SessionId session = world.Open();
  ASSERT_EQ(world.CreateRange(session, 1, kHugePieces * kPiece, 0, kPiece).code, Code::kOk);
  world.Turns(3);
  world.Send(session, Op::kPrefetch, std::vector<proto::RequestItem>(4, {1, 0, 0, 0}));
  uint64_t turns = 0;
  while (world.Turn()) ++turns;
  EXPECT_GE(turns, 4 * kHugePieces / kFetchWorkMax);
  EXPECT_LE(turns, 4 * kHugePieces / kFetchWorkMax + 4);
}

TEST(WorkBudget, AScanThatReachesItsDeadlineSaysHowFarItCame) {
  World world(Huge());
  const SessionId session = world.Open();
  ASSERT_EQ(world.CreateRange(session, 1, kHugePieces * kPiece, 0, kPiece).code, Code::kOk);
  world.Turns(3);
  std::vector<proto::RequestItem> items(8, {1, 0, 0, 0});
  const uint64_t asked = world.Send(session, Op::kDrop, items);
  world.Turn();
  world.Advance(std::chrono::minutes(2));
  world.Turn();
  ASSERT_TRUE(world.Answered(session, asked).has_value());
  EXPECT_EQ(world.Answered(session, asked)->code, Code::kTimeout);
  EXPECT_NE(world.Answered(session, asked)->detail.find("of 8 tensors"), std::string::npos);
}

// More readers of the shared tensor 1 than a turn looks at; their requests are numbered from 1.
constexpr uint64_t kReaders = kWorkPerTurn + 500;
void SendReaders(World& world, SessionId session) {
  const proto::RequestItem item{1, 0, 0, 0};
  for (uint64_t sequence = 1; sequence <= kReaders; ++sequence) {
    world.engine->Submit(
        session,
        {.sequence = sequence, .op = Op::kAcquire, .flags = proto::kFlagShared, .items = {&item, 1}, .text = {}});
  }
}

TEST(WorkBudget, ManyWaitersAreLookedAtTurnByTurn) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId writer = world.OpenSession(job);
  const SessionId reader = world.OpenSession(job);
  world.Put(writer, 1, 5000, 1, proto::kFlagShared);
  const Answer writing = world.Acquire(writer, 1, proto::kFlagShared | proto::kFlagWrite);
  SendReaders(world, reader);
  world.Turns(4);
  world.Send(writer, Op::kRelease, {{0, 0, 0, World::LeaseOf(writing)}});
  world.Turn();
  EXPECT_TRUE(world.Answered(reader, 1).has_value());
  EXPECT_FALSE(world.Answered(reader, kReaders).has_value()) << "a turn is not the whole queue";
  world.Turns(3);
  EXPECT_TRUE(world.Answered(reader, kReaders).has_value());
}

// What a session sends between two turns is charged too: requests beyond the work of a turn are left to the next ones.
TEST(WorkBudget, ManyItemsSubmittedAtOnceAreLookedAtTurnByTurn) {
  constexpr uint64_t kRequests = 48;
  World world;
  const SessionId session = world.Open();
  world.Put(session, 1, 5000);
  world.Turn();
  const std::vector<proto::RequestItem> items(proto::kItemsPerRequestMax, {1, 0, 0, 0});
  static_assert(kRequests * proto::kItemsPerRequestMax > 2 * kWorkPerTurn);
  std::vector<uint64_t> asked;
  for (uint64_t i = 0; i < kRequests; ++i) {
    asked.push_back(100 + i);
    world.engine->Submit(session, {.sequence = asked.back(), .op = Op::kAcquire, .items = items, .text = {}});
  }
  world.engine->Turn(world.now);
  EXPECT_TRUE(world.Answered(session, asked.front()).has_value());
  EXPECT_FALSE(world.Answered(session, asked.back()).has_value()) << "a turn is not all that was sent";
  for (int turn = 0; turn < 4; ++turn) world.engine->Turn(world.now);
  for (const uint64_t sequence : asked) {
    ASSERT_TRUE(world.Answered(session, sequence).has_value());
    EXPECT_EQ(world.Answered(session, sequence)->code, Code::kOk);
  }
}

TEST(WorkBudget, ManyWaitersExpireTurnByTurn) {
  World world;
  const JobId job = world.OpenJob();
  const SessionId writer = world.OpenSession(job);
  const SessionId reader = world.OpenSession(job);
  world.Put(writer, 1, 5000, 1, proto::kFlagShared);
  world.Acquire(writer, 1, proto::kFlagShared | proto::kFlagWrite);
  SendReaders(world, reader);
  world.Turns(4);
  world.Advance(std::chrono::minutes(2));
  world.Turn();
  ASSERT_TRUE(world.Answered(reader, 1).has_value());
  EXPECT_EQ(world.Answered(reader, 1)->code, Code::kTimeout);
  EXPECT_NE(world.Answered(reader, 1)->detail.find("(writing)"), std::string::npos) << "it names the holder";
  EXPECT_FALSE(world.Answered(reader, kReaders).has_value()) << "a turn is not the whole queue";
  EXPECT_LE(world.engine->NextDeadline(), world.now) << "the next one follows at once";
  world.Turns(4);
  EXPECT_TRUE(world.Answered(reader, kReaders).has_value());
}

}  // namespace
}  // namespace tier::tiering::testing
