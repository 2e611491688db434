// UringIo: DeviceIo over one io_uring for all devices, with registered files and one registered buffer a window.
//
// The ring belongs to the thread that first uses it after the AddDevice calls (the engine thread): there the kernel
// posts completions only when asked (DEFER_TASKRUN), and never interrupts it.
// Invariant: started == completed + in flight.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/storage/completion_signal.h"
#include "daemon/storage/device_io.h"

struct io_uring;

namespace tier::storage {

struct UringOptions {
  uint32_t inflight_max = 256;         // Requests on all devices together.
  uint32_t windows_max = kWindowsMax;  // Places in the buffer table.
};

class UringIo final : public DeviceIo {
 public:
  // DENIED: the kernel or a seccomp filter forbids io_uring, with the reason. `signal` outlives this.
  static Result<std::unique_ptr<UringIo>> Create(const UringOptions& options, const CompletionSignal& signal);
  ~UringIo() override;  // REQUIRES: nothing in flight.

  Status AddDevice(int fd) override;
  void AddWindow(WindowIndex window, std::byte* address, uint64_t size) override;
  void RemoveWindow(WindowIndex window) override;
  bool registered(WindowIndex window) const override { return windows_[Value(window)].registered; }
  void Start(const IoRequest& request) override;
  void Submit() override;
  void Poll(std::vector<IoCompletion>* completions) override;
  uint32_t inflight_max() const override { return options_.inflight_max; }
  bool pinned() const override { return unpinned_reason_.empty(); }
  const std::string& unpinned_reason() const override { return unpinned_reason_; }

 private:
  struct Window {
    std::byte* address = nullptr;
    uint64_t size = 0;
    bool registered = false;
  };
  UringIo(const UringOptions& options, std::unique_ptr<io_uring> ring);
  Status SetUp(const CompletionSignal& signal);
  void EnsureEnabled();

  UringOptions options_;
  std::unique_ptr<io_uring> ring_;
  std::vector<Window> windows_;
  uint16_t device_count_ = 0;
  uint32_t inflight_ = 0;
  bool enabled_ = false;
  bool buffer_table_ = false;
  std::string unpinned_reason_;
};

}  // namespace tier::storage
