#include "libclient/swap/range_copy.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tier::swap {
namespace {

// Where the copy is within the segments.
class SegmentCursor {
 public:
  explicit SegmentCursor(std::span<const Segment> segments) : segments_(segments) {}
  // The next `length` bytes where they lie in one segment, which are then behind; else null.
  std::byte* TakeWhole(uint64_t length) {
    if (segments_.front().length - taken_ < length) return nullptr;
    return Take(length);
  }
  // Calls body(data, bytes) for each part of the next `length` bytes.
  template <typename Body>
  void TakeParts(uint64_t length, const Body& body) {
    while (length > 0) {
      const uint64_t bytes = std::min(length, segments_.front().length - taken_);
      body(Take(bytes), bytes);
      length -= bytes;
    }
  }

 private:
  std::byte* Take(uint64_t length) {
    std::byte* const data = segments_.front().data + taken_;
    taken_ += length;
    if (taken_ == segments_.front().length) {
      segments_ = segments_.subspan(1);
      taken_ = 0;
    }
    return data;
  }

  std::span<const Segment> segments_;
  uint64_t taken_ = 0;  // Of the first.
};

// The plan is supported: CopyRange requires it.
copy::CopyOutcome Fuse(const CopyRequest& request, std::byte* memory, std::byte* tensor, uint64_t length) {
  const bool out = request.direction == Direction::kOut;
  const uint64_t elements = length / copy::ElementSize(request.tensor_type);
  return *copy::FusedCopy(out ? tensor : memory, out ? memory : tensor, elements, request.plan());
}

// The sum of a cell comes from one kernel call: one that is cut is made whole in memory of its own.
copy::CopyOutcome CopyCell(const CopyRequest& request, std::byte* memory, uint64_t length, SegmentCursor& segments) {
  if (std::byte* const tensor = segments.TakeWhole(length)) return Fuse(request, memory, tensor, length);
  const bool out = request.direction == Direction::kOut;
  std::vector<std::byte> whole(length);
  copy::CopyOutcome outcome;
  if (out) outcome = Fuse(request, memory, whole.data(), length);
  std::byte* at = whole.data();
  segments.TakeParts(length, [&](std::byte* part, uint64_t bytes) {
    std::memcpy(out ? part : at, out ? at : part, bytes);
    at += bytes;
  });
  if (!out) outcome = Fuse(request, memory, whole.data(), length);
  return outcome;
}

}  // namespace

RangeOutcome CopyRange(const CopyRequest& request, uint64_t offset, std::byte* memory,
                       std::span<const Segment> segments) {
  RangeOutcome outcome;
  const uint64_t element = copy::ElementSize(request.tensor_type);
  const auto advance = [&](uint64_t length) { memory += length / element * copy::ElementSize(request.memory_type); };
  if (!request.sum_squares) {
    for (const Segment& segment : segments) {
      outcome.non_finite_count += Fuse(request, memory, segment.data, segment.length).non_finite_count;
      advance(segment.length);
    }
    return outcome;
  }
  uint64_t left = 0;
  for (const Segment& segment : segments) left += segment.length;
  SegmentCursor cursor(segments);
  while (left > 0) {
    const uint64_t length = std::min(left, kCellElements * element - offset % (kCellElements * element));
    const auto cell = CopyCell(request, memory, length, cursor);
    outcome.non_finite_count += cell.non_finite_count;
    outcome.sums[outcome.cell_count++] = cell.sum_of_squares;
    advance(length);
    offset += length;
    left -= length;
  }
  return outcome;
}

}  // namespace tier::swap
