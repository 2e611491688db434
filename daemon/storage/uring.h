// UringIo: DeviceIo over an io_uring of its own, with the device as a registered file and one registered buffer for
// each window that is to be pinned.
//
// The ring belongs to the thread that first uses it after Create: there the kernel posts completions only when asked
// (DEFER_TASKRUN), and never interrupts it.
// Invariants: started == completed + in flight. The pages of a registered window are the kernel's from AddWindow until
// TakeRemoved names it: the kernel says by the buffer's tag that no request uses them any more. It unpins them right
// after that; before Linux 6.4 on a thread of its own, which takes some milliseconds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/storage/completion_signal.h"
#include "daemon/storage/device_io.h"

struct io_uring;
struct __kernel_timespec;

namespace tier::storage {

// Whether this process may register windows of so many bytes together. A page is registered with a ring of its own,
// also with the limit on locked memory at 0: that tells whether the limit binds, which rights and user namespaces
// decide. DENIED with the reason and what to change. For the start of the daemon: the limit is the whole process's.
Status ProvePinning(uint64_t bytes);

struct UringOptions {
  uint32_t inflight_max = 256;         // Requests at a time.
  uint32_t windows_max = kWindowsMax;  // Places in the buffer table.
};

class UringIo final : public DeviceIo {
 public:
  // DENIED: the kernel or a seccomp filter forbids io_uring, with the reason. `device` stays the caller's and open, and
  // `signal` lives, as long as this does.
  static Result<std::unique_ptr<UringIo>> Create(const UringOptions& options, int device,
                                                 const CompletionSignal& signal);
  ~UringIo() override;  // REQUIRES: nothing in flight.

  void AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin = Pin::kTry) override;
  void RemoveWindow(WindowIndex window) override;
  void TakeRemoved(std::vector<WindowIndex>* windows) override;
  bool registered(WindowIndex window) const override {
    return windows_[Value(window)].registration == Registration::kDone;
  }
  const std::string& unpinned_reason() const override { return unpinned_reason_; }
  void Start(const IoRequest& request) override;
  void Submit() override;
  void Poll(std::vector<IoCompletion>* completions) override;
  void Wait() override;
  uint32_t inflight_max() const override { return options_.inflight_max; }

 private:
  enum class Registration : uint8_t {
    kNone,
    kDone,
    kRefused,  // In `refused_`.
    kEnding,   // The window has been removed; the kernel has not said yet that it let go.
  };
  struct Window {
    std::byte* address = nullptr;
    uint64_t size = 0;
    Registration registration = Registration::kNone;
  };
  UringIo(const UringOptions& options, const CompletionSignal& signal, std::unique_ptr<io_uring> ring);
  Status SetUp(int device);
  bool InRegisteredWindow(const IoRequest& request) const;
  void EnsureEnabled();
  void Register(WindowIndex window);
  void RetryRefused();
  void RetryLater();
  void OnCompletion(uint64_t token, int32_t result, std::vector<IoCompletion>* completions);
  void ArmSignal();

  UringOptions options_;
  const CompletionSignal& signal_;
  std::unique_ptr<io_uring> ring_;
  std::vector<Window> windows_;
  std::vector<WindowIndex> refused_;
  std::vector<WindowIndex> removed_;  // For TakeRemoved.
  uint32_t inflight_ = 0;
  uint32_t ending_ = 0;  // Windows of Registration::kEnding.
  bool signal_armed_ = false;
  // A timeout is in the ring; after it refused windows are tried again.
  bool retry_armed_ = false;
  std::unique_ptr<__kernel_timespec> retry_delay_;
  bool enabled_ = false;
  bool buffer_table_ = false;
  std::string unpinned_reason_;
};

}  // namespace tier::storage
