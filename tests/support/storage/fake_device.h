// FakeDevice: a DeviceIo over memory whose faults are scripted, for tests of what lies above it. Deterministic,
// single-threaded: submitted requests complete at Poll, oldest first or newest first.
//
// A fault waits for the first request it matches, and is spent on it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/storage/device_io.h"

namespace tier::storage::testing {

struct IoFault {
  Direction direction = Direction::kRead;
  int error = 0;                            // errno, or 0 …
  std::optional<uint32_t> short_bytes;      // … with this many bytes moved, no more …
  std::optional<uint32_t> flip_at;          // … or this byte of what is moved inverted.
  std::optional<uint64_t> covering_offset;  // Only a request that covers this byte of the device.
};

class FakeDevice final : public DeviceIo {
 public:
  explicit FakeDevice(uint64_t size, uint32_t inflight_max = 256) : bytes_(size), inflight_max_(inflight_max) {}
  ~FakeDevice() override;

  void AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin = Pin::kTry) override;
  void RemoveWindow(WindowIndex window) override;
  void TakeRemoved(std::vector<WindowIndex>* windows) override;
  bool registered(WindowIndex window) const override { return !unpinned_.contains(Value(window)); }
  void Start(const IoRequest& request) override;
  void Submit() override;
  void Poll(std::vector<IoCompletion>* completions) override;
  void Wait() override {}
  uint32_t inflight_max() const override { return inflight_max_; }
  const std::string& unpinned_reason() const override { return no_reason_; }

  // The script.
  void Inject(IoFault fault, uint32_t count = 1) { faults_.insert(faults_.end(), count, fault); }
  void SetNewestFirst(bool newest_first) { newest_first_ = newest_first; }
  // As after a hole was punched into a registered window: what is read through the registration lands nowhere.
  void DetachRegistrations() { detached_ = true; }
  void Hold() { held_ = true; }
  void Release() { held_ = false; }
  void CompleteAtMost(size_t per_poll) { per_poll_ = per_poll; }

  std::vector<std::byte>& bytes() { return bytes_; }
  bool idle() const { return started_.empty() && submitted_.empty(); }
  const std::vector<IoRequest>& history() const { return history_; }  // Every request, in the order of submission.
  size_t unspent_faults() const { return faults_.size(); }
  uint32_t inflight_peak() const { return inflight_peak_; }

 private:
  int32_t Execute(const IoRequest& request);
  std::optional<IoFault> TakeFault(const IoRequest& request);

  std::vector<std::byte> bytes_;
  uint32_t inflight_max_;
  std::string no_reason_;
  std::map<uint32_t, std::pair<std::byte*, uint64_t>> windows_;
  std::set<uint32_t> unpinned_;  // Of these windows.
  std::vector<WindowIndex> removed_;
  std::vector<IoRequest> started_;
  std::deque<IoRequest> submitted_;
  std::vector<IoRequest> history_;
  std::deque<IoFault> faults_;
  bool newest_first_ = false;
  bool held_ = false;
  bool detached_ = false;
  size_t per_poll_ = SIZE_MAX;
  uint32_t inflight_peak_ = 0;
};

}  // namespace tier::storage::testing
