// Descriptors and mappings: who owns what, and what the seals forbid.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include <gtest/gtest.h>

#include "proto/mapping.h"
#include "proto/units.h"

namespace tier::proto {
namespace {

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(FileDescriptor, ClosesWhenItGoes) {
  int number = -1;
  {
    const FileDescriptor fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = fd.get();
    ASSERT_TRUE(IsOpen(number));
  }
  EXPECT_FALSE(IsOpen(number));
}

TEST(FileDescriptor, MovesAndReleasesWithoutClosing) {
  FileDescriptor first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int number = first.get();
  FileDescriptor second(std::move(first));
  EXPECT_FALSE(first);  // NOLINT: a moved-from descriptor is empty, that is the point.
  FileDescriptor third;
  third = std::move(second);
  EXPECT_EQ(third.get(), number);
  EXPECT_EQ(third.Release(), number);
  EXPECT_TRUE(IsOpen(number));
  ::close(number);
}

TEST(MemoryFile, IsPrivateAndCannotBeResized) {
  const FileDescriptor file = CreateMemoryFile("mapping-test", 4 * kPageSize).value();
  struct stat status{};
  ASSERT_EQ(::fstat(file.get(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(status.st_size, static_cast<off_t>(4 * kPageSize));
  EXPECT_NE(::ftruncate(file.get(), 0), 0);
  EXPECT_NE(::ftruncate(file.get(), 8 * kPageSize), 0);
  EXPECT_NE(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(Mapping, TwoMappingsSeeTheSameBytes) {
  const FileDescriptor file = CreateMemoryFile("mapping-test", 2 * kPageSize).value();
  const Mapping writable = Mapping::Map(file.get(), 0, 2 * kPageSize, Access::kReadWrite).value();
  const Mapping second_page = Mapping::Map(file.get(), kPageSize, kPageSize, Access::kReadOnly).value();
  std::memcpy(writable.data() + kPageSize, "tier", 5);
  EXPECT_STREQ(reinterpret_cast<const char*>(second_page.data()), "tier");
}

TEST(Mapping, GoesWhereItIsTold) {
  const FileDescriptor file = CreateMemoryFile("mapping-test", kPageSize).value();
  void* reserved = ::mmap(nullptr, 4 * kPageSize, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(reserved, MAP_FAILED);
  auto* place = static_cast<std::byte*>(reserved) + kPageSize;
  {
    const Mapping mapping = Mapping::Map(file.get(), 0, kPageSize, Access::kReadWrite, place).value();
    EXPECT_EQ(mapping.data(), place);
    *place = std::byte{1};
  }
  ::munmap(reserved, 4 * kPageSize);
}

TEST(Mapping, BadDescriptorIsAnErrorNotACrash) {
  const auto mapping = Mapping::Map(-1, 0, kPageSize, Access::kReadOnly);
  ASSERT_FALSE(mapping);
  EXPECT_EQ(mapping.error().code, Code::kIoError);
}

}  // namespace
}  // namespace tier::proto
