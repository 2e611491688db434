// See fake_device.h.
#include "tests/support/storage/fake_device.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "daemon/base/check.h"
#include "daemon/base/fault_guard.h"

namespace tier::storage::testing {

FakeDevice::~FakeDevice() {
  TIER_CHECK(started_.empty() && submitted_.empty(), "{} + {} in flight", started_.size(), submitted_.size());
}

void FakeDevice::AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin) {
  if (pin == Pin::kNo) unpinned_.insert(Value(window));
  TIER_CHECK(windows_.emplace(Value(window), std::pair(address, size)).second, "window {} twice", Value(window));
}

void FakeDevice::RemoveWindow(WindowIndex window) {
  const auto on_it = [&](const IoRequest& request) { return request.window == window; };
  TIER_CHECK(std::none_of(submitted_.begin(), submitted_.end(), on_it), "I/O in flight on window {}", Value(window));
  TIER_CHECK(windows_.erase(Value(window)) == 1, "window {} is not there", Value(window));
  unpinned_.erase(Value(window));
  removed_.push_back(window);
}

void FakeDevice::TakeRemoved(std::vector<WindowIndex>* windows) {
  windows->insert(windows->end(), removed_.begin(), removed_.end());
  removed_.clear();
}

void FakeDevice::Start(const IoRequest& request) {
  TIER_CHECK(started_.size() + submitted_.size() < inflight_max_, "{} in flight", started_.size() + submitted_.size());
  TIER_CHECK(request.offset % kPageSize == 0 && request.length % kPageSize == 0 && request.length != 0,
             "{} bytes at {}", request.length, request.offset);
  TIER_CHECK(reinterpret_cast<uintptr_t>(request.memory) % kPageSize == 0, "unaligned memory");
  const auto window = windows_.find(Value(request.window));
  const bool own = request.window == kNoWindow && request.unregistered;
  TIER_CHECK(own || (window != windows_.end() && request.memory >= window->second.first &&
                     request.memory + request.length <= window->second.first + window->second.second),
             "memory outside window {}", Value(request.window));
  started_.push_back(request);
}

void FakeDevice::Submit() {
  submitted_.insert(submitted_.end(), started_.begin(), started_.end());
  history_.insert(history_.end(), started_.begin(), started_.end());
  started_.clear();
  inflight_peak_ = std::max(inflight_peak_, static_cast<uint32_t>(submitted_.size()));
}

void FakeDevice::Poll(std::vector<IoCompletion>* completions) {
  for (size_t i = 0; !held_ && i < per_poll_ && !submitted_.empty(); ++i) {
    const IoRequest request = newest_first_ ? submitted_.back() : submitted_.front();
    if (newest_first_) {
      submitted_.pop_back();
    } else {
      submitted_.pop_front();
    }
    completions->push_back({request.token, Execute(request)});
  }
}

std::optional<IoFault> FakeDevice::TakeFault(const IoRequest& request) {
  const auto matches = [&](const IoFault& fault) {
    const uint64_t covered = fault.covering_offset.value_or(request.offset);
    return fault.direction == request.direction && covered >= request.offset &&
           covered < request.offset + request.length;
  };
  const auto found = std::find_if(faults_.begin(), faults_.end(), matches);
  if (found == faults_.end()) return std::nullopt;
  const IoFault fault = *found;
  faults_.erase(found);
  return fault;
}

int32_t FakeDevice::Execute(const IoRequest& request) {
  const std::optional<IoFault> fault = TakeFault(request);
  if (fault && fault->error != 0) return -fault->error;
  if (request.offset >= bytes_.size()) return 0;
  uint64_t moved = std::min<uint64_t>(request.length, bytes_.size() - request.offset);
  if (fault && fault->short_bytes) moved = std::min<uint64_t>(moved, *fault->short_bytes);
  std::byte* on_device = bytes_.data() + request.offset;
  const bool write = request.direction == Direction::kWrite;
  std::byte* to = write ? on_device : request.memory;
  const std::byte* from = write ? request.memory : on_device;
  if (detached_ && !write && !request.unregistered) return static_cast<int32_t>(moved);
  if (!base::RunGuarded([=] { std::memcpy(to, from, moved); })) return -EFAULT;  // As the kernel says it.
  if (fault && fault->flip_at) to[*fault->flip_at] ^= std::byte{0xff};
  return static_cast<int32_t>(moved);
}

}  // namespace tier::storage::testing
