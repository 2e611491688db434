#include "daemon/storage/io_threads.h"

#include <algorithm>
#include <utility>

#include "daemon/base/check.h"

namespace tier::storage {

IoThreads::IoThreads(std::vector<std::unique_ptr<IoThread>> threads, uint32_t inflight_max, uint32_t windows_max)
    : threads_(std::move(threads)), holders_(windows_max), inflight_max_(inflight_max) {
  removed_.reserve(windows_max);
  given_up_.reserve(threads_.size() * windows_max);
}

IoThreads::~IoThreads() { TIER_CHECK(inflight_ == 0, "{} transfers in flight", inflight_); }

IoThread& IoThreads::At(uint16_t device) const {
  TIER_CHECK(device < threads_.size(), "device {} of {}", device, threads_.size());
  return *threads_[device];
}

void IoThreads::AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin) {
  TIER_CHECK(Value(window) < holders_.size() && holders_[Value(window)] == 0, "window {} of {}", Value(window),
             holders_.size());
  for (const auto& thread : threads_) thread->AddWindow(window, address, size, pin);
}

void IoThreads::RemoveWindow(WindowIndex window) {
  TIER_CHECK(Value(window) < holders_.size() && holders_[Value(window)] == 0, "window {} of {}", Value(window),
             holders_.size());
  holders_[Value(window)] = static_cast<uint16_t>(threads_.size());
  for (const auto& thread : threads_) thread->RemoveWindow(window);
  if (threads_.empty()) removed_.push_back(window);
}

void IoThreads::TakeRemoved(std::vector<WindowIndex>* windows) {
  given_up_.clear();
  for (const auto& thread : threads_) thread->TakeRemoved(&given_up_);
  for (const WindowIndex window : given_up_) {
    if (--holders_[Value(window)] == 0) removed_.push_back(window);
  }
  windows->insert(windows->end(), removed_.begin(), removed_.end());
  removed_.clear();
}

void IoThreads::Start(const Transfer& transfer) {
  TIER_CHECK(inflight_ < inflight_max_, "{} transfers in flight", inflight_);
  ++inflight_;
  At(transfer.extent.device).Start(transfer);
}

void IoThreads::Submit() {
  for (const auto& thread : threads_) thread->Submit();
}

void IoThreads::Poll(std::vector<TransferResult>* results) {
  if (inflight_ == 0) return;
  const size_t before = results->size();
  for (const auto& thread : threads_) thread->Poll(results);
  inflight_ -= static_cast<uint32_t>(results->size() - before);
}

void IoThreads::TakeProbed(std::vector<ProbeResult>* results) {
  const size_t before = results->size();
  for (const auto& thread : threads_) thread->TakeProbed(results);
  TIER_CHECK(results->size() - before <= probing_, "{} probes ended of {}", results->size() - before, probing_);
  probing_ -= results->size() - before;
}

void IoThreads::Probe(uint16_t device) {
  ++probing_;
  At(device).Probe();
}

DeviceTraffic IoThreads::traffic(uint16_t device) const { return At(device).traffic(); }

const IoThread* IoThreads::unpinned() const {
  const auto found = std::ranges::find_if(threads_, [](const auto& thread) { return !thread->pinned(); });
  return found == threads_.end() ? nullptr : found->get();
}

std::string IoThreads::unpinned_reason() const {
  const IoThread* const thread = unpinned();
  return thread == nullptr ? std::string() : thread->unpinned_reason();
}

}  // namespace tier::storage
