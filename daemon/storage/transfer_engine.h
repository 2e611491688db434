// TransferEngine: the TransferPort of one device. Turns transfers of pieces into device requests and back, with a
// CRC32C over each piece's content.
//
//   write:  Start → merge with neighbours → wait for depth → device, meanwhile checksum on a worker → result
//   read:   Start → merge with neighbours → wait for depth → device → verify on a worker → result
//
// A write's checksum runs beside its I/O: a client that changes the bytes meanwhile spoils either order, and the read
// finds it.
//
// One *request* is what one device command moves: one transfer, or several that follow each other in memory and on the
// device. The runs of a scattered extent are moved one after the other, by one request that goes on as after a short
// transfer. A merged request that fails is taken apart, so that only what failed is retried and reported. Small
// requests are checksummed in place: a worker's wake-up costs more than they do.
//
// Checksums go through the mapping, I/O through the window's registration where there is one. A client can separate the
// two by punching a hole: the device then moves pages that are no longer the window's. So after a wrong checksum a read
// is repeated through the mapping before it counts as an error. A write cannot be checked so: the device takes the
// pages that the registration still holds, the checksum those that have filled the hole, and both are valid. Only the
// device's bytes would show it, and reading each write back halves the rate. So the read finds it: CORRUPT, for that
// tensor alone, and never old bytes for new ones.
//
// The device's thread (io_thread.h), except the checksum tasks, which own their request until they push it on
// `checksummed_`.
// Invariant: inflight() == transfers in requests + results waiting for Poll. Nothing is allocated after construction.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/workers.h"
#include "daemon/storage/completion_signal.h"
#include "daemon/storage/device_io.h"
#include "daemon/storage/device_latency.h"
#include "daemon/storage/dispatch_queue.h"
#include "daemon/storage/transfer.h"
#include "daemon/storage/transfer_memory.h"

namespace tier::storage {

inline constexpr uint32_t kMergeBytesDefault = 2 * kMiB;
inline constexpr uint32_t kMergeBytesMax = 64 * kMiB;
inline constexpr uint32_t kInlineBytesDefault = 64 * kKiB;
// Bytes on one device at a time. Four merged writes keep a 7 GB/s device busy for 1 ms, which a read may have to wait.
// More is slower where the device is a file of the hypervisor's, which ends what it has in one go: fio moved 2.86 GB/s
// with 8 MiB under way, 2.5 with 32 to 40 and 2.35 with 40 in requests of 2 MiB (2026-11-30).
// Reads alone go deeper: disks behind a network or a hypervisor need it (fio, with scattered pages, read a virtual one
// at 0.99 GB/s with 32 MiB under way and at 1.27 with 128). But half of what one client has under way is to be in RAM,
// being copied: with as much as that on the device, 128 MiB, swaps in ended at 2.97 GB/s, with 64 at 3.28 (the same
// daemon and file in turns, 2026-11-21). Beside writes they would leave these a ninth of the device: RAM then fills
// with what is not written, and what was read ahead is evicted before its use.
inline constexpr uint64_t kReadBytesDefault = 64 * kMiB;
inline constexpr uint64_t kReadBytesBesideWritesDefault = 16 * kMiB;
inline constexpr uint64_t kWriteBytesDefault = 8 * kMiB;
inline constexpr uint32_t kTransfersInflightMax = 65536;
inline constexpr uint32_t kTriesAgainMax = 256;  // EAGAIN and its like on one request before it counts as a failure.

struct DevicePlace {
  uint64_t data_offset = 0;     // Bytes: where block 0 of the device lies.
  uint64_t capacity_bytes = 0;  // Of the data area.
};

struct TransferEngineOptions {
  uint16_t device = 0;  // That its transfers name.
  DevicePlace place;
  uint32_t io_depth = kIoDepthDefault;  // Requests at a time.
  uint64_t read_bytes_max = kReadBytesDefault;
  uint64_t read_bytes_beside_writes_max = kReadBytesBesideWritesDefault;
  uint64_t write_bytes_max = kWriteBytesDefault;
  uint32_t inflight_max = 1024;  // Transfers.
  uint32_t merge_bytes_max = kMergeBytesDefault;
  uint32_t inline_bytes_max = kInlineBytesDefault;  // Requests up to this are checksummed on the device's thread.
  uint32_t windows_max = kWindowsMax;
  // How long requests take is noted in `latency` by `clock`, where there are both. They outlive it.
  const base::Clock* clock = nullptr;
  DeviceLatency* latency = nullptr;
};

class TransferEngine final : public TransferPort {
 public:
  // All three outlive it. REQUIRES: io.inflight_max() > io_depth: one place is for the probe.
  TransferEngine(const TransferEngineOptions& options, DeviceIo& io, base::Workers& workers,
                 const CompletionSignal& signal);
  ~TransferEngine() override;  // REQUIRES: nothing in flight, no probe either.

  void AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin = Pin::kTry) override;
  void RemoveWindow(WindowIndex window) override;
  void TakeRemoved(std::vector<WindowIndex>* windows) override { io_.TakeRemoved(windows); }
  void Start(const Transfer& transfer) override;
  void Submit() override;
  void Poll(std::vector<TransferResult>* results) override;
  void Probe(uint16_t device) override;
  void TakeProbed(std::vector<ProbeResult>* results) override;
  bool probing() const override { return probe_.under_way; }
  uint32_t inflight() const override { return inflight_; }
  uint32_t inflight_max() const override { return options_.inflight_max; }
  DeviceTraffic traffic(uint16_t device) const override;
  LatencyByPurpose latency(uint16_t device) const override;

 private:
  // A read whose checksum is wrong goes on to the next of these (VerifyRead).
  enum class Attempt : uint8_t { kFirst, kUnregistered, kProof };
  struct Member {  // One transfer.
    Transfer transfer;
    uint32_t crc = 0;      // As computed over the content.
    bool faulted = false;  // The content could not be touched.
    Attempt attempt = Attempt::kFirst;
    Member* next = nullptr;
  };
  struct Request {
    Member* first = nullptr;  // In the order of their memory; null while the request is free.
    Member* last = nullptr;
    Direction direction = Direction::kRead;
    Purpose purpose = Purpose::kDemand;  // Of its most urgent member.
    base::TimePoint started_at;          // When the device was given what it does now.
    WindowIndex window{};
    std::byte* memory = nullptr;
    uint64_t offset = 0;  // Bytes from the start of the device, where it begins.
    uint32_t length = 0;  // Bytes, whole pages.
    uint32_t done = 0;    // Bytes of these that the device has moved.
    uint32_t tries_again = 0;
    int error = 0;              // errno that the device part ended with.
    bool device_ended = false;  // The two parts of a request: it is settled once both are over.
    bool checksummed = false;
    bool retried = false;                 // After a device error.
    bool unregistered = false;            // Through the mapping.
    Request* next = nullptr;              // In a list of the engine's.
    Request* checksummed_next = nullptr;  // In `checksummed_`, or among writes about to be checksummed.
  };
  struct Window {
    std::byte* address = nullptr;
    uint64_t size = 0;
    uint32_t inflight = 0;
  };
  struct PageFree {
    void operator()(std::byte* page) const { std::free(page); }
  };
  struct ProbeState {
    std::unique_ptr<std::byte, PageFree> page;
    bool under_way = false;
    bool second_place = false;
    std::optional<ProbeResult> result;
  };
  void CheckMemory(const Transfer& transfer, WindowIndex index, std::span<const std::byte> memory) const;
  void CheckTransfer(const Transfer& transfer) const;
  TransferPart NextPart(const Request& request) const;
  bool CanMerge(const Request& request, const Transfer& transfer) const;
  Request* NewRequest(Member* member);
  void FreeRequest(Request* request);
  void StartChecksum(Request* request);
  static void ComputeChecksums(Request* request);
  void PushChecksummed(Request* request);
  void TakeChecksummed();
  void OnChecksummed(Request* request);
  void VerifyRead(Member* member);
  void ReadAgain(Member* member, Attempt attempt);
  void Enqueue(Request* request) { waiting_.Push(request); }
  Request* TakeNext();
  uint64_t& InflightBytes(Direction direction) { return direction == Direction::kRead ? read_bytes_ : write_bytes_; }
  void Dispatch();
  void StartProbe();
  void OnProbeCompletion(int32_t result);
  void OnIoCompletion(const IoCompletion& completion);
  base::TimePoint Now() const { return options_.clock == nullptr ? base::TimePoint{} : options_.clock->Now(); }
  void NoteLatency(const Request& request, uint32_t moved);
  void OnIoError(Request* request, int error);
  void EndDevicePart(Request* request, int error);
  void Settle(Request* request);
  void SettleMember(const Request& ended, Member* member);
  void SettleFailed(const Request& ended, Member* member);
  void Finish(Member* member, TransferOutcome outcome, int error, uint32_t failed_at = 0);

  TransferEngineOptions options_;
  DeviceIo& io_;
  base::Workers& workers_;
  const CompletionSignal& signal_;
  std::vector<Window> windows_;
  std::vector<Member> members_;
  std::vector<Request> requests_;
  Member* free_members_ = nullptr;
  RequestList<Request> free_requests_;
  RequestList<Request> started_;  // Since the last Submit.
  DispatchQueue<Request> waiting_;
  uint32_t requests_inflight_ = 0;  // On the device …
  uint64_t read_bytes_ = 0;         // … and what they are to move.
  uint64_t write_bytes_ = 0;
  DeviceTraffic traffic_;
  ProbeState probe_;
  std::vector<IoCompletion> io_completions_;
  std::vector<TransferResult> results_;  // Finished, not yet polled.
  uint32_t inflight_ = 0;
  std::atomic<Request*> checksummed_{nullptr};  // A stack: workers push, the engine takes all.
  std::atomic<uint32_t> checksums_running_{0};  // Tasks that may still touch this object.
};

}  // namespace tier::storage
