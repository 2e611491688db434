// NullGpu: the twin for processes that have CUDA switched off. Everything is host memory; nothing is ever loaded.
#pragma once

#include <string>

#include "libclient/cuda/gpu.h"

namespace tier::cuda {

class NullGpu final : public Gpu {
 public:
  explicit NullGpu(std::string reason) : reason_(std::move(reason)) {}
  GpuState state() const override { return GpuState::kDisabled; }
  std::string reason() const override { return reason_; }
  std::string PciAddress() override { return {}; }
  bool IsDevicePointer(const void*) override { return false; }
  Result<RegisterOutcome> RegisterWindow(void*, uint64_t) override { return RegisterOutcome::kNoContext; }
  Status UnregisterWindow(void*) override { return {}; }
  uint64_t windows_registered() const override { return 0; }
  Status CopyToDeviceAsync(std::span<const DeviceCopy>, StreamHandle) override { return Refusal(); }
  Status CopyFromDeviceAsync(std::span<const DeviceCopy>, StreamHandle) override { return Refusal(); }
  Result<StreamHandle> OwnStream(const void*) override { return Refusal(); }
  Result<Event> RecordEvent(StreamHandle, const void*) override { return Refusal(); }
  Status StreamWait(StreamHandle, const Event&) override { return Refusal(); }
  Status WaitEvent(const Event&) override { return Refusal(); }
  Result<bool> QueryEvent(const Event&) override { return Refusal(); }

 private:
  std::unexpected<Error> Refusal() const { return Fail(Code::kDenied, reason_); }
  void DestroyEvent(void*, void*) noexcept override {}

  std::string reason_;
};

}  // namespace tier::cuda
