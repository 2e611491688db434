#include "libclient/swap/range_copy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "proto/units.h"

namespace tier::swap {
namespace {

using copy::ElementSize;
using copy::ElementType;

constexpr uint64_t kOffsetMax = 5 * kMiB;
constexpr uint64_t kBytesMax = 9 * kMiB;

// Finite elements of any type whose squares need rounding when they are added.
const std::vector<std::byte>& Elements() {
  static const std::vector<std::byte> elements = [] {
    std::mt19937_64 engine(7);
    std::vector<uint64_t> words(kBytesMax / sizeof(uint64_t));
    for (auto& word : words) word = engine() & 0x3fff3fff3fff3fff;
    std::vector<std::byte> bytes(kBytesMax);
    std::memcpy(bytes.data(), words.data(), bytes.size());
    return bytes;
  }();
  return elements;
}

struct Types {
  ElementType memory, tensor;
};
const Types kTypes[] = {{ElementType::kFp32, ElementType::kFp32}, {ElementType::kFp32, ElementType::kBf16},
                        {ElementType::kBf16, ElementType::kFp32}, {ElementType::kFp32, ElementType::kFp16},
                        {ElementType::kFp16, ElementType::kFp32}, {ElementType::kBf16, ElementType::kBf16}};

struct Copied {
  double sum = 0;
  uint64_t non_finite_count = 0;
};

// One swap of `source` from element 0 on, into `target`; each side is the memory or the tensor by the direction.
struct Swapped {
  CopyRequest request;
  std::vector<std::byte> source, target;
  std::byte* memory() { return request.direction == Direction::kOut ? source.data() : target.data(); }
  std::byte* tensor() { return request.direction == Direction::kOut ? target.data() : source.data(); }

  Swapped(Direction direction, Types types, uint64_t elements, uint64_t offset) {
    request = {.direction = direction,
               .size = elements * ElementSize(types.memory),
               .memory_type = types.memory,
               .tensor_type = types.tensor,
               .check_finite = true,
               .sum_squares = true,
               .offset = offset,
               .whole = offset == 0};
    const uint64_t tensor_bytes = elements * ElementSize(types.tensor);
    const bool out = direction == Direction::kOut;
    source.assign(Elements().begin(), Elements().begin() + static_cast<long>(out ? request.size : tensor_bytes));
    target.resize(out ? tensor_bytes : request.size);
    request.memory = memory();
  }

  // By ranges of at most `range_bytes`, whose segments end where `cut` says, given what is left of the range.
  template <typename Cut>
  Copied Run(uint64_t range_bytes, const Cut& cut) {
    Copied copied;
    const uint64_t end = request.offset + request.tensor_bytes();
    for (uint64_t at = request.offset; at < end;) {
      const Range range = NextRange(request, at, range_bytes);
      std::vector<Segment> segments;
      for (uint64_t done = 0; done < range.length; done += segments.back().length)
        segments.push_back({tensor() + (at - request.offset) + done, cut(at + done, range.length - done)});
      const auto outcome = CopyRange(request, at, request.MemoryAt(at), segments);
      copied.non_finite_count += outcome.non_finite_count;
      for (const double sum : outcome.cell_sums()) copied.sum += sum;
      at += range.length;
    }
    return copied;
  }
};

// What the sum is by definition: cells of the tensor, each in one call, added in order.
double SumByCells(const Swapped& swapped) {
  const CopyRequest& request = swapped.request;
  const auto plan = request.plan();
  std::vector<std::byte> ignored(kCellElements * ElementSize(plan.target_type));
  const uint64_t first = request.offset / ElementSize(request.tensor_type);
  const uint64_t end = first + request.size / ElementSize(request.memory_type);
  double sum = 0;
  for (uint64_t at = first; at < end;) {
    const uint64_t count = std::min(end, (at / kCellElements + 1) * kCellElements) - at;
    const std::byte* const source = swapped.source.data() + (at - first) * ElementSize(plan.source_type);
    sum += copy::FusedCopy(ignored.data(), source, count, plan)->sum_of_squares;
    at += count;
  }
  return sum;
}

RC_GTEST_PROP(CopyRange, SumsAreTheSameBitsHoweverTheTensorIsCut, ()) {
  const Types types = *rc::gen::elementOf(std::vector<Types>(std::begin(kTypes), std::end(kTypes)));
  const auto direction = *rc::gen::element(Direction::kOut, Direction::kIn);
  const uint64_t element = ElementSize(types.tensor);
  const uint64_t elements_max = kBytesMax / std::max(element, ElementSize(types.memory));
  const uint64_t elements = *rc::gen::inRange<uint64_t>(1, elements_max + 1);
  const bool whole = *rc::gen::arbitrary<bool>();
  const uint64_t offset = whole ? 0 : *rc::gen::inRange<uint64_t>(0, kOffsetMax / element) * element;
  const uint64_t range_bytes = *rc::gen::inRange<uint64_t>(1, kRangeBytesMax / kBlockSize + 1) * kBlockSize;
  const uint64_t seed = *rc::gen::arbitrary<uint64_t>();
  // Mostly at blocks, as the daemon cuts; anywhere between elements at times.
  std::mt19937_64 engine(seed);
  const bool by_block = *rc::gen::arbitrary<bool>();
  const auto cut = [&](uint64_t at, uint64_t left) {
    const uint64_t to_block = kBlockSize - at % kBlockSize + engine() % 3 * kBlockSize;
    if (by_block) return std::min(left, to_block);
    return std::min(left, (1 + engine() % (kBlockSize / element)) * element);
  };

  Swapped swapped(direction, types, elements, offset);
  const Copied cut_up = swapped.Run(range_bytes, cut);
  const auto bytes = swapped.target;
  RC_ASSERT(std::bit_cast<uint64_t>(cut_up.sum) == std::bit_cast<uint64_t>(SumByCells(swapped)));
  std::ranges::fill(swapped.target, std::byte{0});
  const Copied in_one = swapped.Run(kRangeBytesMax, [](uint64_t, uint64_t left) { return left; });
  RC_ASSERT(std::bit_cast<uint64_t>(cut_up.sum) == std::bit_cast<uint64_t>(in_one.sum));
  RC_ASSERT(cut_up.non_finite_count == in_one.non_finite_count);
  RC_ASSERT(bytes == swapped.target);
}

TEST(CopyRange, CountsWithoutSumsToo) {
  Swapped swapped(Direction::kOut, kTypes[0], 3 * kMiB / 4, 0);
  const float nan = std::bit_cast<float>(0x7fc00000u);
  std::memcpy(swapped.source.data() + 2 * kMiB, &nan, sizeof nan);
  swapped.request.sum_squares = false;
  const Copied copied = swapped.Run(kBlockSize, [](uint64_t, uint64_t left) { return std::min(left, kMiB); });
  EXPECT_EQ(copied.non_finite_count, 1u);
  EXPECT_EQ(copied.sum, 0.0);
  EXPECT_EQ(swapped.target, swapped.source);
}

}  // namespace
}  // namespace tier::swap
