// Swaps of device memory, under the fake CUDA driver. Its streams run only when somebody waits, so that a missing wait
// reads old bytes every time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "libclient/abi/handle.h"
#include "libclient/swap/copy_operation.h"
#include "tests/support/cuda/trainer.h"
#include "tests/unit/libclient/client_fixture.h"

namespace tier::session_fake {
namespace {

constexpr int kOutOfMemory = 2;
constexpr int kInvalidValue = 1;

// Before the library looks for a driver: it looks once in a process.
[[maybe_unused]] const int g_library = ::setenv("TIER_CUDA_LIBRARY", FAKE_LIBCUDA, 1);

// By the number of copy threads: several share one operation.
class DeviceSwapTest : public ClientTest, public ::testing::WithParamInterface<int> {
 protected:
  static constexpr size_t kBytes = 7 * kMiB + 4100;

  DeviceSwapTest() : trainer_(ProcessTrainer()) {
    device_ = static_cast<std::byte*>(trainer_.Allocate(kBytes));
    stream_ = trainer_.MakeStream();
    options_.stream = stream_;
  }
  void Start(const FakeOptions& options) { ClientTest::Start(options, /*spin=*/2, GetParam()); }
  void TearDown() override {
    tier_close(std::exchange(client_, nullptr));
    trainer_.control().fail("cuMemHostRegister", 0, 0, 0);
    if (context_broken_) return;  // Then the driver undoes nothing.
    EXPECT_EQ(trainer_.control().registrations(), 0u);
  }
  // One for the process, never reset: the library keeps its streams as long.
  static cuda::Trainer& ProcessTrainer() {
    static auto* const trainer = [] {
      auto* const made = new cuda::Trainer(FAKE_LIBCUDA);
      made->UseDevice();
      return made;
    }();
    return *trainer;
  }

  int Out(uint64_t tensor, size_t bytes = kBytes, tier_copy_outcome* outcome = nullptr) {
    tier_op* op = nullptr;
    const int code = tier_swap_out(client_, tensor, device_, bytes, &options_, &op);
    return code != TIER_OK ? code : tier_wait(op, 0, outcome);
  }
  int In(uint64_t tensor, size_t bytes = kBytes) {
    tier_op* op = nullptr;
    const int code = tier_swap_in(client_, tensor, device_, bytes, &options_, &op);
    return code != TIER_OK ? code : tier_wait(op, 0, nullptr);
  }
  bool DeviceHolds(int value) const {
    return std::all_of(device_, device_ + kBytes,
                       [value](std::byte byte) { return byte == static_cast<std::byte>(value); });
  }

  cuda::Trainer& trainer_;
  std::byte* device_ = nullptr;  // The fake's device memory is host memory: tests may look.
  void* stream_ = nullptr;
  bool context_broken_ = false;
  tier_copy_options options_ = TIER_COPY_OPTIONS_INIT;
};

TEST_P(DeviceSwapTest, GoesOutAndInBehindTheCallersStream) {
  Start({.windows = 12, .scatter = true});
  trainer_.LaunchFill(stream_, device_, kBytes, 42);  // Still queued when the swap is asked.
  ASSERT_TIER_OK(Out(1));
  tier_lease* const lease = Acquire(1);
  EXPECT_TRUE(std::ranges::all_of(Bytes(lease), [](std::byte byte) { return byte == std::byte{42}; }));
  tier_release(lease, 0);
  std::memset(device_, 0, kBytes);
  ASSERT_TIER_OK(In(1));
  EXPECT_TRUE(DeviceHolds(42));
}

TEST_P(DeviceSwapTest, AFillQueuedBeforeASwapInDoesNotOverwriteIt) {
  Start({.windows = 12});
  trainer_.LaunchFill(stream_, device_, kBytes, 5);
  ASSERT_TIER_OK(Out(1));
  trainer_.LaunchFill(stream_, device_, kBytes, 6);
  ASSERT_TIER_OK(In(1));
  EXPECT_TRUE(DeviceHolds(5));
}

TEST_P(DeviceSwapTest, TheDefaultStreamCountsToo) {
  Start({.windows = 12});
  options_.stream = nullptr;
  trainer_.LaunchFill(nullptr, device_, kBytes, 9);
  ASSERT_TIER_OK(Out(1));
  std::memset(device_, 0, kBytes);
  ASSERT_TIER_OK(In(1));
  EXPECT_TRUE(DeviceHolds(9));
}

TEST_P(DeviceSwapTest, TheDefaultStreamCountsByItsHandleToo) {
  Start({.windows = 12});
  options_.stream = reinterpret_cast<void*>(1);  // CU_STREAM_LEGACY, as tierd for Python names it.
  trainer_.LaunchFill(nullptr, device_, kBytes, 9);
  ASSERT_TIER_OK(Out(1));
  std::memset(device_, 0, kBytes);
  ASSERT_TIER_OK(In(1));
  EXPECT_TRUE(DeviceHolds(9));
}

TEST_P(DeviceSwapTest, RegistersTheWindowsItUsesAndUndoesItAtClose) {
  Start({.windows = 12});
  EXPECT_EQ(Stats().windows_registered, 0u);
  ASSERT_TIER_OK(Out(1));
  EXPECT_EQ(Stats().windows_registered, 2u);  // 7 MiB in windows of 4.
  EXPECT_EQ(trainer_.control().registrations(), 2u);
  tier_close(std::exchange(client_, nullptr));
  EXPECT_EQ(trainer_.control().registrations(), 0u);
}

TEST_P(DeviceSwapTest, AWindowIsUnregisteredBeforeItGoesBack) {
  Start({.windows = 12});
  ASSERT_TIER_OK(Out(1));
  ASSERT_TIER_OK(tier_free(client_, 1, 0));
  EXPECT_TIER_OK(tier_step(client_, 1));
  daemon_->AskBack(0);
  daemon_->Await([&] { return daemon_->counters().windows_returned.load() == 1; });
  EXPECT_EQ(Stats().windows_registered, 1u);
  EXPECT_EQ(trainer_.control().registrations(), 1u);
}

TEST_P(DeviceSwapTest, GoesOnUnpinnedWhereTheDriverRefusesToPin) {
  Start({.windows = 12});
  trainer_.control().fail("cuMemHostRegister", kOutOfMemory, 0, -1);
  trainer_.LaunchFill(stream_, device_, kBytes, 3);
  ASSERT_TIER_OK(Out(1));
  std::memset(device_, 0, kBytes);
  ASSERT_TIER_OK(In(1));
  EXPECT_TRUE(DeviceHolds(3));
  EXPECT_EQ(Stats().windows_registered, 0u);
}

TEST_P(DeviceSwapTest, AFailedCopyIsTypedAndLeavesNoHalfTensor) {
  Start({.windows = 12});
  trainer_.control().fail("cuMemcpyDtoHAsync", kInvalidValue, 1, 1);
  EXPECT_NE(Out(1), TIER_OK);
  EXPECT_THAT(tier_last_error(), ::testing::HasSubstr("CUDA"));
  daemon_->Await([&] { return daemon_->leases_open() == 0; });
  tier_tensor_view view{};
  view.struct_size = sizeof view;
  EXPECT_TIER_ERROR(tier_tensor(client_, 1, 0, &view), TIER_NOT_FOUND, "no tensor 1");
  ASSERT_TIER_OK(Out(1));  // And the next one works.
}

TEST_P(DeviceSwapTest, CastsGoThroughTheHost) {
  Start({.windows = 12, .scatter = true});
  constexpr size_t kValues = 1'000'003;
  auto* const values = reinterpret_cast<float*>(device_);
  for (size_t i = 0; i < kValues; ++i) values[i] = static_cast<float>(i % 256);
  options_.memory_type = TIER_FP32;
  options_.tensor_type = TIER_BF16;
  options_.check_finite = options_.sum_squares = 1;
  tier_copy_outcome outcome{};
  outcome.struct_size = sizeof outcome;
  ASSERT_TIER_OK(Out(1, kValues * sizeof(float), &outcome));
  EXPECT_EQ(outcome.non_finite_count, 0u);
  EXPECT_GT(outcome.sum_of_squares, 0.0);
  std::memset(device_, 0xff, kValues * sizeof(float));
  ASSERT_TIER_OK(In(1, kValues * sizeof(float)));
  for (size_t i = 0; i < kValues; ++i) ASSERT_EQ(values[i], static_cast<float>(i % 256)) << i;
}

TEST_P(DeviceSwapTest, LeavesNoEventsBehind) {
  Start({.windows = 12});
  ASSERT_TIER_OK(Out(1));
  const uint64_t before = trainer_.control().events();
  for (int i = 0; i < 5; ++i) {
    ASSERT_TIER_OK(Out(1));
    ASSERT_TIER_OK(In(1));
  }
  EXPECT_EQ(trainer_.control().events(), before);
}

TEST_P(DeviceSwapTest, HostMemoryWithAStreamIsAMistake) {
  Start({.windows = 12});
  std::vector<std::byte> host(100);
  tier_op* op = nullptr;
  EXPECT_TIER_ERROR(tier_swap_out(client_, 1, host.data(), host.size(), &options_, &op), TIER_INVALID,
                    "not device memory");
}

// Runs one swap in the test's own thread, without a budget.
class SingleSwapHost final : public swap::CopyHost {
 public:
  explicit SingleSwapHost(client::Session& session) : session_(session) {}

  client::Session& session() override { return session_; }
  uint64_t range_bytes() const override { return kBlockSize; }
  Result<client::Pending*> TrySubmit(const client::Submission& submission) override {
    return session_.channel().TrySubmit(submission, client::Credit::kCall, nullptr);
  }
  bool FitsBudget(uint64_t) const override { return true; }
  void Reserve(uint64_t bytes) override { reserved_ += bytes; }
  void Unreserve(uint64_t bytes) override { reserved_ -= bytes; }
  void Abandon(client::Pending*, const client::Submission&) override { FAIL() << "nothing fails in this test"; }
  uint64_t reserved() const { return reserved_; }

 private:
  client::Session& session_;
  uint64_t reserved_ = 0;
};

// What the copy threads do, step by step: the port has one buffer and one place in the caller's stream.
TEST_P(DeviceSwapTest, OneThreadAtATimeIsInTheDevicePort) {
  Start({.windows = 12});
  ASSERT_TIER_OK(Out(1));
  const swap::CopyRequest request{
      .direction = swap::Direction::kIn, .tensor = 1, .memory = device_, .size = kBytes, .stream = stream_};
  auto device = swap::DevicePort::Open(request);
  ASSERT_TRUE(device.has_value() && *device != nullptr);
  SingleSwapHost host(*client_->session);
  auto operation = std::make_unique<swap::CopyOperation>(host, request, std::move(*device));
  ASSERT_FALSE(operation->Advance());                           // Looks, and asks for the first ranges.
  daemon_->Await([&] { return daemon_->leases_open() == 4; });  // All that it has.
  auto* first = operation->Claim();
  while (first == nullptr) {  // Another thread may be draining the ring for us.
    client_->session->channel().Poll();
    ASSERT_FALSE(operation->Advance());
    first = operation->Claim();
  }
  EXPECT_EQ(operation->Claim(), nullptr) << "the others are granted, but a thread is in the port";
  while (first != nullptr) {
    const Status copied = operation->Copy(*first);
    EXPECT_TRUE(copied.has_value());
    operation->Copied(*first, copied, /*started_on_device=*/true);
    first = operation->Claim();
  }
  while (!operation->Advance()) {
    client_->session->channel().Poll();
    auto* piece = operation->Claim();
    const bool queues = piece != nullptr;
    if (!queues) piece = operation->ClaimOnDevice();
    if (piece != nullptr) operation->Copied(*piece, operation->Copy(*piece), queues);
  }
  EXPECT_TRUE(operation->outcome().has_value());
  EXPECT_EQ(host.reserved(), 0u);
}

// The last one, and once: the failure sticks to the process's context, as a real one would.
class BrokenContextTest : public DeviceSwapTest {};

TEST_P(BrokenContextTest, AFailedKernelBeforeTheSwapIsReported) {
  Start({.windows = 12});
  context_broken_ = true;
  ASSERT_EQ(trainer_.control().launch_failing(stream_), 0);
  EXPECT_NE(Out(1), TIER_OK);
  daemon_->Await([&] { return daemon_->leases_open() == 0; });
}

INSTANTIATE_TEST_SUITE_P(CopyThreads, DeviceSwapTest, ::testing::Values(1, 3));
INSTANTIATE_TEST_SUITE_P(CopyThreads, BrokenContextTest, ::testing::Values(3));

}  // namespace
}  // namespace tier::session_fake
