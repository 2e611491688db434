// Churn with the shapes of real models: jobs come and go, their tensors in any order; the pool is hardly larger than
// what lives in it at the peak. Nothing may be refused while enough whole blocks and pages are free, and the space lost
// to scattered tails stays small. `tools/dev churn` has classical allocators beside it.
#include "daemon/base/block_pool.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/models/model_shapes.h"

namespace tier::base {
namespace {

class Churn {
 public:
  Churn(uint32_t blocks, uint64_t pages_live_max, unsigned seed)
      : blocks_(blocks), pages_live_max_(pages_live_max), random_(seed) {
    pool_.AddRegion(0, blocks, RegionUse::kSlotsFirst);
    for (const models::ModelShape& model : models::Models()) {
      sizes_.push_back(models::TensorSizes(model, 2));
      sizes_.push_back(models::TensorSizes(model, 4));
    }
  }

  void Run(int events) {
    for (int i = 0; i < events; ++i) {
      const auto& sizes = sizes_[random_() % sizes_.size()];
      const uint64_t pages = PagesFor(sizes[random_() % sizes.size()]);
      while (pages_live_ + pages > pages_live_max_) FreeOne();
      Create(pages);
    }
    pool_.CheckInvariants();
  }
  uint64_t refusals() const { return refusals_; }
  uint64_t refusals_with_room() const { return refusals_with_room_; }
  // Blocks held for each block's worth of live pages, at worst.
  double overhead_max() const { return overhead_max_; }

 private:
  void Create(uint64_t pages) {
    std::vector<PageRun> runs;
    const auto whole = static_cast<uint32_t>(pages / kPagesPerBlock);
    const auto tail = static_cast<uint32_t>(pages % kPagesPerBlock);
    if (!pool_.TryAllocate(whole, tail, &runs)) {
      ++refusals_;
      if (pool_.free_block_count() >= whole + (tail != 0 ? 1 : 0)) ++refusals_with_room_;
      return;
    }
    pages_live_ += pages;
    live_.push_back({std::move(runs), pages});
    const double held = static_cast<double>(blocks_ - pool_.free_block_count()) * kPagesPerBlock;
    const auto live = static_cast<double>(pages_live_);
    if (pages_live_ > pages_live_max_ / 2) overhead_max_ = std::max(overhead_max_, held / live);
  }
  void FreeOne() {
    ASSERT_FALSE(live_.empty());
    const size_t at = random_() % live_.size();
    for (const PageRun& run : live_[at].runs) pool_.Free(run);
    pages_live_ -= live_[at].pages;
    live_[at] = std::move(live_.back());
    live_.pop_back();
  }

  struct Tensor {
    std::vector<PageRun> runs;
    uint64_t pages;
  };
  BlockPool pool_;
  uint32_t blocks_;
  uint64_t pages_live_max_;
  std::mt19937 random_;
  std::vector<std::vector<uint64_t>> sizes_;
  std::vector<Tensor> live_;
  uint64_t pages_live_ = 0;
  uint64_t refusals_ = 0;
  uint64_t refusals_with_room_ = 0;
  double overhead_max_ = 0;
};

TEST(BlockPoolChurn, RefusesNothingWithAnArenaHardlyAboveThePeak) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    constexpr uint32_t kPeakBlocks = 64 * 1024;  // 128 GiB.
    Churn churn(kPeakBlocks + kPeakBlocks / 200, uint64_t{kPeakBlocks} * kPagesPerBlock, seed);
    churn.Run(20'000);
    EXPECT_EQ(churn.refusals(), 0U) << "seed " << seed;
    EXPECT_LE(churn.overhead_max(), 1.01) << "seed " << seed;
  }
}

TEST(BlockPoolChurn, NeverRefusesWhileWholeBlocksSuffice) {
  for (const unsigned seed : {4U, 5U, 6U}) {
    constexpr uint32_t kBlocks = 4096;  // 8 GiB: full nearly always.
    Churn churn(kBlocks, uint64_t{kBlocks} * kPagesPerBlock, seed);
    churn.Run(20'000);
    EXPECT_EQ(churn.refusals_with_room(), 0U) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tier::base
