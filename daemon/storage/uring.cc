// The only file that talks to liburing. What the kernel lacks is left out step by step and said: deferred task work
// (6.1), a sparse buffer table (5.19), io_uring itself.
#include "daemon/storage/uring.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <liburing.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/base/check.h"

namespace tier::storage {
namespace {

constexpr uint32_t kSetupAttempts[] = {
    IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    IORING_SETUP_R_DISABLED | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    IORING_SETUP_R_DISABLED,
};

std::string ErrorText(int error) { return std::strerror(error); }

Status InitRing(uint32_t entries, io_uring* ring) {
  int error = 0;
  for (const uint32_t flags : kSetupAttempts) {
    io_uring_params params{};
    params.flags = flags;
    error = -io_uring_queue_init_params(entries, ring, &params);
    if (error == 0) return {};
    if (error != EINVAL) break;  // Only an unknown flag is worth another try.
  }
  return Fail(Code::kDenied, fmt::format("io_uring is not to be had ({}): kernel.io_uring_disabled or a seccomp filter "
                                         "of the container forbids it, or the kernel is older than 5.10",
                                         ErrorText(error)));
}

bool Supports(io_uring* ring, std::initializer_list<int> operations) {
  io_uring_probe* probe = io_uring_get_probe_ring(ring);
  if (probe == nullptr) return false;
  bool all = true;
  for (const int operation : operations) all = all && io_uring_opcode_supported(probe, operation) != 0;
  io_uring_free_probe(probe);
  return all;
}

}  // namespace

UringIo::UringIo(const UringOptions& options, std::unique_ptr<io_uring> ring)
    : options_(options), ring_(std::move(ring)), windows_(options.windows_max) {}

Result<std::unique_ptr<UringIo>> UringIo::Create(const UringOptions& options, const CompletionSignal& signal) {
  TIER_CHECK(options.inflight_max != 0 && options.inflight_max <= kIoDepthMax * kDevicesMax, "{} in flight",
             options.inflight_max);
  TIER_CHECK(options.windows_max != 0 && options.windows_max <= kWindowsMax, "{} windows", options.windows_max);
  auto ring = std::make_unique<io_uring>();
  if (Status status = InitRing(options.inflight_max, ring.get()); !status) return std::unexpected(status.error());
  // From here on the destructor exits the ring.
  std::unique_ptr<UringIo> io(new UringIo(options, std::move(ring)));
  if (Status status = io->SetUp(signal); !status) return std::unexpected(status.error());
  return io;
}

Status UringIo::SetUp(const CompletionSignal& signal) {
  if (!Supports(ring_.get(), {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED})) {
    return Fail(Code::kDenied, "this kernel's io_uring lacks positioned reads and writes (5.6)");
  }
  std::vector<int> none(kDevicesMax, -1);
  if (const int error = -io_uring_register_files(ring_.get(), none.data(), kDevicesMax); error > 0) {
    return Fail(Code::kDenied, "io_uring cannot register files: " + ErrorText(error));
  }
  if (const int error = -io_uring_register_eventfd(ring_.get(), signal.fd()); error > 0) {
    return Fail(Code::kDenied, "io_uring cannot register an eventfd: " + ErrorText(error));
  }
  const int error = -io_uring_register_buffers_sparse(ring_.get(), options_.windows_max);
  buffer_table_ = error <= 0;
  if (!buffer_table_) unpinned_reason_ = "io_uring has no sparse buffer table: " + ErrorText(error);
  return {};
}

UringIo::~UringIo() {
  TIER_CHECK(inflight_ == 0, "{} requests in flight", inflight_);
  // Best effort: from another thread than the ring's the kernel refuses, and drops both when the ring closes.
  (void)io_uring_unregister_buffers(ring_.get());
  (void)io_uring_unregister_files(ring_.get());
  io_uring_queue_exit(ring_.get());
}

Status UringIo::AddDevice(int fd) {
  TIER_CHECK(device_count_ < kDevicesMax, "{} devices", device_count_);
  if (const int result = io_uring_register_files_update(ring_.get(), device_count_, &fd, 1); result != 1) {
    return Fail(Code::kIoError, "io_uring cannot register the device's descriptor: " + ErrorText(-result));
  }
  ++device_count_;
  return {};
}

void UringIo::EnsureEnabled() {
  if (enabled_) [[likely]]
    return;
  // By hand: liburing 2.3 declares io_uring_enable_rings and does not export it.
  const long result = ::syscall(SYS_io_uring_register, ring_->ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  TIER_CHECK(result == 0, "enabling the ring: {}", ErrorText(errno));
  enabled_ = true;
}

void UringIo::AddWindow(WindowIndex window, std::byte* address, uint64_t size) {
  TIER_CHECK(Value(window) < windows_.size(), "window {} of {}", Value(window), windows_.size());
  TIER_CHECK(size != 0 && size <= kWindowSizeMax, "window of {} bytes", size);
  Window& entry = windows_[Value(window)];
  TIER_CHECK(entry.address == nullptr, "window {} added twice", Value(window));
  EnsureEnabled();
  entry = {.address = address, .size = size};
  if (!pinned()) return;  // One refusal is enough: each try pins the whole window before the kernel counts it.
  const iovec iov{address, size};
  const __u64 tag = 0;
  const int result = io_uring_register_buffers_update_tag(ring_.get(), Value(window), &iov, &tag, 1);
  entry.registered = result == 1;
  if (entry.registered) return;
  unpinned_reason_ =
      result == -ENOMEM
          ? fmt::format(
                "registering a window of {} bytes passes RLIMIT_MEMLOCK: raise it (LimitMEMLOCK=infinity, "
                "or 'ulimit -l unlimited')",
                size)
          : fmt::format("registering a window of {} bytes: {}", size, ErrorText(-result));
}

void UringIo::RemoveWindow(WindowIndex window) {
  TIER_CHECK(Value(window) < windows_.size(), "window {} of {}", Value(window), windows_.size());
  Window& entry = windows_[Value(window)];
  TIER_CHECK(entry.address != nullptr, "window {} is not there", Value(window));
  if (entry.registered) {
    const iovec iov{nullptr, 0};
    const __u64 tag = 0;
    const int result = io_uring_register_buffers_update_tag(ring_.get(), Value(window), &iov, &tag, 1);
    TIER_CHECK(result == 1, "unregistering window {}: {}", Value(window), result);
  }
  entry = {};
}

void UringIo::Start(const IoRequest& request) {
  TIER_CHECK(inflight_ < options_.inflight_max, "{} in flight", inflight_);
  TIER_CHECK(request.device < device_count_ && request.length != 0, "device {} of {}, {} bytes", request.device,
             device_count_, request.length);
  TIER_CHECK(Value(request.window) < windows_.size(), "window {} of {}", Value(request.window), windows_.size());
  const Window& window = windows_[Value(request.window)];
  TIER_CHECK(window.address != nullptr && request.memory >= window.address &&
                 request.memory + request.length <= window.address + window.size,
             "{} bytes outside window {}", request.length, Value(request.window));
  EnsureEnabled();
  io_uring_sqe* sqe = io_uring_get_sqe(ring_.get());
  TIER_CHECK(sqe != nullptr, "submission queue of {} is full", options_.inflight_max);
  const int buffer = static_cast<int>(Value(request.window));
  const bool fixed = window.registered && !request.unregistered;
  if (request.direction == Direction::kRead) {
    if (fixed) {
      io_uring_prep_read_fixed(sqe, request.device, request.memory, request.length, request.offset, buffer);
    } else {
      io_uring_prep_read(sqe, request.device, request.memory, request.length, request.offset);
    }
  } else if (fixed) {
    io_uring_prep_write_fixed(sqe, request.device, request.memory, request.length, request.offset, buffer);
  } else {
    io_uring_prep_write(sqe, request.device, request.memory, request.length, request.offset);
  }
  io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
  sqe->user_data = request.token;
  ++inflight_;
}

void UringIo::Submit() {
  if (io_uring_sq_ready(ring_.get()) == 0) return;
  const int result = io_uring_submit(ring_.get());
  // Out of memory or of completion places for the moment: what is left goes with the next Submit or Poll.
  TIER_CHECK(result >= 0 || result == -EAGAIN || result == -EBUSY || result == -EINTR || result == -ENOMEM,
             "io_uring_submit: {}", ErrorText(-result));
}

void UringIo::Poll(std::vector<IoCompletion>* completions) {
  if (inflight_ == 0) return;
  Submit();
  io_uring_cqe* batch[64];
  for (;;) {
    const unsigned count = io_uring_peek_batch_cqe(ring_.get(), batch, std::size(batch));
    if (count == 0) return;
    for (unsigned i = 0; i < count; ++i) completions->push_back({batch[i]->user_data, batch[i]->res});
    io_uring_cq_advance(ring_.get(), count);
    TIER_CHECK(inflight_ >= count, "{} completions, {} in flight", count, inflight_);
    inflight_ -= count;
  }
}

}  // namespace tier::storage
