// See io_thread.h. The thread sleeps in its DeviceIo. Before it does it says so and looks into the queues once more;
// who puts something into them rings only if it said so.
#include "daemon/storage/io_thread.h"

#include <bit>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "proto/start_thread.h"

namespace tier::storage {

Result<std::unique_ptr<IoThread>> IoThread::Start(const TransferEngineOptions& options, IoThreadParts parts,
                                                  base::Workers& workers, const CompletionSignal& signal) {
  std::unique_ptr<IoThread> io(new IoThread(options, std::move(parts), workers, signal));
  auto thread = proto::StartThread(
      fmt::format("tierd-io-{}", options.device), proto::BlockedSignals::kAsynchronous,
      [raw = io.get()] { raw->Run(); }, proto::Urgency::kPrompt);
  if (!thread) return std::unexpected(thread.error());
  io->thread_ = std::move(*thread);
  return io;
}

IoThread::IoThread(const TransferEngineOptions& options, IoThreadParts parts, base::Workers& workers,
                   const CompletionSignal& signal)
    : device_(options.device),
      signal_(signal),
      commands_(2 * size_t{options.windows_max}),  // An index is free for AddWindow only after TakeRemoved named it.
      transfers_(options.inflight_max),
      results_(options.inflight_max),
      removed_(options.windows_max),
      probed_(1),
      wake_(std::move(parts.wake)),
      io_(std::move(parts.io)) {
  TransferEngineOptions noted = options;
  noted.clock = &clock_;
  noted.latency = &latency_;
  engine_ = std::make_unique<TransferEngine>(noted, *io_, workers, *wake_);
  for (auto* transfers : {&started_, &taken_transfers_}) transfers->reserve(options.inflight_max);
  finished_.reserve(options.inflight_max);
  taken_commands_.reserve(2 * size_t{options.windows_max});
  given_up_.reserve(options.windows_max);
  probe_ended_.reserve(1);
  PublishReason();
}

IoThread::~IoThread() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  wake_->Signal();
  thread_.join();
}

void IoThread::AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin) {
  TIER_CHECK(address != nullptr, "window {}", Value(window));
  const WindowCommand command{.window = window, .address = address, .size = size, .pin = pin};
  Wake(commands_.Push({&command, 1}));
}

void IoThread::RemoveWindow(WindowIndex window) {
  const WindowCommand command{.window = window};
  Wake(commands_.Push({&command, 1}));
}

void IoThread::Submit() {
  if (started_.empty()) return;
  Wake(transfers_.Push(started_));
  started_.clear();
}

void IoThread::Probe() {
  probe_asked_.store(true, std::memory_order_release);
  Wake(true);
}

// `told`: something was put into a queue that was empty.
void IoThread::Wake(bool told) {
  if (told && sleeping_.exchange(false, std::memory_order_acq_rel)) wake_->Signal();
}

DeviceTraffic IoThread::traffic() const {
  TrafficWords words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = traffic_[i].load(std::memory_order_relaxed);
  return std::bit_cast<DeviceTraffic>(words);
}

std::string IoThread::unpinned_reason() const {
  const MutexLock lock(mutex_);
  return reason_;
}

// ---- the device's thread

void IoThread::Run() {
  for (;;) {
    finished_.clear();
    engine_->Poll(&finished_);
    const bool told = TellResults();
    if (TakeCommands() || told) continue;
    if (stopping_.load(std::memory_order_acquire) && !engine_->probing()) break;
    Sleep();
  }
  engine_.reset();
  io_.reset();  // Here: only its thread may take back what it registered.
}

bool IoThread::TakeCommands() {
  taken_transfers_.clear();
  taken_commands_.clear();
  transfers_.Take(&taken_transfers_);  // First: their windows are in the other queue by now.
  commands_.Take(&taken_commands_);
  for (const WindowCommand& command : taken_commands_) {
    if (command.address != nullptr) {
      engine_->AddWindow(command.window, command.address, command.size, command.pin);
    } else {
      engine_->RemoveWindow(command.window);
    }
  }
  for (const Transfer& transfer : taken_transfers_) engine_->Start(transfer);
  if (!taken_transfers_.empty()) {
    engine_->Submit();
    PublishTraffic();
  }
  const bool probe = probe_asked_.exchange(false, std::memory_order_acquire);
  if (probe) engine_->Probe(device_);
  return probe || !taken_transfers_.empty() || !taken_commands_.empty();
}

bool IoThread::TellResults() {
  given_up_.clear();
  engine_->TakeRemoved(&given_up_);
  PublishReason();
  probe_ended_.clear();
  engine_->TakeProbed(&probe_ended_);
  if (finished_.empty() && given_up_.empty() && probe_ended_.empty()) return false;
  PublishTraffic();
  const bool results = results_.Push(finished_);
  const bool removed = removed_.Push(given_up_);
  const bool probed = probed_.Push(probe_ended_);
  if (results || removed || probed) signal_.Signal();
  return true;
}

void IoThread::PublishTraffic() {
  const auto words = std::bit_cast<TrafficWords>(engine_->traffic(device_));
  for (size_t i = 0; i < words.size(); ++i) traffic_[i].store(words[i], std::memory_order_relaxed);
}

void IoThread::PublishReason() {
  if (io_->unpinned_reason() == told_reason_) return;
  told_reason_ = io_->unpinned_reason();
  const MutexLock lock(mutex_);
  reason_ = told_reason_;
  pinned_.store(reason_.empty(), std::memory_order_relaxed);
}

void IoThread::Sleep() {
  sleeping_.exchange(true, std::memory_order_acq_rel);
  if (transfers_.empty() && commands_.empty() && !probe_asked_.load(std::memory_order_relaxed)) io_->Wait();
  sleeping_.exchange(false, std::memory_order_acq_rel);  // Not a plain store: Wake's exchanges are ordered by this one.
}

}  // namespace tier::storage
