// Every kernel set against the scalar twin, bit for bit; the twin against numbers worked out by hand; random numbers
// against the published ones; threads and slices.
#include "libclient/optimizer/optimizer_update.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tier::optimizer {
namespace {

using copy::ElementType;

// The arrays of one slice. Elements are fp32 bit patterns in generation; bf16 ones keep their upper half.
struct Arrays {
  std::vector<std::byte> values, gradients, first, second, largest;
  bool operator==(const Arrays&) const = default;

  UpdateSlice Slice(const UpdatePlan& plan, size_t begin, size_t count) {
    const size_t value = ElementSize(plan.value_type) * begin, state = ElementSize(plan.state_type) * begin;
    const bool adam = plan.algorithm == Algorithm::kAdam;
    return {.values = values.data() + value,
            .gradients = gradients.data() + value,
            .first_moment = first.data() + state,
            .second_moment = adam ? second.data() + state : nullptr,
            .second_moment_max = plan.amsgrad ? largest.data() + state : nullptr,
            .count = count,
            .first = begin,
            .parameter = 7,
            .step = 3};
  }
};

std::vector<std::byte> Encoded(const std::vector<uint32_t>& patterns, ElementType type) {
  const size_t size = ElementSize(type);
  std::vector<std::byte> bytes(patterns.size() * size);
  for (size_t i = 0; i < patterns.size(); ++i) {
    const uint32_t shifted = type == ElementType::kFp32 ? patterns[i] : patterns[i] >> 16;
    std::memcpy(&bytes[i * size], &shifted, size);
  }
  return bytes;
}

constexpr uint32_t kSpecial[] = {0x00000000, 0x80000000, 0x00000001, 0x80012345, 0x007fffff, 0x00800000, 0x00810000,
                                 0x7f7fffff, 0xff7f0000, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f810000, 0xffc12345,
                                 0x3f800000, 0xbf808000, 0x3f818000, 0x5f000000, 0x1f000000, 0x33800000};

// Ordinary numbers with special ones between; second moments are not negative.
Arrays Random(const UpdatePlan& plan, size_t count, bool special) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0.0F, 0.1F);
  const auto patterns = [&](bool absolute) {
    std::vector<uint32_t> made(count);
    for (uint32_t& pattern : made) {
      pattern = std::bit_cast<uint32_t>(normal(random));
      if (special && random() % 3 == 0) pattern = kSpecial[random() % std::size(kSpecial)];
      if (absolute) pattern &= 0x7fffffff;
    }
    return made;
  };
  return {Encoded(patterns(false), plan.value_type), Encoded(patterns(false), plan.value_type),
          Encoded(patterns(false), plan.state_type), Encoded(patterns(true), plan.state_type),
          Encoded(patterns(true), plan.state_type)};
}

// NaNs are alike, whatever their bits.
std::vector<std::byte> WithoutPayloads(std::vector<std::byte> bytes, ElementType type) {
  const size_t size = ElementSize(type);
  for (size_t i = 0; i < bytes.size(); i += size) {
    uint32_t bits = 0;
    std::memcpy(&bits, &bytes[i], size);
    const uint32_t infinity = size == 4 ? 0x7f800000 : 0x7f80;
    if ((bits & (size == 4 ? 0x7fffffff : 0x7fff)) > infinity) std::memset(&bytes[i], 0xff, size);
  }
  return bytes;
}

Arrays WithoutPayloads(const Arrays& arrays, const UpdatePlan& plan) {
  return {WithoutPayloads(arrays.values, plan.value_type), WithoutPayloads(arrays.gradients, plan.value_type),
          WithoutPayloads(arrays.first, plan.state_type), WithoutPayloads(arrays.second, plan.state_type),
          WithoutPayloads(arrays.largest, plan.state_type)};
}

std::string Described(const UpdatePlan& plan, size_t count) {
  return "algorithm " + std::to_string(static_cast<int>(plan.algorithm)) + ", types " +
         std::to_string(static_cast<int>(plan.value_type)) + " " + std::to_string(static_cast<int>(plan.state_type)) +
         ", stochastic " + std::to_string(plan.stochastic) + ", amsgrad " + std::to_string(plan.amsgrad) + ", " +
         std::to_string(count) + " elements";
}

std::vector<UpdatePlan> AllPlans() {
  std::vector<UpdatePlan> plans;
  const auto bit = [](int options, int number) { return (options >> number & 1) != 0; };
  for (int options = 0; options < 1 << 7; ++options) {
    const UpdatePlan plan = {.algorithm = bit(options, 0) ? Algorithm::kAdam : Algorithm::kLion,
                             .value_type = bit(options, 1) ? ElementType::kFp32 : ElementType::kBf16,
                             .state_type = bit(options, 2) ? ElementType::kFp32 : ElementType::kBf16,
                             .stochastic = bit(options, 3),
                             .decoupled_decay = bit(options, 4),
                             .maximize = bit(options, 5),
                             .amsgrad = bit(options, 6),
                             .seed = 0x89abcdef,
                             .learning_rate = 0.01,
                             .beta1 = 0.9,
                             .beta2 = 0.99,
                             .epsilon = 1e-8,
                             .weight_decay = 0.1};
    if (CheckPlan(plan)) plans.push_back(plan);
  }
  return plans;
}

class EveryVariant : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (!variant().runnable) GTEST_SKIP() << "needs cpu: this processor does not run " << variant().name;
  }
  const UpdateVariant& variant() const { return UpdateVariants()[GetParam()]; }
};

std::string VariantName(const testing::TestParamInfo<size_t>& info) {
  return std::string(UpdateVariants()[info.param].name);
}
INSTANTIATE_TEST_SUITE_P(OptimizerUpdate, EveryVariant, testing::Range<size_t>(0, UpdateVariants().size()),
                         VariantName);

TEST_P(EveryVariant, MatchesTheTwinForEachPlanTailAndSpecialValue) {
  EXPECT_EQ(AllPlans().size(), 60u);
  for (const UpdatePlan& plan : AllPlans()) {
    for (const size_t count : {1, 3, 15, 16, 17, 127, 128, 129, 300, 1000}) {
      for (const bool special : {false, true}) {
        Arrays ours = Random(plan, count, special), twin = ours;
        variant().update(plan, FactorsOf(plan, 3), ours.Slice(plan, 0, count));
        UpdateScalar(plan, FactorsOf(plan, 3), twin.Slice(plan, 0, count));
        const Arrays ours_plain = WithoutPayloads(ours, plan), expected = WithoutPayloads(twin, plan);
        ASSERT_TRUE(ours_plain.values == expected.values) << Described(plan, count);
        ASSERT_TRUE(ours_plain.first == expected.first) << Described(plan, count);
        ASSERT_TRUE(ours_plain.second == expected.second) << Described(plan, count);
        ASSERT_TRUE(ours_plain.largest == expected.largest) << Described(plan, count);
      }
    }
  }
}

TEST_P(EveryVariant, CountsRandomNumbersBeyond32Bits) {
  const UpdatePlan plan = {.value_type = ElementType::kBf16, .stochastic = true, .learning_rate = 1e-3};
  Arrays ours = Random(plan, 256, false), twin = ours;
  UpdateSlice slice = ours.Slice(plan, 0, 256), expected = twin.Slice(plan, 0, 256);
  slice.first = expected.first = (uint64_t{1} << 35) - kChunk;  // The counter's lower word ends between the chunks.
  variant().update(plan, FactorsOf(plan, 3), slice);
  UpdateScalar(plan, FactorsOf(plan, 3), expected);
  EXPECT_EQ(ours, twin);
}

// The random number of an element, found from the outside: rounding 1 + x·2^-23 gives 1 unless x and the number carry
// beyond 16 bits. So each probe, of an x one bit further, tells one bit of the number.
uint32_t RandomNumber(const UpdatePlan& plan, uint64_t element, uint32_t parameter, uint32_t step) {
  uint32_t found = 0;
  for (uint32_t bit = 0x8000; bit != 0; bit >>= 1) {
    UpdatePlan probe = plan;
    const uint32_t below = 0x10000 - (found | bit);
    const float target = std::bit_cast<float>(0x3f800000 | below);
    probe.learning_rate = static_cast<double>(target) - 1;
    std::vector<uint16_t> values(kChunk, 0x3f80), gradients(kChunk, 0xbf80), moments(kChunk, 0);
    UpdateScalar(probe, FactorsOf(probe, step),
                 {.values = reinterpret_cast<std::byte*>(values.data()),
                  .gradients = reinterpret_cast<const std::byte*>(gradients.data()),
                  .first_moment = reinterpret_cast<std::byte*>(moments.data()),
                  .count = kChunk,
                  .first = element / kChunk * kChunk,
                  .parameter = parameter,
                  .step = step});
    if (values[element % kChunk] == 0x3f81) found |= bit;
  }
  return found;
}

TEST(RandomNumbers, AreThePublishedOnes) {
  UpdatePlan plan = {.algorithm = Algorithm::kLion,
                     .value_type = ElementType::kBf16,
                     .state_type = ElementType::kBf16,
                     .stochastic = true,
                     .beta1 = 0.9,
                     .beta2 = 0.99};
  // Random123's known answer for a counter and a key of zeros.
  const uint32_t zeros[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (size_t half = 0; half < 8; ++half) {
    EXPECT_EQ(RandomNumber(plan, half * kChunkCounters, 0, 0), zeros[half / 2] >> (16 * (half % 2)) & 0xffff) << half;
  }
}

TEST(ScalarTwin, RoundsAtRandomBetweenTheTwoNeighbours) {
  const UpdatePlan plan = {.algorithm = Algorithm::kLion,
                           .value_type = ElementType::kBf16,
                           .stochastic = true,
                           .learning_rate = 0x1p-9,  // A quarter of the distance between 1 and its neighbour.
                           .beta1 = 0.9,
                           .beta2 = 0.99};
  constexpr size_t kCount = 1 << 16;
  std::vector<uint16_t> values(kCount, 0x3f80), gradients(kCount, 0xbf80);
  std::vector<float> moments(kCount);
  const UpdateSlice slice = {.values = reinterpret_cast<std::byte*>(values.data()),
                             .gradients = reinterpret_cast<const std::byte*>(gradients.data()),
                             .first_moment = reinterpret_cast<std::byte*>(moments.data()),
                             .count = kCount};
  Update(plan, {&slice, 1}, 1);
  double up = 0;
  for (const uint16_t value : values) {
    ASSERT_TRUE(value == 0x3f80 || value == 0x3f81);
    up += value == 0x3f81;
  }
  EXPECT_NEAR(up / kCount, 0.25, 0.0068);  // Four standard deviations of a fair coin with that mean.
}

TEST(ScalarTwin, FirstStepsAreThoseOfTheFormulas) {
  float value = 1, gradient = 0.5, first = 0, second = 0;
  UpdatePlan plan = {.learning_rate = 0.125, .beta1 = 0.5, .beta2 = 0.75, .weight_decay = 0.5};
  UpdateSlice slice = {.values = reinterpret_cast<std::byte*>(&value),
                       .gradients = reinterpret_cast<const std::byte*>(&gradient),
                       .first_moment = reinterpret_cast<std::byte*>(&first),
                       .second_moment = reinterpret_cast<std::byte*>(&second),
                       .count = 1};
  Update(plan, {&slice, 1}, 1);
  EXPECT_EQ(first, 0.25F);
  EXPECT_EQ(second, 0.0625F);
  EXPECT_EQ(value, 1 - 0.0625F - 0.125F);  // Decay, and one learning rate.
  plan.algorithm = Algorithm::kLion;
  value = 1;
  first = -0.25;
  Update(plan, {&slice, 1}, 1);  // 0.5 · −0.25 + 0.5 · 0.5 > 0
  EXPECT_EQ(value, 1 - 0.0625F - 0.125F);
  EXPECT_EQ(first, 0.75F * -0.25F + 0.25F * 0.5F);
  first = -0.5;
  plan.weight_decay = 0;
  Update(plan, {&slice, 1}, 1);  // The direction is 0.
  EXPECT_EQ(value, 1 - 0.0625F - 0.125F);
  gradient = std::numeric_limits<float>::quiet_NaN();
  Update(plan, {&slice, 1}, 1);
  EXPECT_TRUE(std::isnan(value) && std::isnan(first));
}

TEST(OptimizerUpdate, DependsNeitherOnThreadsNorOnSlices) {
  constexpr size_t kCount = 3 * kTaskElements + 77;
  for (const ElementType value : {ElementType::kFp32, ElementType::kBf16}) {
    const UpdatePlan plan = {.value_type = value,
                             .state_type = ElementType::kBf16,
                             .stochastic = value == ElementType::kBf16,
                             .learning_rate = 0.01,
                             .beta1 = 0.9,
                             .beta2 = 0.999,
                             .epsilon = 1e-8};
    Arrays whole = Random(plan, kCount, false), divided = whole;
    const UpdateSlice one = whole.Slice(plan, 0, kCount);
    Update(plan, {&one, 1}, 1);
    const size_t middle = kTaskElements + kChunk;
    const UpdateSlice two[] = {divided.Slice(plan, 0, middle), divided.Slice(plan, middle, kCount - middle)};
    Update(plan, two, 7);
    EXPECT_EQ(whole, divided);
  }
}

TEST(OptimizerUpdate, LeavesTheFloatingPointEnvironmentAlone) {
#if defined(__x86_64__)
  const UpdatePlan plan = {.algorithm = Algorithm::kLion, .learning_rate = 0, .beta1 = 0.5, .beta2 = 0.5};
  float value = 1, gradient = 0x1p-140F, moment = 0;
  const UpdateSlice slice = {.values = reinterpret_cast<std::byte*>(&value),
                             .gradients = reinterpret_cast<const std::byte*>(&gradient),
                             .first_moment = reinterpret_cast<std::byte*>(&moment),
                             .count = 1};
  const unsigned before = __builtin_ia32_stmxcsr();
  const unsigned flushing = before | 0x8040;  // As torch.set_flush_denormal() sets it.
  __builtin_ia32_ldmxcsr(flushing);
  Update(plan, {&slice, 1}, 2);
  const unsigned after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before);
  EXPECT_EQ(after, flushing);
  EXPECT_EQ(std::bit_cast<uint32_t>(moment), std::bit_cast<uint32_t>(0x1p-141F));
#else
  GTEST_SKIP() << "needs cpu: x86-64's control register";
#endif
}

}  // namespace
}  // namespace tier::optimizer
