// TransferPort: moves one piece between window memory and an extent, checksummed. What lies behind it (workers that
// compute CRC32C, io_uring or the thread pool, retries, continuation of short transfers, merging of neighbours into
// larger requests) is storage's affair; the engine sees one start and one result for each piece.
//
// Engine thread only. A started transfer always ends in exactly one result. Its memory and extent stay untouched by the
// engine until then.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "daemon/storage/extent.h"
#include "proto/codes.h"
#include "proto/units.h"

namespace tier::storage {

enum class Direction : uint8_t { kWrite, kRead };
// What a transfer is for, the most urgent first.
enum class Purpose : uint8_t {
  kDemand,      // A request waits for it.
  kAhead,       // None does: a prefetch, write-behind, or what empties a window for another job or the host.
  kBackground,  // The daemon moves the piece of its own accord.
};
inline constexpr size_t kPurposes = 3;

// A part of a piece in RAM: whole pages of one window.
struct MemoryRun {
  WindowIndex window{};         // Which registered buffer it lies in.
  std::byte* memory = nullptr;  // Page-aligned.
  uint32_t length = 0;          // Bytes.
};

struct Transfer {
  uint64_t cookie = 0;  // Comes back in the result.
  Direction direction = Direction::kWrite;
  Purpose purpose = Purpose::kDemand;
  Extent extent;
  std::span<const base::PageRun> runs;  // Of a scattered extent; they outlive the transfer. Else empty.
  WindowIndex window{};                 // Which registered buffer `memory` lies in.
  std::byte* memory = nullptr;          // Page-aligned, extent.run.size_bytes() long.
  // Where the piece lies in several runs of RAM: these, in the order of its bytes; they outlive the transfer. Else
  // empty. The first of them begins at `memory` in `window`.
  std::span<const MemoryRun> memory_runs;
  uint32_t length = 0;  // Bytes of content (the checksum covers these); I/O is rounded up to whole pages.
  uint32_t crc = 0;     // Read: CRC32C that the content must have.
};

enum class TransferOutcome : uint8_t {
  kDone,
  kDeviceError,  // The device failed, after one retry. `error_number` says how.
  kNoSpace,      // ENOSPC/EDQUOT from the file system beneath.
  kCorrupt,      // Checksum mismatch on two reads: charged to the tensor.
  // The memory could not be touched, or its registration leads to pages that are no longer the window's (a client
  // punched it): the owner's sessions end. The extent is as good as before.
  kWindowFault,
};

struct TransferResult {
  uint64_t cookie = 0;
  TransferOutcome outcome = TransferOutcome::kDone;
  uint32_t crc = 0;            // Of the content, when kDone (write) or as found (kCorrupt).
  int error_number = 0;        // errno, with kDeviceError and kNoSpace.
  uint64_t device_offset = 0;  // Bytes from the start of the device, for messages: where it failed, or began.
  uint32_t failed_at = 0;      // Bytes of the content before the error, with kDeviceError and kNoSpace.
};

inline std::span<const base::PageRun> RunsOf(const Transfer& transfer) {
  return transfer.runs.empty() ? std::span(&transfer.extent.run, 1) : transfer.runs;
}

// What a transfer moves: its content, rounded up to whole pages.
constexpr uint32_t IoBytes(const Transfer& transfer) {
  return static_cast<uint32_t>(PagesFor(transfer.length) * kPageSize);
}

// Calls visit(window, bytes) for each run of the memory, up to byte `length` of the piece.
template <typename Visit>
void ForEachMemoryRun(const Transfer& transfer, uint32_t length, Visit visit) {
  if (transfer.memory_runs.empty()) return visit(transfer.window, std::span(transfer.memory, length));
  uint32_t left = length;
  for (const MemoryRun& run : transfer.memory_runs) {
    const uint32_t here = std::min(run.length, left);
    if (here != 0) visit(run.window, std::span(run.memory, here));
    left -= here;
  }
}

struct ProbeResult {
  uint16_t device = 0;
  int error_number = 0;  // 0: the device read what it was asked for. EAGAIN: the system was short of something.
};

struct DeviceTraffic {  // Since start. Words of one size, without padding (IoThread publishes them one by one).
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;
  uint64_t read_requests = 0;
  uint64_t write_requests = 0;
  uint64_t errors = 0;         // Transfers that the device or the file system failed, after retries …
  uint64_t corrupt = 0;        // … whose content came back wrong twice …
  uint64_t window_faults = 0;  // … and whose memory could not be touched: the client's doing, not the device's.
  uint64_t retries = 0;
  uint64_t inflight = 0;
};

// Whether a window's memory is to be registered with io_uring, which pins it.
enum class Pin : uint8_t {
  kTry,  // Where rights allow. One that is refused is tried again later, and those that come after it wait for it.
  kNo,
};

struct LatencyByPurpose;  // device_latency.h

class TransferPort {
 public:
  virtual ~TransferPort() = default;
  // Announces a window's memory.
  virtual void AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin = Pin::kTry) = 0;
  // The window's memory is to be given up. It stays in use, and its index taken, until TakeRemoved names it: the kernel
  // may hold its pages for a while. REQUIRES: no transfer in flight on it.
  virtual void RemoveWindow(WindowIndex window) = 0;
  // Appends the windows whose memory has been given up since the last call.
  virtual void TakeRemoved(std::vector<WindowIndex>* windows) = 0;
  virtual void Start(const Transfer& transfer) = 0;
  // Hands everything started since the last call to workers and devices: called at most once in an engine turn, as its
  // last step.
  virtual void Submit() = 0;
  // Appends finished transfers; never blocks.
  virtual void Poll(std::vector<TransferResult>* results) = 0;
  // Asks whether the device answers at all: one page of it is read, at another place if the first cannot be. It waits
  // for none of the transfers that are queued (without io_uring, for those that are at the device's threads). REQUIRES:
  // the device's last probe was taken.
  virtual void Probe(uint16_t device) = 0;
  virtual void TakeProbed(std::vector<ProbeResult>* results) = 0;  // Appends.
  virtual bool probing() const = 0;                                // Some probe was not taken yet.
  virtual uint32_t inflight() const = 0;                           // Started and not yet polled.
  virtual uint32_t inflight_max() const = 0;                       // The engine starts no more than this.
  virtual DeviceTraffic traffic(uint16_t device) const = 0;
  virtual LatencyByPurpose latency(uint16_t device) const = 0;  // Of the device's requests, since start.
};

}  // namespace tier::storage
