// FaultGuard: touching window bytes that a client may have taken away (it can punch holes in its own window, and no
// seal prevents it). A fault inside a registered range, while a guarded call runs on that thread, ends the call with
// false instead of the process; every other fault goes where it went before.
//
// The idea: one process-wide SIGBUS/SIGSEGV handler that jumps (siglongjmp) back into RunGuarded of the same thread.
// A jump runs no destructors: a guarded function may own only trivially destructible state, take no lock, allocate
// nothing and call nothing that does. What it wrote before the fault is unspecified after false.
//
// Thread-safe. RunGuarded costs some 10 ns and may nest (the innermost ends).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "proto/units.h"

namespace tier::base {

inline constexpr uint32_t kGuardedRangesMax = kWindowsMax + 64;  // Every window, and room for tests' own buffers.

// Installs the handlers, once per process; further calls do nothing. Call before the first RunGuarded.
void InstallFaultGuard();

// Names [address, address + size) as bytes that may vanish, from construction to destruction. The arena does this for
// each window. CHECK-fails beyond kGuardedRangesMax. Movable.
class GuardedRange {
 public:
  GuardedRange() = default;
  GuardedRange(const void* address, size_t size);
  GuardedRange(GuardedRange&& other) noexcept;
  GuardedRange& operator=(GuardedRange&& other) noexcept;
  ~GuardedRange();

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t entry_ = kNone;
};

// How many guarded calls ended by a fault since the process began.
uint64_t GuardedFaults();

namespace fault_internal {
bool Run(void (*call)(void* context), void* context) noexcept;
}  // namespace fault_internal

// Runs `function()`; false: it touched bytes of a registered range that could not be had.
template <typename F>
[[nodiscard]] bool RunGuarded(F&& function) noexcept {
  using Function = std::remove_reference_t<F>;
  return fault_internal::Run([](void* context) { (*static_cast<Function*>(context))(); },
                             const_cast<void*>(static_cast<const void*>(std::addressof(function))));
}

}  // namespace tier::base
