// The arithmetic of one element, on bit patterns: casts that round to nearest even and make NaNs quiet, the test for
// NaN and ±∞, and the square as a double. This is the reference that the vector kernels must match bit for bit, and
// what they use themselves for heads and tails.
//
// Everything is in an unnamed namespace and always inlined: this header is compiled with several instruction sets.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "libclient/copy/copy_plan.h"

namespace tier::copy {
namespace {  // One copy per translation unit, on purpose: see above.

#define TIER_COPY_INLINE inline __attribute__((always_inline))

// The four formats: how an element is carried, and which bits say "not finite".
struct Fp32 {
  using Carrier = uint32_t;
  static constexpr Carrier kAbsolute = 0x7fffffff, kInfinity = 0x7f800000, kQuiet = 0x00400000;
};
struct Bf16 {
  using Carrier = uint16_t;
  static constexpr Carrier kAbsolute = 0x7fff, kInfinity = 0x7f80, kQuiet = 0x0040;
};
struct Fp16 {
  using Carrier = uint16_t;
  static constexpr Carrier kAbsolute = 0x7fff, kInfinity = 0x7c00, kQuiet = 0x0200;
};
struct Fp64 {
  using Carrier = uint64_t;
  static constexpr Carrier kAbsolute = 0x7fffffffffffffff, kInfinity = 0x7ff0000000000000, kQuiet = 0x0008000000000000;
};

template <class Format>
TIER_COPY_INLINE bool IsNonFinite(typename Format::Carrier bits) {
  return (bits & Format::kAbsolute) >= Format::kInfinity;
}
template <class Format>
TIER_COPY_INLINE bool IsNan(typename Format::Carrier bits) {
  return (bits & Format::kAbsolute) > Format::kInfinity;
}

TIER_COPY_INLINE uint16_t Fp32ToBf16(uint32_t bits) {
  if (IsNan<Fp32>(bits)) return static_cast<uint16_t>(bits >> 16) | Bf16::kQuiet;
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);  // A carry out of the mantissa is ∞: right.
}
TIER_COPY_INLINE uint32_t Bf16ToFp32(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  return IsNan<Bf16>(bits) ? wide | Fp32::kQuiet : wide;
}

TIER_COPY_INLINE uint16_t Fp32ToFp16(uint32_t bits) {
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t absolute = bits & Fp32::kAbsolute;
  if (IsNan<Fp32>(bits)) return sign | Fp16::kInfinity | Fp16::kQuiet | static_cast<uint16_t>((absolute >> 13) & 0x3ff);
  if (absolute >= 0x47800000) return sign | Fp16::kInfinity;  // ≥ 2^16; what lies just below may still round up to ∞.
  if (absolute < 0x33000000) return sign;                     // < 2^-25: nearer to 0 than to the least subnormal.
  const uint32_t exponent = absolute >> 23;
  // Subnormal results lose more bits: the mantissa with its hidden one is shifted by 14 … 24 instead of 13.
  const uint32_t shift = exponent < 113 ? 126 - exponent : 13;
  const uint32_t mantissa = exponent < 113 ? (absolute & 0x7fffff) | 0x800000 : absolute - (uint32_t{112} << 23);
  const uint32_t half = uint32_t{1} << (shift - 1);
  return sign | static_cast<uint16_t>((mantissa + half - 1 + ((mantissa >> shift) & 1)) >> shift);
}
TIER_COPY_INLINE uint32_t Fp16ToFp32(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t absolute = bits & Fp16::kAbsolute;
  if (absolute >= Fp16::kInfinity) {
    return sign | Fp32::kInfinity | (absolute & 0x3ff) << 13 | (IsNan<Fp16>(bits) ? Fp32::kQuiet : 0);
  }
  if (absolute >= 0x400) return sign | ((absolute << 13) + (uint32_t{112} << 23));
  if (absolute == 0) return sign;
  const auto shift = static_cast<uint32_t>(std::countl_zero(absolute)) - 21;  // Brings the top bit to bit 10.
  return sign | ((113 - shift) << 23) | (((absolute << shift) & 0x3ff) << 13);
}

template <class Source, class Target>
TIER_COPY_INLINE typename Target::Carrier Cast(typename Source::Carrier bits) {
  if constexpr (sizeof(typename Source::Carrier) == sizeof(typename Target::Carrier)) {
    return bits;
  } else if constexpr (sizeof(typename Source::Carrier) == 4) {
    return Target::kInfinity == Bf16::kInfinity ? Fp32ToBf16(bits) : Fp32ToFp16(bits);
  } else {
    return Source::kInfinity == Bf16::kInfinity ? Bf16ToFp32(bits) : Fp16ToFp32(bits);
  }
}

template <class Format>
TIER_COPY_INLINE double ToDouble(typename Format::Carrier bits) {
  if constexpr (sizeof(bits) == 8) {
    return std::bit_cast<double>(bits);
  } else if constexpr (sizeof(bits) == 4) {
    return static_cast<double>(std::bit_cast<float>(bits));
  } else {
    return static_cast<double>(
        std::bit_cast<float>(Format::kInfinity == Bf16::kInfinity ? Bf16ToFp32(bits) : Fp16ToFp32(bits)));
  }
}

// What a kernel carries along a copy.
struct Tally {
  uint64_t non_finite = 0;
  double lanes[kSumLanes] = {};  // Element i is added to lane i mod kSumLanes.

  TIER_COPY_INLINE bool AllFinite() const {  // False as soon as the square of a NaN or ∞ has been added.
    double product = 0;
    for (const double lane : lanes) product += lane * 0;
    return product == 0;
  }
  TIER_COPY_INLINE CopyOutcome Outcome() const {
    double sums[kSumLanes];
    for (size_t lane = 0; lane < kSumLanes; ++lane) sums[lane] = lanes[lane];
    for (size_t width = kSumLanes / 2; width > 0; width /= 2) {
      for (size_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
    }
    return {non_finite, sums[0]};
  }
};

struct Range {  // Elements [first, end) of a copy.
  size_t first = 0;
  size_t end = 0;
};

// The plain loop. `target` and `source` are the pointers of the whole copy, of any alignment.
template <class Source, class Target, bool kCheck, bool kSum>
[[gnu::noinline]] void CopyElements(std::byte* target, const std::byte* source, Range range, Tally* tally) {
  for (size_t i = range.first; i < range.end; ++i) {
    typename Source::Carrier bits;
    std::memcpy(&bits, source + i * sizeof bits, sizeof bits);
    const typename Target::Carrier out = Cast<Source, Target>(bits);
    std::memcpy(target + i * sizeof out, &out, sizeof out);
    if constexpr (kCheck) tally->non_finite += IsNonFinite<Target>(out) ? 1 : 0;
    if constexpr (kSum) {
      const double value = ToDouble<Source>(bits);
      tally->lanes[i % kSumLanes] += value * value;
    }
  }
}

// How many of the elements are NaN or ∞.
template <class Format>
[[gnu::noinline]] uint64_t CountElements(const std::byte* source, Range range) {
  uint64_t count = 0;
  for (size_t i = range.first; i < range.end; ++i) {
    typename Format::Carrier bits;
    std::memcpy(&bits, source + i * sizeof bits, sizeof bits);
    count += IsNonFinite<Format>(bits) ? 1 : 0;
  }
  return count;
}

// Calls body.template operator()<Source, Target, check, sum>() for the formats and flags of a supported plan.
template <class Source, class Target, class Body>
TIER_COPY_INLINE CopyOutcome WithFlags(const CopyPlan& plan, const Body& body) {
  if (plan.check_finite && plan.sum_squares) return body.template operator()<Source, Target, true, true>();
  if (plan.check_finite) return body.template operator()<Source, Target, true, false>();
  if (plan.sum_squares) return body.template operator()<Source, Target, false, true>();
  return body.template operator()<Source, Target, false, false>();
}
template <class Body>
TIER_COPY_INLINE CopyOutcome WithFormats(const CopyPlan& plan, const Body& body) {
  if (plan.source_type == plan.target_type) {
    switch (plan.source_type) {
      case ElementType::kFp32: return WithFlags<Fp32, Fp32>(plan, body);
      case ElementType::kBf16: return WithFlags<Bf16, Bf16>(plan, body);
      case ElementType::kFp16: return WithFlags<Fp16, Fp16>(plan, body);
      default: return WithFlags<Fp64, Fp64>(plan, body);
    }
  }
  if (plan.source_type == ElementType::kBf16) return WithFlags<Bf16, Fp32>(plan, body);
  if (plan.source_type == ElementType::kFp16) return WithFlags<Fp16, Fp32>(plan, body);
  if (plan.target_type == ElementType::kBf16) return WithFlags<Fp32, Bf16>(plan, body);
  return WithFlags<Fp32, Fp16>(plan, body);
}

}  // namespace
}  // namespace tier::copy
