// The outcome codes that cross every boundary of tierd: rings, sockets, gRPC, the C ABI, Python exceptions.
//
// A code exists only because a caller acts differently on it. The numbers are wire and ABI values: never reuse or
// renumber one. Thread-safety: constants only.
#pragma once

#include <cstdint>
#include <string_view>

namespace tier {

enum class Code : uint16_t {
  kOk = 0,
  kInvalid = 1,         // The request can never be right: fix the caller.
  kNotFound = 2,        // No such tensor, job, session or device.
  kAlreadyExists = 3,   // Created twice; a live job opened with mode create.
  kDenied = 4,          // The caller has no right to it, or the daemon was started without what it needs.
  kNoMemory = 5,        // The owner's share of RAM cannot hold it (figures in the detail).
  kNoSpace = 6,         // The SSD tier cannot hold it.
  kIoError = 7,         // A device failed; the detail names tensor, device, offset.
  kCorrupt = 8,         // Bytes came back from a device with a wrong checksum.
  kTorn = 9,            // A writer died: the tensor would mix generations. Rewrite, restore or tier_accept it.
  kStale = 10,          // A handle of an earlier epoch, or of an object freed already.
  kDisconnected = 11,   // The daemon is gone.
  kRevoked = 12,        // The daemon ended this session; no automatic reconnect.
  kWouldDeadlock = 13,  // Only the caller's own leases block the request.
  kTimeout = 14,        // The deadline passed; trying again may help.
  kVersion = 15,        // The two sides speak different protocol versions.
};
inline constexpr uint16_t kCodeCount = 16;

// "NO_MEMORY" and so on: the spelling used in logs, JSON and documentation.
constexpr std::string_view CodeName(Code code) {
  constexpr std::string_view kNames[kCodeCount] = {
      "OK",      "INVALID", "NOT_FOUND", "ALREADY_EXISTS", "DENIED",  "NO_MEMORY",      "NO_SPACE", "IO_ERROR",
      "CORRUPT", "TORN",    "STALE",     "DISCONNECTED",   "REVOKED", "WOULD_DEADLOCK", "TIMEOUT",  "VERSION"};
  const auto index = static_cast<uint16_t>(code);
  return index < kCodeCount ? kNames[index] : std::string_view("UNKNOWN");
}

}  // namespace tier
