// Every kernel set against the scalar twin: special values, every alignment and tail, long arrays, random arrays.
#include <algorithm>
#include <cstdlib>
#include <random>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/libclient_copy/copy_cases.h"

namespace tier::copy {
namespace {

class EveryVariant : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (!variant().runnable) GTEST_SKIP() << "needs cpu: this processor does not run " << variant().name;
  }
  const CopyVariant& variant() const { return CopyVariants()[GetParam()]; }
};

std::string VariantName(const testing::TestParamInfo<size_t>& info) {
  return std::string(CopyVariants()[info.param].name);
}
INSTANTIATE_TEST_SUITE_P(Copy, EveryVariant, testing::Range<size_t>(0, CopyVariants().size()), VariantName);

TEST_P(EveryVariant, MatchesTheTwinOnAllSpecialValues) {
  for (const CopyPlan& plan : AllPlans()) {
    const std::vector<std::byte> source = SpecialValues(plan.source_type);
    EXPECT_TRUE(MatchesTwin(variant(), plan, source, {0, 0, false}));
    EXPECT_TRUE(MatchesTwin(variant(), plan, source, {0, 0, true}));
  }
}

TEST_P(EveryVariant, SumsFiniteSpecialValuesToTheSameBits) {
  for (const CopyPlan& plan : AllPlans()) {
    if (!plan.sum_squares) continue;
    std::vector<std::byte> source;
    const size_t size = ElementSize(plan.source_type);
    const std::vector<std::byte> all = SpecialValues(plan.source_type);
    std::vector<std::byte> scratch(8);
    const CopyPlan probe = {plan.source_type, plan.source_type, true, false};
    for (size_t i = 0; i < all.size(); i += size) {
      if (CopyVariants().front().copy(scratch.data(), &all[i], 1, probe, false).non_finite_count > 0) continue;
      source.insert(source.end(), all.begin() + static_cast<ptrdiff_t>(i),
                    all.begin() + static_cast<ptrdiff_t>(i + size));
    }
    EXPECT_TRUE(MatchesTwin(variant(), plan, source, {0, 0, false}));
    EXPECT_TRUE(MatchesTwin(variant(), plan, source, {4, 20, true}));
  }
}

// Lengths around 0 and around the first vector steps, every offset of the target within a cache line.
TEST_P(EveryVariant, MatchesTheTwinAtAllAlignmentsAndTailLengths) {
  std::mt19937_64 random(7);
  std::vector<std::byte> bytes(8 * 700);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
  size_t turn = 0;
  for (const CopyPlan& plan : AllPlans()) {
    const size_t size = ElementSize(plan.source_type);
    const size_t first_vectors = 512 / ElementSize(plan.target_type);
    for (size_t offset = 0; offset < 64; ++offset) {
      for (size_t length = offset % 4; length <= 130; length += 4) {
        ++turn;
        const Placement place = {turn % 61, offset, turn % 2 == 0};
        ASSERT_TRUE(MatchesTwin(variant(), plan, {bytes.data(), length * size}, place));
        ASSERT_TRUE(MatchesTwin(variant(), plan, {bytes.data(), (first_vectors + length) * size}, place));
      }
    }
  }
}

TEST_P(EveryVariant, CopiesEveryTailLengthFromAlignedMemory) {
  std::mt19937_64 random(11);
  std::vector<std::byte> bytes(8 * 700);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
  for (const CopyPlan& plan : AllPlans()) {
    const size_t size = ElementSize(plan.source_type);
    for (size_t length = 0; length <= 130; ++length) {
      ASSERT_TRUE(MatchesTwin(variant(), plan, {bytes.data(), length * size}, {0, 0, true}));
      ASSERT_TRUE(MatchesTwin(variant(), plan, {bytes.data(), (512 + length) * size}, {0, 0, false}));
    }
  }
}

TEST_P(EveryVariant, CountsEveryElementOfALongRowOfNans) {
  constexpr size_t kElements = 3 * 65536 + 77;  // Past the point where 16-bit lane counters would wrap.
  for (const CopyPlan& plan : AllPlans()) {
    if (!plan.check_finite) continue;
    const std::vector<std::byte> source(kElements * ElementSize(plan.source_type), std::byte{0xff});
    std::vector<std::byte> target(kElements * ElementSize(plan.target_type));
    EXPECT_EQ(variant().copy(target.data(), source.data(), kElements, plan, true).non_finite_count, kElements)
        << PlanName(plan);
  }
}

TEST_P(EveryVariant, FindsASingleInfinityAnywhere) {
  std::vector<float> source(1100, 1.0f);
  std::vector<float> target(source.size());
  const CopyPlan plan = {ElementType::kFp32, ElementType::kFp32, true, false};
  for (size_t i = 0; i < source.size(); ++i) {
    source[i] = -std::numeric_limits<float>::infinity();
    ASSERT_EQ(variant().copy(target.data(), source.data(), source.size(), plan, false).non_finite_count, 1u) << i;
    source[i] = 1.0f;
  }
}

TEST_P(EveryVariant, MatchesTheTwinOnRandomArrays) {
  const std::vector<CopyPlan> plans = AllPlans();
  rc::check("a kernel equals its twin", [&] {
    const CopyPlan plan = *rc::gen::elementOf(plans);
    const auto elements = *rc::gen::inRange<size_t>(0, 5000);
    const auto seed = *rc::gen::arbitrary<uint64_t>();
    const Placement place = {*rc::gen::inRange<size_t>(0, 64), *rc::gen::inRange<size_t>(0, 64),
                             *rc::gen::arbitrary<bool>()};
    std::mt19937_64 random(seed);
    std::vector<std::byte> source(elements * ElementSize(plan.source_type));
    std::generate(source.begin(), source.end(), [&] { return static_cast<std::byte>(random()); });
    RC_ASSERT(MatchesTwin(variant(), plan, source, place));
  });
}

// All 2^32 fp32 patterns: half a minute per variant.
TEST_P(EveryVariant, MatchesTheTwinOnAllFp32PatternsWhenAsked) {
  if (std::getenv("TIER_TEST_EXHAUSTIVE") == nullptr) GTEST_SKIP() << "needs time: TIER_TEST_EXHAUSTIVE=1 runs it";
  std::vector<uint32_t> source(1 << 20);
  for (uint64_t start = 0; start < uint64_t{1} << 32; start += source.size()) {
    for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint32_t>(start + i);
    for (const ElementType half : {ElementType::kBf16, ElementType::kFp16}) {
      const CopyPlan plan = {ElementType::kFp32, half, true, true};
      ASSERT_TRUE(MatchesTwin(variant(), plan, std::as_bytes(std::span(source)), {}));
    }
  }
}

}  // namespace
}  // namespace tier::copy
