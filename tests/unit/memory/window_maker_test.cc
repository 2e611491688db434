#include "daemon/memory/window_maker.h"

#include <algorithm>
#include <latch>
#include <optional>
#include <semaphore>

#include <gtest/gtest.h>

namespace tier::memory {
namespace {

class WindowMakerTest : public testing::Test {
 protected:
  void Start(unsigned threads) {
    workers_ = base::Workers::Start(threads, "maker").value();
    maker_.emplace(workers_.get(), [this] { finished_.release(); });
  }
  std::vector<MadeWindow> Await(size_t count) {
    std::vector<MadeWindow> made;
    while (made.size() < count && finished_.try_acquire_for(std::chrono::seconds(30))) maker_->Poll(&made);
    EXPECT_EQ(made.size(), count);
    return made;
  }
  static WindowOrder Order(uint32_t index, uint64_t size) {
    return {.window = {.index = WindowIndex{index}, .size = size}};
  }

  std::counting_semaphore<> finished_{0};
  std::unique_ptr<base::Workers> workers_;
  std::optional<WindowMaker> maker_;
};

TEST_F(WindowMakerTest, MakesManySmallWindows) {
  Start(2);
  for (uint32_t i = 0; i < 40; ++i) maker_->StartMake(Order(i, kWindowSizeMin));
  EXPECT_EQ(maker_->unfinished(), 40U);
  auto made = Await(40);
  EXPECT_EQ(maker_->unfinished(), 0U);
  std::vector<uint32_t> indices;
  for (const MadeWindow& window : made) {
    EXPECT_TRUE(window.window);
    EXPECT_EQ(window.error.code, Code::kOk);
    indices.push_back(Value(window.index));
  }
  std::sort(indices.begin(), indices.end());
  for (uint32_t i = 0; i < 40; ++i) EXPECT_EQ(indices[i], i);
  EXPECT_EQ(maker_->counters().populated_bytes, 40 * kWindowSizeMin);
}

TEST_F(WindowMakerTest, PopulatesALargeWindowInSteps) {
  Start(3);
  maker_->StartMake(Order(0, 64 * kMiB));
  const auto made = Await(1);
  EXPECT_EQ(made[0].window.size(), 64 * kMiB);
  EXPECT_EQ(maker_->counters().populated_bytes, 64 * kMiB);
}

TEST_F(WindowMakerTest, ClosesWindowsAndSaysSo) {
  Start(1);
  maker_->StartMake(Order(5, kWindowSizeMin));
  auto made = Await(1);
  maker_->StartClose(WindowIndex{5}, std::move(made[0].window));
  made = Await(1);
  EXPECT_TRUE(made[0].closed);
  EXPECT_EQ(made[0].index, WindowIndex{5});
  EXPECT_FALSE(made[0].window);
}

TEST_F(WindowMakerTest, AFailureCarriesItsReason) {
  Start(2);
  WindowOrder order = Order(1, kWindowSizeMin);
  order.window.node = {.node = 500, .only = true};
  maker_->StartMake(order);
  const auto made = Await(1);
  EXPECT_FALSE(made[0].window);
  EXPECT_EQ(made[0].error.code, Code::kNoMemory);
  EXPECT_NE(made[0].error.message, "");
}

TEST_F(WindowMakerTest, FallsBackToSmallPagesWhereAllowed) {
  Start(2);
  const auto probe = Window::Open({.size = 16 * kGiB, .pages = PageKind::kHuge});
  if (probe) GTEST_SKIP() << "needs fewer than 16 GiB of free huge pages";
  // More huge pages than there are; in small ones it is only populated in part before the maker goes.
  WindowOrder order = Order(1, kWindowSizeMin);
  order.window.pages = PageKind::kHuge;
  order.may_fall_back = true;
  maker_->StartMake(order);
  const auto made = Await(1);
  ASSERT_TRUE(made[0].window) << made[0].error.message;
  const bool fell_back = made[0].window.page_size() == kPageSize;
  EXPECT_EQ(maker_->counters().huge_fallbacks, fell_back ? 1U : 0U);
}

TEST_F(WindowMakerTest, CollapsesWhatItPopulatesOnRequest) {
  Start(1);
  WindowOrder order = Order(0, 16 * kMiB);
  order.collapse = true;
  maker_->StartMake(order);
  (void)Await(1);
  const MakerCounters counters = maker_->counters();
  EXPECT_EQ(counters.collapsed_bytes / WindowMaker::kStepBytes + counters.collapse_refused, 2U);
}

TEST_F(WindowMakerTest, CollapsesNothingUnasked) {
  Start(1);
  maker_->StartMake(Order(0, 16 * kMiB));
  (void)Await(1);
  const MakerCounters counters = maker_->counters();
  EXPECT_EQ(counters.populated_bytes, 16 * kMiB);
  EXPECT_EQ(counters.collapsed_bytes + counters.collapse_refused, 0U);
}

TEST_F(WindowMakerTest, AFullWorkersQueueOnlyDelays) {
  Start(1);
  std::latch go_on(1);
  ASSERT_TRUE(workers_->TryPost([&] { go_on.wait(); }));
  while (workers_->TryPost([] {})) {
  }
  maker_->StartMake(Order(0, kWindowSizeMin));
  go_on.count_down();
  std::vector<MadeWindow> made;
  while (made.empty()) maker_->Poll(&made);
  EXPECT_TRUE(made[0].window);
}

TEST_F(WindowMakerTest, MayEndWhileWindowsAreInTheMaking) {
  Start(2);
  for (uint32_t i = 0; i < 20; ++i) maker_->StartMake(Order(i, 32 * kMiB));
  maker_.reset();
  workers_.reset();
}

}  // namespace
}  // namespace tier::memory
