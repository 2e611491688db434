#include "libclient/swap/copy_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "proto/message.h"
#include "proto/units.h"

namespace tier::swap {
namespace {

using copy::ElementType;

std::byte g_memory[8192];

CopyRequest Request(uint64_t size) { return {.memory = g_memory, .size = size}; }

TEST(CheckRequest, RefusesNothingToMove) {
  EXPECT_FALSE(CheckRequest(Request(0)));
  EXPECT_FALSE(CheckRequest({.size = 8}));
  EXPECT_TRUE(CheckRequest(Request(1)));
}

TEST(CheckRequest, RefusesCastsThatDoNotExist) {
  auto request = Request(8);
  request.memory_type = ElementType::kBf16;
  request.tensor_type = ElementType::kFp16;
  EXPECT_FALSE(CheckRequest(request));
  request.memory_type = ElementType::kFp32;
  EXPECT_TRUE(CheckRequest(request));
}

TEST(CheckRequest, RefusesHalfElementsAndOffsetsBetweenThem) {
  auto request = Request(10);
  request.memory_type = request.tensor_type = ElementType::kFp32;
  EXPECT_FALSE(CheckRequest(request));
  request.size = 8;
  request.whole = false;
  request.offset = 2;
  EXPECT_FALSE(CheckRequest(request));
  request.offset = 4;
  EXPECT_TRUE(CheckRequest(request));
}

TEST(CheckRequest, RefusesAnOffsetInAWholeTensor) {
  auto request = Request(8);
  request.offset = 8;
  const auto status = CheckRequest(request);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("whole = 0"));
}

TEST(CopyRequest, CountsBytesOfTheTensorThroughACast) {
  auto request = Request(4096);
  request.memory_type = ElementType::kFp32;
  request.tensor_type = ElementType::kBf16;
  EXPECT_EQ(request.tensor_bytes(), 2048u);
  EXPECT_EQ(request.MemoryAt(1024), g_memory + 2048);
}

RC_GTEST_PROP(NextRange, CoversEveryByteOnce, ()) {
  CopyRequest request = Request(*rc::gen::inRange<uint64_t>(1, 40 * kMiB));
  request.direction = *rc::gen::element(Direction::kOut, Direction::kIn);
  request.whole = *rc::gen::arbitrary<bool>();
  if (!request.whole) request.offset = *rc::gen::inRange<uint64_t>(0, 10 * kMiB);
  const uint64_t range_bytes = *rc::gen::inRange<uint64_t>(1, 5) * kBlockSize;
  const uint64_t end = request.offset + request.size;
  for (uint64_t at = request.offset; at < end;) {
    const Range range = NextRange(request, at, range_bytes);
    RC_ASSERT(range.offset == at && range.length > 0 && range.length <= range_bytes);
    RC_ASSERT(at + range.length <= end);
    // A cut inside a block would make two writers of one piece.
    RC_ASSERT(at + range.length == end || (at + range.length) % kBlockSize == 0);
    at += range.length;
  }
}

RC_GTEST_PROP(NextRange, DiscardsOnlyBlocksItWritesWhole, ()) {
  CopyRequest request = Request(*rc::gen::inRange<uint64_t>(1, 20 * kMiB));
  request.whole = false;
  request.offset = *rc::gen::inRange<uint64_t>(0, 10 * kMiB);
  for (uint64_t at = request.offset; at < request.offset + request.size;) {
    const Range range = NextRange(request, at, 8 * kMiB);
    if (range.discard) RC_ASSERT(range.offset % kBlockSize == 0 && range.length % kBlockSize == 0);
    at += range.length;
  }
}

}  // namespace
}  // namespace tier::swap
