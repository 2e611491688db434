// Ports that cost nothing and keep nothing, for counting and timing what the engine itself does.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/tiering/engine.h"

namespace tier::tiering::testing {

// Writes end at once and are kept nowhere: the bytes do not matter here.
class InstantTransfers final : public storage::TransferPort {
 public:
  void AddWindow(WindowIndex, std::byte*, uint64_t, storage::Pin) override {}
  void RemoveWindow(WindowIndex window) override { removed_.push_back(window); }
  void TakeRemoved(std::vector<WindowIndex>* windows) override {
    windows->insert(windows->end(), removed_.begin(), removed_.end());
    removed_.clear();
  }
  void Start(const storage::Transfer& transfer) override { started_.push_back(transfer.cookie); }
  void Submit() override {}
  void Poll(std::vector<storage::TransferResult>* results) override {
    for (const uint64_t cookie : started_) results->push_back({.cookie = cookie});
    started_.clear();
  }
  void Probe(uint16_t) override {}
  void TakeProbed(std::vector<storage::ProbeResult>*) override {}
  bool probing() const override { return false; }
  uint32_t inflight() const override { return static_cast<uint32_t>(started_.size()); }
  uint32_t inflight_max() const override { return 1024; }
  storage::DeviceTraffic traffic(uint16_t) const override { return {}; }
  storage::LatencyByPurpose latency(uint16_t) const override { return {}; }

 private:
  std::vector<uint64_t> started_;
  std::vector<WindowIndex> removed_;
};

// Copies in RAM end at the next Poll, and copy nothing.
class InstantCopies final : public memory::PageCopyPort {
 public:
  void Start(const memory::PageCopy& copy) override { started_.push_back(copy.cookie); }
  void Submit() override {}
  void Poll(std::vector<memory::PageCopyResult>* results) override {
    for (const uint64_t cookie : started_) results->push_back({.cookie = cookie});
    started_.clear();
  }
  uint32_t inflight() const override { return static_cast<uint32_t>(started_.size()); }

 private:
  std::vector<uint64_t> started_;
};

}  // namespace tier::tiering::testing
