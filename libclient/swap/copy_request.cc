#include "libclient/swap/copy_request.h"

#include <algorithm>
#include <string>

#include "proto/message.h"
#include "proto/units.h"

namespace tier::swap {

copy::CopyPlan CopyRequest::plan() const {
  const bool out = direction == Direction::kOut;
  return {out ? memory_type : tensor_type, out ? tensor_type : memory_type, check_finite, sum_squares};
}

Status CheckRequest(const CopyRequest& request) {
  const auto bytes = [](uint64_t count) { return std::to_string(count) + " bytes"; };
  if (request.memory == nullptr || request.size == 0) {
    return Fail(Code::kInvalid, "a swap moves at least one byte from or to a pointer that is not NULL");
  }
  if (!copy::IsSupported(request.plan())) {
    return Fail(Code::kInvalid,
                "no such swap: types are equal or a cast between fp32 and bf16 or fp16, and plain bytes "
                "can be neither checked nor summed");
  }
  const uint64_t element = copy::ElementSize(request.memory_type);
  if (request.size % element != 0) {
    return Fail(Code::kInvalid, bytes(request.size) + " are no whole number of elements of " + bytes(element));
  }
  if (request.whole && request.offset != 0) {
    return Fail(Code::kInvalid,
                "an offset of " + std::to_string(request.offset) + " asks for a part of the tensor: set whole = 0");
  }
  if (request.offset % copy::ElementSize(request.tensor_type) != 0) {
    return Fail(Code::kInvalid, "offset " + std::to_string(request.offset) + " is not at an element of the tensor");
  }
  if (request.offset + request.tensor_bytes() < request.offset) {
    return Fail(Code::kInvalid, "the swap ends beyond 2^64 bytes");
  }
  return {};
}

Range NextRange(const CopyRequest& request, uint64_t from, uint64_t range_bytes) {
  const uint64_t last = request.offset + request.tensor_bytes();
  uint64_t end = std::min(last, (from / range_bytes + 1) * range_bytes);
  if (request.direction == Direction::kIn) return {from, end - from, false};
  if (request.whole || (request.flags & proto::kFlagDiscard) != 0) return {from, end - from, true};
  // An update in part: blocks that keep some of their old bytes go alone, so that the others need not be read first.
  const uint64_t block_end = (from / kBlockSize + 1) * kBlockSize;
  if (from % kBlockSize != 0) return {from, std::min(end, block_end) - from, false};
  const uint64_t whole_blocks = (end - from) / kBlockSize * kBlockSize;
  if (whole_blocks == 0) return {from, end - from, false};
  return {from, whole_blocks, true};
}

}  // namespace tier::swap
