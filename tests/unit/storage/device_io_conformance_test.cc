// One suite for every DeviceIo: what the engine may rely on, whichever backend the machine gives it.
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <set>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/storage/device_io.h"
#include "daemon/storage/thread_pool_io.h"
#include "daemon/storage/uring.h"
#include "tests/support/storage/fake_device.h"
#include "tests/support/storage/scratch.h"

namespace tier::storage {
namespace {

using testing::FakeDevice;
using testing::ScratchDirectory;
using testing::WaitReadable;
using testing::WindowMemory;

constexpr uint64_t kFileSize = 8 * kMiB;
constexpr uint32_t kInflightMax = 8;
constexpr WindowIndex kWindow{3};
constexpr WindowIndex kOtherWindow{7};
constexpr int kWaitMs = 30'000;

struct Backend {
  const char* name;
  std::function<std::unique_ptr<DeviceIo>(const CompletionSignal&)> make;  // Null: this machine has none.
  bool signals;
};

class DeviceIoConformance : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    io_ = GetParam().make(signal_);
    if (!io_) GTEST_SKIP() << "needs io_uring: the kernel or a filter forbids it";
    file_ =
        proto::FileDescriptor(::open(directory_.File("device").c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600));
    ASSERT_TRUE(file_) << "O_DIRECT in " << directory_.path();
    ASSERT_EQ(::fallocate(file_.get(), 0, 0, kFileSize), 0);
    ASSERT_TRUE(io_->AddDevice(file_.get()));
    io_->AddWindow(kWindow, memory_.data(), memory_.size());
  }

  IoRequest Request(Direction direction, uint64_t token, uint64_t offset, uint32_t length) {
    return {.token = token,
            .direction = direction,
            .window = kWindow,
            .memory = memory_.data() + token * kMiB,
            .offset = offset,
            .length = length};
  }

  // Polls until `count` completions are there, sleeping on the signal in between.
  std::vector<IoCompletion> Complete(size_t count) {
    io_->Submit();
    std::vector<IoCompletion> completions;
    io_->Poll(&completions);
    while (completions.size() < count) {
      if (GetParam().signals && !WaitReadable(signal_.fd(), kWaitMs)) break;
      signal_.Clear();
      io_->Poll(&completions);
    }
    EXPECT_EQ(completions.size(), count);
    return completions;
  }

  int32_t CompleteOne(const IoRequest& request) {
    io_->Start(request);
    const auto completions = Complete(1);
    EXPECT_EQ(completions.at(0).token, request.token);
    return completions.at(0).result;
  }

  ScratchDirectory directory_;
  CompletionSignal signal_;
  WindowMemory memory_{kInflightMax * kMiB};
  proto::FileDescriptor file_;
  std::unique_ptr<DeviceIo> io_;  // Goes before what it uses.
};

TEST_P(DeviceIoConformance, ReadsBackWhatItWrote) {
  memory_.Fill(1);
  ASSERT_EQ(CompleteOne(Request(Direction::kWrite, 0, 2 * kMiB, kMiB)), static_cast<int32_t>(kMiB));
  ASSERT_EQ(CompleteOne(Request(Direction::kRead, 1, 2 * kMiB, kMiB)), static_cast<int32_t>(kMiB));
  EXPECT_EQ(std::memcmp(memory_.data(), memory_.data() + kMiB, kMiB), 0);
}

TEST_P(DeviceIoConformance, MovesASinglePage) {
  memory_.Fill(2);
  ASSERT_EQ(CompleteOne(Request(Direction::kWrite, 0, 4096, 4096)), 4096);
  ASSERT_EQ(CompleteOne(Request(Direction::kRead, 1, 4096, 4096)), 4096);
  EXPECT_EQ(std::memcmp(memory_.data(), memory_.data() + kMiB, 4096), 0);
}

TEST_P(DeviceIoConformance, CompletesEveryTokenOfAFullQueueOnce) {
  memory_.Fill(3);
  for (uint64_t i = 0; i < kInflightMax; ++i) io_->Start(Request(Direction::kWrite, i, i * kMiB, kMiB));
  std::set<uint64_t> tokens;
  for (const IoCompletion& completion : Complete(kInflightMax)) {
    EXPECT_EQ(completion.result, static_cast<int32_t>(kMiB));
    EXPECT_TRUE(tokens.insert(completion.token).second) << "token " << completion.token << " twice";
  }
  EXPECT_EQ(tokens.size(), kInflightMax);
}

TEST_P(DeviceIoConformance, TakesNewRequestsAfterEachRound) {
  memory_.Fill(4);
  for (int round = 0; round < 50; ++round) {
    for (uint64_t i = 0; i < kInflightMax; ++i) {
      const Direction direction = round % 2 == 0 ? Direction::kWrite : Direction::kRead;
      io_->Start(Request(direction, i, i * kMiB, 64 * kKiB));
    }
    for (const IoCompletion& completion : Complete(kInflightMax)) {
      ASSERT_EQ(completion.result, static_cast<int32_t>(64 * kKiB));
    }
  }
}

TEST_P(DeviceIoConformance, DoesNothingBeforeSubmit) {
  io_->Start(Request(Direction::kWrite, 0, 0, 4096));
  EXPECT_FALSE(WaitReadable(signal_.fd(), 0));
  EXPECT_EQ(Complete(1).size(), 1u);
}

TEST_P(DeviceIoConformance, PollsNothingWhenNothingIsInFlight) {
  std::vector<IoCompletion> completions;
  io_->Submit();
  io_->Poll(&completions);
  EXPECT_TRUE(completions.empty());
}

TEST_P(DeviceIoConformance, SaysZeroBytesAtTheEndOfTheDevice) {
  EXPECT_EQ(CompleteOne(Request(Direction::kRead, 0, kFileSize, 4096)), 0);
}

TEST_P(DeviceIoConformance, SaysHowMuchOfAReadThatCrossesTheEndWasMoved) {
  EXPECT_EQ(CompleteOne(Request(Direction::kRead, 0, kFileSize - 8192, 64 * kKiB)), 8192);
}

TEST_P(DeviceIoConformance, AddsAndRemovesWindowsWhileOthersWork) {
  const WindowMemory other(kMiB);
  io_->AddWindow(kOtherWindow, other.data(), other.size());
  other.Fill(5);
  IoRequest write = Request(Direction::kWrite, 0, 0, kMiB);
  write.window = kOtherWindow;
  write.memory = other.data();
  ASSERT_EQ(CompleteOne(write), static_cast<int32_t>(kMiB));
  io_->RemoveWindow(kOtherWindow);
  ASSERT_EQ(CompleteOne(Request(Direction::kRead, 1, 0, kMiB)), static_cast<int32_t>(kMiB));
  EXPECT_EQ(std::memcmp(other.data(), memory_.data() + kMiB, kMiB), 0);
  const WindowMemory again(kMiB);
  io_->AddWindow(kOtherWindow, again.data(), again.size());
  io_->RemoveWindow(kOtherWindow);
}

TEST_P(DeviceIoConformance, ReportsItsLimitAndWhyItIsUnpinned) {
  EXPECT_EQ(io_->inflight_max(), kInflightMax);
  EXPECT_EQ(io_->pinned(), io_->unpinned_reason().empty());
}

std::unique_ptr<DeviceIo> MakeUring(const CompletionSignal& signal) {
  auto uring = UringIo::Create({.inflight_max = kInflightMax, .windows_max = 16}, signal);
  return uring ? std::move(*uring) : nullptr;
}

INSTANTIATE_TEST_SUITE_P(Backends, DeviceIoConformance,
                         ::testing::Values(Backend{"Uring", &MakeUring, true},
                                           Backend{"ThreadPool",
                                                   [](const CompletionSignal& signal) {
                                                     return std::make_unique<ThreadPoolIo>(
                                                         ThreadPoolIoOptions{.inflight_max = kInflightMax,
                                                                             .threads = 3},
                                                         signal);
                                                   },
                                                   true},
                                           Backend{"Fake",
                                                   [](const CompletionSignal&) {
                                                     return std::make_unique<FakeDevice>(kFileSize, kInflightMax);
                                                   },
                                                   false}),
                         [](const auto& param_info) { return param_info.param.name; });

// What only io_uring promises.

TEST(UringIo, KeepsUsingAWindowsPagesAfterItsMemoryWasPunched) {
  CompletionSignal signal;
  auto uring = MakeUring(signal);
  if (!uring) GTEST_SKIP() << "needs io_uring: the kernel or a filter forbids it";
  const ScratchDirectory directory;
  const proto::FileDescriptor file(
      ::open(directory.File("device").c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600));
  ASSERT_EQ(::fallocate(file.get(), 0, 0, kMiB), 0);
  const WindowMemory memory(kMiB);
  ASSERT_TRUE(uring->AddDevice(file.get()));
  memory.Fill(6);
  uring->AddWindow(kWindow, memory.data(), memory.size());
  if (!uring->pinned()) GTEST_SKIP() << "needs registered buffers: " << uring->unpinned_reason();
  ASSERT_EQ(::fallocate(memory.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kMiB), 0);
  uring->Start(
      {.token = 1, .direction = Direction::kWrite, .window = kWindow, .memory = memory.data(), .length = 4096});
  uring->Submit();
  std::vector<IoCompletion> completions;
  while (completions.empty() && WaitReadable(signal.fd(), kWaitMs)) {
    signal.Clear();
    uring->Poll(&completions);
  }
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].result, 4096);
  uring->RemoveWindow(kWindow);
}

TEST(UringIo, GoesOnUnpinnedWhenTheMemoryLockLimitIsReached) {
  CompletionSignal signal;
  auto uring = UringIo::Create({.inflight_max = kInflightMax, .windows_max = 16}, signal);
  if (!uring) GTEST_SKIP() << "needs io_uring: " << uring.error().message;
  // Memory that no user can register: it allows no access.
  void* reserved = ::mmap(nullptr, kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(reserved, MAP_FAILED);
  (*uring)->AddWindow(kWindow, static_cast<std::byte*>(reserved), kMiB);
  EXPECT_FALSE((*uring)->pinned());
  EXPECT_NE((*uring)->unpinned_reason(), "");
  (*uring)->RemoveWindow(kWindow);
  ::munmap(reserved, kMiB);
}

TEST(UringIoDeathTest, AbortsOnARequestOutsideItsWindow) {
  CompletionSignal signal;
  auto uring = MakeUring(signal);
  if (!uring) GTEST_SKIP() << "needs io_uring: the kernel or a filter forbids it";
  const WindowMemory memory(kMiB);
  uring->AddWindow(kWindow, memory.data(), memory.size());
  EXPECT_DEATH(uring->Start({.window = kWindow, .memory = memory.data() + kMiB, .length = 4096}), "");
}

}  // namespace
}  // namespace tier::storage
