// IoThread: the thread of one device. It alone submits to the device and takes its completions, by a DeviceIo and a
// TransferEngine that belong to it. The engine thread hands it windows and transfers and takes results; for these it
// makes no system call but a write to an eventfd when this thread sleeps.
//
// The engine thread, except Run and the functions below it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/workers.h"
#include "daemon/storage/completion_signal.h"
#include "daemon/storage/device_io.h"
#include "daemon/storage/device_latency.h"
#include "daemon/storage/handoff_queue.h"
#include "daemon/storage/transfer.h"
#include "daemon/storage/transfer_engine.h"
#include "proto/mutex.h"

namespace tier::storage {

struct IoThreadParts {
  std::unique_ptr<CompletionSignal> wake;  // What `io` and the checksum tasks ring, and Wait of `io` waits for.
  std::unique_ptr<DeviceIo> io;
};

class IoThread {
 public:
  // `workers` and `signal` outlive it; `signal` is rung when Poll, TakeRemoved or TakeProbed has something. NO_MEMORY:
  // the system gives no thread.
  static Result<std::unique_ptr<IoThread>> Start(const TransferEngineOptions& options, IoThreadParts parts,
                                                 base::Workers& workers, const CompletionSignal& signal);
  ~IoThread();  // REQUIRES: no transfer in flight. Waits for the end of a probe.
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  // As TransferPort's.
  void AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin);
  void RemoveWindow(WindowIndex window);
  void TakeRemoved(std::vector<WindowIndex>* windows) { removed_.Take(windows); }
  void Start(const Transfer& transfer) { started_.push_back(transfer); }
  void Submit();
  void Poll(std::vector<TransferResult>* results) { results_.Take(results); }
  void Probe();
  void TakeProbed(std::vector<ProbeResult>* results) { probed_.Take(results); }
  DeviceTraffic traffic() const;  // Includes every transfer whose result was taken.
  LatencyByPurpose latency() const { return latency_.Read(); }

  bool pinned() const { return pinned_.load(std::memory_order_relaxed); }
  std::string unpinned_reason() const;

 private:
  // The window has come, or with a null address: is to go.
  struct WindowCommand {
    WindowIndex window{};
    std::byte* address = nullptr;
    uint64_t size = 0;
    Pin pin = Pin::kTry;
  };
  using TrafficWords = std::array<uint64_t, sizeof(DeviceTraffic) / sizeof(uint64_t)>;

  IoThread(const TransferEngineOptions& options, IoThreadParts parts, base::Workers& workers,
           const CompletionSignal& signal);
  void Wake(bool told);

  void Run();
  bool TakeCommands();
  bool TellResults();
  void PublishTraffic();
  void PublishReason();
  void Sleep();

  const uint16_t device_;
  const CompletionSignal& signal_;  // The engine thread's.
  std::vector<Transfer> started_;   // Since the last Submit.

  // Between the threads.
  DeviceLatency latency_;
  HandoffQueue<WindowCommand> commands_;
  HandoffQueue<Transfer> transfers_;
  HandoffQueue<TransferResult> results_;
  HandoffQueue<WindowIndex> removed_;
  HandoffQueue<ProbeResult> probed_;
  std::atomic<bool> probe_asked_{false};
  std::atomic<bool> sleeping_{false};
  std::atomic<bool> stopping_{false};
  std::array<std::atomic<uint64_t>, std::tuple_size_v<TrafficWords>> traffic_{};
  std::atomic<bool> pinned_{true};
  mutable Mutex mutex_;
  std::string reason_ TIER_GUARDED_BY(mutex_);

  // The device's thread; set before it starts.
  base::SteadyClock clock_;
  std::unique_ptr<CompletionSignal> wake_;
  std::unique_ptr<DeviceIo> io_;
  std::unique_ptr<TransferEngine> engine_;
  std::string told_reason_;
  std::vector<WindowCommand> taken_commands_;
  std::vector<Transfer> taken_transfers_;
  std::vector<TransferResult> finished_;
  std::vector<WindowIndex> given_up_;
  std::vector<ProbeResult> probe_ended_;

  std::thread thread_;  // Last: it uses what stands above.
};

}  // namespace tier::storage
