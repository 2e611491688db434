// What the ledger keeps of one job and of one user (ledger.h). Engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "daemon/base/time.h"
#include "daemon/tiering/api/quota.h"
#include "daemon/tiering/api/request.h"

namespace tier::tiering {

enum class EntitlementIndex : uint32_t {};
inline constexpr EntitlementIndex kNoEntitlement{UINT32_MAX};

struct Terms {
  uint64_t guarantee_bytes = 0;  // 0: an equal part.
  uint64_t limit_bytes = 0;      // 0: none.
};

struct SmallestWindows {  // Bytes.
  uint64_t block = 0;
  uint64_t slot = 0;  // A divisor of `block`.
};

enum class Growth : uint8_t {
  kNone,      // Its limit, or the arena, allows none.
  kOwn,       // From memory that no other job is promised.
  kBorrowed,  // From memory promised to other jobs or to none: it must be able to go back.
};

// How far the debt of the host reaches into what a job holds.
enum class DebtDepth : uint8_t { kSurplus, kPromise, kAll };

struct Entitlement {
  JobId id{};
  Terms terms;
  uint64_t promised = 0;
  uint64_t held = 0;
  uint64_t kept = 0;  // Windows that were taken from it and that its processes still have: Ledger::SetKept.
  uint64_t leased = 0;
  uint64_t claimed = 0;
  uint64_t returning = 0;
  uint64_t overdue = 0;
  uint64_t unbacked = 0;
  base::TimePoint claim_expires;
  base::TimePoint returning_since;
  uint32_t user = 0;
  bool live = false;
  bool ended = false;
  bool used = false;
  bool idle = false;                // As far as is known: Ledger::SetIdle.
  bool claim_left = false;          // The request that made the claim no longer waits: Ledger::LeaveClaim.
  uint64_t guarantee_in_pages = 0;  // guarantee() in whole pages.

  uint64_t counted() const { return held + kept; }
  uint64_t guarantee() const { return ended ? 0 : terms.guarantee_bytes; }
  // What `bytes` under leases are beyond the guarantee, in whole pages.
  uint64_t Beyond(uint64_t bytes) const { return bytes - std::min(bytes, guarantee_in_pages); }
  bool equal_part() const { return used && !ended && live && terms.guarantee_bytes == 0; }
  bool entitled() const { return used && !ended && (live || terms.guarantee_bytes != 0); }
};
static_assert(std::is_trivially_copyable_v<Entitlement>);

struct EntitledUser {
  uint32_t uid = 0;
  uint32_t jobs = 0;  // Used records.
  uint32_t equal_parts = 0;
  uint32_t entitled = 0;
  uint32_t live = 0;        // With sessions, and not ended.
  uint32_t open = 0;        // Not ended.
  uint64_t guaranteed = 0;  // Bytes, over its jobs.
  uint64_t taken = 0;       // Windows of its jobs: held, kept and returning, also of those that have ended.
  uint64_t most = 0;        // What its jobs may hold within their parts of its quota, in windows.
  UserQuota quota;
};
static_assert(std::is_trivially_copyable_v<EntitledUser>);

}  // namespace tier::tiering
