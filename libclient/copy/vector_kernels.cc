// The copy kernels in Highway, compiled once per instruction set: CMake gives each build its -m flags and the name of
// the function to define (TIER_COPY_KERNEL). Highway is used statically (headers only); libhwy is never linked.
//
// The idea: a step of 32 elements, in pairs of fp32 vectors (lo, hi) or one 16-bit vector, whichever the formats need;
// load once, store once, and keep the tallies in registers. A scalar head brings the target to a cache line, so that
// streaming stores fill whole lines; a scalar tail ends it. Results equal the scalar twin's bit for bit (element.h):
// sums go lane by lane in element order, whatever the vector width.
#define HWY_COMPILE_ONLY_STATIC
#define HWY_DISABLE_PCLMUL_AES
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <type_traits>

#include "libclient/copy/element.h"
#include "libclient/copy/kernels.h"

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#error "built without the flags of a vector instruction set"
#endif

HWY_BEFORE_NAMESPACE();
namespace tier::copy {
namespace {  // Nothing of this may be merged with another build of the same file.
namespace hn = hwy::HWY_NAMESPACE;

using D16 = hn::ScalableTag<uint16_t>;
using D32 = hn::ScalableTag<uint32_t>;
using D64 = hn::ScalableTag<uint64_t>;
using DFloat = hn::ScalableTag<float>;
using DDouble = hn::ScalableTag<double>;
using V16 = hn::Vec<D16>;
using V32 = hn::Vec<D32>;
using V64 = hn::Vec<D64>;
using VDouble = hn::Vec<DDouble>;

constexpr size_t kLanes32 = hn::MaxLanes(D32());
constexpr size_t kPair = 2 * kLanes32;  // Elements of one 16-bit vector, or of two fp32 vectors.
constexpr size_t kLanes64 = kLanes32 / 2;
constexpr size_t kAccumulators = kSumLanes / kLanes64;
constexpr size_t kStep = 32;  // Elements per round of the inner loop.
static_assert(kStep % kPair == 0 && kStep % kSumLanes == 0);

// Elements between two looks at the tallies: counts are kept in 16-bit lanes, and what has to be counted again should
// still be in the second-level cache.
constexpr size_t kChunk = 32768;
static_assert(kChunk % kStep == 0 && kChunk < 65536);
constexpr size_t kLineBytes = 64;
// How far ahead of the loads lines of 16-bit elements are asked for: one page, because the processor's own prefetchers
// stop at its end. Took 5 to 15 % off their check and sum on Zen 5 (2026-11-21), and nothing off that of wider
// elements, which do half the work on a line. Past the end of the source it does nothing.
constexpr size_t kPrefetchBytes = 4096;
constexpr size_t kVectorBytesMin = 512;  // Below this a head and a tail cost more than vectors win.

struct Pair {  // kPair fp32 elements in order.
  V32 lo, hi;
};

template <class Format>
HWY_INLINE V16 Absolute(V16 v) {
  return hn::And(v, hn::Set(D16(), Format::kAbsolute));
}

HWY_INLINE V32 RoundToBf16(V32 bits) {  // The result is in the low half of each lane.
  const D32 d;
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7fff)), odd));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d, Bf16::kQuiet));
  const hn::RebindToSigned<D32> di;
  const auto absolute = hn::BitCast(di, hn::And(bits, hn::Set(d, Fp32::kAbsolute)));
  const auto nan = hn::RebindMask(d, hn::Gt(absolute, hn::Set(di, Fp32::kInfinity)));
  return hn::IfThenElse(nan, quiet, rounded);
}

#if HWY_TARGET == HWY_SSE4  // No F16C: the same in integers, and one addition that rounds for subnormal results.
HWY_INLINE V32 RoundToFp16(V32 bits) {
  const D32 d;
  const DFloat df;
  const hn::RebindToSigned<D32> di;
  const auto absolute = hn::And(bits, hn::Set(d, Fp32::kAbsolute));
  const auto above = [&](uint32_t limit) HWY_ATTR {
    return hn::RebindMask(d, hn::Gt(hn::BitCast(di, absolute), hn::Set(di, static_cast<int32_t>(limit))));
  };
  const auto odd = hn::And(hn::ShiftRight<13>(absolute), hn::Set(d, 1));
  const auto rebased = hn::Sub(absolute, hn::Set(d, (uint32_t{112} << 23) - 0xfff));
  const auto normal = hn::ShiftRight<13>(hn::Add(rebased, odd));
  // 0.5 has the ulp 2^-24 of a subnormal fp16, so that adding it leaves the rounded result in the low bits.
  const auto half = hn::Set(d, 0x3f000000);
  const auto shifted = hn::Add(hn::BitCast(df, absolute), hn::BitCast(df, half));
  const auto subnormal = hn::Sub(hn::BitCast(d, shifted), half);
  const auto nan = hn::Or(hn::And(hn::ShiftRight<13>(absolute), hn::Set(d, 0x3ff)), hn::Set(d, 0x7e00));
  auto result = hn::IfThenElse(above(0x387fffff), normal, subnormal);
  result = hn::IfThenElse(above(0x477fffff), hn::Set(d, Fp16::kInfinity), result);
  result = hn::IfThenElse(above(Fp32::kInfinity), nan, result);
  return hn::Or(result, hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 0x8000)));
}
HWY_INLINE V32 WidenFp16(V32 bits) {  // fp16 in the low half of each lane.
  const D32 d;
  const DFloat df;
  const hn::RebindToSigned<D32> di;
  const auto absolute = hn::And(bits, hn::Set(d, Fp16::kAbsolute));
  const auto above = [&](int32_t limit)
                         HWY_ATTR { return hn::RebindMask(d, hn::Gt(hn::BitCast(di, absolute), hn::Set(di, limit))); };
  const auto shifted = hn::ShiftLeft<13>(absolute);
  const auto normal = hn::Add(shifted, hn::Set(d, uint32_t{112} << 23));
  // 2^-14 + m·2^-24 is exact, and so is taking 2^-14 away again.
  const auto least = hn::Set(d, uint32_t{113} << 23);
  const auto sum = hn::BitCast(df, hn::Add(shifted, least));
  const auto subnormal = hn::BitCast(d, hn::Sub(sum, hn::BitCast(df, least)));
  auto result = hn::IfThenElse(above(0x3ff), normal, subnormal);
  result = hn::IfThenElse(above(0x7bff), hn::Or(shifted, hn::Set(d, Fp32::kInfinity)), result);
  result = hn::Or(result, hn::IfThenElseZero(above(Fp16::kInfinity), hn::Set(d, Fp32::kQuiet)));
  return hn::Or(result, hn::ShiftLeft<16>(hn::And(bits, hn::Set(d, 0x8000))));
}
#endif

template <class Format>
HWY_INLINE V16 Narrow(Pair pair) {
  const D16 d16;
  const hn::Half<D16> dhalf;
  if constexpr (Format::kInfinity == Bf16::kInfinity) {
    return hn::Combine(d16, hn::TruncateTo(dhalf, RoundToBf16(pair.hi)), hn::TruncateTo(dhalf, RoundToBf16(pair.lo)));
  } else {
#if HWY_TARGET == HWY_SSE4
    return hn::Combine(d16, hn::TruncateTo(dhalf, RoundToFp16(pair.hi)), hn::TruncateTo(dhalf, RoundToFp16(pair.lo)));
#else
    const DFloat df;
    const hn::Rebind<hwy::float16_t, DFloat> dfp16;
    return hn::Combine(d16, hn::BitCast(dhalf, hn::DemoteTo(dfp16, hn::BitCast(df, pair.hi))),
                       hn::BitCast(dhalf, hn::DemoteTo(dfp16, hn::BitCast(df, pair.lo))));
#endif
  }
}

template <class Format>
HWY_INLINE V32 WidenHalf(hn::Vec<hn::Half<D16>> half) {
  const D32 d;
  if constexpr (Format::kInfinity == Bf16::kInfinity) {
    const hn::RebindToSigned<D32> di;
    const auto wide = hn::ShiftLeft<16>(hn::PromoteTo(d, half));
    const auto absolute = hn::BitCast(di, hn::And(wide, hn::Set(d, Fp32::kAbsolute)));
    const auto nan = hn::RebindMask(d, hn::Gt(absolute, hn::Set(di, Fp32::kInfinity)));
    return hn::Or(wide, hn::IfThenElseZero(nan, hn::Set(d, Fp32::kQuiet)));
  } else {
#if HWY_TARGET == HWY_SSE4
    return WidenFp16(hn::PromoteTo(d, half));
#else
    const hn::Rebind<hwy::float16_t, DFloat> dfp16;
    return hn::BitCast(d, hn::PromoteTo(DFloat(), hn::BitCast(dfp16, half)));
#endif
  }
}
template <class Format>
HWY_INLINE Pair Widen(V16 v) {
  const hn::Half<D16> dhalf;
  return {WidenHalf<Format>(hn::LowerHalf(dhalf, v)), WidenHalf<Format>(hn::UpperHalf(dhalf, v))};
}

template <bool kStream, class D>
HWY_INLINE void Store(hn::Vec<D> v, D d, hn::TFromD<D>* target) {
  if constexpr (kStream) {
    hn::Stream(v, d, target);
  } else {
    hn::StoreU(v, d, target);
  }
}

// What the inner loop keeps in registers.
struct Registers {
  V16 count16 = hn::Zero(D16());  // Minus the non-finite elements seen by each lane, modulo 2^16.
  V32 count32 = hn::Zero(D32());
  V64 count64 = hn::Zero(D64());
  VDouble sums[kAccumulators];

  template <class Format>
  HWY_INLINE void Check(V16 bits) {
    const hn::RebindToSigned<D16> di;
    const auto absolute = hn::BitCast(di, Absolute<Format>(bits));
    const auto bad = hn::Gt(absolute, hn::Set(di, static_cast<int16_t>(Format::kInfinity - 1)));
    count16 = hn::Add(count16, hn::BitCast(D16(), hn::VecFromMask(di, bad)));
  }
  HWY_INLINE void Check(V32 bits) {
    const hn::RebindToSigned<D32> di;
    const auto absolute = hn::BitCast(di, hn::And(bits, hn::Set(D32(), Fp32::kAbsolute)));
    count32 =
        hn::Add(count32, hn::BitCast(D32(), hn::VecFromMask(di, hn::Gt(absolute, hn::Set(di, Fp32::kInfinity - 1)))));
  }
  HWY_INLINE void Check(V64 bits) {
    const hn::RebindToSigned<D64> di;
    const auto absolute = hn::BitCast(di, hn::And(bits, hn::Set(D64(), Fp64::kAbsolute)));
    count64 =
        hn::Add(count64, hn::BitCast(D64(), hn::VecFromMask(di, hn::Gt(absolute, hn::Set(di, Fp64::kInfinity - 1)))));
  }
  // `position`: of the first element in the order of the accumulators. The square is exact, so that fusing the addition
  // changes nothing.
  HWY_INLINE void AddSquares(hn::Vec<hn::Half<DFloat>> lo, hn::Vec<hn::Half<DFloat>> hi, size_t position) {
    const VDouble wide_lo = hn::PromoteTo(DDouble(), lo);
    const VDouble wide_hi = hn::PromoteTo(DDouble(), hi);
    VDouble& sum_lo = sums[position % kSumLanes / kLanes64];
    sum_lo = hn::MulAdd(wide_lo, wide_lo, sum_lo);
    VDouble& sum_hi = sums[(position + kLanes64) % kSumLanes / kLanes64];
    sum_hi = hn::MulAdd(wide_hi, wide_hi, sum_hi);
  }
  HWY_INLINE void AddSquares(V32 bits, size_t position) {
    const hn::Half<DFloat> dhalf;
    const auto v = hn::BitCast(DFloat(), bits);
    AddSquares(hn::LowerHalf(dhalf, v), hn::UpperHalf(dhalf, v), position);
  }
  // From memory again: a conversion that reads its half there is one operation, where taking a register apart is two,
  // and the fewer operations wait behind a missing line, the more lines are asked for at once.
  HWY_INLINE void AddSquaresAt(const uint32_t* bits, size_t position) {
    const hn::Half<DFloat> dhalf;
    const auto* const values = reinterpret_cast<const float*>(bits);
    AddSquares(hn::LoadU(dhalf, values), hn::LoadU(dhalf, values + kLanes64), position);
  }
  // bf16 in place: even elements are the low halves of the fp32 lanes, odd ones the high halves. Even ones go to the
  // first half of the accumulators (AccumulatorLane).
  HWY_INLINE void AddSquaresOfBf16(V16 bits, size_t position) {
    const D32 d;
    const V32 wide = hn::BitCast(d, bits);
    const size_t within = position / 2 % (kSumLanes / 2);
    AddHalf(hn::ShiftLeft<16>(wide), within, 0);
    AddHalf(hn::And(wide, hn::Set(d, 0xffff0000)), within, kSumLanes / 2);
  }
  HWY_INLINE void AddSquaresOfFp64(VDouble v, size_t position) {  // Two roundings everywhere.
    VDouble& sum = sums[position % kSumLanes / kLanes64];
    sum = hn::Add(sum, hn::Mul(v, v));
  }

 private:
  HWY_INLINE void AddHalf(V32 bits, size_t within, size_t half) {  // Wraps within one half of the accumulators.
    const hn::Half<DFloat> dhalf;
    const auto v = hn::BitCast(DFloat(), bits);
    const VDouble lo = hn::PromoteTo(DDouble(), hn::LowerHalf(dhalf, v));
    const VDouble hi = hn::PromoteTo(DDouble(), hn::UpperHalf(dhalf, v));
    VDouble& sum_lo = sums[(half + within) / kLanes64];
    sum_lo = hn::MulAdd(lo, lo, sum_lo);
    VDouble& sum_hi = sums[(half + (within + kLanes64) % (kSumLanes / 2)) / kLanes64];
    sum_hi = hn::MulAdd(hi, hi, sum_hi);
  }
};

// Which lane of the tally the accumulators' lane j is, counted from the first element of a step.
template <class Source>
constexpr size_t AccumulatorLane(size_t j) {
  if (!std::is_same_v<Source, Bf16>) return j;
  return j < kSumLanes / 2 ? 2 * j : 2 * (j - kSumLanes / 2) + 1;
}

// One pair of vectors at element `position` of a step.
template <class Source, class Target, bool kCheck, bool kSum, bool kStream>
HWY_INLINE void CopyPair(std::byte* target, const std::byte* source, size_t position, Registers* registers) {
  const D16 d16;
  const D32 d32;
  auto* const to = reinterpret_cast<typename Target::Carrier*>(target) + position;
  const auto* const from = reinterpret_cast<const typename Source::Carrier*>(source) + position;
  if constexpr (sizeof(*from) == 8) {
    const D64 d64;
#pragma GCC unroll 4
    for (size_t i = 0; i < kPair; i += kLanes64) {
      const V64 bits = hn::LoadU(d64, from + i);
      Store<kStream>(bits, d64, to + i);
      if constexpr (kCheck) registers->Check(bits);
      if constexpr (kSum) registers->AddSquaresOfFp64(hn::BitCast(DDouble(), bits), position + i);
    }
  } else if constexpr (sizeof(*from) == 4) {
    const Pair pair = {hn::LoadU(d32, from), hn::LoadU(d32, from + kLanes32)};
    if constexpr (sizeof(*to) == 4) {
      Store<kStream>(pair.lo, d32, to);
      Store<kStream>(pair.hi, d32, to + kLanes32);
      if constexpr (kCheck) registers->Check(pair.lo);
      if constexpr (kCheck) registers->Check(pair.hi);
    } else {
      const V16 bits = Narrow<Target>(pair);
      Store<kStream>(bits, d16, to);
      if constexpr (kCheck) registers->template Check<Target>(bits);
    }
    if constexpr (kSum) registers->AddSquaresAt(from, position);
    if constexpr (kSum) registers->AddSquaresAt(from + kLanes32, position + kLanes32);
  } else {
    const V16 bits = hn::LoadU(d16, from);
    if constexpr (kCheck) registers->template Check<Source>(bits);  // Widening makes nothing finite or infinite.
    if constexpr (sizeof(*to) == 2) Store<kStream>(bits, d16, to);
    constexpr bool kSumOfBf16 = kSum && std::is_same_v<Source, Bf16>;
    if constexpr (kSumOfBf16) registers->AddSquaresOfBf16(bits, position);
    if constexpr (sizeof(*to) == 4 || (kSum && !kSumOfBf16)) {
      const Pair pair = Widen<Source>(bits);
      if constexpr (sizeof(*to) == 4) Store<kStream>(pair.lo, d32, to);
      if constexpr (sizeof(*to) == 4) Store<kStream>(pair.hi, d32, to + kLanes32);
      if constexpr (kSum && !kSumOfBf16) registers->AddSquares(pair.lo, position);
      if constexpr (kSum && !kSumOfBf16) registers->AddSquares(pair.hi, position + kLanes32);
    }
  }
}

template <class D>
HWY_INLINE uint64_t Total(hn::Vec<D> minus_counts, D d) {
  hn::TFromD<D> lanes[hn::MaxLanes(D())];
  hn::StoreU(hn::Neg(hn::BitCast(hn::RebindToSigned<D>(), minus_counts)), hn::RebindToSigned<D>(),
             reinterpret_cast<hn::TFromD<hn::RebindToSigned<D>>*>(lanes));
  (void)d;
  uint64_t total = 0;
  for (const auto lane : lanes) total += lane;
  return total;
}

// Whole steps from element `range.first` on.
template <class Source, class Target, bool kCheck, bool kSum, bool kStream>
[[gnu::noinline]] void CopySteps(std::byte* target, const std::byte* source, Range range, Tally* tally) {
  constexpr bool kAhead = sizeof(typename Source::Carrier) < 4;
  const DDouble dd;
  double lanes[kSumLanes];
  for (size_t j = 0; j < kSumLanes; ++j)
    lanes[j] = tally->lanes[(range.first + AccumulatorLane<Source>(j)) % kSumLanes];
  Registers registers;
// Unrolled, or the accumulators would live in memory: stores beside the streaming ones cost a fifth of the bandwidth.
#pragma GCC unroll 16
  for (size_t j = 0; j < kAccumulators; ++j) registers.sums[j] = hn::LoadU(dd, lanes + j * kLanes64);
  target += range.first * sizeof(typename Target::Carrier);
  source += range.first * sizeof(typename Source::Carrier);
  for (size_t steps = (range.end - range.first) / kStep; steps > 0; --steps) {
    for (size_t at = 0; kAhead && at < kStep * sizeof(typename Source::Carrier); at += kLineBytes) {
      hwy::Prefetch(source + kPrefetchBytes + at);
    }
#pragma GCC unroll 8
    for (size_t position = 0; position < kStep; position += kPair) {
      CopyPair<Source, Target, kCheck, kSum, kStream>(target, source, position, &registers);
    }
    target += kStep * sizeof(typename Target::Carrier);
    source += kStep * sizeof(typename Source::Carrier);
  }
  if constexpr (kCheck) {
    tally->non_finite +=
        Total(registers.count16, D16()) + Total(registers.count32, D32()) + Total(registers.count64, D64());
  }
#pragma GCC unroll 16
  for (size_t j = 0; j < kAccumulators; ++j) hn::StoreU(registers.sums[j], dd, lanes + j * kLanes64);
  for (size_t j = 0; j < kSumLanes; ++j)
    tally->lanes[(range.first + AccumulatorLane<Source>(j)) % kSumLanes] = lanes[j];
}

// The same in chunks. Where every non-finite element shows in the sums (a sum of finite squares of fp32 and narrower
// cannot overflow a double), the chunks are copied without a test of their own and counted again only when a sum has
// become NaN or ∞; from then on it stays so, and the test is made.
template <class Source, class Target, bool kCheck, bool kSum, bool kStream>
HWY_INLINE void CopyChunks(std::byte* target, const std::byte* source, Range range, Tally* tally) {
  constexpr bool kNarrowing = sizeof(typename Target::Carrier) < sizeof(typename Source::Carrier);
  constexpr bool kSumTells = kCheck && kSum && !kNarrowing && sizeof(typename Source::Carrier) < 8;
  while (range.first < range.end) {
    const size_t left = range.end - range.first;
    const Range chunk = {range.first, range.first + (left < kChunk ? left : kChunk)};
    if (!kSumTells || !tally->AllFinite()) {
      CopySteps<Source, Target, kCheck, kSum, kStream>(target, source, chunk, tally);
    } else {
      CopySteps<Source, Target, false, kSum, kStream>(target, source, chunk, tally);
      if (!tally->AllFinite()) tally->non_finite += CountElements<Source>(source, chunk);
    }
    range.first = chunk.end;
  }
}

template <class Source, class Target, bool kCheck, bool kSum>
CopyOutcome CopyTyped(std::byte* target, const std::byte* source, size_t elements, bool streaming) {
  constexpr size_t kTargetSize = sizeof(typename Target::Carrier);
  Tally tally;
  size_t head = 0;
  const auto address = reinterpret_cast<uintptr_t>(target);
  const bool can_align = address % kTargetSize == 0;
  if (can_align) head = (kLineBytes - address % kLineBytes) % kLineBytes / kTargetSize;
  if (elements * kTargetSize < kVectorBytesMin) {
    CopyElements<Source, Target, kCheck, kSum>(target, source, {0, elements}, &tally);
    return tally.Outcome();
  }
  const size_t end = head + (elements - head) / kStep * kStep;
  CopyElements<Source, Target, kCheck, kSum>(target, source, {0, head}, &tally);
  if (streaming && can_align) {
    CopyChunks<Source, Target, kCheck, kSum, true>(target, source, {head, end}, &tally);
    hwy::FlushStream();
  } else {
    CopyChunks<Source, Target, kCheck, kSum, false>(target, source, {head, end}, &tally);
  }
  CopyElements<Source, Target, kCheck, kSum>(target, source, {end, elements}, &tally);
  return tally.Outcome();
}

// Bytes as they are: memcpy, or 64 bytes a time past the cache.
void CopyBytes(std::byte* target, const std::byte* source, size_t bytes, bool streaming) {
  if (!streaming || bytes < kVectorBytesMin) {
    if (bytes > 0) std::memcpy(target, source, bytes);
    return;
  }
  const hn::ScalableTag<uint8_t> d;
  constexpr size_t kVector = hn::MaxLanes(hn::ScalableTag<uint8_t>());
  const size_t head = (kLineBytes - reinterpret_cast<uintptr_t>(target) % kLineBytes) % kLineBytes;
  const size_t end = head + (bytes - head) / kLineBytes * kLineBytes;
  std::memcpy(target, source, head);
  for (size_t i = head; i < end; i += kLineBytes) {
    const auto* const from = reinterpret_cast<const uint8_t*>(source + i);
    auto* const to = reinterpret_cast<uint8_t*>(target + i);
    for (size_t j = 0; j < kLineBytes; j += kVector) hn::Stream(hn::LoadU(d, from + j), d, to + j);
  }
  hwy::FlushStream();
  std::memcpy(target + end, source + end, bytes - end);
}

CopyOutcome Copy(void* target, const void* source, size_t elements, const CopyPlan& plan, bool streaming) {
  auto* const to = static_cast<std::byte*>(target);
  const auto* const from = static_cast<const std::byte*>(source);
  if (!plan.check_finite && !plan.sum_squares && plan.source_type == plan.target_type) {
    CopyBytes(to, from, elements * ElementSize(plan.source_type), streaming);
    return {};
  }
  return WithFormats(plan, [&]<class Source, class Target, bool kCheck, bool kSum>() HWY_ATTR {
    return CopyTyped<Source, Target, kCheck, kSum>(to, from, elements, streaming);
  });
}

}  // namespace
}  // namespace tier::copy
HWY_AFTER_NAMESPACE();

tier::copy::CopyOutcome tier::copy::TIER_COPY_KERNEL(void* target, const void* source, size_t elements,
                                                     const CopyPlan& plan, bool streaming) {
  return Copy(target, source, elements, plan, streaming);
}
