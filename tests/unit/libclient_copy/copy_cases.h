// What the tests of the copy kernels share: every plan there is, values that break naive casts, memory with guards
// around it, and one way to compare two kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "libclient/copy/fused_copy.h"

namespace tier::copy {

inline std::string TypeName(ElementType type) {
  constexpr const char* kNames[] = {"bytes", "fp32", "bf16", "fp16", "fp64"};
  return kNames[static_cast<size_t>(type)];
}
inline std::string PlanName(const CopyPlan& plan) {
  return TypeName(plan.source_type) + "_to_" + TypeName(plan.target_type) + (plan.check_finite ? "_check" : "") +
         (plan.sum_squares ? "_sum" : "");
}

inline std::vector<CopyPlan> AllPlans() {
  std::vector<CopyPlan> plans;
  for (unsigned code = 0; code < 100; ++code) {
    const CopyPlan plan = {static_cast<ElementType>(code / 20), static_cast<ElementType>(code / 4 % 5), (code & 1) != 0,
                           (code & 2) != 0};
    if (IsSupported(plan)) plans.push_back(plan);
  }
  return plans;
}

// All sixteen-bit patterns, or fp32/fp64 with every exponent and mantissas at and beside every rounding border.
inline std::vector<std::byte> SpecialValues(ElementType type) {
  std::vector<std::byte> bytes;
  const auto add = [&](auto bits) {
    const auto* const raw = reinterpret_cast<const std::byte*>(&bits);
    bytes.insert(bytes.end(), raw, raw + sizeof bits);
  };
  if (type == ElementType::kBytes) {
    for (unsigned value = 0; value < 256; ++value) add(static_cast<uint8_t>(value));
    return bytes;
  }
  if (ElementSize(type) == 2) {
    for (uint32_t value = 0; value < 65536; ++value) add(static_cast<uint16_t>(value));
    return bytes;
  }
  const unsigned mantissa_bits = type == ElementType::kFp32 ? 23 : 52;
  const uint64_t exponents = type == ElementType::kFp32 ? 256 : 2048;
  const uint64_t full = (uint64_t{1} << mantissa_bits) - 1;
  std::vector<uint64_t> mantissas = {0, full};
  for (unsigned bit = 0; bit < mantissa_bits; ++bit) {
    const uint64_t one = uint64_t{1} << bit;
    for (const uint64_t mantissa :
         {one, one - 1, one + 1, 3 * one, 3 * one - 1, 3 * one + 1, full - one, full ^ (one - 1)}) {
      mantissas.push_back(mantissa & full);
    }
  }
  for (uint64_t sign_exponent = 0; sign_exponent < 2 * exponents; ++sign_exponent) {
    for (const uint64_t mantissa : mantissas) {
      const uint64_t bits = sign_exponent << mantissa_bits | mantissa;
      if (type == ElementType::kFp32) {
        add(static_cast<uint32_t>(bits));
      } else {
        add(bits);
      }
    }
  }
  return bytes;
}

// Exactly `bytes` bytes, starting `offset` bytes behind a 64-byte border, so that ASan sees one byte too many on the
// right; a pattern on the left shows writes there.
class GuardedBytes {
 public:
  GuardedBytes(size_t offset, size_t bytes)
      : offset_(offset + 64),
        bytes_(bytes),
        memory_(static_cast<std::byte*>(::operator new[](offset_ + bytes, kAlignment))) {
    std::memset(memory_.get(), 0xa5, offset_ + bytes);
  }
  std::byte* data() { return memory_.get() + offset_; }
  std::span<const std::byte> bytes() { return {data(), bytes_}; }
  bool LeftGuardIntact() const {
    for (size_t i = 0; i < offset_; ++i) {
      if (memory_[i] != std::byte{0xa5}) return false;
    }
    return true;
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, kAlignment); }
  };
  size_t offset_;
  size_t bytes_;
  std::unique_ptr<std::byte[], Free> memory_;
};

struct Placement {
  size_t source_offset = 0;
  size_t target_offset = 0;
  bool streaming = false;
};

// Equal bit for bit, except that one NaN is as good as another.
inline bool SameSum(double left, double right) {
  return (std::isnan(left) && std::isnan(right)) || std::memcmp(&left, &right, sizeof left) == 0;
}

// Runs `variant` and the twin over the same elements and compares every output byte and both tallies.
inline testing::AssertionResult MatchesTwin(const CopyVariant& variant, const CopyPlan& plan,
                                            std::span<const std::byte> source, Placement place) {
  const size_t elements = source.size() / ElementSize(plan.source_type);
  const size_t target_bytes = elements * ElementSize(plan.target_type);
  GuardedBytes from(place.source_offset, source.size());
  if (!source.empty()) std::memcpy(from.data(), source.data(), source.size());
  GuardedBytes expected(0, target_bytes);
  GuardedBytes actual(place.target_offset, target_bytes);
  const CopyOutcome twin = CopyVariants().front().copy(expected.data(), from.data(), elements, plan, false);
  const CopyOutcome outcome = variant.copy(actual.data(), from.data(), elements, plan, place.streaming);
  const auto fail = [&] {
    return testing::AssertionFailure() << variant.name << " " << PlanName(plan) << " elements " << elements
                                       << " source +" << place.source_offset << " target +" << place.target_offset
                                       << " streaming " << place.streaming << ": ";
  };
  if (!actual.LeftGuardIntact()) return fail() << "wrote in front of the target";
  for (size_t i = 0; i < target_bytes; ++i) {
    if (actual.data()[i] != expected.data()[i]) {
      return fail() << "byte " << i << " is " << std::to_integer<int>(actual.data()[i]) << ", the twin's "
                    << std::to_integer<int>(expected.data()[i]);
    }
  }
  if (outcome.non_finite_count != twin.non_finite_count) {
    return fail() << "counted " << outcome.non_finite_count << ", the twin " << twin.non_finite_count;
  }
  if (!SameSum(outcome.sum_of_squares, twin.sum_of_squares)) {
    return fail() << "summed " << outcome.sum_of_squares << ", the twin " << twin.sum_of_squares;
  }
  return testing::AssertionSuccess();
}

}  // namespace tier::copy
