// Pinning windows and undoing it.
#include <thread>

#include "tests/unit/libclient_cuda/gpu_fixture.h"

namespace tier::cuda {
namespace {

using Registration = GpuTest;

TEST_F(Registration, WaitsForAContextAndMakesNone) {
  EXPECT_EQ(gpu->RegisterWindow(first(), kWindow).value(), RegisterOutcome::kNoContext);
  ASSERT_EQ(trainer.Call("cuInit", 0u), 0);
  EXPECT_EQ(gpu->RegisterWindow(first(), kWindow).value(), RegisterOutcome::kNoContext);
  EXPECT_EQ(control().primary_retains(0), 0);
  EXPECT_EQ(control().registrations(), 0u);
  EXPECT_EQ(gpu->windows_registered(), 0u);
}

TEST_F(Registration, TheDevicesAddressIsThatOfTheContextInUse) {
  EXPECT_EQ(gpu->PciAddress(), "") << "no context, and none is made";
  trainer.UseDevice();
  EXPECT_EQ(gpu->PciAddress(), "0000:3A:00.0");
  std::string elsewhere;
  std::thread([&] { elsewhere = gpu->PciAddress(); }).join();
  EXPECT_EQ(elsewhere, "0000:3A:00.0") << "that of the device in use, where the thread has no context";
}

TEST_F(Registration, IsPortableAndCounted) {
  trainer.UseDevice();
  EXPECT_EQ(gpu->RegisterWindow(first(), kWindow).value(), RegisterOutcome::kRegistered);
  EXPECT_EQ(control().registered_flags(first()), 1u);
  EXPECT_EQ(gpu->windows_registered(), 1u);
}

TEST_F(Registration, IsUndoneOnceAndOnlyOnce) {
  trainer.UseDevice();
  ASSERT_TRUE(gpu->RegisterWindow(first(), kWindow).has_value());
  EXPECT_TRUE(gpu->UnregisterWindow(first()).has_value());
  EXPECT_EQ(control().registrations(), 0u);
  EXPECT_EQ(gpu->windows_registered(), 0u);
  EXPECT_TRUE(gpu->UnregisterWindow(first()).has_value());
  EXPECT_EQ(control().calls("cuMemHostUnregister"), 1u);
}

TEST_F(Registration, CanBeMadeAgainAfterItWasUndone) {
  trainer.UseDevice();
  ASSERT_TRUE(gpu->RegisterWindow(first(), kWindow).has_value());
  ASSERT_TRUE(gpu->UnregisterWindow(first()).has_value());
  EXPECT_EQ(gpu->RegisterWindow(first(), 2 * kWindow).value(), RegisterOutcome::kRegistered);
}

TEST_F(Registration, OfTheSameWindowTwiceAsksTheDriverOnce) {
  trainer.UseDevice();
  ASSERT_TRUE(gpu->RegisterWindow(first(), kWindow).has_value());
  EXPECT_EQ(gpu->RegisterWindow(first(), kWindow).value(), RegisterOutcome::kAlreadyRegistered);
  EXPECT_EQ(control().calls("cuMemHostRegister"), 1u);
}

TEST_F(Registration, OfMemoryTheProgramRegisteredItselfIsLeftToTheProgram) {
  trainer.UseDevice();
  ASSERT_EQ(trainer.Call("cuMemHostRegister", static_cast<void*>(first()), kWindow, 0u), 0);
  EXPECT_EQ(gpu->RegisterWindow(first(), kWindow).value(), RegisterOutcome::kAlreadyRegistered);
  EXPECT_EQ(gpu->windows_registered(), 0u);
  EXPECT_TRUE(gpu->UnregisterWindow(first()).has_value());
  EXPECT_EQ(control().registrations(), 1u);
}

TEST_F(Registration, OfOverlappingWindowsIsRefused) {
  trainer.UseDevice();
  ASSERT_TRUE(gpu->RegisterWindow(first(), kWindow).has_value());
  for (const auto& [start, size] : {std::pair(first(), 2 * kWindow), std::pair(first() + 4096, kWindow)}) {
    const auto overlapping = gpu->RegisterWindow(start, size);
    ASSERT_FALSE(overlapping.has_value());
    EXPECT_EQ(overlapping.error().code, Code::kInvalid);
  }
  EXPECT_EQ(gpu->RegisterWindow(second(), kWindow).value(), RegisterOutcome::kRegistered);
}

TEST_F(Registration, OfNothingIsRefused) {
  trainer.UseDevice();
  EXPECT_EQ(gpu->RegisterWindow(first(), 0).error().code, Code::kInvalid);
  EXPECT_EQ(gpu->RegisterWindow(nullptr, kWindow).error().code, Code::kInvalid);
  EXPECT_EQ(gpu->RegisterWindow(first(), UINT64_MAX).error().code, Code::kInvalid);
}

TEST_F(Registration, FailureNamesTheCudaErrorAndLeavesNothing) {
  trainer.UseDevice();
  control().fail("cuMemHostRegister", kOutOfMemory, 0, 1);
  const auto failed = gpu->RegisterWindow(first(), kWindow);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Code::kNoMemory);
  EXPECT_NE(failed.error().message.find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << failed.error().message;
  EXPECT_NE(failed.error().message.find("65536 bytes"), std::string::npos) << failed.error().message;
  EXPECT_EQ(gpu->windows_registered(), 0u);
  EXPECT_EQ(gpu->RegisterWindow(first(), kWindow).value(), RegisterOutcome::kRegistered);
}

TEST_F(Registration, ThatCannotBeUndoneStaysInTheBooks) {
  trainer.UseDevice();
  ASSERT_TRUE(gpu->RegisterWindow(first(), kWindow).has_value());
  control().fail("cuMemHostUnregister", kLaunchFailed, 0, 1);
  const Status failed = gpu->UnregisterWindow(first());
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Code::kIoError);
  EXPECT_EQ(gpu->windows_registered(), 1u);
  EXPECT_TRUE(gpu->UnregisterWindow(first()).has_value());
  EXPECT_EQ(gpu->windows_registered(), 0u);
}

TEST_F(Registration, EndsQuietlyWithAContextThatTheProgramDestroyed) {
  void* context = nullptr;
  ASSERT_EQ(trainer.Call("cuInit", 0u), 0);
  ASSERT_EQ(trainer.Call("cuCtxCreate", &context, 0u, 0), 0);
  ASSERT_EQ(gpu->RegisterWindow(first(), kWindow).value(), RegisterOutcome::kRegistered);
  EXPECT_EQ(control().primary_retains(0), 0);  // Not a primary context: nothing of ours to hold.
  ASSERT_EQ(trainer.Call("cuCtxDestroy", context), 0);
  EXPECT_TRUE(gpu->UnregisterWindow(first()).has_value());
  EXPECT_EQ(gpu->windows_registered(), 0u);
}

TEST_F(Registration, HoldsThePrimaryContextOnceAndLetsItGo) {
  trainer.UseDevice();
  ASSERT_TRUE(gpu->RegisterWindow(first(), kWindow).has_value());
  ASSERT_TRUE(gpu->RegisterWindow(second(), kWindow).has_value());
  EXPECT_EQ(control().primary_retains(0), 2);  // The trainer's and ours.
  gpu.reset();
  EXPECT_EQ(control().primary_retains(0), 1);
  EXPECT_EQ(control().registrations(), 0u);
}

TEST_F(Registration, WorksFromAThreadWithoutAContextAndLeavesItSo) {
  void* const context = trainer.UseDevice();
  std::thread([&] {
    EXPECT_EQ(gpu->RegisterWindow(first(), kWindow).value(), RegisterOutcome::kRegistered);
    EXPECT_EQ(trainer.Current(), nullptr);
    EXPECT_TRUE(gpu->UnregisterWindow(first()).has_value());
    EXPECT_EQ(trainer.Current(), nullptr);
  }).join();
  EXPECT_EQ(trainer.Current(), context);
}

TEST_F(Registration, FindsTheContextOfTheSecondDeviceWhenOnlyThatIsInUse) {
  control().reset(3);
  trainer.UseDevice(1);
  std::thread([&] { EXPECT_TRUE(gpu->RegisterWindow(first(), kWindow).has_value()); }).join();
  EXPECT_EQ(control().primary_retains(0), 0);
  EXPECT_EQ(control().primary_retains(1), 2);
  EXPECT_EQ(control().primary_retains(2), 0);
}

TEST_F(Registration, FromManyThreadsRegistersEachWindowOnce) {
  trainer.UseDevice();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (size_t at = 0; at < 16; ++at) {
        std::byte* const start = first() + ((at + static_cast<size_t>(i)) % 16) * 8192;
        EXPECT_TRUE(gpu->RegisterWindow(start, 8192).has_value());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(gpu->windows_registered(), 16u);
  EXPECT_EQ(control().calls("cuMemHostRegister"), 16u);
}

}  // namespace
}  // namespace tier::cuda
