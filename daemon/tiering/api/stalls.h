// Stalls: requests of a job that waited long, and what they waited for. Plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/tiering/api/request.h"

namespace tier::tiering {

// What a request waits for.
enum class StallCause : uint8_t {
  kRam,       // Memory within its job's share, or pages side by side; also where leases of other tensors hold it.
  kSsdRead,   // Its bytes are being read.
  kSsdWrite,  // Its bytes, or those of a piece that it is to change, are being written; or a manifest is.
  kLease,     // Another lease of the same tensor, or an update that is not finished.
  kBudget,    // The work budget of the turns: it can be continued.
  kQueue,     // Its turn, behind other requests of its job.
};
inline constexpr size_t kStallCauses = 6;
using StallParts = std::array<base::Duration, kStallCauses>;
using StallCounts = std::array<uint64_t, kStallCauses>;
constexpr const char* StallCauseName(StallCause cause) {
  constexpr std::array<const char*, kStallCauses> kNames = {"ram", "ssd_read", "ssd_write", "lease", "budget", "queue"};
  return kNames[static_cast<size_t>(cause)];
}

inline constexpr size_t kStallsKept = 128;        // Of each job; then the oldest goes.
inline constexpr size_t kWaitingListedMax = 256;  // Of each job, those that came first.

struct Stall {
  SessionId session{};
  proto::Op op = proto::Op::kNone;
  Code code = Code::kOk;  // How it ended.
  bool waiting = false;   // It has not.
  // Where it waited last; else the first that it named. 0 and 0: it named none.
  uint64_t tensor = 0;
  uint64_t space = 0;  // 0: shared; else a session.
  uint32_t tensor_count = 0;
  uint64_t requested_bytes = 0;  // Of RAM, by a create or an acquire.
  uint64_t step = 0;             // Of its session, as of then.
  base::TimePoint began;
  base::Duration waited{};
  StallParts parts{};  // By cause: together as long as it waited.
};

struct NamedStall {
  Stall stall;
  std::string key;  // Of its tensor; empty: it has none.
};

struct StallList {
  std::vector<NamedStall> stalls;  // Those that wait first, in the order of arrival; then those that ended last.
  uint64_t ended = 0;              // Since the job was opened. Counter.
  base::Duration threshold{};      // EngineOptions::stall_threshold
};

}  // namespace tier::tiering
