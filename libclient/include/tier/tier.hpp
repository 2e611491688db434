// tier.hpp - the C++ interface of libtier: move-only classes that own the handles of tier.h, and one exception type.
//
// Header only, C++20; it needs libtier.so and no other library, so it works with any C++ runtime. A failure is thrown
// as Error (std::expected would need C++23 in every program). Any number of threads may use a Client; one thread at a
// time a Lease or an Operation. A Lease that is destroyed is released, an Operation waited for, a Client closed, where
// no thread is in a call of it. Leases and operations may outlive their client; their calls then throw STALE.
#ifndef TIER_TIER_HPP
#define TIER_TIER_HPP

#include <tier/tier.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tier {

// A call that failed: one of the TIER_... codes, and a sentence that says what to do about it.
class Error : public std::runtime_error {
 public:
  Error(int code, const std::string& sentence)
      : std::runtime_error(std::string(tier_code_name(code)) + ": " + sentence), code_(code) {}
  // One of the TIER_... codes.
  int code() const noexcept { return code_; }

 private:
  int code_;
};

// Throws Error unless `code` is TIER_OK. For calls of tier.h that have no method here.
inline void Check(int code) {
  if (code != TIER_OK) throw Error(code, tier_last_error());
}

// Bytes of a tensor under a lease, which the destructor releases. The content of a write lease becomes final by Seal(),
// Release() or destruction; Abandon() reverts it.
class Lease {
 public:
  Lease() = default;
  explicit Lease(tier_lease* handle) noexcept : handle_(handle) {}
  Lease(Lease&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Lease& operator=(Lease&& other) noexcept {
    if (this != &other) {
      Drop();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { Drop(); }

  explicit operator bool() const noexcept { return handle_ != nullptr; }

  // The leased bytes, contiguous, valid until the lease ends. The first call maps scattered blocks side by side.
  std::span<std::byte> bytes() const {
    void* address = nullptr;
    uint64_t length = 0;
    Check(tier_lease_data(handle_, &address, &length));
    return {static_cast<std::byte*>(address), static_cast<std::size_t>(length)};
  }
  // The same bytes as elements of T. Throws INVALID where their number or their address does not fit T.
  template <typename T>
  std::span<T> as() const {
    const std::span<std::byte> raw = bytes();
    if (raw.size() % sizeof(T) != 0 || reinterpret_cast<std::uintptr_t>(raw.data()) % alignof(T) != 0) {
      throw Error(TIER_INVALID, "the leased range is no whole number of aligned elements");
    }
    return {reinterpret_cast<T*>(raw.data()), raw.size() / sizeof(T)};
  }
  // The leased bytes where they lie, without mapping them side by side: for devices and scatter lists.
  std::vector<tier_segment> segments() const {
    std::size_t count = 0;
    Check(tier_lease_segments(handle_, nullptr, 0, &count));
    std::vector<tier_segment> list(count);
    Check(tier_lease_segments(handle_, list.data(), list.size(), &count));
    return list;
  }
  // Ends a write lease: the content is final.
  void Seal() { Check(tier_seal(std::exchange(handle_, nullptr))); }
  // Ends a lease; a write lease is sealed. TIER_FREE_AFTER frees the tensor, TIER_EVICT_FIRST is a hint (tier.h).
  void Release(uint32_t flags = 0) { Check(tier_release(std::exchange(handle_, nullptr), flags)); }
  // Ends a write lease whose content is not final: the daemon reverts the range, or declares the tensor TORN.
  void Abandon() { Release(TIER_ABANDON); }
  // For calls of tier.h that have no method here. The object still owns the lease.
  tier_lease* handle() const noexcept { return handle_; }

 private:
  void Drop() noexcept {
    if (handle_ != nullptr) (void)tier_release(std::exchange(handle_, nullptr), 0);
  }
  tier_lease* handle_ = nullptr;
};

// The result of a swap.
struct SwapOutcome {
  uint64_t bytes = 0;             // Copied, counted in the caller's memory.
  uint64_t non_finite_count = 0;  // With check_finite.
  double sum_of_squares = 0;      // With sum_squares.
};

// An asynchronous call. The memory that it reads or writes stays valid until Wait() has returned; the destructor waits.
class Operation {
 public:
  Operation() = default;
  explicit Operation(tier_op* handle) noexcept : handle_(handle) {}
  Operation(Operation&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Operation& operator=(Operation&& other) noexcept {
    if (this != &other) {
      Drop();
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  ~Operation() { Drop(); }

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  // True: the operation has ended, so that Wait() returns at once.
  bool done() const noexcept { return handle_ == nullptr || tier_done(handle_) != 0; }
  // Waits up to `time`, 49 days at most, and returns true when the operation has ended. Call Wait() for the outcome.
  bool WaitFor(std::chrono::milliseconds time) const noexcept {
    const int64_t most = time.count() < 0 ? 0 : time.count() < UINT32_MAX ? time.count() : UINT32_MAX;
    return handle_ == nullptr || tier_poll(handle_, static_cast<uint32_t>(most)) != 0;
  }
  // Waits until the operation has ended, and throws its failure. The object is empty afterwards.
  SwapOutcome Wait() {
    tier_copy_outcome outcome{};
    outcome.struct_size = sizeof outcome;
    Check(tier_wait(std::exchange(handle_, nullptr), 0, &outcome));
    return {outcome.bytes, outcome.non_finite_count, outcome.sum_of_squares};
  }
  // Asks that the operation end early; Wait() then throws TIMEOUT.
  void Cancel() noexcept {
    if (handle_ != nullptr) tier_cancel(handle_);
  }

 private:
  void Drop() noexcept {
    if (handle_ != nullptr) (void)tier_wait(std::exchange(handle_, nullptr), 0, nullptr);
  }
  tier_op* handle_ = nullptr;
};

// How to connect: the fields of tier_connect_options. An empty string is NULL there.
struct ConnectOptions {
  std::string socket;
  std::string job;
  std::string token;
  int mode = TIER_MODE_ATTACH;
  bool named = false;
  int rank = -1;
  int world_size = 0;
  uint64_t guarantee_bytes = 0;
  uint64_t limit_bytes = 0;
  int copy_threads = 0;
  int spin = 0;  // 0 auto, 1 always, 2 never
};

// A byte range of a tensor; length 0: to the end.
struct Range {
  uint64_t offset = 0;
  uint64_t length = 0;
};

// One session with the daemon, for any number of threads.
class Client {
 public:
  // Opens a session. Throws what tier_connect returns; NOT_FOUND and DISCONNECTED name every socket tried.
  explicit Client(const ConnectOptions& options = {}) {
    tier_connect_options given = TIER_CONNECT_OPTIONS_INIT;
    const auto text = [](const std::string& value) { return value.empty() ? nullptr : value.c_str(); };
    given.socket = text(options.socket);
    given.job = text(options.job);
    given.token = text(options.token);
    given.mode = options.mode;
    given.named = options.named ? 1 : 0;
    given.rank = options.rank;
    given.world_size = options.world_size;
    given.guarantee_bytes = options.guarantee_bytes;
    given.limit_bytes = options.limit_bytes;
    given.copy_threads = options.copy_threads;
    given.spin = options.spin;
    Check(tier_connect(&given, &handle_));
  }
  Client(Client&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Client& operator=(Client&& other) noexcept {
    if (this != &other) {
      tier_close(handle_);
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client() { tier_close(handle_); }

  // Creates a tensor of `size` bytes and leases `range` of it for writing. Others can acquire the tensor once all of it
  // has been sealed. TIER_SHARED | TIER_SHARDED: ranks divide it, and it is TORN also when one of them ends while the
  // steps in which they wrote last have different numbers (tier_create).
  Lease Create(uint64_t tensor, uint64_t size, Range range = {}, uint32_t flags = 0, uint32_t timeout_ms = 0) {
    const tier_range asked{tensor, range.offset, range.length, size};
    tier_lease* lease = nullptr;
    Check(tier_create(handle_, &asked, flags, timeout_ms, &lease));
    return Lease(lease);
  }
  // Leases a range for reading, or with TIER_WRITE for writing, once the range is in RAM.
  Lease Acquire(uint64_t tensor, uint32_t flags = 0, Range range = {}, uint32_t timeout_ms = 0) {
    const tier_range asked{tensor, range.offset, range.length, 0};
    tier_lease* lease = nullptr;
    Check(tier_acquire(handle_, &asked, flags, timeout_ms, &lease));
    return Lease(lease);
  }
  // Leases several ranges by one request: all of them or none.
  std::vector<Lease> Acquire(std::span<const tier_range> ranges, uint32_t flags = 0, uint32_t timeout_ms = 0) {
    std::vector<tier_lease*> handles(ranges.size());
    Check(tier_acquire_batch(handle_, ranges.data(), ranges.size(), flags, timeout_ms, handles.data()));
    std::vector<Lease> leases;
    leases.reserve(handles.size());
    for (tier_lease* handle : handles) leases.emplace_back(handle);
    return leases;
  }
  // Copies `bytes` into the tensor, which is created or replaced. `bytes` must stay unchanged until Wait() has
  // returned.
  Operation SwapOut(uint64_t tensor, std::span<const std::byte> bytes, const tier_copy_options* options = nullptr) {
    tier_op* op = nullptr;
    Check(tier_swap_out(handle_, tensor, bytes.data(), bytes.size(), options, &op));
    return Operation(op);
  }
  // Copies the tensor into `bytes`.
  Operation SwapIn(uint64_t tensor, std::span<std::byte> bytes, const tier_copy_options* options = nullptr) {
    tier_op* op = nullptr;
    Check(tier_swap_in(handle_, tensor, bytes.data(), bytes.size(), options, &op));
    return Operation(op);
  }
  // Frees the tensor and every copy of it.
  void Free(uint64_t tensor, uint32_t flags = 0) { Check(tier_free(handle_, tensor, flags)); }
  // A hint: the tensors will be used soon, in this order, and should be read into RAM (tier_prefetch).
  void Prefetch(std::span<const uint64_t> tensors, uint32_t flags = 0) {
    std::vector<tier_range> ranges;
    ranges.reserve(tensors.size());
    for (const uint64_t tensor : tensors) ranges.push_back({tensor, 0, 0, 0});
    Check(tier_prefetch(handle_, ranges.data(), ranges.size(), flags));
  }
  // Marks the end of a training step (UINT64_MAX: the next number), and finishes the updates of this session.
  void Step(uint64_t step = UINT64_MAX) { Check(tier_step(handle_, step)); }
  // Returns when the tensors (none: all of this session) have a copy on SSD.
  void Flush(std::span<const uint64_t> tensors = {}, uint32_t flags = 0) {
    Check(tier_flush(handle_, tensors.data(), tensors.size(), flags));
  }
  // Makes the tensors (none: all of the job) durable by one manifest.
  void Persist(std::span<const uint64_t> tensors = {}, uint32_t flags = 0) {
    Check(tier_persist(handle_, tensors.data(), tensors.size(), flags));
  }
  // Declares the content that a TORN tensor has now to be right.
  void Accept(uint64_t tensor, uint32_t flags = 0) { Check(tier_accept(handle_, tensor, flags)); }
  // The job-wide id of a string key.
  uint64_t Intern(std::string_view key) {
    uint64_t id = 0;
    Check(tier_intern(handle_, key.data(), key.size(), &id));
    return id;
  }
  // The size of a tensor, and where it lies.
  tier_tensor_view Tensor(uint64_t tensor, uint32_t flags = 0) {
    tier_tensor_view view{};
    view.struct_size = sizeof view;
    Check(tier_tensor(handle_, tensor, flags, &view));
    return view;
  }
  // What the client has done since it connected (tier_stats).
  tier_stats_view Stats() {
    tier_stats_view view{};
    view.struct_size = sizeof view;
    Check(tier_stats(handle_, &view));
    return view;
  }
  // The daemon and the job of the client, and whether the session still is there (tier_session).
  tier_session_view Session() {
    tier_session_view view{};
    view.struct_size = sizeof view;
    Check(tier_session(handle_, &view));
    return view;
  }
  // For calls of tier.h that have no method here. The object still owns the session.
  tier_client* handle() const noexcept { return handle_; }

 private:
  tier_client* handle_ = nullptr;
};

}  // namespace tier

#endif  // TIER_TIER_HPP
