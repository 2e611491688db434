// The only file that talks to liburing. What the kernel lacks is left out step by step and said: deferred task work
// (6.1), a sparse buffer table (5.19), io_uring itself.
#include "daemon/storage/uring.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <liburing.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/base/check.h"
#include "daemon/base/format_bytes.h"

namespace tier::storage {
namespace {

constexpr uint32_t kSetupAttempts[] = {
    IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    IORING_SETUP_R_DISABLED | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    IORING_SETUP_R_DISABLED,
};

// What a completion is of, beside requests.
constexpr uint64_t kSignalToken = 1ull << 63;
constexpr uint64_t kWindowTag = 1ull << 62;  // The kernel let go of the window in the low bits.
constexpr int kDeviceFile = 0;               // In the table of registered files.
constexpr uint64_t kRetryToken = 1ull << 61;
constexpr int kShortageWaitMs = 1;
// A window that has gone counts against RLIMIT_MEMLOCK until its pages are unpinned: a refused one is tried again at
// once, then after these times, doubling.
constexpr int64_t kRetryNsFirst = 5'000'000;
constexpr int64_t kRetryNsMax = 640'000'000;

std::string ErrorText(int error) { return std::strerror(error); }

// Out of memory or of completion places, for the moment.
bool IsShortage(int result) { return result == -EAGAIN || result == -EBUSY || result == -ENOMEM; }

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

// A ring and a page for ProvePinning.
struct PinTrial {
  io_uring ring{};
  bool open = false;
  alignas(kPageSize) std::array<std::byte, kPageSize> page{};

  PinTrial() = default;
  PinTrial(const PinTrial&) = delete;
  PinTrial& operator=(const PinTrial&) = delete;
  ~PinTrial() {
    if (open) io_uring_queue_exit(&ring);
  }
  // 0, or the error.
  int Open() {
    const int error = -io_uring_queue_init(2, &ring, 0);
    open = error == 0;
    return open ? std::max(-io_uring_register_buffers_sparse(&ring, 1), 0) : error;
  }
  int Pin() {
    const iovec filled{page.data(), page.size()};
    const iovec none{nullptr, 0};
    const __u64 tag = 0;
    const int result = io_uring_register_buffers_update_tag(&ring, 0, &filled, &tag, 1);
    if (result == 1) (void)io_uring_register_buffers_update_tag(&ring, 0, &none, &tag, 1);
    return result == 1 ? 0 : result < 0 ? -result : EIO;
  }
};

bool Supports(io_uring* ring, std::initializer_list<int> operations) {
  io_uring_probe* probe = io_uring_get_probe_ring(ring);
  if (probe == nullptr) return false;
  bool all = true;
  for (const int operation : operations) all = all && io_uring_opcode_supported(probe, operation) != 0;
  io_uring_free_probe(probe);
  return all;
}

}  // namespace

Status ProvePinning(uint64_t bytes) {
  const auto trial = std::make_unique<PinTrial>();
  int error = trial->Open();
  if (error == 0) error = trial->Pin();
  if (error != 0) return Fail(Code::kDenied, "io_uring registers no memory: " + ErrorText(error));
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return {};
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  const bool lowered = ::setrlimit(RLIMIT_MEMLOCK, &none) == 0;
  error = trial->Pin();
  if (lowered) TIER_CHECK(::setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "RLIMIT_MEMLOCK: {}", ErrorText(errno));
  if ((lowered && error == 0) || limit.rlim_cur >= bytes) return {};
  return Fail(Code::kDenied,
              fmt::format("RLIMIT_MEMLOCK is {}, and the arena takes up to {} of locked memory, as each SSD device "
                          "registers every window: raise it (LimitMEMLOCK=infinity, or 'ulimit -l unlimited')",
                          base::FormatBytes(limit.rlim_cur), base::FormatBytes(bytes)));
}

UringIo::UringIo(const UringOptions& options, const CompletionSignal& signal, std::unique_ptr<io_uring> ring)
    : options_(options),
      signal_(signal),
      ring_(std::move(ring)),
      windows_(options.windows_max),
      retry_delay_(std::make_unique<__kernel_timespec>()) {
  refused_.reserve(options.windows_max);
  removed_.reserve(options.windows_max);
}

Result<std::unique_ptr<UringIo>> UringIo::Create(const UringOptions& options, int device,
                                                 const CompletionSignal& signal) {
  // One more than the depth: for the probe.
  TIER_CHECK(options.inflight_max != 0 && options.inflight_max <= kIoDepthMax + 1, "{} in flight",
             options.inflight_max);
  TIER_CHECK(options.windows_max != 0 && options.windows_max <= kWindowsMax, "{} windows", options.windows_max);
  auto ring = std::make_unique<io_uring>();
  // Two places more than requests: for the signal and the timeout.
  if (Status status = InitRing(options.inflight_max + 2, ring.get()); !status) return std::unexpected(status.error());
  // From here on the destructor exits the ring.
  std::unique_ptr<UringIo> io(new UringIo(options, signal, std::move(ring)));
  if (Status status = io->SetUp(device); !status) return std::unexpected(status.error());
  return io;
}

Status UringIo::SetUp(int device) {
  if (!Supports(ring_.get(), {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_READ_FIXED, IORING_OP_WRITE_FIXED,
                              IORING_OP_POLL_ADD, IORING_OP_TIMEOUT})) {
    return Fail(Code::kDenied, "this kernel's io_uring lacks positioned reads and writes (5.6)");
  }
  if (const int error = -io_uring_register_files(ring_.get(), &device, 1); error > 0) {
    return Fail(Code::kDenied, "io_uring cannot register the device's descriptor: " + ErrorText(error));
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

void UringIo::EnsureEnabled() {
  if (enabled_) [[likely]]
    return;
  // By hand: liburing 2.3 declares io_uring_enable_rings and does not export it.
  const long result = ::syscall(SYS_io_uring_register, ring_->ring_fd, IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  TIER_CHECK(result == 0, "enabling the ring: {}", ErrorText(errno));
  enabled_ = true;
}

void UringIo::AddWindow(WindowIndex window, std::byte* address, uint64_t size, Pin pin) {
  TIER_CHECK(Value(window) < windows_.size(), "window {} of {}", Value(window), windows_.size());
  TIER_CHECK(size != 0 && size <= kWindowSizeMax, "window of {} bytes", size);
  Window& entry = windows_[Value(window)];
  TIER_CHECK(entry.address == nullptr, "window {} added twice", Value(window));
  entry = {.address = address, .size = size};
  if (!buffer_table_ || pin == Pin::kNo) return;
  entry.registration = Registration::kRefused;
  refused_.push_back(window);
  // After one refusal others wait with it: each try pins the whole window before the kernel counts it.
  if (refused_.size() == 1) RetryRefused();
}

// Oldest first, until one is refused again.
void UringIo::RetryRefused() {
  EnsureEnabled();
  size_t tried = 0;
  for (; tried < refused_.size(); ++tried) {
    Register(refused_[tried]);
    if (!registered(refused_[tried])) break;
  }
  refused_.erase(refused_.begin(), refused_.begin() + static_cast<ptrdiff_t>(tried));
  if (refused_.empty()) unpinned_reason_.clear();
}

// After the delay, which doubles from one time to the next, and not at all when it has become too long.
void UringIo::RetryLater() {
  if (refused_.empty() || retry_armed_ || retry_delay_->tv_nsec > kRetryNsMax) return;
  io_uring_sqe* sqe = io_uring_get_sqe(ring_.get());
  TIER_CHECK(sqe != nullptr, "submission queue of {} is full", options_.inflight_max);
  io_uring_prep_timeout(sqe, retry_delay_.get(), 0, 0);
  sqe->user_data = kRetryToken;
  retry_armed_ = true;
}

void UringIo::Register(WindowIndex window) {
  Window& entry = windows_[Value(window)];
  const iovec iov{entry.address, entry.size};
  const __u64 tag = kWindowTag | Value(window);
  const int result = io_uring_register_buffers_update_tag(ring_.get(), Value(window), &iov, &tag, 1);
  if (result == 1) {
    entry.registration = Registration::kDone;
    return;
  }
  unpinned_reason_ =
      result == -ENOMEM
          ? fmt::format(
                "registering a window of {} bytes passes RLIMIT_MEMLOCK: raise it (LimitMEMLOCK=infinity, "
                "or 'ulimit -l unlimited'); each SSD device registers every window",
                entry.size)
          : fmt::format("registering a window of {} bytes: {}", entry.size, ErrorText(-result));
}

void UringIo::RemoveWindow(WindowIndex window) {
  TIER_CHECK(Value(window) < windows_.size(), "window {} of {}", Value(window), windows_.size());
  Window& entry = windows_[Value(window)];
  TIER_CHECK(entry.address != nullptr && entry.registration != Registration::kEnding, "window {} is not there",
             Value(window));
  if (entry.registration == Registration::kDone) {
    const iovec iov{nullptr, 0};
    const __u64 tag = 0;
    const int result = io_uring_register_buffers_update_tag(ring_.get(), Value(window), &iov, &tag, 1);
    TIER_CHECK(result == 1, "unregistering window {}: {}", Value(window), result);
    entry.registration = Registration::kEnding;
    ++ending_;
    return;
  }
  const bool first = !refused_.empty() && refused_.front() == window;
  std::erase(refused_, window);
  entry = {};
  removed_.push_back(window);
  if (first) RetryRefused();  // The others waited for this one.
}

void UringIo::TakeRemoved(std::vector<WindowIndex>* windows) {
  windows->insert(windows->end(), removed_.begin(), removed_.end());
  removed_.clear();
}

bool UringIo::InRegisteredWindow(const IoRequest& request) const {
  if (request.window == kNoWindow) return false;
  TIER_CHECK(Value(request.window) < windows_.size(), "window {} of {}", Value(request.window), windows_.size());
  const Window& window = windows_[Value(request.window)];
  TIER_CHECK(window.address != nullptr && request.memory >= window.address &&
                 request.memory + request.length <= window.address + window.size,
             "{} bytes outside window {}", request.length, Value(request.window));
  return window.registration == Registration::kDone;
}

void UringIo::Start(const IoRequest& request) {
  TIER_CHECK(inflight_ < options_.inflight_max, "{} in flight", inflight_);
  TIER_CHECK(request.length != 0 && request.token < kRetryToken, "{} bytes, token {}", request.length, request.token);
  const bool fixed = !request.unregistered && InRegisteredWindow(request);
  EnsureEnabled();
  io_uring_sqe* sqe = io_uring_get_sqe(ring_.get());
  TIER_CHECK(sqe != nullptr, "submission queue of {} is full", options_.inflight_max);
  const int buffer = static_cast<int>(Value(request.window));
  if (request.direction == Direction::kRead) {
    if (fixed) {
      io_uring_prep_read_fixed(sqe, kDeviceFile, request.memory, request.length, request.offset, buffer);
    } else {
      io_uring_prep_read(sqe, kDeviceFile, request.memory, request.length, request.offset);
    }
  } else if (fixed) {
    io_uring_prep_write_fixed(sqe, kDeviceFile, request.memory, request.length, request.offset, buffer);
  } else {
    io_uring_prep_write(sqe, kDeviceFile, request.memory, request.length, request.offset);
  }
  io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
  sqe->user_data = request.token;
  ++inflight_;
}

void UringIo::Submit() {
  if (io_uring_sq_ready(ring_.get()) == 0) return;
  const int result = io_uring_submit(ring_.get());
  // What is left after a shortage goes with the next Submit, Poll or Wait.
  TIER_CHECK(result >= 0 || IsShortage(result) || result == -EINTR, "io_uring_submit: {}", ErrorText(-result));
}

void UringIo::Poll(std::vector<IoCompletion>* completions) {
  if (inflight_ == 0 && ending_ == 0 && !signal_armed_ && !retry_armed_) return;
  const uint32_t ending = ending_;
  const bool retry_armed = retry_armed_;
  Submit();
  io_uring_cqe* batch[64];
  while (const unsigned count = io_uring_peek_batch_cqe(ring_.get(), batch, std::size(batch))) {
    for (unsigned i = 0; i < count; ++i) OnCompletion(batch[i]->user_data, batch[i]->res, completions);
    io_uring_cq_advance(ring_.get(), count);
  }
  const bool gone = ending_ < ending;
  const bool due = retry_armed && !retry_armed_;
  if ((!gone && !due) || refused_.empty()) return;
  RetryRefused();
  retry_delay_->tv_nsec = gone ? kRetryNsFirst : 2 * retry_delay_->tv_nsec;
  RetryLater();
}

void UringIo::OnCompletion(uint64_t token, int32_t result, std::vector<IoCompletion>* completions) {
  if (token == kSignalToken) {
    signal_armed_ = false;
    signal_.Clear();
  } else if (token == kRetryToken) {
    retry_armed_ = false;
  } else if ((token & kWindowTag) != 0) {
    const WindowIndex window{static_cast<uint32_t>(token)};
    TIER_CHECK(windows_[Value(window)].registration == Registration::kEnding && ending_ != 0,
               "the kernel let go of window {}", Value(window));
    windows_[Value(window)] = {};
    --ending_;
    removed_.push_back(window);
  } else {
    TIER_CHECK(inflight_ != 0, "completion of {}, none in flight", token);
    --inflight_;
    completions->push_back({token, result});
  }
}

void UringIo::ArmSignal() {
  if (signal_armed_) return;
  io_uring_sqe* sqe = io_uring_get_sqe(ring_.get());
  TIER_CHECK(sqe != nullptr, "submission queue of {} is full", options_.inflight_max + 1);
  io_uring_prep_poll_add(sqe, signal_.fd(), POLLIN);
  sqe->user_data = kSignalToken;
  signal_armed_ = true;
}

void UringIo::Wait() {
  if (!removed_.empty()) return;
  EnsureEnabled();
  ArmSignal();
  const int result = io_uring_submit_and_wait(ring_.get(), 1);
  if (result >= 0 || result == -EINTR) return;
  TIER_CHECK(IsShortage(result), "io_uring_submit_and_wait: {}", ErrorText(-result));
  (void)::poll(nullptr, 0, kShortageWaitMs);
}

}  // namespace tier::storage
