#include "daemon/memory/window.h"

#include <fcntl.h>
#include <numaif.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <gtest/gtest.h>

namespace tier::memory {
namespace {

constexpr uint64_t kSize = 4 * kMiB;

Window Open(PageKind pages = PageKind::kSmall) {
  auto window = Window::Open({.index = WindowIndex{3}, .size = kSize, .pages = pages});
  EXPECT_TRUE(window) << window.error().message;
  return std::move(*window);
}

uint64_t AllocatedBytes(const Window& window) {
  struct stat status{};
  EXPECT_EQ(::fstat(window.descriptor()->get(), &status), 0);
  return static_cast<uint64_t>(status.st_blocks) * 512;
}

TEST(Window, IsSealedPrivateAndAlignedToBlocks) {
  const Window window = Open();
  EXPECT_EQ(window.size(), kSize);
  EXPECT_EQ(window.page_size(), 4096U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(window.address()) % kBlockSize, 0U);
  struct stat status{};
  ASSERT_EQ(::fstat(window.descriptor()->get(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  EXPECT_EQ(::ftruncate(window.descriptor()->get(), 2 * kSize), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(::ftruncate(window.descriptor()->get(), 0), -1);
  EXPECT_EQ(::fcntl(window.descriptor()->get(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(::fcntl(window.descriptor()->get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(Window, PopulateMakesExactlyTheRangeAsked) {
  const Window window = Open();
  EXPECT_EQ(AllocatedBytes(window), 0U);
  ASSERT_TRUE(window.Populate(kMiB, kMiB));
  EXPECT_GE(AllocatedBytes(window), kMiB);
  ASSERT_TRUE(window.Populate(0, kSize));
  EXPECT_EQ(AllocatedBytes(window), kSize);
  EXPECT_TRUE(std::all_of(window.address(), window.address() + kSize, [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Window, CollapseKeepsTheContent) {
  const Window window = Open();
  ASSERT_TRUE(window.Populate(0, kSize));
  window.address()[kSize - 1] = std::byte{7};
  (void)window.TryCollapse(0, kSize);  // Whether the kernel does it depends on its settings.
  EXPECT_EQ(window.address()[kSize - 1], std::byte{7});
  EXPECT_EQ(window.address()[0], std::byte{0});
}

TEST(Window, CollapsesWhatWasNeverPopulated) {
  const Window window = Open();
  const bool collapsed = window.TryCollapse(0, kSize);
  EXPECT_GE(AllocatedBytes(window), collapsed ? kSize : kPageSize);
  ASSERT_TRUE(window.Populate(0, kSize));
  EXPECT_EQ(AllocatedBytes(window), kSize);
  EXPECT_TRUE(std::all_of(window.address(), window.address() + kSize, [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Window, CloseGivesThePagesBackEvenWhileSomebodyMapsTheFile) {
  Window window = Open();
  ASSERT_TRUE(window.Populate(0, kSize));
  const proto::FileDescriptor other(::dup(window.descriptor()->get()));
  const auto mapping = proto::Mapping::Map(other.get(), 0, kSize, proto::Access::kReadWrite);
  ASSERT_TRUE(mapping);
  window.Close();
  EXPECT_FALSE(window);
  struct stat status{};
  ASSERT_EQ(::fstat(other.get(), &status), 0);
  EXPECT_EQ(status.st_blocks, 0);
}

TEST(Window, ItsBytesAreGuarded) {
  base::InstallFaultGuard();
  const Window window = Open();
  ASSERT_EQ(::mprotect(window.address(), kSize, PROT_NONE), 0);
  EXPECT_FALSE(base::RunGuarded([&] { *reinterpret_cast<volatile char*>(window.address() + kMiB) = 1; }));
}

TEST(Window, SurvivesAMoveWithItsGuard) {
  base::InstallFaultGuard();
  Window first = Open();
  Window second = std::move(first);
  Window third;
  third = std::move(second);
  ASSERT_EQ(::mprotect(third.address(), kSize, PROT_NONE), 0);
  EXPECT_FALSE(base::RunGuarded([&] { *reinterpret_cast<volatile char*>(third.address()) = 1; }));
}

TEST(Window, AnAbsentNumaNodeIsARefusal) {
  const auto window = Window::Open({.size = kSize, .node = {.node = 500, .only = true}});
  ASSERT_FALSE(window);
  EXPECT_EQ(window.error().code, Code::kNoMemory);
  EXPECT_NE(window.error().message.find("NUMA node 500"), std::string::npos) << window.error().message;
}

TEST(Window, BindsToTheFirstNumaNode) {
  const auto window = Window::Open({.size = kSize, .node = {.node = 0, .only = true}});
  if (!window) GTEST_SKIP() << "needs mbind: " << window.error().message;
  EXPECT_TRUE(window->Populate(0, kSize));
}

// Where its pages are to come from, as the kernel has it.
std::pair<int, unsigned long> PolicyOf(const Window& window) {
  int mode = -1;
  std::array<unsigned long, 16> nodes{};
  EXPECT_EQ(::get_mempolicy(&mode, nodes.data(), nodes.size() * 64, window.address(), MPOL_F_ADDR), 0);
  return {mode, nodes[0]};
}

TEST(Window, PrefersItsNodeAndTakesAnother) {
  const auto window = Window::Open({.size = kSize, .node = {.node = 0}});
  ASSERT_TRUE(window) << window.error().message;
  EXPECT_EQ(PolicyOf(*window), (std::pair<int, unsigned long>{MPOL_PREFERRED, 1}));
  ASSERT_TRUE(window->Populate(0, kSize));
  EXPECT_GE(window->FirstNode(), 0);
}

TEST(Window, ANodeThatCannotBePreferredIsNoReasonToHaveNone) {
  const auto window = Window::Open({.size = kSize, .node = {.node = 500}});
  ASSERT_TRUE(window) << window.error().message;
  EXPECT_TRUE(window->Populate(0, kSize));
}

TEST(Window, HugePagesComeOrAreRefusedNeverABusError) {
  const auto window = Window::Open({.size = kSize, .pages = PageKind::kHuge});
  if (!window) {
    EXPECT_EQ(window.error().code, Code::kNoMemory);
    GTEST_SKIP() << "needs huge pages: " << window.error().message;
  }
  EXPECT_EQ(window->page_size(), kBlockSize);
  ASSERT_TRUE(window->Populate(0, kSize));
  EXPECT_EQ(AllocatedBytes(*window), kSize);
}

}  // namespace
}  // namespace tier::memory
