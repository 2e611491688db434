// DriverGpu: Gpu over the CUDA driver of this process, found lazily.
//
// Lazily: IsDevicePointer and RegisterWindow only use a driver that the process has loaded itself (or the one named in
// the options); what needs device memory loads it, and fails with the reason when it cannot.
//
// Thread-safe. `load_mutex_` orders loading, `registration_mutex_` registrations (the driver serialises them anyway);
// neither is held while waiting for the device.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>

#include "libclient/cuda/context_set.h"
#include "libclient/cuda/driver.h"
#include "libclient/cuda/gpu.h"
#include "libclient/cuda/window_registry.h"
#include "proto/mutex.h"

namespace tier::cuda {

class DriverGpu final : public Gpu {
 public:
  // `library` empty: libcuda.so.1, and only if the process has loaded it.
  explicit DriverGpu(std::string library);
  ~DriverGpu() override;

  GpuState state() const override;
  std::string reason() const override;
  std::string PciAddress() override;
  bool IsDevicePointer(const void* pointer) override;
  Result<RegisterOutcome> RegisterWindow(void* address, uint64_t size_bytes) override;
  Status UnregisterWindow(void* address) override;
  uint64_t windows_registered() const override { return windows_.own_count(); }
  Status CopyToDeviceAsync(std::span<const DeviceCopy> copies, StreamHandle stream) override;
  Status CopyFromDeviceAsync(std::span<const DeviceCopy> copies, StreamHandle stream) override;
  Result<StreamHandle> OwnStream(const void* device_pointer) override;
  Result<Event> RecordEvent(StreamHandle stream, const void* device_pointer) override;
  Status StreamWait(StreamHandle stream, const Event& event) override;
  Status WaitEvent(const Event& event) override;
  Result<bool> QueryEvent(const Event& event) override;

 private:
  enum class Direction { kToDevice, kFromDevice };
  struct Session {  // Everything that exists once a driver is in use; never replaced.
    explicit Session(std::unique_ptr<Driver> opened) : driver(std::move(opened)), contexts(*driver) {}
    std::unique_ptr<Driver> driver;
    ContextSet contexts;
  };

  void DestroyEvent(void* event, void* context) noexcept override;
  bool Forked() const;
  // Null: no driver in this process so far. Never calls cuInit.
  Session* SessionIfPresent();
  // Loads and initialises the driver if need be: for calls that were given device memory.
  Result<Session*> SessionForDevice();
  Status Open(OpenHow how) TIER_REQUIRES(load_mutex_);
  Result<RegisterOutcome> RegisterIn(Session& session, void* address, uint64_t size_bytes)
      TIER_REQUIRES(registration_mutex_);
  Status Copy(Direction direction, std::span<const DeviceCopy> copies, StreamHandle stream);
  Status CopyParts(Session& session, Direction direction, const DeviceCopy& copy, StreamHandle stream);

  const std::string library_;
  const bool only_if_loaded_;
  const pid_t process_;
  mutable Mutex load_mutex_;
  std::atomic<Session*> session_{nullptr};                 // Owned; published once.
  std::atomic<uint64_t> looked_at_{0};                     // LibrariesLoaded() when the process last had no driver.
  bool initialised_ TIER_GUARDED_BY(load_mutex_) = false;  // cuInit has been called by the shim.
  std::string failure_ TIER_GUARDED_BY(load_mutex_);       // Why there is no driver, once that is final.
  Mutex registration_mutex_;
  WindowRegistry windows_;
};

}  // namespace tier::cuda
