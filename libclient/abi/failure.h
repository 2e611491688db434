// Failure: turns a Status into the C interface's integer and tier_last_error(), and stops every exception.
#pragma once

#include <new>
#include <utility>

#include "libclient/include/tier/tier.h"
#include "proto/result.h"

namespace tier::abi {

// Keeps the sentence for this thread; returns the code as the C interface has it.
int Remember(const Error& error) noexcept;
int RememberText(int code, const char* text) noexcept;

// Runs one call of the C interface: a Status becomes a code, an exception becomes NO_MEMORY or INVALID.
template <typename Call>
int Guarded(Call&& call) noexcept {
  try {
    const Status status = std::forward<Call>(call)();
    return status ? TIER_OK : Remember(status.error());
  } catch (const std::bad_alloc&) {
    return RememberText(TIER_NO_MEMORY, "libtier could not allocate memory of its own");
  } catch (const std::exception& failure) {
    return RememberText(TIER_INVALID, failure.what());
  } catch (...) {
    return RememberText(TIER_INVALID, "an unknown failure inside libtier");
  }
}

}  // namespace tier::abi
