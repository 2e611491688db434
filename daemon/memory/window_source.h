// WindowSource: where the engine gets windows from. The real one (memory::Arena) makes memfds, prefaults and binds them
// on worker threads; the simulator's gives plain buffers at scripted times.
//
// Engine thread only. A window belongs to one owner from StartCreate to Retire and is zeroed memory when it arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/result.h"
#include "proto/units.h"

namespace tier::memory {

enum class OwnerId : uint32_t {};

struct WindowEvent {
  WindowIndex window{};
  OwnerId owner{};
  Code code = Code::kOk;         // Not kOk: the window could not be made and its index is free again.
  std::string message;           // With code != kOk.
  std::byte* address = nullptr;  // In the daemon, window_size bytes.
  uint32_t page_size = 0;        // 4096, or 2 MiB (whole blocks only).
};

class WindowSource {
 public:
  virtual ~WindowSource() = default;
  virtual uint64_t window_size() const = 0;        // Bytes; constant for the daemon's life; a multiple of kBlockSize.
  virtual uint32_t windows_max() const = 0;        // Indices are below this.
  virtual uint64_t arena_limit_bytes() const = 0;  // What all windows together may ever reach; constant.
  virtual uint64_t arena_max_bytes() const = 0;  // What all windows together may reach now (falls under host pressure).
  virtual uint64_t arena_bytes() const = 0;      // Windows made or being made × window_size.
  // Starts making a window; the event comes by Poll. NO_MEMORY with figures at the arena's maximum or host reserve.
  virtual Result<WindowIndex> StartCreate(OwnerId owner) = 0;
  // Closes a window. REQUIRES: ready, no I/O in flight on it, unregistered from every device.
  virtual void Retire(WindowIndex window) = 0;
  // Appends what has finished since the last call; never blocks.
  virtual void Poll(std::vector<WindowEvent>* events) = 0;
  // The memfd to hand to clients; stays owned by the source. -1 in simulations.
  virtual int Descriptor(WindowIndex window) const = 0;
};

}  // namespace tier::memory
