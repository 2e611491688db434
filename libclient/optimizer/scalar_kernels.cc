// The scalar twin: the update of one element, in fp32, each operation rounded to nearest by itself. What every vector
// kernel is tested against, and the last resort.
#define TIER_OPTIMIZER_ATTRIBUTE
#include <bit>
#include <cmath>
#include <cstring>

#include "libclient/optimizer/kernels.h"
#include "libclient/optimizer/with_formats.h"

namespace tier::optimizer {
namespace {

template <class Format>
float Load(const std::byte* base, size_t index) {
  typename Format::Carrier bits;
  std::memcpy(&bits, base + index * sizeof(bits), sizeof(bits));
  if constexpr (sizeof(bits) == 4) {
    return std::bit_cast<float>(bits);
  } else {
    return std::bit_cast<float>(copy::Bf16ToFp32(bits));
  }
}

template <class Format>
void StoreBits(typename Format::Carrier bits, std::byte* base, size_t index) {
  std::memcpy(base + index * sizeof(bits), &bits, sizeof(bits));
}

template <class Format>
void Store(float value, std::byte* base, size_t index) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if constexpr (sizeof(typename Format::Carrier) == 4) {
    StoreBits<Format>(bits, base, index);
  } else {
    StoreBits<Format>(copy::Fp32ToBf16(bits), base, index);
  }
}

// 16 random bits for one element of a parameter.
uint32_t RandomBits(const UpdatePlan& plan, const UpdateSlice& slice, uint64_t element) {
  const size_t within = element % kChunk;
  const uint64_t number = element / kChunk * kChunkCounters + within % kChunkCounters;
  uint32_t counter[4] = {static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), slice.step, 0};
  uint32_t key[2] = {plan.seed, slice.parameter};
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t product0 = uint64_t{kPhiloxMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kPhiloxMultiplier1} * counter[2];
    const uint32_t next[4] = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    std::memcpy(counter, next, sizeof(counter));
    key[0] += kPhiloxKeyStep0;
    key[1] += kPhiloxKeyStep1;
  }
  const size_t half = within / kChunkCounters;
  return counter[half / 2] >> (16 * (half % 2)) & 0xffff;
}

// Of the two bf16 numbers around a value, each with the probability that makes the mean right. A NaN stays one.
uint16_t RoundAtRandom(float value, uint32_t random) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (copy::IsNan<copy::Fp32>(bits)) return static_cast<uint16_t>(bits >> 16) | copy::Bf16::kQuiet;
  return static_cast<uint16_t>((bits + random) >> 16);
}

template <class State>
float UpdateAdam(const UpdateFactors& factors, const UpdateSlice& slice, size_t index, float value, float gradient) {
  if (factors.decay != 0) gradient += value * factors.decay;
  value *= factors.keep;
  float first = Load<State>(slice.first_moment, index);
  first += (gradient - first) * factors.beta1_rest;
  float second = Load<State>(slice.second_moment, index);
  second = second * factors.beta2 + (gradient * factors.beta2_rest) * gradient;
  Store<State>(first, slice.first_moment, index);
  Store<State>(second, slice.second_moment, index);
  if (slice.second_moment_max != nullptr) {
    const float largest = Load<State>(slice.second_moment_max, index);
    if (largest > second || std::isnan(largest)) second = largest;
    Store<State>(second, slice.second_moment_max, index);
  }
  const float denominator = std::sqrt(second) * factors.root_factor + factors.epsilon;
  return value - first * factors.rate / denominator;
}

template <class State>
float UpdateLion(const UpdateFactors& factors, const UpdateSlice& slice, size_t index, float value, float gradient) {
  const float moment = Load<State>(slice.first_moment, index);
  const float direction = moment * factors.beta1 + gradient * factors.beta1_rest;
  Store<State>(moment * factors.beta2 + gradient * factors.beta2_rest, slice.first_moment, index);
  const float change = direction > 0 ? factors.rate : direction < 0 ? -factors.rate : direction;  // 0 and NaN stay.
  return value * factors.keep - change;
}

template <Algorithm kAlgorithm, class Value, class State, bool kStochastic>
void UpdateTyped(const UpdatePlan& plan, const UpdateFactors& factors, const UpdateSlice& slice) {
  for (size_t i = 0; i < slice.count; ++i) {
    float value = Load<Value>(slice.values, i);
    float gradient = Load<Value>(slice.gradients, i);
    if (plan.maximize) gradient = -gradient;
    if constexpr (kAlgorithm == Algorithm::kAdam) {
      value = UpdateAdam<State>(factors, slice, i, value, gradient);
    } else {
      value = UpdateLion<State>(factors, slice, i, value, gradient);
    }
    if constexpr (kStochastic) {
      StoreBits<Value>(RoundAtRandom(value, RandomBits(plan, slice, slice.first + i)), slice.values, i);
    } else {
      Store<Value>(value, slice.values, i);
    }
  }
}

}  // namespace

void UpdateScalar(const UpdatePlan& plan, const UpdateFactors& factors, const UpdateSlice& slice) {
  WithFormats(plan, [&]<Algorithm kAlgorithm, class Value, class State, bool kStochastic>() {
    UpdateTyped<kAlgorithm, Value, State, kStochastic>(plan, factors, slice);
  });
}

}  // namespace tier::optimizer
