// Churn with the shapes of real models: jobs come and go, their tensors in any order; the pool is hardly larger than
// what lives in it at the peak. Nothing may be refused while enough whole blocks and pages are free, and the space lost
// to scattered tails stays small. (Classic allocators refuse thousands of requests on this load.)
#include "daemon/base/block_pool.h"

#include <algorithm>
#include <random>
#include <string_view>

#include <gtest/gtest.h>

namespace tier::base {
namespace {

struct Shape {
  std::string_view name;
  uint64_t vocab, hidden, ffn, kv, layers;
  bool tied;
  uint64_t experts;
};

constexpr Shape kModels[] = {
    {"gpt2-small", 50257, 768, 3072, 768, 12, true, 0},       {"qwen2.5-1.5b", 151936, 1536, 8960, 256, 28, true, 0},
    {"qwen2.5-7b", 152064, 3584, 18944, 512, 28, false, 0},   {"llama3.1-8b", 128256, 4096, 14336, 1024, 32, false, 0},
    {"qwen2.5-14b", 152064, 5120, 13824, 1024, 48, false, 0}, {"qwen2.5-32b", 152064, 5120, 27648, 1024, 64, false, 0},
    {"mixtral-8x7b", 32000, 4096, 14336, 1024, 32, false, 8},
};

// Bytes of every tensor of the model, `width` bytes an element.
std::vector<uint64_t> TensorSizes(const Shape& m, uint64_t width) {
  std::vector<uint64_t> sizes = {m.vocab * m.hidden * width, m.hidden * width};
  if (!m.tied) sizes.push_back(m.vocab * m.hidden * width);
  for (uint64_t layer = 0; layer < m.layers; ++layer) {
    sizes.insert(sizes.end(), 2, m.hidden * m.hidden * width);
    sizes.insert(sizes.end(), 2, m.hidden * m.kv * width);
    sizes.insert(sizes.end(), 2, m.hidden * width);
    sizes.insert(sizes.end(), 3 * std::max<uint64_t>(m.experts, 1), m.hidden * m.ffn * width);
    if (m.experts != 0) sizes.push_back(m.hidden * m.experts * width);
  }
  return sizes;
}

class Churn {
 public:
  Churn(uint32_t blocks, uint64_t pages_live_max, unsigned seed)
      : blocks_(blocks), pages_live_max_(pages_live_max), random_(seed) {
    pool_.AddRegion(0, blocks, RegionUse::kSlotsFirst);
    for (const Shape& model : kModels) {
      sizes_.push_back(TensorSizes(model, 2));
      sizes_.push_back(TensorSizes(model, 4));
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
