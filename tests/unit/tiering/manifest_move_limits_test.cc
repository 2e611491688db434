// A move of manifests costs others little: it rests after failures, and asks nothing of devices, manifests and stores
// of which it is known that they cannot serve it.
#include <cerrno>
#include <memory>
#include <string>

#include <gmock/gmock.h>

#include "daemon/base/format_bytes.h"
#include "tests/unit/tiering/manifest_move_fixture.h"

namespace tier::tiering::testing {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::HasSubstr;

class MoveLimits : public ManifestMoveTest {
 protected:
  // Requests that device 0 has failed or answered.
  uint64_t Asked() const {
    const storage::DeviceTraffic traffic = world_->transfers.traffic(0);
    return traffic.errors + traffic.read_requests;
  }
  // The engine sleeps until its next deadline, again and again.
  void Sleep(base::Duration duration) {
    for (const base::TimePoint end = world_->now + duration; world_->now < end;) {
      Settle();
      const auto next = world_->engine->NextDeadline();
      ASSERT_TRUE(next.has_value());
      world_->Advance(std::max<base::Duration>(*next - world_->now, std::chrono::milliseconds(1)));
    }
  }
};

TEST_F(MoveLimits, APieceThatCannotBeReadIsTriedMoreAndMoreSeldom) {
  Leave();
  storage::Extent bad{};
  for (const ManifestTensor& tensor : Stored().tensors) {
    if (tensor.pieces[1].device == 0) bad = ExtentOf(tensor.pieces[1]);
  }
  ASSERT_TRUE(bad);
  world_->transfers.FailExtent(bad, storage::TransferOutcome::kDeviceError);
  Drain(0);
  ASSERT_NO_FATAL_FAILURE(Sleep(minutes(10)));
  // After 1 s, 2 s … 60 s: sixteen times; its failure makes the device suspect, and others of it are read then.
  EXPECT_GE(world_->transfers.traffic(0).errors, 12u);
  EXPECT_LE(world_->transfers.traffic(0).errors, 18u);
}

TEST_F(MoveLimits, ADeviceThatIsAwayIsNotRead) {
  Leave();
  world_->transfers.FailDevice(0, EIO);
  const SessionId session = world_->Open();
  world_->Put(session, 1, 4 * kPiece, 1);  // Its writes find out.
  ASSERT_EQ(world_->Flush(session, 1).code, Code::kOk);
  ASSERT_TRUE(Within(seconds(10),
                     [&] { return world_->engine->Snapshot().devices[0].state == storage::DeviceState::kOffline; }));
  const uint64_t before = Asked();
  Drain(0);
  ASSERT_NO_FATAL_FAILURE(Sleep(seconds(20)));
  EXPECT_EQ(Asked(), before);
  EXPECT_THAT(world_->engine->Snapshot().devices[0].drain_note, HasSubstr("cannot be read"));
}

// Of a job that is open as of one that is closed.
TEST_F(MoveLimits, WithoutAnotherDeviceItIsToldThatWhatIsThereStays) {
  const auto note_of = [&](uint16_t device) { return world_->engine->Snapshot().devices[device].drain_note; };
  Drain(0);
  Drain(1);
  EXPECT_EQ(note_of(0), "") << "nothing is there";
  Drain(0, false);
  Drain(1, false);
  Leave();
  Drain(0);
  Drain(1);
  EXPECT_FALSE(Empties(0));
  for (uint16_t device = 0; device < 2; ++device) {
    EXPECT_EQ(note_of(device), base::FormatBytes(Live(device)) + " stay, as no other SSD device takes them");
  }
  Drain(1, false);
  EXPECT_EQ(note_of(0), "") << "they can leave";
  EXPECT_TRUE(Empties(0, seconds(90)));
  const SessionId session = world_->Open();
  world_->Put(session, 1, kPiece, 1);
  ASSERT_EQ(world_->Flush(session, 1).code, Code::kOk);
  Drain(0);
  Drain(1);
  EXPECT_THAT(note_of(1), HasSubstr("no other SSD device takes them"));
}

// What is known of one drain says nothing of the next.
TEST_F(MoveLimits, WhyAManifestStaysIsToldUntilTheDrainEnds) {
  Leave();
  world_->transfers.FailExtent(ExtentOf(Stored().tensors[0].pieces[0]), storage::TransferOutcome::kDeviceError);
  const uint16_t bad = ExtentOf(Stored().tensors[0].pieces[0]).device;
  Drain(bad);
  ASSERT_TRUE(Within(seconds(10), [&] { return Live(bad) == kPiece; }));
  const auto note_of_bad = [&] { return world_->engine->Snapshot().devices[bad].drain_note; };
  ASSERT_TRUE(Within(seconds(10), [&] { return !note_of_bad().empty(); }));
  EXPECT_THAT(note_of_bad(), ::testing::StartsWith("2 MiB cannot be read"));
  Drain(bad, false);
  Drain(bad);
  EXPECT_EQ(note_of_bad(), "") << "it has not been tried again yet";
  ASSERT_TRUE(Within(seconds(10), [&] { return !note_of_bad().empty(); }));
  const JobId job = world_->OpenJob(kResume);
  world_->OpenSession(job);
  EXPECT_EQ(note_of_bad(), "") << "its pieces use what it holds";
}

// A store that has lost a commit takes no other: nothing is written for it.
TEST_F(MoveLimits, AStoreThatLostACommitEndsTheMoveUnderWay) {
  Leave();
  const SessionId session = world_->OpenSession(world_->OpenJob({.key = "1000/other", .named = true}));
  world_->Put(session, 1, kPiece, 1, kShared);
  ASSERT_EQ(world_->Flush(session, 1, kShared).code, Code::kOk);
  const uint64_t live = world_->extents.total().live;
  world_->transfers.SetDelay(20, 30);
  world_->manifests.LoseNext(false);
  Drain(0);
  ASSERT_NO_FATAL_FAILURE(TurnUntil([&] { return Moving(); }));
  EXPECT_EQ(world_->Ask(session, proto::Op::kPersist, {}).code, Code::kIoError);
  ASSERT_TRUE(Moving()) << "the transfers are still under way";
  const uint64_t before = Written();
  ASSERT_TRUE(Within(seconds(5), [&] { return world_->engine->idle(); }));
  EXPECT_EQ(Written(), before) << "what was read is not written any more";
  EXPECT_EQ(world_->extents.total().live, live);
  ExpectRest();
  EXPECT_EQ(Written(), before) << "no other begins";
  ExpectWhole();
}

// Of two manifests that name one place the second is broken. Its other places are held, and none is read.
TEST_F(MoveLimits, AManifestThatIsBrokenIsNotReadForAMove) {
  const std::string second = "1000/zebra";
  Leave();
  Leave({.key = second, .named = true}, 3);
  const Manifest whole = Stored();
  auto& manifests = *world_->manifests.shared_contents();
  Manifest broken = *DecodeManifest(manifests.at(second));
  broken.tensors[0].pieces[0] = whole.tensors[0].pieces[0];
  manifests[second] = EncodeManifest(broken);
  uint64_t of_whole = 0;
  for (const ManifestTensor& tensor : whole.tensors) {
    for (const proto::ManifestPieceRecord& piece : tensor.pieces) of_whole += piece.device == 0 ? piece.pages : 0;
  }
  world_ = std::make_unique<World>(Next());
  ASSERT_GT(Live(0), of_whole * kPageSize) << "the broken one holds some too";
  Drain(0);
  ASSERT_NO_FATAL_FAILURE(Sleep(minutes(2)));
  EXPECT_EQ(world_->transfers.traffic(0).read_bytes, of_whole * kPageSize) << "each place of the whole one, once";
  EXPECT_THAT(world_->engine->Snapshot().devices[0].drain_note, HasSubstr(second));
}

class MoveTurns : public MoveLimits {
 protected:
  static constexpr uint32_t kUnits = 16;            // Of work for a move, in a turn …
  static constexpr uint64_t kBytes = 256 * kUnits;  // … and what that adds of a manifest to its checksum.

  MoveTurns() {
    WorldOptions options = TwoDevices();
    options.engine.work.move = kUnits;
    world_ = std::make_unique<World>(std::move(options));
  }
  template <typename Until>
  uint64_t CountTurns(Until until) {
    uint64_t turns = 0;
    TurnUntil([&] { return ++turns != 0 && until(); });
    return turns;
  }
};

TEST_F(MoveTurns, ChecksumAndKeysAreDoneTurnByTurn) {
  constexpr uint64_t kMany = 300;
  Drain(1);
  const JobId id = world_->OpenJob(kNamed);
  const SessionId session = world_->OpenSession(id);
  for (uint64_t i = 0; i < kMany; ++i) {
    const uint64_t asked = world_->SendText(session, std::to_string(i) + std::string(200, 'k'));
    ASSERT_EQ(world_->Wait(session, asked).code, Code::kOk);
    world_->Put(session, world_->Answered(session, asked)->value, kPageSize, i, kShared);
  }
  ASSERT_EQ(world_->Ask(session, proto::Op::kFlush, {}, kShared).code, Code::kOk);
  Drain(1, false);
  world_->Put(session, kMany + 1, 4 * kPiece, kMany + 1, kShared);
  ASSERT_EQ(world_->Ask(session, proto::Op::kPersist, {}).code, Code::kOk);
  world_->engine->CloseJob(id, "done", false);
  Settle();
  world_ = std::make_unique<World>(Next());  // It has no pieces that the drain would look at.
  ASSERT_NE(Live(1), 0u);
  ASSERT_EQ(Stored().keys.size(), kMany);
  const uint64_t summing = world_->manifests.shared_contents()->at(kNamed.key).size() / kBytes;
  ASSERT_GE(summing, 20u);
  // So long that all pieces that leave are found meanwhile.
  world_->transfers.SetDelay(80, 80);
  const uint64_t moved = world_->transfers.traffic(0).written_bytes + Live(1);
  Drain(1);
  EXPECT_GE(CountTurns([&] { return Moving(); }), summing);
  CountTurns([&] { return world_->transfers.traffic(0).written_bytes == moved && !Moving(); });
  EXPECT_GE(CountTurns([&] { return world_->manifests.under_way(); }), kMany + kMany / kUnits + summing)
      << "no turn writes two tensors";
  EXPECT_TRUE(Empties(1));
}

TEST_F(MoveTurns, ManifestsAreLookedThroughTurnByTurn) {
  constexpr uint64_t kMany = 80;
  const auto leave = [&](const std::string& key, uint64_t size) {
    const JobId id = world_->OpenJob({.key = key, .named = true});
    const SessionId session = world_->OpenSession(id);
    world_->Put(session, 1, size, 1, kShared);
    ASSERT_EQ(world_->Ask(session, proto::Op::kPersist, {}).code, Code::kOk);
    world_->engine->CloseJob(id, "done", false);
    Settle();
  };
  Drain(1);
  for (uint64_t i = 0; i < kMany; ++i) ASSERT_NO_FATAL_FAILURE(leave("1000/job-" + std::to_string(i), kPageSize));
  Drain(1, false);
  ASSERT_NO_FATAL_FAILURE(leave("1000/last", 4 * kPiece));
  ASSERT_NE(Live(1), 0u);
  world_->manifests.SetDelay(5);
  Drain(1);
  EXPECT_GE(CountTurns([&] { return world_->manifests.under_way(); }), kMany / kUnits);
  EXPECT_TRUE(Empties(1));
}

}  // namespace
}  // namespace tier::tiering::testing
