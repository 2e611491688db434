// The handler side of fault_guard.h. What the handler reads is lock-free and async-signal-safe: a thread-local pointer
// to the innermost jump buffer, and a table of atomic ranges.
#include "daemon/base/fault_guard.h"

#include <csetjmp>
#include <csignal>

#include <array>
#include <atomic>
#include <mutex>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/base/fault_escape.h"
#include "proto/mutex.h"

namespace tier::base {
namespace {

struct Frame {
  sigjmp_buf jump;
  Frame* outer;
};

// initial-exec: no lazy allocation of thread-local storage inside the handler.
__attribute__((tls_model("initial-exec"))) constinit thread_local Frame* volatile innermost = nullptr;

// AnyFaultEnds of this thread that exist.
__attribute__((tls_model("initial-exec"))) constinit thread_local volatile uint32_t any_fault_ends = 0;

struct Range {
  std::atomic<uintptr_t> begin;
  std::atomic<uintptr_t> end;  // 0: unused. Published last, withdrawn first.
};

constinit std::array<Range, kGuardedRangesMax> ranges{};
constinit std::atomic<uint32_t> ranges_top{0};  // Entries ever used: what the handler has to look through.
constinit std::atomic<uint64_t> faults{0};
constinit Mutex ranges_mutex;  // Orders writers of `ranges`; the handler takes no lock.
#if defined(__SANITIZE_THREAD__)
constexpr int kSaveMask = 1;  // ThreadSanitizer runs handlers with every signal blocked, whatever was asked.
#else
constexpr int kSaveMask = 0;  // SA_NODEFER leaves the mask alone; saving it would cost a system call.
#endif

struct sigaction previous_bus;
struct sigaction previous_segv;

bool InRange(uintptr_t address) {
  const uint32_t top = ranges_top.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < top; ++i) {
    if (address < ranges[i].end.load(std::memory_order_acquire) &&
        address >= ranges[i].begin.load(std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void OnFault(int signal, siginfo_t* info, void* /*context*/) {
  const bool from_kernel = info->si_code > 0;
  const bool expected = any_fault_ends != 0 || InRange(reinterpret_cast<uintptr_t>(info->si_addr));
  if (from_kernel && innermost != nullptr && expected) {
    faults.fetch_add(1, std::memory_order_relaxed);
    siglongjmp(innermost->jump, 1);
  }
  // Not ours: as if this handler had never been there. A real fault happens again on return.
  ::sigaction(signal, signal == SIGBUS ? &previous_bus : &previous_segv, nullptr);
  if (!from_kernel) ::raise(signal);
}

void Install(int signal, struct sigaction* previous) {
  struct sigaction action{};
  action.sa_sigaction = &OnFault;
  // SA_NODEFER: a jump out of the handler must not leave the signal blocked (no mask is saved, for speed).
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  TIER_CHECK(::sigaction(signal, &action, previous) == 0, "signal {}", signal);
}

uint32_t ClaimEntry() {
  const uint32_t top = ranges_top.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < top; ++i) {
    if (ranges[i].end.load(std::memory_order_relaxed) == 0) return i;
  }
  TIER_CHECK(top < kGuardedRangesMax, "guarded ranges {}", top);
  ranges_top.store(top + 1, std::memory_order_release);
  return top;
}

}  // namespace

void InstallFaultGuard() {
  static std::once_flag once;
  std::call_once(once, [] {
    Install(SIGBUS, &previous_bus);
    Install(SIGSEGV, &previous_segv);
  });
}

GuardedRange::GuardedRange(const void* address, size_t size) {
  TIER_CHECK(address != nullptr && size != 0, "size {}", size);
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const MutexLock lock(ranges_mutex);
  entry_ = ClaimEntry();
  ranges[entry_].begin.store(begin, std::memory_order_relaxed);
  ranges[entry_].end.store(begin + size, std::memory_order_release);
}

GuardedRange::GuardedRange(GuardedRange&& other) noexcept : entry_(std::exchange(other.entry_, kNone)) {}

GuardedRange& GuardedRange::operator=(GuardedRange&& other) noexcept {
  std::swap(entry_, other.entry_);
  return *this;
}

GuardedRange::~GuardedRange() {
  if (entry_ == kNone) return;
  const MutexLock lock(ranges_mutex);
  ranges[entry_].end.store(0, std::memory_order_release);
}

AnyFaultEnds::AnyFaultEnds() { any_fault_ends = any_fault_ends + 1; }
AnyFaultEnds::~AnyFaultEnds() { any_fault_ends = any_fault_ends - 1; }

void EndGuardedCall() {
  if (innermost == nullptr) return;
  faults.fetch_add(1, std::memory_order_relaxed);
  siglongjmp(innermost->jump, 1);
}

uint64_t GuardedFaults() { return faults.load(std::memory_order_relaxed); }

namespace fault_internal {

bool Run(void (*call)(void* context), void* context) noexcept {
  Frame frame;
  frame.outer = innermost;
  if (sigsetjmp(frame.jump, kSaveMask) != 0) {
    innermost = frame.outer;
    return false;
  }
  innermost = &frame;
  call(context);
  innermost = frame.outer;
  return true;
}

}  // namespace fault_internal
}  // namespace tier::base
