// Ports that cost nothing and keep nothing, for counting and timing what the engine itself does.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "daemon/tiering/engine.h"

namespace tier::tiering::testing {

class NullIndex final : public storage::Index {
 public:
  void Put(const storage::RecordKey&, std::span<const std::byte>) override { ++puts; }
  void Erase(const storage::RecordKey&) override {}
  Status Commit() override { return {}; }
  void Scan(const std::function<void(const storage::RecordKey&, std::span<const std::byte>)>&) const override {}
  uint64_t used_bytes() const override { return 0; }
  bool HasRoom(uint64_t) const override { return true; }
  uint64_t puts = 0;
};

// Writes end at once and are kept nowhere: the bytes do not matter here.
class InstantTransfers final : public storage::TransferPort {
 public:
  void AddWindow(WindowIndex, std::byte*, uint64_t) override {}
  void RemoveWindow(WindowIndex) override {}
  void Start(const storage::Transfer& transfer) override { started_.push_back(transfer.cookie); }
  void Submit() override {}
  void Poll(std::vector<storage::TransferResult>* results) override {
    for (const uint64_t cookie : started_) results->push_back({.cookie = cookie});
    started_.clear();
  }
  uint32_t inflight() const override { return static_cast<uint32_t>(started_.size()); }
  uint32_t inflight_max() const override { return 1024; }
  storage::DeviceTraffic traffic(uint16_t) const override { return {}; }

 private:
  std::vector<uint64_t> started_;
};

}  // namespace tier::tiering::testing
