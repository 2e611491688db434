// The scalar twin against arithmetic that shares no code with it: the compiler's _Float16, exact distances in double.
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/libclient_copy/copy_cases.h"

namespace tier::copy {
namespace {

std::vector<uint32_t> Fp32Values() {
  const std::vector<std::byte> bytes = SpecialValues(ElementType::kFp32);
  std::vector<uint32_t> values(bytes.size() / 4);
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}
std::vector<uint16_t> AllHalves() {
  std::vector<uint16_t> values(65536);
  for (uint32_t i = 0; i < 65536; ++i) values[i] = static_cast<uint16_t>(i);
  return values;
}

template <class Target, class Source>
std::vector<Target> Cast(const std::vector<Source>& source, ElementType from, ElementType to) {
  std::vector<Target> target(source.size());
  CopyVariants().front().copy(target.data(), source.data(), source.size(), {from, to}, false);
  return target;
}

double Bf16Value(uint32_t bits) { return std::bit_cast<float>(bits << 16); }

// The nearest bf16 by exact distances, ties to the even pattern; the step above the largest finite one counts as ∞.
uint16_t NearestBf16(uint32_t bits) {
  const double value = std::bit_cast<float>(bits & 0x7fffffff);
  const uint32_t below = (bits & 0x7fffffff) >> 16;
  const uint32_t above = below + 1;
  const double value_above = above == 0x7f80 ? std::ldexp(1.0, 128) : Bf16Value(above);
  const double down = value - Bf16Value(below);
  const double up = value_above - value;
  const bool take_above = up < down || (up == down && (below & 1) != 0);
  return static_cast<uint16_t>((take_above ? above : below) | (bits >> 16 & 0x8000));
}

TEST(Element, Bf16IsTheNearestValueWithTiesToEven) {
  const std::vector<uint32_t> source = Fp32Values();
  const auto target = Cast<uint16_t>(source, ElementType::kFp32, ElementType::kBf16);
  for (size_t i = 0; i < source.size(); ++i) {
    if ((source[i] & 0x7fffffff) >= 0x7f800000) continue;
    ASSERT_EQ(target[i], NearestBf16(source[i])) << std::hex << source[i];
  }
}

TEST(Element, Fp16IsTheNearestValueWithTiesToEven) {
  const std::vector<uint32_t> source = Fp32Values();
  const auto target = Cast<uint16_t>(source, ElementType::kFp32, ElementType::kFp16);
  for (size_t i = 0; i < source.size(); ++i) {
    if ((source[i] & 0x7fffffff) > 0x7f800000) continue;
    const auto expected = std::bit_cast<uint16_t>(static_cast<_Float16>(std::bit_cast<float>(source[i])));
    ASSERT_EQ(target[i], expected) << std::hex << source[i];
  }
}

TEST(Element, NarrowedNansKeepSignAndLeadingPayloadAndAreQuiet) {
  const std::vector<uint32_t> source = Fp32Values();
  const auto bf16 = Cast<uint16_t>(source, ElementType::kFp32, ElementType::kBf16);
  const auto fp16 = Cast<uint16_t>(source, ElementType::kFp32, ElementType::kFp16);
  for (size_t i = 0; i < source.size(); ++i) {
    const uint32_t bits = source[i];
    if ((bits & 0x7fffffff) <= 0x7f800000) continue;
    ASSERT_EQ(bf16[i], (bits >> 16) | 0x0040) << std::hex << bits;
    ASSERT_EQ(fp16[i], (bits >> 16 & 0x8000) | 0x7e00 | (bits >> 13 & 0x3ff)) << std::hex << bits;
  }
}

TEST(Element, WideningIsExactOnAllPatternsAndNansBecomeQuiet) {
  const std::vector<uint16_t> source = AllHalves();
  const auto from_bf16 = Cast<uint32_t>(source, ElementType::kBf16, ElementType::kFp32);
  const auto from_fp16 = Cast<uint32_t>(source, ElementType::kFp16, ElementType::kFp32);
  for (size_t i = 0; i < source.size(); ++i) {
    const uint32_t sign = (source[i] & 0x8000u) << 16;
    const uint32_t bf16_quiet = (source[i] & 0x7fff) > 0x7f80 ? 0x400000 : 0;
    ASSERT_EQ(from_bf16[i], uint32_t{source[i]} << 16 | bf16_quiet) << std::hex << source[i];
    if ((source[i] & 0x7fff) > 0x7c00) {
      ASSERT_EQ(from_fp16[i], sign | 0x7fc00000 | (source[i] & 0x3ffu) << 13) << std::hex << source[i];
    } else {
      const auto expected = static_cast<float>(std::bit_cast<_Float16>(source[i]));
      ASSERT_EQ(from_fp16[i], std::bit_cast<uint32_t>(expected)) << std::hex << source[i];
    }
  }
}

TEST(Element, AValueThatFitsSurvivesTheRoundTrip) {
  for (const ElementType half : {ElementType::kBf16, ElementType::kFp16}) {
    const std::vector<uint16_t> source = AllHalves();
    const auto back = Cast<uint16_t>(Cast<uint32_t>(source, half, ElementType::kFp32), ElementType::kFp32, half);
    const uint16_t infinity = half == ElementType::kBf16 ? 0x7f80 : 0x7c00;
    const uint16_t quiet = half == ElementType::kBf16 ? 0x40 : 0x200;
    for (size_t i = 0; i < source.size(); ++i) {
      ASSERT_EQ(back[i], (source[i] & 0x7fff) > infinity ? source[i] | quiet : source[i]) << std::hex << source[i];
    }
  }
}

TEST(Element, OverflowInANarrowingCastCountsAsNonFinite) {
  const std::vector<float> source = {1.0f, 65504.0f, 65519.996f, 65520.0f, 1e30f, -1e30f, 3.4e38f};
  std::vector<uint16_t> target(source.size());
  const auto fp16 =
      FusedCopy(target.data(), source.data(), source.size(), {ElementType::kFp32, ElementType::kFp16, true, false});
  EXPECT_EQ(fp16->non_finite_count, 4u);
  const auto bf16 =
      FusedCopy(target.data(), source.data(), source.size(), {ElementType::kFp32, ElementType::kBf16, true, false});
  EXPECT_EQ(bf16->non_finite_count, 1u);
}

TEST(Element, WithoutACastEveryBitPatternIsKept) {
  for (const ElementType type : {ElementType::kFp32, ElementType::kBf16, ElementType::kFp16, ElementType::kFp64}) {
    const std::vector<std::byte> source = SpecialValues(type);
    for (const CopyVariant& variant : CopyVariants()) {
      if (!variant.runnable) continue;
      std::vector<std::byte> target(source.size());
      variant.copy(target.data(), source.data(), source.size() / ElementSize(type), {type, type, true, true}, true);
      EXPECT_EQ(target, source) << variant.name << " " << TypeName(type);
    }
  }
}

TEST(Element, SumOfSquaresIsThatOfExtendedPrecisionToTwelveDigits) {
  std::vector<float> source(1'000'003);
  long double expected = 0;
  for (size_t i = 0; i < source.size(); ++i) {
    source[i] =
        static_cast<float>(std::sin(0.37 * static_cast<double>(i)) * std::pow(10.0, static_cast<double>(i % 7) - 3));
    expected += static_cast<long double>(source[i]) * source[i];
  }
  std::vector<float> target(source.size());
  const auto outcome =
      FusedCopy(target.data(), source.data(), source.size(), {ElementType::kFp32, ElementType::kFp32, false, true});
  EXPECT_NEAR(outcome->sum_of_squares / static_cast<double>(expected), 1.0, 1e-12);
}

TEST(Element, SquaresOfTheLargestFp32DoNotOverflow) {
  const std::vector<float> source(1000, std::numeric_limits<float>::max());
  std::vector<float> target(source.size());
  const auto outcome =
      FusedCopy(target.data(), source.data(), source.size(), {ElementType::kFp32, ElementType::kFp32, true, true});
  EXPECT_TRUE(std::isfinite(outcome->sum_of_squares));
  EXPECT_EQ(outcome->non_finite_count, 0u);
}

}  // namespace
}  // namespace tier::copy
