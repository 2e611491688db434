// Copies both ways, stream order, events, and what goes wrong with them.
#include <cstring>
#include <thread>

#include "tests/unit/libclient_cuda/gpu_fixture.h"

namespace tier::cuda {
namespace {

using Copies = GpuTest;

TEST_F(Copies, DevicePointersAreToldFromHostPointers) {
  EXPECT_FALSE(gpu->IsDevicePointer(first()));
  UseRegisteredWindows();
  EXPECT_TRUE(gpu->IsDevicePointer(device));
  EXPECT_TRUE(gpu->IsDevicePointer(device + 2 * kWindow - 1));
  EXPECT_TRUE(gpu->IsDevicePointer(control().allocate(64, FAKE_ALLOC_MANAGED)));
  EXPECT_TRUE(gpu->IsDevicePointer(control().allocate(64, FAKE_ALLOC_WITHOUT_CONTEXT)));
  EXPECT_FALSE(gpu->IsDevicePointer(first()));  // Registered, and still host memory.
  EXPECT_FALSE(gpu->IsDevicePointer(this));
  EXPECT_FALSE(gpu->IsDevicePointer(nullptr));
}

TEST_F(Copies, GoToTheDeviceAndBackOnAStream) {
  UseRegisteredWindows();
  void* const stream = trainer.MakeStream();
  std::memset(first(), 7, kWindow);
  const DeviceCopy there[] = {{device, first(), kWindow}};
  ASSERT_TRUE(gpu->CopyToDeviceAsync(there, stream).has_value());
  const DeviceCopy back[] = {{device, second(), kWindow}};
  ASSERT_TRUE(gpu->CopyFromDeviceAsync(back, stream).has_value());
  EXPECT_TRUE(AllAre(second(), kWindow, 0));  // Queued, not done.
  Finish(stream);
  EXPECT_TRUE(AllAre(second(), kWindow, 7));
}

TEST_F(Copies, WaitForWorkAlreadyQueuedOnTheCallersStream) {
  UseRegisteredWindows();
  void* const callers = trainer.MakeStream();
  trainer.LaunchFill(callers, device, kWindow, 42);
  const StreamHandle own = gpu->OwnStream(device).value();
  const Event ready = gpu->RecordEvent(callers, device).value();
  ASSERT_TRUE(gpu->StreamWait(own, ready).has_value());
  const DeviceCopy copies[] = {{device, first(), kWindow}};
  ASSERT_TRUE(gpu->CopyFromDeviceAsync(copies, own).has_value());
  Finish(own);
  EXPECT_TRUE(AllAre(first(), kWindow, 42));
}

TEST_F(Copies, WithoutThatWaitWouldReadOldBytes) {  // Shows that the fake driver would catch a missing StreamWait.
  UseRegisteredWindows();
  std::memset(device, 1, kWindow);
  trainer.LaunchFill(trainer.MakeStream(), device, kWindow, 42);
  const StreamHandle own = gpu->OwnStream(device).value();
  const DeviceCopy copies[] = {{device, first(), kWindow}};
  ASSERT_TRUE(gpu->CopyFromDeviceAsync(copies, own).has_value());
  Finish(own);
  EXPECT_TRUE(AllAre(first(), kWindow, 1));
}

TEST_F(Copies, AreSplitWhereTwoWindowsMeet) {
  UseRegisteredWindows();
  std::memset(device, 9, 2 * kWindow);
  const DeviceCopy copies[] = {{device, first() + 100, 2 * kWindow - 100}};
  ASSERT_TRUE(gpu->CopyFromDeviceAsync(copies, nullptr).has_value());
  Finish(nullptr);
  EXPECT_EQ(control().calls("cuMemcpyDtoHAsync"), 2u);
  EXPECT_TRUE(AllAre(first(), 100, 0));
  EXPECT_TRUE(AllAre(first() + 100, 2 * kWindow - 100, 9));
}

TEST_F(Copies, AreSplitWhereAWindowBeginsBehindPageableMemory) {
  trainer.UseDevice();
  device = static_cast<std::byte*>(trainer.Allocate(2 * kWindow));
  ASSERT_TRUE(gpu->RegisterWindow(second(), kWindow).has_value());
  std::memset(window.data(), 3, window.size());
  const DeviceCopy copies[] = {{device, first(), 2 * kWindow}};
  ASSERT_TRUE(gpu->CopyToDeviceAsync(copies, nullptr).has_value());
  Finish(nullptr);
  EXPECT_EQ(control().calls("cuMemcpyHtoDAsync"), 2u);
  EXPECT_TRUE(AllAre(device, 2 * kWindow, 3));
}

TEST_F(Copies, OfAListGoInItsOrder) {
  UseRegisteredWindows();
  std::memset(first(), 1, kWindow);
  std::memset(second(), 2, kWindow);
  const DeviceCopy copies[] = {
      {device, first(), 64}, {device + 64, second(), 64}, {device, second(), 0}, {device, second(), 32}};
  ASSERT_TRUE(gpu->CopyToDeviceAsync(copies, nullptr).has_value());
  Finish(nullptr);
  EXPECT_TRUE(AllAre(device, 32, 2));
  EXPECT_TRUE(AllAre(device + 32, 32, 1));
  EXPECT_TRUE(AllAre(device + 64, 64, 2));
}

TEST_F(Copies, OfNothingAreNothing) {
  trainer.UseDevice();
  EXPECT_TRUE(gpu->CopyToDeviceAsync({}, nullptr).has_value());
  EXPECT_EQ(control().calls("cuMemcpyHtoDAsync"), 0u);
}

TEST_F(Copies, WithANullPointerAreRefusedBeforeAnyIsQueued) {
  UseRegisteredWindows();
  const DeviceCopy copies[] = {{device, first(), 64}, {nullptr, first(), 1}};
  EXPECT_EQ(gpu->CopyFromDeviceAsync(copies, nullptr).error().code, Code::kInvalid);
  EXPECT_EQ(control().calls("cuMemcpyDtoHAsync"), 0u);
}

TEST_F(Copies, RunFromAThreadThatHasNoContext) {
  UseRegisteredWindows();
  std::memset(device, 5, kWindow);
  std::thread([&] {
    const DeviceCopy copies[] = {{device, first(), kWindow}};
    const StreamHandle own = gpu->OwnStream(device).value();
    ASSERT_TRUE(gpu->CopyFromDeviceAsync(copies, own).has_value());
    Finish(own);
    EXPECT_EQ(trainer.Current(), nullptr);
  }).join();
  EXPECT_TRUE(AllAre(first(), kWindow, 5));
}

TEST_F(Copies, OfMemoryWithoutAContextUseThePrimaryOneOfItsDevice) {
  void* const context = trainer.UseDevice();
  device = static_cast<std::byte*>(control().allocate(kWindow, FAKE_ALLOC_WITHOUT_CONTEXT));
  const StreamHandle own = gpu->OwnStream(device).value();
  void* of_stream = nullptr;
  ASSERT_EQ(trainer.Call("cuStreamGetCtx", own, &of_stream), 0);
  EXPECT_EQ(of_stream, context);
  EXPECT_EQ(gpu->OwnStream(device).value(), own);
  EXPECT_EQ(control().streams(), 1u);
}

TEST_F(Copies, ToMemoryThatIsNotOfADeviceNameTheError) {
  trainer.UseDevice();
  const DeviceCopy copies[] = {{first(), second(), 64}};
  const Status failed = gpu->CopyToDeviceAsync(copies, nullptr);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Code::kInvalid);
  EXPECT_NE(failed.error().message.find("CUDA_ERROR_INVALID_VALUE"), std::string::npos) << failed.error().message;
}

TEST_F(Copies, ThatFailMidwayNameTheErrorAndThePart) {
  UseRegisteredWindows();
  control().fail("cuMemcpyDtoHAsync", kDriverInvalidValue, 1, 1);
  const DeviceCopy copies[] = {{device, first(), kWindow + 4096}};
  const Status failed = gpu->CopyFromDeviceAsync(copies, nullptr);
  ASSERT_FALSE(failed.has_value());
  EXPECT_NE(failed.error().message.find("CUDA_ERROR_INVALID_VALUE from cuMemcpyDtoHAsync of 4096 bytes"),
            std::string::npos)
      << failed.error().message;
  Finish(nullptr);  // The first part was queued.
}

TEST_F(Copies, BehindAFailedKernelReportTheLaunchFailureWhenWaitedFor) {
  UseRegisteredWindows();
  void* const stream = trainer.MakeStream();
  ASSERT_EQ(control().launch_failing(stream), 0);
  const DeviceCopy copies[] = {{device, first(), kWindow}};
  ASSERT_TRUE(gpu->CopyFromDeviceAsync(copies, stream).has_value());
  const Event event = gpu->RecordEvent(stream, device).value();
  const Status failed = gpu->WaitEvent(event);
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Code::kIoError);
  EXPECT_NE(failed.error().message.find("CUDA_ERROR_LAUNCH_FAILED"), std::string::npos) << failed.error().message;
  EXPECT_FALSE(gpu->QueryEvent(event).has_value());
  EXPECT_EQ(gpu->CopyFromDeviceAsync(copies, stream).error().code, Code::kIoError);
}

TEST_F(Copies, EventsAreNotReadyUntilTheStreamGetsThere) {
  UseRegisteredWindows();
  const DeviceCopy copies[] = {{device, first(), kWindow}};
  ASSERT_TRUE(gpu->CopyFromDeviceAsync(copies, nullptr).has_value());
  const Event event = gpu->RecordEvent(nullptr, device).value();
  control().hold(1);
  EXPECT_FALSE(gpu->QueryEvent(event).value());
  control().hold(0);
  EXPECT_TRUE(gpu->QueryEvent(event).value());
}

TEST_F(Copies, EventsAreDestroyedWithTheirObjectsHoweverMoved) {
  UseRegisteredWindows();
  {
    Event kept;
    EXPECT_FALSE(static_cast<bool>(kept));
    Event event = gpu->RecordEvent(nullptr, device).value();
    kept = std::move(event);
    kept = gpu->RecordEvent(nullptr, device).value();
    EXPECT_EQ(control().events(), 1u);
    const Event moved = std::move(kept);
    EXPECT_TRUE(static_cast<bool>(moved));
    EXPECT_EQ(control().events(), 1u);
  }
  EXPECT_EQ(control().events(), 0u);
}

TEST_F(Copies, AFailedRecordLeavesNoEvent) {
  UseRegisteredWindows();
  control().fail("cuEventRecord", kLaunchFailed, 0, 1);
  EXPECT_EQ(gpu->RecordEvent(nullptr, device).error().code, Code::kIoError);
  EXPECT_EQ(control().events(), 0u);
}

TEST_F(Copies, OwnStreamsEndWithTheShim) {
  UseRegisteredWindows();
  ASSERT_TRUE(gpu->OwnStream(device).has_value());
  EXPECT_EQ(control().streams(), 1u);
  gpu.reset();
  EXPECT_EQ(control().streams(), 0u);
}

TEST_F(Copies, OnStreamsOfTwoDevicesStayApart) {
  control().reset(2);
  trainer.UseDevice(0);
  std::byte* const on_first = static_cast<std::byte*>(trainer.Allocate(64));
  void* const context = trainer.UseDevice(1);
  std::byte* const on_second = static_cast<std::byte*>(trainer.Allocate(64));
  ASSERT_TRUE(gpu->RegisterWindow(first(), kWindow).has_value());
  std::memset(first(), 8, 128);
  const StreamHandle streams[] = {gpu->OwnStream(on_first).value(), gpu->OwnStream(on_second).value()};
  EXPECT_NE(streams[0], streams[1]);
  const DeviceCopy to_first[] = {{on_first, first(), 64}};
  const DeviceCopy to_second[] = {{on_second, first() + 64, 64}};
  ASSERT_TRUE(gpu->CopyToDeviceAsync(to_first, streams[0]).has_value());
  ASSERT_TRUE(gpu->CopyToDeviceAsync(to_second, streams[1]).has_value());
  device = on_first;
  Finish(streams[0]);
  device = on_second;
  Finish(streams[1]);
  EXPECT_TRUE(AllAre(on_first, 64, 8) && AllAre(on_second, 64, 8));
  EXPECT_EQ(trainer.Current(), context);
}

}  // namespace
}  // namespace tier::cuda
