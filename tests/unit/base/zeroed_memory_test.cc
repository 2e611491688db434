#include "daemon/base/zeroed_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

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

// Whether the kernel has merged it with mappings on both of its sides.
bool LiesInTheMiddle(const ZeroedMemory& memory) {
  const auto first = reinterpret_cast<uintptr_t>(memory.data());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) continue;
    if (begin < first && first + memory.size() < end) return true;
  }
  return false;
}

// As many mappings as the process may have.
class AllMappings {
 public:
  explicit AllMappings(size_t count) : size_(2 * count * kPageSize) {
    pages_ = ::mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages_ == MAP_FAILED) return;
    for (size_t at = kPageSize; at < size_ && !all_; at += 2 * kPageSize) {
      all_ = ::mprotect(static_cast<std::byte*>(pages_) + at, kPageSize, PROT_READ) != 0;
    }
  }
  AllMappings(const AllMappings&) = delete;
  AllMappings& operator=(const AllMappings&) = delete;
  ~AllMappings() {
    if (pages_ != MAP_FAILED) (void)::munmap(pages_, size_);
  }
  bool all() const { return all_; }

 private:
  size_t size_;
  void* pages_;
  bool all_ = false;
};

TEST(ZeroedMemory, IsGivenBackWhereTheKernelDividesNoMappings) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "needs a process without TSan: it cannot go on where it can map nothing";
#endif
  size_t most = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> most;
  if (most == 0 || most > 262144) GTEST_SKIP() << "needs a small vm.max_map_count: it is " << most;
  std::vector<ZeroedMemory> all;
  for (int i = 0; i < 16; ++i) all.emplace_back(16 * kPageSize);
  const auto middle = std::ranges::find_if(all, LiesInTheMiddle);
  if (middle == all.end()) GTEST_SKIP() << "needs mappings that the kernel merges";
  ZeroedMemory memory = std::move(*middle);
  memory.data()[0] = std::byte{1};
  memory.data()[5 * kPageSize] = std::byte{2};
  std::byte* const front = memory.data();
  bool reached = false;
  {
    const AllMappings mappings(most);
    reached = mappings.all();
    memory.TrimFront(4 * kPageSize);
    EXPECT_EQ(front[0], std::byte{0}) << "it is mapped, and its page is gone";
    memory.TrimFront(kPageSize);
    ZeroedMemory moved = std::move(memory);
    memory = std::move(moved);
  }
  ASSERT_TRUE(reached);
  EXPECT_EQ(memory.size(), 11 * kPageSize);
  ASSERT_EQ(memory.data(), front + 5 * kPageSize);
  EXPECT_EQ(memory.data()[0], std::byte{2});
  memory.TrimFront(kPageSize);
  unsigned char resident = 0;
  EXPECT_NE(::mincore(front, kPageSize, &resident), 0) << "what was trimmed before is unmapped with it";
}

TEST(ZeroedMemory, AnOddPartIsABug) {
  ZeroedMemory memory(4 * kPageSize);
  EXPECT_DEATH(memory.TrimFront(100), "100 bytes");
  EXPECT_DEATH(memory.TrimFront(5 * kPageSize), "bytes of");
}

}  // namespace
}  // namespace tier::base
