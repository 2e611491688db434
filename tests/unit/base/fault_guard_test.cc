#include "daemon/base/fault_guard.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "proto/mapping.h"

namespace tier::base {
namespace {

constexpr size_t kSize = 64 * kPageSize;

// A mapped file whose bytes can be taken away: unsealed, so that ftruncate makes touching it a SIGBUS, as a hole in a
// hugetlb window does.
class Vanishing {
 public:
  Vanishing() {
    InstallFaultGuard();
    file_ = *proto::CreateMemoryFile("guarded", kSize, /*seal=*/false);
    mapping_ = *proto::Mapping::Map(file_.get(), 0, kSize, proto::Access::kReadWrite);
  }
  volatile char* bytes() const { return reinterpret_cast<volatile char*>(mapping_.data()); }
  void Vanish() const { ASSERT_EQ(::ftruncate(file_.get(), 0), 0); }

 private:
  proto::FileDescriptor file_;
  proto::Mapping mapping_;
};

TEST(FaultGuard, ReturnsTrueWhenNothingIsMissing) {
  const Vanishing memory;
  const GuardedRange range(const_cast<char*>(memory.bytes()), kSize);
  int calls = 0;
  EXPECT_TRUE(RunGuarded([&] {
    memory.bytes()[5] = 'x';
    ++calls;
  }));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(memory.bytes()[5], 'x');
}

TEST(FaultGuard, EndsTheCallWhenTheBytesAreGoneAndTheThreadGoesOn) {
  const Vanishing memory;
  const GuardedRange range(const_cast<char*>(memory.bytes()), kSize);
  memory.Vanish();
  const uint64_t before = GuardedFaults();
  for (int i = 0; i < 3; ++i) {  // More than once: the signal must not stay blocked.
    volatile bool behind = false;
    EXPECT_FALSE(RunGuarded([&] {
      memory.bytes()[static_cast<size_t>(i) * kPageSize] = 'x';
      behind = true;
    }));
    EXPECT_FALSE(behind);
  }
  EXPECT_EQ(GuardedFaults(), before + 3);
}

TEST(FaultGuard, CatchesProtectionFaultsToo) {
  const Vanishing memory;
  const GuardedRange range(const_cast<char*>(memory.bytes()), kSize);
  ASSERT_EQ(::mprotect(const_cast<char*>(memory.bytes()), kSize, PROT_NONE), 0);
  EXPECT_FALSE(RunGuarded([&] { memory.bytes()[0] = 'x'; }));
}

TEST(FaultGuard, APunchedHugePageIsCaught) {
  InstallFaultGuard();
  const proto::FileDescriptor file(::memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB));
  if (!file || ::ftruncate(file.get(), kBlockSize) != 0) GTEST_SKIP() << "needs hugetlb: memfd with MFD_HUGETLB";
  auto mapping = proto::Mapping::Map(file.get(), 0, kBlockSize, proto::Access::kReadWrite);
  if (!mapping || ::madvise(mapping->data(), kBlockSize, MADV_POPULATE_WRITE) != 0) {
    GTEST_SKIP() << "needs huge pages: none free (vm.nr_hugepages)";
  }
  // The page leaves the file and the pool is emptied by another file, so touching it again cannot be served.
  const GuardedRange range(mapping->data(), kBlockSize);
  ASSERT_EQ(::fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBlockSize), 0);
  const proto::FileDescriptor greedy(::memfd_create("greedy", MFD_CLOEXEC | MFD_HUGETLB));
  constexpr off_t kTaken = off_t{1} << 30;
  bool emptied = false;
  for (off_t offset = 0; offset < kTaken && !emptied; offset += kBlockSize) {
    emptied = ::fallocate(greedy.get(), 0, offset, kBlockSize) != 0;
  }
  if (!emptied) GTEST_SKIP() << "needs huge pages: at most 1 GiB of them free (vm.nr_hugepages)";
  EXPECT_FALSE(RunGuarded([&] { *reinterpret_cast<volatile char*>(mapping->data()) = 1; }));
}

TEST(FaultGuard, NestedCallsEndTheInnermost) {
  const Vanishing memory;
  const GuardedRange range(const_cast<char*>(memory.bytes()), kSize);
  memory.Vanish();
  volatile bool inner = true;
  volatile bool went_on = false;
  EXPECT_TRUE(RunGuarded([&] {
    inner = RunGuarded([&] { memory.bytes()[0] = 'x'; });
    went_on = true;
  }));
  EXPECT_FALSE(inner);
  EXPECT_TRUE(went_on);
}

TEST(FaultGuard, ThreadsFaultWithoutDisturbingEachOther) {
  const Vanishing gone;
  const Vanishing present;
  const GuardedRange first(const_cast<char*>(gone.bytes()), kSize);
  const GuardedRange second(const_cast<char*>(present.bytes()), kSize);
  gone.Vanish();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      volatile char* bytes = t % 2 == 0 ? gone.bytes() : present.bytes();
      for (int i = 0; i < 200; ++i) {
        const bool touched = RunGuarded([&] { bytes[t * kPageSize] = 'x'; });
        if (touched != (t % 2 == 1)) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(FaultGuard, RangesMoveAndTheirPlacesAreUsedAgain) {
  const Vanishing memory;
  memory.Vanish();
  GuardedRange held;
  for (uint32_t i = 0; i < kGuardedRangesMax * 2; ++i) {
    GuardedRange range(const_cast<char*>(memory.bytes()), kSize);
    held = std::move(range);
  }
  EXPECT_FALSE(RunGuarded([&] { memory.bytes()[0] = 'x'; }));
}

TEST(FaultGuardDeathTest, AFaultOutsideTheRangesKillsTheProcess) {
  const Vanishing memory;
  memory.Vanish();
  EXPECT_DEATH((void)RunGuarded([&] { memory.bytes()[0] = 'x'; }), "");
}

TEST(FaultGuardDeathTest, AFaultOutsideAGuardedCallKillsTheProcess) {
  const Vanishing memory;
  const GuardedRange range(const_cast<char*>(memory.bytes()), kSize);
  memory.Vanish();
  EXPECT_DEATH(memory.bytes()[0] = 'x', "");
}

TEST(FaultGuardDeathTest, ASignalFromOutsideIsNotTakenForAFault) {
  const Vanishing memory;
  EXPECT_DEATH((void)RunGuarded([] { ::raise(SIGBUS); }), "");
}

}  // namespace
}  // namespace tier::base
