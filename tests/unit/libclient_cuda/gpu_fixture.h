// A trainer on the fake driver beside the shim under test.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "libclient/cuda/process_gpu.h"
#include "tests/support/cuda/trainer.h"

namespace tier::cuda {

// Codes of the driver that tests script.
inline constexpr int kOutOfMemory = 2;
inline constexpr int kDriverInvalidValue = 1;
inline constexpr int kLaunchFailed = 719;

class GpuTest : public testing::Test {
 protected:
  static constexpr size_t kWindow = 1 << 16;

  GpuTest() : trainer(FAKE_LIBCUDA), gpu(MakeGpu({true, FAKE_LIBCUDA})), window(2 * kWindow) {}

  const fake_cuda_control_table& control() const { return trainer.control(); }
  std::byte* first() { return window.data(); }
  std::byte* second() { return window.data() + kWindow; }
  // A context, two adjacent registered windows, and as much device memory as both.
  void UseRegisteredWindows() {
    trainer.UseDevice();
    ASSERT_EQ(gpu->RegisterWindow(first(), kWindow).value(), RegisterOutcome::kRegistered);
    ASSERT_EQ(gpu->RegisterWindow(second(), kWindow).value(), RegisterOutcome::kRegistered);
    device = static_cast<std::byte*>(trainer.Allocate(2 * kWindow));
  }
  // Waits for everything queued on `stream` so far.
  void Finish(StreamHandle stream) {
    const Result<Event> event = gpu->RecordEvent(stream, device);
    ASSERT_TRUE(event.has_value()) << event.error().message;
    const Status done = gpu->WaitEvent(*event);
    ASSERT_TRUE(done.has_value()) << done.error().message;
  }
  static bool AllAre(const std::byte* bytes, size_t count, int value) {
    for (size_t i = 0; i < count; ++i) {
      if (bytes[i] != static_cast<std::byte>(value)) return false;
    }
    return true;
  }

  Trainer trainer;
  std::unique_ptr<Gpu> gpu;  // Goes before the trainer resets the driver.
  std::vector<std::byte> window;
  std::byte* device = nullptr;
};

}  // namespace tier::cuda
