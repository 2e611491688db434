// WindowMap: the daemon's windows in this process, each at base + its place of one reserved address range.
//
// The idea: the daemon chooses places in one address space for all clients, so windows that lie side by side there are
// one contiguous range here, and a span is an address. Addresses without a window are PROT_NONE. The whole range is
// MADV_DONTFORK: a child never sees a window. A window's packet is checked before the window is mapped: no window
// covers another, or reaches beyond the range. Threads: any; the service thread maps and unmaps. Invariants: a window
// with leases > 0 is never unmapped;
//   mapped_count() == windows in state kMapped, mapped_bytes() == their bytes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "proto/handshake.h"
#include "proto/message.h"
#include "proto/mutex.h"
#include "proto/result.h"
#include "proto/units.h"

namespace tier::client {

class WindowMap {
 public:
  // Reserves the address space of all windows. NO_MEMORY when the process may not have that much.
  // REQUIRES: address_space_size is a multiple of kBlockSize, at most kAddressSpaceMax.
  static Result<std::unique_ptr<WindowMap>> Reserve(uint32_t windows_max, uint64_t address_space_size);
  ~WindowMap();
  WindowMap(const WindowMap&) = delete;
  WindowMap& operator=(const WindowMap&) = delete;

  // Maps a window that the daemon sent; `fd` may be closed afterwards. INVALID, naming the field, when the packet makes
  // no sense beside the windows that are mapped or the file is smaller than it says.
  Status Map(const proto::WindowPacket& packet, int fd);
  // Puts the reservation back in the window's place. INVALID when the window is not mapped or leases lie in it.
  Status Unmap(uint32_t window);
  // Unmaps all windows, for the end of a session.
  void UnmapAll();

  // Is this span inside a mapped window? Waits so long for a window whose descriptor is still on its way.
  bool Await(const proto::SpanRecord& span, std::chrono::milliseconds timeout);
  // REQUIRES: the window is mapped.
  std::byte* AddressOf(uint32_t window, uint64_t offset) const {
    return base_ + windows_[window].place.load(std::memory_order_relaxed) + offset;
  }

  void AddLease(uint32_t window) { windows_[window].leases.fetch_add(1, std::memory_order_relaxed); }
  void DropLease(uint32_t window) { windows_[window].leases.fetch_sub(1, std::memory_order_relaxed); }

  uint64_t address_space_size() const { return address_space_size_; }
  uint64_t size(uint32_t window) const { return windows_[window].size.load(std::memory_order_relaxed); }  // Bytes.
  uint32_t page_size(uint32_t window) const { return windows_[window].page_size.load(std::memory_order_relaxed); }
  uint64_t mapped_count() const { return mapped_count_.load(std::memory_order_relaxed); }
  uint64_t mapped_bytes() const { return mapped_bytes_.load(std::memory_order_relaxed); }
  // Ends all waits: no window will be mapped any more.
  void Stop();

 private:
  struct Window {
    std::atomic<bool> mapped{false};  // Stored last, with release order: the fields below are the window's then.
    std::atomic<uint32_t> page_size{0};
    std::atomic<uint32_t> leases{0};
    std::atomic<uint64_t> size{0};
    std::atomic<uint64_t> place{0};
  };
  struct Reservation {
    std::byte* start;
    uint64_t size;
  };

  WindowMap(Reservation reservation, std::byte* base, uint32_t windows_max, uint64_t address_space_size);
  Status Check(const proto::WindowPacket& packet, int fd) const;
  Status MapAt(const proto::WindowPacket& packet, int fd);
  bool PutBack(uint64_t place, uint64_t size);

  const Reservation reservation_;
  std::byte* const base_;
  const uint32_t windows_max_;
  const uint64_t address_space_size_;
  std::unique_ptr<Window[]> windows_;
  std::map<uint64_t, uint64_t> places_;  // Of mapped windows: place to size. Service thread only.
  std::atomic<uint64_t> mapped_count_{0};
  std::atomic<uint64_t> mapped_bytes_{0};
  Mutex arrival_mutex_;  // Held while `mapped` of a window or stopped_ turns true, so that no waiter misses it.
  CondVar arrival_;
  std::atomic<bool> stopped_{false};
};

}  // namespace tier::client
