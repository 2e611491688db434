// DeviceIo: raw positioned direct I/O on one device, with completions. Knows nothing of checksums, retries or extents:
// it hands back what the kernel said. Backends: UringIo, ThreadPoolIo, and the tests' FakeDevice; one conformance suite
// runs over each.
//
// One thread, the device's (io_thread.h). A started request ends in exactly one completion. Nothing is allocated after
// construction, except by AddWindow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/storage/transfer.h"
#include "proto/result.h"
#include "proto/units.h"

namespace tier::storage {

inline constexpr uint32_t kIoDepthMax = 256;     // Requests on one device at a time …
inline constexpr uint32_t kIoDepthDefault = 64;  // … unless ssd.queue_depth is configured.
inline constexpr uint16_t kDevicesMax = 16;      // Devices of one daemon.
inline constexpr WindowIndex kNoWindow{UINT32_MAX};

struct IoRequest {
  uint64_t token = 0;  // Comes back in the completion. Below 2^32.
  Direction direction = Direction::kRead;
  WindowIndex window{};         // Announced by AddWindow; `memory` lies in it. kNoWindow: it lies in none.
  std::byte* memory = nullptr;  // Aligned as the device asks; `length` bytes.
  uint64_t offset = 0;          // Bytes from the start of the device.
  uint32_t length = 0;          // Bytes, > 0.
  bool unregistered = false;    // Through the mapping, even if the window is registered.
};

struct IoCompletion {
  uint64_t token = 0;
  int32_t result = 0;  // Bytes moved (fewer than asked: the caller continues; 0: end of the file), or -errno.
};

class DeviceIo {
 public:
  virtual ~DeviceIo() = default;
  // Registers a window's memory where rights allow and `pin` asks for it; else its I/O goes through the mapping. A
  // refused one is tried again whenever another window has gone.
  virtual void AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin = Pin::kTry) = 0;
  // As TransferPort's. REQUIRES: no request in flight on it.
  virtual void RemoveWindow(WindowIndex window) = 0;
  virtual void TakeRemoved(std::vector<WindowIndex>* windows) = 0;
  virtual bool registered(WindowIndex window) const = 0;
  // Why some window is not registered; empty while each is that was to be.
  virtual const std::string& unpinned_reason() const = 0;
  virtual void Start(const IoRequest& request) = 0;  // REQUIRES: fewer than inflight_max() in flight.
  virtual void Submit() = 0;                         // Hands all started requests to the kernel or the threads.
  virtual void Poll(std::vector<IoCompletion>* completions) = 0;  // Appends; never blocks.
  // Returns when Poll or TakeRemoved may have something, or when the signal given at construction was rung since the
  // last Poll. May return without a reason.
  virtual void Wait() = 0;
  virtual uint32_t inflight_max() const = 0;
};

}  // namespace tier::storage
