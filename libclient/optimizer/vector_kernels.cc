// The update kernels in Highway, compiled once per instruction set, as the copy kernels are (copy/vector_kernels.cc).
//
// The idea: chunks of 128 elements, each loaded once, computed in fp32 registers and stored once; a partial last chunk
// goes through a buffer. No operation is fused with another, and random numbers belong to elements, so the result has
// the scalar twin's bits whatever the vector width. Only which NaN a NaN is may differ.
#define HWY_COMPILE_ONLY_STATIC
#define HWY_DISABLE_PCLMUL_AES
#include <hwy/highway.h>

#include <cstring>
#include <type_traits>

#define TIER_OPTIMIZER_ATTRIBUTE HWY_ATTR
#include "libclient/optimizer/kernels.h"
#include "libclient/optimizer/with_formats.h"

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#error "built without the flags of a vector instruction set"
#endif

HWY_BEFORE_NAMESPACE();
namespace tier::optimizer {
namespace {  // Nothing of this may be merged with another build of the same file.
namespace hn = hwy::HWY_NAMESPACE;
using copy::Bf16;
using copy::Fp32;

using D32 = hn::ScalableTag<uint32_t>;
using D64 = hn::ScalableTag<uint64_t>;
using DFloat = hn::ScalableTag<float>;
using DHalf = hn::Rebind<uint16_t, D32>;
using V32 = hn::Vec<D32>;
using V64 = hn::Vec<D64>;
using VFloat = hn::Vec<DFloat>;

constexpr size_t kLanes = hn::MaxLanes(D32());
constexpr size_t kVectors = kChunkCounters / kLanes;  // That the chunk's counters fill.
static_assert(kChunkCounters % kLanes == 0);

template <class Format>
HWY_INLINE VFloat Load(const std::byte* base, size_t index) {
  if constexpr (std::is_same_v<Format, Fp32>) {
    return hn::LoadU(DFloat(), reinterpret_cast<const float*>(base) + index);
  } else {
    const auto half = hn::LoadU(DHalf(), reinterpret_cast<const uint16_t*>(base) + index);
    return hn::BitCast(DFloat(), hn::ShiftLeft<16>(hn::PromoteTo(D32(), half)));
  }
}

// The upper half of (value + addend) in bits; of a NaN, the upper half of a quiet one.
HWY_INLINE void StoreUpper(VFloat value, V32 addend, std::byte* base, size_t index) {
  const D32 d;
  const V32 bits = hn::BitCast(d, value);
  const V32 rounded = hn::ShiftRight<16>(hn::Add(bits, addend));
  const V32 quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d, Bf16::kQuiet));
  const auto nan = hn::RebindMask(d, hn::IsNaN(value));
  hn::StoreU(hn::TruncateTo(DHalf(), hn::IfThenElse(nan, quiet, rounded)), DHalf(),
             reinterpret_cast<uint16_t*>(base) + index);
}

template <class Format>
HWY_INLINE void Store(VFloat value, std::byte* base, size_t index) {
  const D32 d;
  if constexpr (std::is_same_v<Format, Fp32>) {
    hn::StoreU(value, DFloat(), reinterpret_cast<float*>(base) + index);
  } else {
    const V32 odd = hn::And(hn::ShiftRight<16>(hn::BitCast(d, value)), hn::Set(d, 1));
    StoreUpper(value, hn::Add(odd, hn::Set(d, 0x7fff)), base, index);
  }
}

// A Philox counter in each 64-bit lane: a word is in the lower half, and what is in the upper half does not matter.
struct Counters {
  V64 words[4];

  HWY_INLINE void Scramble(uint32_t key0, uint32_t key1) {
    const D32 d32;
    const D64 d64;
    const V32 multiplier0 = hn::Set(d32, kPhiloxMultiplier0), multiplier1 = hn::Set(d32, kPhiloxMultiplier1);
#pragma GCC unroll 10
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const V64 product0 = hn::MulEven(hn::BitCast(d32, words[0]), multiplier0);
      const V64 product1 = hn::MulEven(hn::BitCast(d32, words[2]), multiplier1);
      const V64 next0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product1), words[1]), hn::Set(d64, key0));
      const V64 next2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(product0), words[3]), hn::Set(d64, key1));
      words[0] = next0;
      words[1] = product1;
      words[2] = next2;
      words[3] = product0;
      key0 += kPhiloxKeyStep0;
      key1 += kPhiloxKeyStep1;
    }
  }
};

// The random words of one chunk: lane i of words[w][v] is word w of counter v · kLanes + i.
struct RandomWords {
  V32 words[4][kVectors];

  HWY_INLINE void Fill(uint32_t seed, const UpdateSlice& slice, uint64_t element) {
    const D64 d64;
    const uint64_t number = element / kChunk * kChunkCounters;
    const V64 twice = hn::ShiftLeft<1>(hn::Iota(d64, 0));
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) {
      const V64 even = hn::Add(hn::Set(d64, number + v * kLanes), twice);
      const V64 odd = hn::Add(even, hn::Set(d64, 1));
      const V64 step = hn::Set(d64, slice.step);
      Counters at_even = {{even, hn::ShiftRight<32>(even), step, hn::Zero(d64)}};
      Counters at_odd = {{odd, hn::ShiftRight<32>(odd), step, hn::Zero(d64)}};
      at_even.Scramble(seed, slice.parameter);
      at_odd.Scramble(seed, slice.parameter);
#pragma GCC unroll 4
      for (size_t w = 0; w < 4; ++w) {
        const D32 d32;
        const V32 upper = hn::BitCast(d32, hn::ShiftLeft<32>(at_odd.words[w]));
        words[w][v] = hn::OddEven(upper, hn::BitCast(d32, at_even.words[w]));
      }
    }
  }
  HWY_INLINE V32 Half(size_t half, size_t v) const {
    const V32 word = words[half / 2][v];
    return half % 2 == 0 ? hn::And(word, hn::Set(D32(), 0xffff)) : hn::ShiftRight<16>(word);
  }
};

template <class State>
HWY_INLINE VFloat UpdateAdam(const UpdateFactors& factors, const UpdateSlice& slice, size_t i, VFloat value,
                             VFloat gradient) {
  const DFloat d;
  if (factors.decay != 0) gradient = hn::Add(gradient, hn::Mul(value, hn::Set(d, factors.decay)));
  value = hn::Mul(value, hn::Set(d, factors.keep));
  VFloat first = Load<State>(slice.first_moment, i);
  first = hn::Add(first, hn::Mul(hn::Sub(gradient, first), hn::Set(d, factors.beta1_rest)));
  VFloat second = hn::Mul(Load<State>(slice.second_moment, i), hn::Set(d, factors.beta2));
  second = hn::Add(second, hn::Mul(hn::Mul(gradient, hn::Set(d, factors.beta2_rest)), gradient));
  Store<State>(first, slice.first_moment, i);
  Store<State>(second, slice.second_moment, i);
  if (slice.second_moment_max != nullptr) {
    const VFloat largest = Load<State>(slice.second_moment_max, i);
    second = hn::IfThenElse(hn::Or(hn::Gt(largest, second), hn::IsNaN(largest)), largest, second);
    Store<State>(second, slice.second_moment_max, i);
  }
  const VFloat root = hn::Mul(hn::Sqrt(second), hn::Set(d, factors.root_factor));
  const VFloat denominator = hn::Add(root, hn::Set(d, factors.epsilon));
  return hn::Sub(value, hn::Div(hn::Mul(first, hn::Set(d, factors.rate)), denominator));
}

template <class State>
HWY_INLINE VFloat UpdateLion(const UpdateFactors& factors, const UpdateSlice& slice, size_t i, VFloat value,
                             VFloat gradient) {
  const DFloat d;
  const VFloat moment = Load<State>(slice.first_moment, i);
  const VFloat direction =
      hn::Add(hn::Mul(moment, hn::Set(d, factors.beta1)), hn::Mul(gradient, hn::Set(d, factors.beta1_rest)));
  Store<State>(hn::Add(hn::Mul(moment, hn::Set(d, factors.beta2)), hn::Mul(gradient, hn::Set(d, factors.beta2_rest))),
               slice.first_moment, i);
  const VFloat zero = hn::Zero(d);
  VFloat change = hn::IfThenElse(hn::Lt(direction, zero), hn::Set(d, -factors.rate), direction);  // 0 and NaN stay.
  change = hn::IfThenElse(hn::Gt(direction, zero), hn::Set(d, factors.rate), change);
  return hn::Sub(hn::Mul(value, hn::Set(d, factors.keep)), change);
}

// The chunk that begins at element `begin` of the slice.
template <Algorithm kAlgorithm, class Value, class State, bool kStochastic>
HWY_INLINE void UpdateChunk(const UpdatePlan& plan, const UpdateFactors& factors, const UpdateSlice& slice,
                            size_t begin) {
  RandomWords random;
  if constexpr (kStochastic) random.Fill(plan.seed, slice, slice.first + begin);
#pragma GCC unroll 2  // All eight would take a sanitizer build minutes to compile, and are no faster.
  for (size_t half = 0; half < kChunk / kChunkCounters; ++half) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t i = begin + half * kChunkCounters + v * kLanes;
      VFloat value = Load<Value>(slice.values, i);
      VFloat gradient = Load<Value>(slice.gradients, i);
      if (plan.maximize) gradient = hn::Neg(gradient);
      if constexpr (kAlgorithm == Algorithm::kAdam) {
        value = UpdateAdam<State>(factors, slice, i, value, gradient);
      } else {
        value = UpdateLion<State>(factors, slice, i, value, gradient);
      }
      if constexpr (kStochastic) {
        StoreUpper(value, random.Half(half, v), slice.values, i);
      } else {
        Store<Value>(value, slice.values, i);
      }
    }
  }
}

template <Algorithm kAlgorithm, class Value, class State, bool kStochastic>
void UpdateTyped(const UpdatePlan& given, const UpdateFactors& given_factors, const UpdateSlice& given_slice);

// What is left behind the whole chunks, in buffers of a whole one.
template <Algorithm kAlgorithm, class Value, class State, bool kStochastic>
[[gnu::noinline]] void UpdateTail(const UpdatePlan& plan, const UpdateFactors& factors, const UpdateSlice& slice,
                                  size_t begin) {
  alignas(64) std::byte buffers[5][kChunk * sizeof(float)] = {};
  std::byte* const whole[5] = {slice.values, const_cast<std::byte*>(slice.gradients), slice.first_moment,
                               slice.second_moment, slice.second_moment_max};
  const size_t count = slice.count - begin;
  constexpr size_t kValueBytes = sizeof(typename Value::Carrier), kStateBytes = sizeof(typename State::Carrier);
  const auto size_of = [](size_t k) { return k < 2 ? kValueBytes : kStateBytes; };
  for (size_t k = 0; k < 5; ++k) {
    if (whole[k] != nullptr) std::memcpy(buffers[k], whole[k] + begin * size_of(k), count * size_of(k));
  }
  UpdateSlice tail = slice;
  tail.values = buffers[0];
  tail.gradients = buffers[1];
  tail.first_moment = buffers[2];
  tail.second_moment = buffers[3];
  tail.second_moment_max = whole[4] == nullptr ? nullptr : buffers[4];
  tail.first = slice.first + begin;
  tail.count = kChunk;
  UpdateTyped<kAlgorithm, Value, State, kStochastic>(plan, factors, tail);
  for (size_t k = 0; k < 5; ++k) {
    if (whole[k] != nullptr && k != 1) std::memcpy(whole[k] + begin * size_of(k), buffers[k], count * size_of(k));
  }
}

template <Algorithm kAlgorithm, class Value, class State, bool kStochastic>
[[gnu::noinline]] void UpdateTyped(const UpdatePlan& given, const UpdateFactors& given_factors,
                                   const UpdateSlice& given_slice) {
  const UpdatePlan plan = given;  // Copies that no store through a pointer can reach stay in registers.
  const UpdateFactors factors = given_factors;
  const UpdateSlice slice = given_slice;
  const size_t end = slice.count / kChunk * kChunk;
  for (size_t begin = 0; begin < end; begin += kChunk) {
    UpdateChunk<kAlgorithm, Value, State, kStochastic>(plan, factors, slice, begin);
  }
  if (end < slice.count) UpdateTail<kAlgorithm, Value, State, kStochastic>(plan, factors, slice, end);
}

void Update(const UpdatePlan& plan, const UpdateFactors& factors, const UpdateSlice& slice) {
  WithFormats(plan, [&]<Algorithm kAlgorithm, class Value, class State, bool kStochastic>()
                        HWY_ATTR { UpdateTyped<kAlgorithm, Value, State, kStochastic>(plan, factors, slice); });
}

}  // namespace
}  // namespace tier::optimizer
HWY_AFTER_NAMESPACE();

void tier::optimizer::TIER_OPTIMIZER_KERNEL(const UpdatePlan& plan, const UpdateFactors& factors,
                                            const UpdateSlice& slice) {
  Update(plan, factors, slice);
}
