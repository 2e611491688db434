// One suite for every DeviceIo: what the engine may rely on, whichever backend the machine gives it.
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/storage/device_io.h"
#include "daemon/storage/thread_pool_io.h"
#include "daemon/storage/uring.h"
#include "tests/support/proto/thread_shortage.h"
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

struct Backend {
  const char* name;
  // Null: this machine has none.
  std::function<std::unique_ptr<DeviceIo>(int device, const CompletionSignal&)> make;
  bool waits;
};

// Waits until windows that were removed have been given up, and tells which. Completions meanwhile are appended.
std::vector<WindowIndex> AwaitRemoved(DeviceIo& io, std::vector<IoCompletion>* completions) {
  std::vector<WindowIndex> removed;
  io.TakeRemoved(&removed);
  while (removed.empty()) {
    io.Wait();
    io.Poll(completions);
    io.TakeRemoved(&removed);
  }
  return removed;
}

// With direct I/O where the file system has it; a tmpfs before Linux 6.6 has not.
proto::FileDescriptor MakeFile(const ScratchDirectory& directory) {
  const std::string path = directory.File("device");
  proto::FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600));
  if (!file && errno == EINVAL) {
    file = proto::FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  }
  return file;
}

class DeviceIoConformance : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    file_ = MakeFile(directory_);
    ASSERT_TRUE(file_) << directory_.path();
    ASSERT_EQ(TEMP_FAILURE_RETRY(::fallocate(file_.get(), 0, 0, kFileSize)), 0);
    io_ = GetParam().make(file_.get(), signal_);
    if (!io_) GTEST_SKIP() << "needs io_uring: the kernel or a filter forbids it";
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

  // Polls until `count` completions are there, asleep in between.
  std::vector<IoCompletion> Complete(size_t count) {
    io_->Submit();
    std::vector<IoCompletion> completions;
    io_->Poll(&completions);
    while (completions.size() < count) {
      io_->Wait();
      io_->Poll(&completions);
    }
    EXPECT_EQ(completions.size(), count);
    return completions;
  }

  // Removes the window and waits until its memory has been given up.
  void Remove(WindowIndex window) {
    io_->RemoveWindow(window);
    std::vector<IoCompletion> completions;
    EXPECT_EQ(AwaitRemoved(*io_, &completions), std::vector{window});
    EXPECT_TRUE(completions.empty());
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

TEST_P(DeviceIoConformance, WakesWhenItsSignalIsRung) {
  if (!GetParam().waits) GTEST_SKIP() << "needs a backend that sleeps";
  std::vector<IoCompletion> completions;
  for (int round = 0; round < 3; ++round) {
    signal_.Signal();
    io_->Wait();
    io_->Poll(&completions);
    EXPECT_FALSE(WaitReadable(signal_.fd(), 0)) << "the signal is still set";
  }
  std::thread ringer([this] { signal_.Signal(); });
  io_->Wait();
  ringer.join();
  EXPECT_TRUE(completions.empty());
}

TEST_P(DeviceIoConformance, WakesForACompletionAndForTheSignalAlike) {
  if (!GetParam().waits) GTEST_SKIP() << "needs a backend that sleeps";
  for (uint64_t i = 0; i < 50; ++i) {
    io_->Start(Request(Direction::kRead, 0, 0, 4096));
    std::thread ringer([this] { signal_.Signal(); });
    EXPECT_EQ(Complete(1).at(0).result, 4096);
    ringer.join();
  }
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
  Remove(kOtherWindow);
  ASSERT_EQ(CompleteOne(Request(Direction::kRead, 1, 0, kMiB)), static_cast<int32_t>(kMiB));
  EXPECT_EQ(std::memcmp(other.data(), memory_.data() + kMiB, kMiB), 0);
  const WindowMemory again(kMiB);
  io_->AddWindow(kOtherWindow, again.data(), again.size());
  Remove(kOtherWindow);
}

TEST_P(DeviceIoConformance, GivesUpAWindowWhileOthersWork) {
  const WindowMemory other(kMiB);
  io_->AddWindow(kOtherWindow, other.data(), other.size());
  for (uint64_t i = 0; i < kInflightMax; ++i) io_->Start(Request(Direction::kRead, i, i * kMiB, kMiB));
  io_->RemoveWindow(kOtherWindow);
  EXPECT_EQ(Complete(kInflightMax).size(), kInflightMax);
  std::vector<IoCompletion> completions;
  EXPECT_EQ(AwaitRemoved(*io_, &completions), std::vector{kOtherWindow});
}

TEST_P(DeviceIoConformance, ReadsAndWritesMemoryThatIsNotToBePinned) {
  const WindowMemory other(kMiB);
  const std::string reason = io_->unpinned_reason();
  io_->AddWindow(kOtherWindow, other.data(), other.size(), Pin::kNo);
  EXPECT_FALSE(io_->registered(kOtherWindow));
  EXPECT_EQ(io_->unpinned_reason(), reason);
  other.Fill(6);
  IoRequest write = Request(Direction::kWrite, 0, 0, kMiB);
  write.window = kOtherWindow;
  write.memory = other.data();
  ASSERT_EQ(CompleteOne(write), static_cast<int32_t>(kMiB));
  ASSERT_EQ(CompleteOne(Request(Direction::kRead, 1, 0, kMiB)), static_cast<int32_t>(kMiB));
  EXPECT_EQ(std::memcmp(other.data(), memory_.data() + kMiB, kMiB), 0);
  Remove(kOtherWindow);
}

TEST_P(DeviceIoConformance, ReportsItsLimitAndWhetherAWindowIsRegistered) {
  EXPECT_EQ(io_->inflight_max(), kInflightMax);
  EXPECT_EQ(io_->registered(kWindow), io_->unpinned_reason().empty());
}

std::unique_ptr<DeviceIo> MakeUring(int device, const CompletionSignal& signal) {
  auto uring = UringIo::Create({.inflight_max = kInflightMax, .windows_max = 16}, device, signal);
  return uring ? std::move(*uring) : nullptr;
}

TEST(ThreadPoolIo, IsRefusedWhereTheSystemGivesTooFewThreads) {
  const CompletionSignal signal;
  const tier::testing::ThreadShortage shortage(2);
  const auto pool = ThreadPoolIo::Create({.inflight_max = kInflightMax, .threads = 3}, -1, signal);
  ASSERT_FALSE(pool);
  EXPECT_EQ(pool.error().code, Code::kNoMemory) << pool.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Backends, DeviceIoConformance,
    ::testing::Values(
        Backend{"Uring", &MakeUring, true},
        Backend{"ThreadPool",
                [](int device, const CompletionSignal& signal) {
                  return ThreadPoolIo::Create({.inflight_max = kInflightMax, .threads = 3}, device, signal).value();
                },
                true},
        Backend{"Fake",
                [](int, const CompletionSignal&) { return std::make_unique<FakeDevice>(kFileSize, kInflightMax); },
                false}),
    [](const auto& param_info) { return param_info.param.name; });

// What only io_uring promises.

class UringIoTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(TEMP_FAILURE_RETRY(::fallocate(file_.get(), 0, 0, kMiB)), 0);
    uring_ = MakeUring(file_.get(), signal_);
    if (!uring_) GTEST_SKIP() << "needs io_uring: the kernel or a filter forbids it";
  }

  const ScratchDirectory directory_;
  const CompletionSignal signal_;
  const proto::FileDescriptor file_ = MakeFile(directory_);
  std::unique_ptr<DeviceIo> uring_;
};
using UringIoDeathTest = UringIoTest;

TEST_F(UringIoTest, KeepsUsingAWindowsPagesAfterItsMemoryWasPunched) {
  const WindowMemory memory(kMiB);
  memory.Fill(6);
  uring_->AddWindow(kWindow, memory.data(), memory.size());
  if (!uring_->registered(kWindow)) GTEST_SKIP() << "needs registered buffers: " << uring_->unpinned_reason();
  ASSERT_EQ(::fallocate(memory.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kMiB), 0);
  uring_->Start(
      {.token = 1, .direction = Direction::kWrite, .window = kWindow, .memory = memory.data(), .length = 4096});
  uring_->Submit();
  std::vector<IoCompletion> completions;
  while (completions.empty()) {
    uring_->Wait();
    uring_->Poll(&completions);
  }
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].result, 4096);
}

// Memory that nothing can register: it allows no access.
class Unregistrable {
 public:
  Unregistrable() : memory_(::mmap(nullptr, kMiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(memory_, MAP_FAILED);
  }
  ~Unregistrable() { ::munmap(memory_, kMiB); }
  Unregistrable(const Unregistrable&) = delete;
  Unregistrable& operator=(const Unregistrable&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  void Allow() const { EXPECT_EQ(::mprotect(memory_, kMiB, PROT_READ | PROT_WRITE), 0); }

 private:
  void* memory_;
};

TEST_F(UringIoTest, GoesOnWithoutAWindowThatCannotBeRegistered) {
  const Unregistrable reserved;
  uring_->AddWindow(kWindow, reserved.data(), kMiB);
  EXPECT_FALSE(uring_->registered(kWindow));
  EXPECT_NE(uring_->unpinned_reason(), "");
  std::vector<WindowIndex> removed;
  uring_->RemoveWindow(kWindow);
  uring_->TakeRemoved(&removed);
  EXPECT_EQ(removed, std::vector{kWindow});
  EXPECT_EQ(uring_->unpinned_reason(), "") << "every window that is there is registered";
}

TEST_F(UringIoTest, TriesARefusedWindowAgainWhenAnotherHasGone) {
  const Unregistrable reserved;
  const WindowMemory memory(kMiB);
  uring_->AddWindow(kWindow, memory.data(), memory.size());
  if (!uring_->registered(kWindow)) GTEST_SKIP() << "needs registered buffers: " << uring_->unpinned_reason();
  uring_->AddWindow(kOtherWindow, reserved.data(), kMiB);
  ASSERT_FALSE(uring_->registered(kOtherWindow));
  reserved.Allow();
  uring_->RemoveWindow(kWindow);
  std::vector<IoCompletion> completions;
  (void)AwaitRemoved(*uring_, &completions);
  EXPECT_TRUE(uring_->registered(kOtherWindow)) << uring_->unpinned_reason();
  EXPECT_EQ(uring_->unpinned_reason(), "");
}

TEST_F(UringIoTest, TriesTheOthersWhenTheFirstRefusedWindowHasGone) {
  const Unregistrable reserved;
  const WindowMemory memory(kMiB);
  uring_->AddWindow(kWindow, reserved.data(), kMiB);
  uring_->AddWindow(kOtherWindow, memory.data(), memory.size());
  ASSERT_FALSE(uring_->registered(kOtherWindow)) << "it waits behind the refused one";
  uring_->RemoveWindow(kWindow);
  if (!uring_->registered(kOtherWindow)) GTEST_SKIP() << "needs registered buffers: " << uring_->unpinned_reason();
  EXPECT_EQ(uring_->unpinned_reason(), "");
}

// Memory of the daemon's own stays as long as the daemon does.
TEST_F(UringIoTest, NoWindowWaitsBehindMemoryThatIsNotToBePinned) {
  const Unregistrable reserved;
  const WindowMemory memory(kMiB);
  uring_->AddWindow(kWindow, reserved.data(), kMiB, Pin::kNo);
  EXPECT_EQ(uring_->unpinned_reason(), "");
  uring_->AddWindow(kOtherWindow, memory.data(), memory.size());
  if (!uring_->registered(kOtherWindow)) GTEST_SKIP() << "needs registered buffers: " << uring_->unpinned_reason();
  EXPECT_FALSE(uring_->registered(kWindow));
  EXPECT_EQ(uring_->unpinned_reason(), "");
}

// As a window that has gone, and whose pages are not unpinned yet.
TEST_F(UringIoTest, TriesARefusedWindowAgainForAWhile) {
  const Unregistrable reserved;
  const WindowMemory memory(kMiB);
  uring_->AddWindow(kWindow, memory.data(), memory.size());
  if (!uring_->registered(kWindow)) GTEST_SKIP() << "needs registered buffers: " << uring_->unpinned_reason();
  uring_->AddWindow(kOtherWindow, reserved.data(), kMiB);
  uring_->RemoveWindow(kWindow);
  std::vector<IoCompletion> completions;
  (void)AwaitRemoved(*uring_, &completions);
  ASSERT_FALSE(uring_->registered(kOtherWindow));
  reserved.Allow();
  while (!uring_->registered(kOtherWindow)) {
    uring_->Wait();
    uring_->Poll(&completions);
  }
  EXPECT_EQ(uring_->unpinned_reason(), "");
}

// The kernel holds the pages of a removed window until the last request that uses them has ended; until then the window
// is not given up. A pipe that nothing is written to keeps a request as long as the test wants.
TEST_F(UringIoTest, SaysThatAWindowIsGivenUpOnlyWhenTheKernelHasLetGo) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const proto::FileDescriptor read_end(ends[0]);
  const proto::FileDescriptor write_end(ends[1]);
  const auto pipe_io = MakeUring(read_end.get(), signal_);
  ASSERT_NE(pipe_io, nullptr);
  const WindowMemory memory(kMiB);
  pipe_io->AddWindow(kWindow, memory.data(), memory.size());
  if (!pipe_io->registered(kWindow)) GTEST_SKIP() << "needs registered buffers: " << pipe_io->unpinned_reason();
  pipe_io->Start({.token = 5, .window = kWindow, .memory = memory.data(), .length = 4096});
  pipe_io->Submit();
  pipe_io->RemoveWindow(kWindow);  // Against the contract, so that the kernel has to hold the pages.
  std::vector<WindowIndex> removed;
  std::vector<IoCompletion> completions;
  pipe_io->Poll(&completions);
  pipe_io->TakeRemoved(&removed);
  EXPECT_TRUE(removed.empty());
  const std::vector<std::byte> page(4096);
  ASSERT_EQ(::write(write_end.get(), page.data(), page.size()), 4096);
  while (removed.empty() || completions.empty()) {
    pipe_io->Wait();
    pipe_io->Poll(&completions);
    pipe_io->TakeRemoved(&removed);
  }
  EXPECT_EQ(removed, std::vector{kWindow});
  EXPECT_EQ(completions.at(0).result, 4096);
}

TEST_F(UringIoDeathTest, AbortsOnARequestOutsideItsWindow) {
  const WindowMemory memory(kMiB);
  uring_->AddWindow(kWindow, memory.data(), memory.size());
  EXPECT_DEATH(uring_->Start({.window = kWindow, .memory = memory.data() + kMiB, .length = 4096}), "");
}

}  // namespace
}  // namespace tier::storage
