// Why requests are refused, as operators count it: what would have to change for them to be granted. A code tells the
// client what to do; several reasons share one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "proto/result.h"

namespace tier::tiering {

enum class RefusalReason : uint8_t {
  kRequest,      // What was asked for is wrong, is not there or is not allowed.
  kLimit,        // More than the job may have: its limit, its user's quota, or what other jobs are guaranteed.
  kOwnLeases,    // Leases of the session itself.
  kOtherLeases,  // Leases of other jobs beyond their guarantees.
  kConflict,     // Leases, transfers or updates of others at the same tensor.
  kHostMemory,   // The host has no memory for the rest of the arena.
  kNotReturned,  // Windows that other jobs were asked for, and have not returned.
  kArena,        // The arena is full.
  kRecords,      // The daemon's own memory for its user, or a table of a fixed size.
  kSsdSpace,
  kDevice,    // A device fails, or does not answer.
  kDeadline,  // It was not done in time, and nothing else stood in its way.
};
inline constexpr size_t kRefusalReasons = 12;
using RefusalCounts = std::array<uint64_t, kRefusalReasons>;
constexpr const char* RefusalReasonName(RefusalReason reason) {
  constexpr std::array<const char*, kRefusalReasons> kNames = {
      "request",      "limit", "own_leases", "other_leases", "conflict", "host_memory",
      "not_returned", "arena", "records",    "ssd_space",    "device",   "deadline"};
  return kNames[static_cast<size_t>(reason)];
}

// Of a refusal that names none.
constexpr RefusalReason ReasonOfCode(Code code) {
  switch (code) {
    case Code::kNoMemory: return RefusalReason::kRecords;
    case Code::kNoSpace: return RefusalReason::kSsdSpace;
    case Code::kIoError:
    case Code::kCorrupt: return RefusalReason::kDevice;
    case Code::kWouldDeadlock: return RefusalReason::kOwnLeases;
    case Code::kTimeout: return RefusalReason::kDeadline;
    default: return RefusalReason::kRequest;
  }
}

}  // namespace tier::tiering
