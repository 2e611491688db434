// Compaction beside leases: blocks that hold a leased slot cannot be cleared, and must not keep it from the others.
#include <gtest/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

enum class Use : uint8_t { kFreed, kKept, kLeased };

struct Part {
  uint64_t pages;
  Use use;
};

// A job of so many blocks in RAM, which are filled part by part.
class Blocks {
 public:
  explicit Blocks(uint64_t count, uint32_t compact_units = WorkUnits{}.compact)
      : limit_(count * kBlockSize),
        world_({.windows = {.window_size = kBlockSize, .arena_max_bytes = 2 * limit_, .windows_max = 256},
                .transfers = {.device_count = 0},
                .engine = {.work = {.compact = compact_units}}}),
        job_(world_.OpenJob({.key = {}, .limit_bytes = limit_})),
        owner_(world_.OpenSession(job_)),
        asker_(world_.OpenSession(job_)) {}

  // REQUIRES: the blocks before it are full, and 512 pages in all.
  void Add(const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      const uint64_t id = parts_.size() + 1;
      if (part.use != Use::kFreed) {
        world_.Put(owner_, id, part.pages * kPageSize, id);
      } else {
        const Answer created = world_.Create(owner_, id, part.pages * kPageSize);
        ASSERT_EQ(created.code, Code::kOk) << created.detail;
        ASSERT_EQ(world_.Release(owner_, World::LeaseOf(created)).code, Code::kOk);
      }
      parts_.push_back(part);
    }
  }
  // Then: each part to its use.
  void Settle() {
    EXPECT_EQ(world_.Job(job_).ram_bytes, limit_) << "all blocks are full";
    for (uint64_t id = 1; id <= parts_.size(); ++id) {
      if (parts_[id - 1].use == Use::kLeased) {
        ASSERT_EQ(world_.Acquire(owner_, id).code, Code::kOk);
      }
    }
    for (uint64_t id = 1; id <= parts_.size(); ++id) {
      if (parts_[id - 1].use == Use::kFreed) {
        ASSERT_EQ(world_.Free(owner_, id).code, Code::kOk);
      }
    }
    settled_at_ = world_.now;
  }
  // By another session.
  Answer Create(uint64_t id, uint64_t pages) { return world_.Create(asker_, id, pages * kPageSize); }
  // Nothing came for it except moves, and nothing waited for a deadline.
  void CheckServedByMoves(CompactionCause cause, uint64_t moves_min) {
    EXPECT_LT(world_.now - settled_at_, std::chrono::seconds(1));
    EXPECT_LE(world_.Job(job_).held_bytes, limit_);
    EXPECT_GE(world_.engine->Snapshot().compaction[static_cast<size_t>(cause)].moves, moves_min);
    for (uint64_t id = 1; id <= parts_.size(); ++id) {
      if (parts_[id - 1].use != Use::kFreed) {
        EXPECT_EQ(world_.Check(owner_, id, id), Code::kOk) << id;
      }
    }
  }

 private:
  uint64_t limit_;
  std::vector<Part> parts_;
  base::TimePoint settled_at_;
  World world_;
  JobId job_;
  SessionId owner_;
  SessionId asker_;
};

TEST(CompactionBesideLeases, WholeBlocksComeFromTheBlocksWithoutALease) {
  Blocks blocks(100);
  for (int i = 0; i < 64; ++i) blocks.Add({{1, Use::kLeased}, {511, Use::kFreed}});
  for (int i = 0; i < 36; ++i) blocks.Add({{212, Use::kKept}, {300, Use::kFreed}});
  blocks.Settle();
  for (uint64_t id = 1; id <= 30; ++id) {
    const Answer created = blocks.Create(id, kPagesPerBlock);
    ASSERT_EQ(created.code, Code::kOk) << id << ": " << created.detail;
  }
  blocks.CheckServedByMoves(CompactionCause::kBlock, 30);
}

// 512 pages in holes of 49, beside slots of one page.
std::vector<Part> LeasedEverywhere() {
  std::vector<Part> parts;
  for (int i = 0; i < 10; ++i) parts.insert(parts.end(), {{1, Use::kLeased}, {49, Use::kFreed}});
  parts.insert(parts.end(), {{1, Use::kLeased}, {11, Use::kFreed}});
  return parts;
}

// 512 pages in holes of 30, beside slots of 20.
std::vector<Part> KeptBehind(Use first) {
  std::vector<Part> parts = {{20, first}, {30, Use::kFreed}};
  for (int i = 0; i < 9; ++i) parts.insert(parts.end(), {{20, Use::kKept}, {30, Use::kFreed}});
  parts.push_back({12, Use::kFreed});
  return parts;
}

// Ten blocks in which every slot is leased have more free pages than the last one, in holes that are too small.
void AskForASlot(Use first_of_last_block, uint32_t compact_units) {
  Blocks blocks(11, compact_units);
  for (int i = 0; i < 10; ++i) blocks.Add(LeasedEverywhere());
  blocks.Add(KeptBehind(first_of_last_block));
  blocks.Settle();
  const Answer created = blocks.Create(1, 200);
  ASSERT_EQ(created.code, Code::kOk) << created.detail;
  blocks.CheckServedByMoves(CompactionCause::kSlot, 3);
}

TEST(CompactionBesideLeases, PagesSideBySideComeFromABlockWithoutALease) {
  AskForASlot(Use::kKept, WorkUnits{}.compact);
}

TEST(CompactionBesideLeases, PagesSideBySideComeFromBesideALeaseToo) { AskForASlot(Use::kLeased, WorkUnits{}.compact); }

TEST(CompactionBesideLeases, BlocksThatOneTurnHasNoWorkForAreLookedAtInTheNext) { AskForASlot(Use::kLeased, 150); }

// In 64 blocks nothing can be cleared that is long enough, and each has more free pages than the one where it can.
TEST(CompactionBesideLeases, ABlockBehindManyOthersIsFoundWhereNoSsdServes) {
  constexpr uint64_t kOthers = 64;
  Blocks blocks(kOthers + 1);
  std::vector<Part> useless;
  for (uint64_t page = 0; page < kPagesPerBlock; page += 64) {
    useless.push_back({1, Use::kLeased});
    useless.push_back({63, Use::kFreed});
  }
  for (uint64_t i = 0; i < kOthers; ++i) ASSERT_NO_FATAL_FAILURE(blocks.Add(useless));
  std::vector<Part> useful;
  for (uint64_t page = 0; page < kPagesPerBlock - 2; page += 2) {
    useful.push_back({1, Use::kKept});
    useful.push_back({1, Use::kFreed});
  }
  useful.push_back({1, Use::kKept});
  useful.push_back({1, Use::kLeased});
  ASSERT_NO_FATAL_FAILURE(blocks.Add(useful));
  ASSERT_NO_FATAL_FAILURE(blocks.Settle());
  EXPECT_EQ(blocks.Create(10'000, 257).code, Code::kOk);
  blocks.CheckServedByMoves(CompactionCause::kSlot, 100);
}

}  // namespace
}  // namespace tier::tiering::testing
