#include "daemon/base/zeroed_memory.h"

#include <gtest/gtest.h>

#include <utility>

#include "proto/units.h"

namespace tier::base {
namespace {

TEST(ZeroedMemory, IsZeroAndIsGivenBackFromItsFront) {
  ZeroedMemory memory(16 * kPageSize);
  EXPECT_EQ(memory.data()[16 * kPageSize - 1], std::byte{0});
  memory.data()[3 * kPageSize] = std::byte{9};
  memory.TrimFront(3 * kPageSize);
  EXPECT_EQ(memory.size(), 13 * kPageSize);
  EXPECT_EQ(memory.data()[0], std::byte{9}) << "what is behind that stays";
  memory.TrimFront(memory.size());
  EXPECT_EQ(memory.size(), 0u);
  EXPECT_EQ(memory.data(), nullptr);
}

TEST(ZeroedMemory, MovesWithItsBytes) {
  ZeroedMemory first(kPageSize);
  first.data()[0] = std::byte{1};
  ZeroedMemory second(std::move(first));
  ZeroedMemory third;
  third = std::move(second);
  EXPECT_EQ(third.data()[0], std::byte{1});
}

TEST(ZeroedMemory, AnOddPartIsABug) {
  ZeroedMemory memory(4 * kPageSize);
  EXPECT_DEATH(memory.TrimFront(100), "100 bytes");
  EXPECT_DEATH(memory.TrimFront(5 * kPageSize), "bytes of");
}

}  // namespace
}  // namespace tier::base
