// MarkedTransfers: SSD devices that keep a mark for each page instead of its bytes: which write it holds. A read whose
// pages do not all hold the write that it names finds them corrupt. So an engine that gives an extent away too early,
// or reads another one, is found out, with devices of any size. Single-threaded.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/storage/device_latency.h"
#include "daemon/storage/transfer.h"

namespace tier::churn {

class MarkedTransfers final : public storage::TransferPort {
 public:
  explicit MarkedTransfers(const std::vector<uint32_t>& device_blocks);

  void AddWindow(WindowIndex, std::byte*, uint64_t, storage::Pin) override {}
  void RemoveWindow(WindowIndex window) override { removed_.push_back(window); }
  void TakeRemoved(std::vector<WindowIndex>* windows) override;
  void Start(const storage::Transfer& transfer) override;
  void Submit() override {}
  void Poll(std::vector<storage::TransferResult>* results) override;
  void Probe(uint16_t) override {}
  void TakeProbed(std::vector<storage::ProbeResult>*) override {}
  bool probing() const override { return false; }
  uint32_t inflight() const override { return static_cast<uint32_t>(ended_.size()); }
  uint32_t inflight_max() const override { return 1024; }
  storage::DeviceTraffic traffic(uint16_t device) const override { return traffic_.at(device); }
  storage::LatencyByPurpose latency(uint16_t) const override { return {}; }

 private:
  std::vector<std::vector<uint32_t>> marks_;  // By device, then page. 0: it was never written.
  std::vector<storage::DeviceTraffic> traffic_;
  std::vector<storage::TransferResult> ended_;
  std::vector<WindowIndex> removed_;
  uint32_t last_mark_ = 0;
};

}  // namespace tier::churn
