// Gpu: everything libtier asks of the CUDA driver, behind one interface: pinning windows, telling device pointers from
// host pointers, copies queued on streams, and events that order them.
//
// The idea: the driver belongs to the trainer. The shim never brings it into a process just to look: questions about
// pointers and windows are answered through a libcuda.so.1 that the process has loaded already, and by the null twin
// when there is none. It never creates a context: a device pointer has one, and a window waits (kNoContext) for one.
// TIER_CUDA=off disables it all; TIER_CUDA_LIBRARY=<path> names another driver (the fake one, in tests).
//
// Thread-safety: every method from any thread, with any or no current context; the caller's current context is the
// same afterwards. After fork() the child's calls are refused with DENIED without touching the driver.
// Invariant: windows_registered() == successful registrations − successful unregistrations, own ones only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "proto/result.h"
#include "proto/units.h"

namespace tier::cuda {

inline constexpr uint32_t kRegisteredWindowsMax = kWindowsMax;

// A CUstream, as the caller holds it; null is the legacy default stream. The per-thread default stream (handle 2) means
// the calling thread's.
using StreamHandle = void*;

// One contiguous part of a copy between a device and this process.
struct DeviceCopy {
  void* device = nullptr;
  void* host = nullptr;
  size_t bytes = 0;
};

enum class RegisterOutcome {
  kRegistered,         // Pinned by this call; UnregisterWindow undoes it.
  kAlreadyRegistered,  // By an earlier call, or by the program itself (then UnregisterWindow leaves it alone).
  kNoContext,          // Nothing done: the process has no CUDA context yet. Call again once a device pointer is seen.
};

enum class GpuState {
  kAbsent,  // Not looked for yet, or no driver in this process so far.
  kReady,
  kDisabled,  // TIER_CUDA=off
  kFailed,    // A driver is there but could not be used; reason() says why.
};

class Event;

class Gpu {
 public:
  virtual ~Gpu() = default;
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  virtual GpuState state() const = 0;
  // One sentence for logs and errors: which driver is in use, or why none is.
  virtual std::string reason() const = 0;

  // The PCI address of the device on which this thread works, else of the first one in use: "0000:3B:00.0". Empty: the
  // process uses none. Loads and initialises nothing.
  virtual std::string PciAddress() = 0;

  // True for memory of a device, managed memory included. False for host memory, and when there is no driver.
  virtual bool IsDevicePointer(const void* pointer) = 0;

  // Pins [address, address + size_bytes) for every context (cuMemHostRegister, portable). About 0.1 s per GB.
  // INVALID if it overlaps another registered window in part; NO_MEMORY and others with the CUDA error name.
  virtual Result<RegisterOutcome> RegisterWindow(void* address, uint64_t size_bytes) = 0;
  // Undoes RegisterWindow(address, …); nothing happens if that pinned nothing. REQUIRES: copies into it have ended.
  virtual Status UnregisterWindow(void* address) = 0;
  virtual uint64_t windows_registered() const = 0;

  // Queues copies on `stream` in list order, split where `host` crosses the border of a registered window. All
  // `device` pointers belong to one context, the stream's. On failure some may be queued: wait for
  // the stream before reusing host.
  virtual Status CopyToDeviceAsync(std::span<const DeviceCopy> copies, StreamHandle stream) = 0;
  virtual Status CopyFromDeviceAsync(std::span<const DeviceCopy> copies, StreamHandle stream) = 0;

  // A non-blocking stream of the shim's own in the context of `device_pointer`, made once per context and kept.
  virtual Result<StreamHandle> OwnStream(const void* device_pointer) = 0;

  // Marks everything queued on `stream` so far. `device_pointer` names the context when `stream` is a default stream.
  virtual Result<Event> RecordEvent(StreamHandle stream, const void* device_pointer) = 0;
  // Makes work queued on `stream` from now on wait for the event, without blocking this thread.
  virtual Status StreamWait(StreamHandle stream, const Event& event) = 0;
  // Blocks this thread until the event has happened. An error of work before it shows here (launch failure).
  virtual Status WaitEvent(const Event& event) = 0;
  // True once the event has happened. Never blocks.
  virtual Result<bool> QueryEvent(const Event& event) = 0;

 protected:
  Gpu() = default;

 private:
  friend class Event;
  virtual void DestroyEvent(void* event, void* context) noexcept = 0;
};

// A point on a stream; destroyed with the object. Movable; must not outlive its Gpu.
class Event {
 public:
  Event() = default;
  Event(Gpu* gpu, void* handle, void* context) : gpu_(gpu), handle_(handle), context_(context) {}
  Event(Event&& other) noexcept
      : gpu_(std::exchange(other.gpu_, nullptr)), handle_(other.handle_), context_(other.context_) {}
  Event& operator=(Event&& other) noexcept {
    Event old(std::move(*this));
    gpu_ = std::exchange(other.gpu_, nullptr);
    handle_ = other.handle_;
    context_ = other.context_;
    return *this;
  }
  ~Event() {
    if (gpu_ != nullptr) gpu_->DestroyEvent(handle_, context_);
  }
  explicit operator bool() const { return gpu_ != nullptr; }
  void* handle() const { return handle_; }    // CUevent
  void* context() const { return context_; }  // CUcontext

 private:
  Gpu* gpu_ = nullptr;
  void* handle_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace tier::cuda
