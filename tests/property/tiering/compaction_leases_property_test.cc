// Blocks of small tensors, of which some are leased, against a model of what lies where: whole blocks are given as long
// as the pages suffice that are free in blocks without a leased slot, however many and however empty the others are.
// Replay with RC_PARAMS="seed=<seed>".
#include <algorithm>
#include <map>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/support/tiering/world.h"

namespace tier::tiering::testing {
namespace {

using proto::Op;
using proto::RequestItem;

constexpr uint64_t kBlocks = 96;
// What may lie in holes that are too small for the slots that are to move.
constexpr uint64_t kUnusablePages = 4 * kPagesPerBlock;

// Which blocks get a lease: so many, the emptiest ones, or those that come first from somewhere on.
struct Leasing {
  uint32_t count;
  bool emptiest;
  uint32_t from;
};
std::ostream& operator<<(std::ostream& out, const Leasing& leasing) {
  return out << "{" << leasing.count << ", " << leasing.emptiest << ", " << leasing.from << "}";
}
using Sizes = std::vector<uint32_t>;  // Pages of the tensors that stay in a block.

class Program {
 public:
  explicit Program(uint32_t delay)
      : world_({.windows = {.window_size = 2 * kBlockSize,
                            .arena_max_bytes = 2 * kBlocks * kBlockSize,
                            .windows_max = 2 * kBlocks},
                .transfers = {.device_count = 0},
                .copies = {.seed = delay, .delay_turns_max = delay}}),
        job_(world_.OpenJob({.key = {}, .limit_bytes = kBlocks * kBlockSize})),
        owner_(world_.OpenSession(job_)),
        asker_(world_.OpenSession(job_)) {}

  // Each block is filled, and what lies between its tensors is freed.
  void Fill(const std::vector<Sizes>& blocks) {
    std::vector<RequestItem> freed;
    for (const Sizes& sizes : blocks) {
      uint64_t left = kPagesPerBlock;
      for (const uint32_t pages : sizes) left -= pages;
      std::vector<RequestItem> items;
      for (size_t i = 0; i < sizes.size(); ++i) {
        const uint64_t pages = i + 1 == sizes.size() ? left : left / 2;
        left -= pages;
        kept_[next_].pages = sizes[i];
        items.push_back({next_++, 0, 0, sizes[i] * kPageSize});
        freed.push_back({next_, 0, 0, 0});
        items.push_back({next_++, 0, 0, pages * kPageSize});
      }
      ReleaseAll(owner_, Ask(owner_, Op::kCreate, items));
    }
    (void)Ask(owner_, Op::kFree, freed);
  }
  void Lease(const Leasing& leasing) {
    FindTensors();
    std::vector<std::pair<uint64_t, uint64_t>> by_block;  // Free pages and a tensor.
    for (const auto& [block, tensors] : TensorsOfBlocks()) by_block.emplace_back(free_of_.at(block), tensors.front());
    if (leasing.emptiest) {
      std::ranges::sort(by_block, std::ranges::greater{});
    } else {
      std::ranges::rotate(by_block, by_block.begin() + static_cast<ptrdiff_t>(leasing.from % by_block.size()));
    }
    std::vector<RequestItem> items;
    for (size_t i = 0; i < std::min<size_t>(leasing.count, by_block.size()); ++i) {
      if (kept_.at(by_block[i].second).lease == 0) items.push_back({by_block[i].second, 0, 0, 0});
    }
    const Answer answer = Ask(owner_, Op::kAcquire, items);
    for (const proto::SpanRecord& span : answer.spans) kept_.at(items[span.item].tensor).lease = span.lease;
  }
  void ReleaseEverySecond() {
    std::vector<RequestItem> items;
    for (auto& [id, tensor] : kept_) {
      if (id % 4 == 1 && tensor.lease != 0) items.push_back({0, 0, 0, std::exchange(tensor.lease, 0)});
    }
    (void)Ask(owner_, Op::kRelease, items);
  }
  // All whole blocks for which there must be room.
  void TakeBlocks() {
    FindTensors();
    uint64_t free = FreeOfUnbound();
    std::vector<RequestItem> taken;
    for (; free >= kPagesPerBlock + kUnusablePages; free -= kPagesPerBlock) {
      const base::TimePoint before = world_.now;
      ReleaseAll(asker_, Ask(asker_, Op::kCreate, {{next_, 0, 0, kBlockSize}}));
      taken.push_back({next_++, 0, 0, 0});
      RC_ASSERT((world_.now - before) < std::chrono::seconds(1));
      RC_ASSERT(world_.Job(job_).held_bytes <= kBlocks * kBlockSize);
    }
    blocks_taken_ += taken.size();
    (void)Ask(asker_, Op::kFree, taken);
  }
  uint64_t blocks_taken() const { return blocks_taken_; }
  uint64_t moves() const { return world_.engine->Snapshot().compaction[size_t(CompactionCause::kBlock)].moves; }

 private:
  using Block = std::pair<uint32_t, uint64_t>;  // Window, and block in it.
  struct Tensor {
    uint64_t pages = 0;
    uint64_t lease = 0;
    std::map<Block, uint64_t> lies;  // Pages by block.
  };

  Answer Ask(SessionId session, Op op, const std::vector<RequestItem>& items) {
    if (items.empty()) return {};
    const Answer answer = world_.Ask(session, op, items);
    RC_ASSERT(answer.code == Code::kOk);
    return answer;
  }
  void ReleaseAll(SessionId session, const Answer& answer) {
    std::vector<RequestItem> items;
    for (const proto::SpanRecord& span : answer.spans) {
      if (items.empty() || items.back().value != span.lease) items.push_back({0, 0, 0, span.lease});
    }
    (void)Ask(session, Op::kRelease, items);
  }
  // What is leased has not moved since; the others are found by a lease that ends at once.
  void FindTensors() {
    std::vector<RequestItem> items;
    for (auto& [id, tensor] : kept_) {
      if (tensor.lease != 0) continue;
      tensor.lies.clear();
      items.push_back({id, 0, 0, 0});
    }
    const Answer answer = Ask(owner_, Op::kAcquire, items);
    for (const proto::SpanRecord& span : answer.spans) {
      for (uint64_t at = span.offset; at < span.offset + span.length; at += kPageSize) {
        ++kept_.at(items[span.item].tensor).lies[{span.window, at / kBlockSize}];
      }
    }
    ReleaseAll(owner_, answer);
    free_of_.clear();
    for (const auto& [id, tensor] : kept_) {
      for (const auto& [block, pages] : tensor.lies) {
        uint64_t& free = free_of_.try_emplace(block, kPagesPerBlock).first->second;
        RC_ASSERT(free >= pages);
        free -= pages;
      }
    }
  }
  std::map<Block, std::vector<uint64_t>> TensorsOfBlocks() const {
    std::map<Block, std::vector<uint64_t>> blocks;
    for (const auto& [id, tensor] : kept_) {
      for (const auto& [block, pages] : tensor.lies) blocks[block].push_back(id);
    }
    return blocks;
  }
  uint64_t FreeOfUnbound() const {
    uint64_t free = kBlocks * kPagesPerBlock;
    for (const auto& [id, tensor] : kept_) free -= tensor.pages;
    for (const auto& [block, tensors] : TensorsOfBlocks()) {
      const bool bound = std::ranges::any_of(tensors, [&](uint64_t id) { return kept_.at(id).lease != 0; });
      if (bound) free -= free_of_.at(block);
    }
    return free;
  }

  World world_;
  JobId job_;
  SessionId owner_;
  SessionId asker_;
  std::map<uint64_t, Tensor> kept_;
  std::map<Block, uint64_t> free_of_;  // Pages.
  uint64_t blocks_taken_ = 0;
  uint64_t next_ = 1;
};

rc::Gen<std::vector<Sizes>> Shapes(uint32_t pages_max) {
  const auto sizes = rc::gen::mapcat(rc::gen::inRange<size_t>(1, 4), [=](size_t count) {
    return rc::gen::container<Sizes>(count, rc::gen::inRange<uint32_t>(1, pages_max + 1));
  });
  return rc::gen::container<std::vector<Sizes>>(kBlocks, sizes);
}

RC_GTEST_PROP(CompactionLeasesProperty, BlocksComeWhileUnboundPagesSuffice, ()) {
  const auto pages_max = *rc::gen::element(1U, 8U, 32U, 100U);
  const auto shapes = *Shapes(pages_max);
  const auto leasing = rc::gen::construct<Leasing>(rc::gen::inRange<uint32_t>(0, kBlocks), rc::gen::arbitrary<bool>(),
                                                   rc::gen::inRange<uint32_t>(0, kBlocks));
  Program program(*rc::gen::inRange<uint32_t>(0, 5));
  program.Fill(shapes);
  for (int round = 0; round < 2; ++round) {
    program.Lease(*leasing);
    program.TakeBlocks();
    program.ReleaseEverySecond();
  }
}

TEST(CompactionLeasesProperty, ItsProgramsTakeBlocksThatMovesMake) {
  Program program(2);
  std::vector<Sizes> shapes(kBlocks, Sizes{1});
  std::fill(shapes.begin() + 70, shapes.end(), Sizes{60, 40});
  program.Fill(shapes);
  program.Lease({.count = 70, .emptiest = true, .from = 0});
  program.TakeBlocks();
  EXPECT_GE(program.blocks_taken(), 10U);
  EXPECT_GE(program.moves(), 10U);
}

}  // namespace
}  // namespace tier::tiering::testing
