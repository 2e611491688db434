// FakeTransferPort: a TransferPort over a disk made of memory, for the simulator and for engine tests. Single-threaded
// and deterministic: all randomness comes from the seed, time is counted in turns (calls of Poll).
//
// Meaner than a device on purpose: a write's bytes are taken when it completes (memory changed meanwhile is counted in
// memory_changes()), a read's memory holds poison until it completes. It checks what TransferPort requires (alignment,
// windows announced, at most inflight_max, no transfer over another's extent or memory) and aborts with the figures.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/storage/device_latency.h"
#include "daemon/storage/transfer.h"

namespace tier::storage::testing {

// The bytes of all devices, by block. Shared by successive ports, so that a simulated restart finds what has landed.
class MemoryDisk {
 public:
  void Write(Extent extent, const std::byte* bytes, uint32_t pages);
  // REQUIRES: every page was written once (an engine that reads what nobody wrote is broken).
  void Read(Extent extent, std::byte* bytes, uint32_t pages) const;
  bool Written(Extent extent) const;
  void FlipByte(Extent extent, uint64_t offset);  // XORs 0xff.
  void Erase(Extent extent);                      // As a discard would.
  uint64_t page_count() const { return page_count_; }

 private:
  // Its memory is the system's until a page is written.
  struct Block {
    std::unique_ptr<std::byte[]> bytes = std::make_unique_for_overwrite<std::byte[]>(kBlockSize);
    std::bitset<kPagesPerBlock> written;
  };
  static uint64_t KeyOf(Extent extent) { return uint64_t{extent.device} << 48 | extent.run.block; }
  // Aborts if one of the pages was never written.
  std::byte* BytesOf(Extent extent, uint32_t pages) const;

  std::unordered_map<uint64_t, Block> blocks_;
  uint64_t page_count_ = 0;
};

struct FakeFault {
  Direction direction = Direction::kWrite;
  TransferOutcome outcome = TransferOutcome::kDeviceError;
  int error_number = 5;  // EIO.
  uint32_t failed_at = 0;
};

struct FakeTransferOptions {
  uint64_t seed = 1;
  uint32_t inflight_max = 1024;
  uint16_t device_count = 1;
  // A submitted transfer completes after min … max further turns, drawn for each; 0, 0: at the next Poll. With
  // max > min completions come out of order.
  uint32_t delay_turns_min = 0;
  uint32_t delay_turns_max = 0;
};

class FakeTransferPort final : public TransferPort {
 public:
  explicit FakeTransferPort(FakeTransferOptions options = {}, std::shared_ptr<MemoryDisk> disk = nullptr);
  ~FakeTransferPort() override;

  void AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin = Pin::kTry) override;
  void RemoveWindow(WindowIndex window) override;
  void TakeRemoved(std::vector<WindowIndex>* windows) override;
  void Start(const Transfer& transfer) override;
  void Submit() override;
  void Poll(std::vector<TransferResult>* results) override;
  void Probe(uint16_t device) override;
  void TakeProbed(std::vector<ProbeResult>* results) override;
  uint32_t inflight() const override { return static_cast<uint32_t>(started_.size() + submitted_.size()); }
  uint32_t inflight_max() const override { return options_.inflight_max; }
  DeviceTraffic traffic(uint16_t device) const override { return traffic_.at(device); }
  // It has no clock: each request took no time at all.
  LatencyByPurpose latency(uint16_t device) const override { return latency_.at(device); }

  // The script.
  void SetDelay(uint32_t turns_min, uint32_t turns_max);
  // A removed window's memory is given up after so many further calls of TakeRemoved.
  void SetRemoveDelay(uint32_t calls) { remove_delay_ = calls; }
  void Hold() { held_ = true; }                              // Nothing completes …
  void Release() { held_ = false; }                          // … until now.
  void FailNext(FakeFault fault, uint32_t count = 1);        // The next `count` completions of that direction.
  void SetFaultRate(FakeFault fault, uint32_t per_million);  // Each completion of that direction, by the seed. 0: off.
  void FailExtent(Extent extent, TransferOutcome outcome);   // Whatever touches these pages, until they are healed.
  void HealExtents() { bad_extents_.clear(); }
  // Everything on the device, probes too, ends in this error, or in none at all, until it is healed.
  void FailDevice(uint16_t device, int error_number) { devices_.at(device) = {.error = error_number}; }
  void FailWritesOf(uint16_t device, int error_number) { devices_.at(device) = {.write_error = error_number}; }
  void HangDevice(uint16_t device) { devices_.at(device) = {.hangs = true}; }
  void HealDevice(uint16_t device) { devices_.at(device) = {}; }
  uint64_t probes() const { return probes_; }  // That were asked for.
  void PunchWindow(WindowIndex window);        // Everything on it ends in kWindowFault until it is removed.
  // The daemon dies: nothing is polled any more; each write in flight lands whole, in part or not at all, by the seed.
  void Crash();

  // Called by each Submit before anything of it is handed on.
  void WatchSubmits(std::function<void()> watch) { watch_ = std::move(watch); }
  // What is started and has not ended, with the memory as runs: see tiering's PiecePlace.
  struct Move {
    uint64_t cookie;
    bool submitted;
    Direction direction;
    Extent extent;
    std::vector<base::PageRun> runs;  // Of the extent.
    std::vector<base::PageRun> memory;
  };
  std::vector<Move> moves() const;

  Pin pin(WindowIndex window) const { return windows_.at(Value(window)).pin; }
  MemoryDisk& disk() { return *disk_; }
  const std::shared_ptr<MemoryDisk>& shared_disk() const { return disk_; }
  uint64_t memory_changes() const { return memory_changes_; }  // Writes whose memory changed while in flight.
  uint64_t turn() const { return turn_; }
  bool probing() const override { return !probing_.empty(); }
  bool removing() const { return !removals_.empty(); }  // Some windows have not been given up yet.

 private:
  struct Window {
    std::byte* address = nullptr;
    uint64_t size = 0;
    Pin pin = Pin::kTry;
    bool punched = false;
  };
  struct Flight {
    Transfer transfer;
    uint64_t due_turn = 0;
    uint64_t sequence = 0;
    uint32_t crc_at_submit = 0;
  };
  struct Removal {
    WindowIndex window{};
    uint32_t calls_left = 0;
  };
  struct BadExtent {
    Extent extent;
    TransferOutcome outcome;
  };
  struct DeviceFault {
    int error = 0;
    int write_error = 0;
    bool hangs = false;
  };
  bool Hangs(uint16_t device) const { return held_ || devices_[device].hangs; }
  void CheckStart(const Transfer& transfer) const;
  std::optional<FakeFault> TakeFault(const Transfer& transfer);
  TransferResult Complete(const Flight& flight);
  TransferResult CompleteWrite(const Flight& flight);
  void NoteRequest(const Transfer& transfer);
  TransferResult CompleteRead(const Flight& flight);
  uint64_t Draw(uint64_t below) { return random_() % below; }

  FakeTransferOptions options_;
  std::shared_ptr<MemoryDisk> disk_;
  std::mt19937_64 random_;
  std::map<uint32_t, Window> windows_;
  std::vector<Removal> removals_;  // Oldest first. Their windows are still announced.
  uint32_t remove_delay_ = 0;
  std::vector<Flight> started_;
  std::vector<Flight> submitted_;
  std::vector<DeviceTraffic> traffic_;
  std::vector<LatencyByPurpose> latency_;
  std::deque<FakeFault> scripted_;
  std::vector<std::pair<FakeFault, uint32_t>> rates_;
  std::vector<BadExtent> bad_extents_;
  std::vector<DeviceFault> devices_;
  std::vector<uint16_t> probing_;
  uint64_t probes_ = 0;
  bool held_ = false;
  uint64_t turn_ = 0;
  uint64_t sequence_ = 0;
  uint64_t memory_changes_ = 0;
  std::function<void()> watch_;
};

}  // namespace tier::storage::testing
