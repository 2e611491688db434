// What was written ahead of need in vain is not written as soon again.
#include <gtest/gtest.h>

#include "daemon/tiering/tables/vain_writes.h"
#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

constexpr uint64_t kPiece = kBlockSize;

TEST(VainWrites, MoveTheStartUpToAllThatIsReachable) {
  VainWrites writes;
  EXPECT_EQ(writes.StartOf(50, 100), 50u);
  writes.NoteVain(20);
  EXPECT_EQ(writes.StartOf(50, 100), 60u);
  writes.NoteVain(500);
  EXPECT_EQ(writes.StartOf(50, 100), 100u);
  writes.NoteUse(5);
  EXPECT_EQ(writes.StartOf(50, 100), 90u) << "more than the memory is not remembered";
  EXPECT_EQ(writes.StartOf(100, 200), 140u) << "there is more memory now";
  writes.NoteUse(500);
  EXPECT_EQ(writes.StartOf(50, 100), 50u);
  writes.NoteVain(500);
  writes.NoteShortage();
  EXPECT_EQ(writes.StartOf(50, 100), 50u);
  EXPECT_EQ(writes.StartOf(0, 0), 0u);
}

struct Rewriter {
  static constexpr uint64_t kTensors = 6;  // Of 8 pieces that fit.
  World world{{.windows = {.window_size = 8 * kMiB, .arena_max_bytes = 16 * kMiB},
               .engine = {.write_behind_start = 0.5},
               .device_blocks = 256}};
  const JobId job = world.OpenJob();
  const SessionId session = world.OpenSession(job);

  Rewriter() { world.PutEach(session, 1, kTensors, kPiece); }
  uint64_t written() const { return world.transfers.traffic(0).written_bytes; }
  // Changes all of them so often, and returns the bytes that are written meanwhile.
  uint64_t Rounds(uint64_t rounds) {
    const uint64_t before = written();
    for (uint64_t round = 0; round < rounds; ++round) {
      for (uint64_t id = 1; id <= kTensors; ++id) {
        EXPECT_EQ(world.Rewrite(session, id, round).code, Code::kOk);
        world.Turns(5);
      }
    }
    return written() - before;
  }
};

TEST(VainWrites, OfAJobThatChangesAllThatItHasEnd) {
  Rewriter rewriter;
  EXPECT_GT(rewriter.Rounds(1), 0u);
  rewriter.Rounds(20);
  EXPECT_EQ(rewriter.Rounds(20), 0u);
  EXPECT_EQ(rewriter.world.Job(rewriter.job).dirty_bytes, Rewriter::kTensors * kPiece);
}

TEST(VainWrites, OfWhatIsFreedEndToo) {
  Rewriter rewriter;
  const auto replaced = [&] {
    const uint64_t before = rewriter.written();
    for (uint64_t id = 1; id <= Rewriter::kTensors; ++id) {
      EXPECT_EQ(rewriter.world.Free(rewriter.session, id).code, Code::kOk);
      rewriter.world.Put(rewriter.session, id, kPiece);
      rewriter.world.Turns(5);
    }
    return rewriter.written() - before;
  };
  EXPECT_GT(replaced(), 0u);
  for (int round = 0; round < 20; ++round) replaced();
  EXPECT_EQ(replaced(), 0u);
}

TEST(VainWrites, CountNoMoreWhereARequestLacksRoom) {
  Rewriter rewriter;
  rewriter.Rounds(20);
  const uint64_t before = rewriter.written();
  rewriter.world.PutEach(rewriter.session, 7, 9, kPiece);  // One more than fits.
  rewriter.world.Turns(5);
  EXPECT_GT(rewriter.written(), before);
  rewriter.world.Free(rewriter.session, 9);
  rewriter.world.Free(rewriter.session, 8);
  EXPECT_GT(rewriter.Rounds(1), 0u) << "it fits again, and what it changes is written behind";
}

}  // namespace
}  // namespace tier::tiering::testing
