// The public face: which plans exist, which kernel set is chosen, large and empty copies, sums over pieces.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "tests/unit/libclient_copy/copy_cases.h"

namespace tier::copy {
namespace {

TEST(FusedCopy, SupportsEqualTypesAndCastsToAndFromFp32Only) {
  EXPECT_TRUE(IsSupported({}));
  EXPECT_TRUE(IsSupported({ElementType::kFp32, ElementType::kBf16, true, true}));
  EXPECT_TRUE(IsSupported({ElementType::kFp16, ElementType::kFp32, true, true}));
  EXPECT_TRUE(IsSupported({ElementType::kFp64, ElementType::kFp64, true, true}));
  EXPECT_FALSE(IsSupported({ElementType::kBf16, ElementType::kFp16}));
  EXPECT_FALSE(IsSupported({ElementType::kFp64, ElementType::kFp32}));
  EXPECT_FALSE(IsSupported({ElementType::kBytes, ElementType::kFp32}));
  EXPECT_FALSE(IsSupported({ElementType::kBytes, ElementType::kBytes, true, false}));
  EXPECT_FALSE(IsSupported({static_cast<ElementType>(9), static_cast<ElementType>(9)}));
  EXPECT_EQ(AllPlans().size(), 1 + 8 * 4u);
}

TEST(FusedCopy, AnUnsupportedPlanIsRefusedAndWritesNothing) {
  const float source = 1;
  uint64_t target = 7;
  EXPECT_FALSE(FusedCopy(&target, &source, 1, {ElementType::kFp32, ElementType::kFp64}));
  EXPECT_EQ(target, 7u);
}

TEST(FusedCopy, TheScalarTwinIsFirstAndAlwaysRuns) {
  EXPECT_EQ(CopyVariants().front().name, "scalar");
  EXPECT_TRUE(CopyVariants().front().runnable);
}

TEST(FusedCopy, TheFastestRunnableVariantIsChosenUnlessAnotherIsNamed) {
  const CopyVariant* last = nullptr;
  for (const CopyVariant& variant : CopyVariants()) {
    if (!variant.runnable) continue;
    last = &variant;
    EXPECT_EQ(BestVariant(variant.name).name, variant.name);
  }
  EXPECT_EQ(BestVariant("").name, last->name);
  EXPECT_EQ(BestVariant("no such thing").name, last->name);
}

TEST(FusedCopy, ZeroElementsTouchNothing) {
  for (const CopyPlan& plan : AllPlans()) {
    const CopyOutcome outcome = FusedCopy(nullptr, nullptr, 0, plan).value();
    EXPECT_EQ(outcome.non_finite_count, 0u);
    EXPECT_EQ(outcome.sum_of_squares, 0.0);
  }
}

TEST(FusedCopy, LargeCopiesTakeTheStreamingPathAndAreWhole) {
  std::mt19937_64 random(3);
  std::vector<std::byte> source(StreamingThresholdBytes() + 4099);
  std::generate(source.begin(), source.end(), [&] { return static_cast<std::byte>(random()); });
  for (const size_t offset : {0, 1, 31}) {
    std::vector<std::byte> target(source.size());
    ASSERT_TRUE(FusedCopy(target.data() + offset, source.data(), source.size() - offset, {}));
    EXPECT_TRUE(std::equal(target.begin() + static_cast<ptrdiff_t>(offset), target.end(), source.begin()));
    std::fill(target.begin(), target.end(), std::byte{0});
    const size_t elements = (source.size() - offset) / 4;
    const auto outcome = FusedCopy(target.data() + offset, source.data(), elements,
                                   {ElementType::kFp32, ElementType::kFp32, true, true});
    EXPECT_EQ(std::memcmp(target.data() + offset, source.data(), elements * 4), 0);
    EXPECT_GT(outcome->non_finite_count, elements / 512);  // One exponent in 256 is that of ∞ and NaN.
    EXPECT_LT(outcome->non_finite_count, elements / 128);
  }
}

TEST(FusedCopy, PiecesSumToTheWhole) {
  std::vector<float> source(100'000);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(i % 977) * 0.125f;
  std::vector<float> target(source.size());
  const CopyPlan plan = {ElementType::kFp32, ElementType::kFp32, false, true};
  const double whole = FusedCopy(target.data(), source.data(), source.size(), plan)->sum_of_squares;
  double pieces = 0;
  for (size_t i = 0; i < source.size(); i += 1000)
    pieces += FusedCopy(&target[i], &source[i], 1000, plan)->sum_of_squares;
  EXPECT_DOUBLE_EQ(pieces, whole);
}

}  // namespace
}  // namespace tier::copy
