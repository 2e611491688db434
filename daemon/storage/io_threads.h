// IoThreads: the TransferPort of the tier. Hands each transfer to its device's thread, and each window to all of them.
//
// Engine thread. A window is given up when every device's thread has given it up.
// Invariant: inflight() == transfers handed over + results not taken.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/storage/io_thread.h"
#include "daemon/storage/transfer.h"

namespace tier::storage {

class IoThreads final : public TransferPort {
 public:
  // `threads`: by device. They carry at most `inflight_max` transfers each. Window indices are below `windows_max`.
  IoThreads(std::vector<std::unique_ptr<IoThread>> threads, uint32_t inflight_max, uint32_t windows_max);
  ~IoThreads() override;  // REQUIRES: nothing in flight.

  void AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin = Pin::kTry) override;
  void RemoveWindow(WindowIndex window) override;
  void TakeRemoved(std::vector<WindowIndex>* windows) override;
  void Start(const Transfer& transfer) override;
  void Submit() override;
  void Poll(std::vector<TransferResult>* results) override;
  void Probe(uint16_t device) override;
  void TakeProbed(std::vector<ProbeResult>* results) override;
  bool probing() const override { return probing_ != 0; }
  uint32_t inflight() const override { return inflight_; }
  uint32_t inflight_max() const override { return inflight_max_; }
  DeviceTraffic traffic(uint16_t device) const override;
  LatencyByPurpose latency(uint16_t device) const override { return At(device).latency(); }

  bool pinned() const { return unpinned() == nullptr; }
  std::string unpinned_reason() const;  // Of the first device where a window is not registered; empty: of none.

 private:
  IoThread& At(uint16_t device) const;
  const IoThread* unpinned() const;

  std::vector<std::unique_ptr<IoThread>> threads_;
  std::vector<uint16_t> holders_;      // By window that is being removed: the devices that have not given it up.
  std::vector<WindowIndex> removed_;   // By all, and not taken.
  std::vector<WindowIndex> given_up_;  // TakeRemoved's, kept for its room.
  uint32_t inflight_max_;
  uint32_t inflight_ = 0;
  size_t probing_ = 0;
};

}  // namespace tier::storage
