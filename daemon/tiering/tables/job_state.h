// JobState: what the engine keeps of one job: its share of the arena, its tensors, its waiters. Engine thread only.
//
// Invariant: pool.free_pages + pool.used_pages = pages of its ready windows; used_pages = Σ pages of its pieces' runs.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/block_pool.h"
#include "daemon/base/time.h"
#include "daemon/memory/window_source.h"
#include "daemon/tiering/api/options.h"
#include "daemon/tiering/api/snapshot.h"
#include "daemon/tiering/tables/intern_table.h"
#include "daemon/tiering/tables/ledger.h"
#include "daemon/tiering/tables/manifest_holds.h"
#include "daemon/tiering/tables/policy.h"
#include "daemon/tiering/tables/session_state.h"
#include "daemon/tiering/tables/waiter.h"

namespace tier::tiering {

class MetadataAccount;

// The space of tensors that a resumed job's sessions inherit from sessions that are gone.
inline constexpr uint64_t kInheritedSpace = UINT64_MAX;

inline constexpr base::TimePoint kNever{base::Duration::max()};

// A range that somebody asked to have in RAM soon.
struct PrefetchItem {
  TensorRef tensor;
  uint32_t next_piece = 0;
  uint32_t end_piece = 0;
};
inline constexpr size_t kPrefetchItemsMax = 1u << 16;

// The last failure to write this job's bytes, for refusals.
struct WriteFailure {
  Code code = Code::kOk;
  uint64_t tensor = 0;
  std::string message;
};

// The tensors of a namespace that is gone, until they are freed (deferred_free.h).
struct FreedNamespace {
  TensorSlot head = kNoTensor;
  uint64_t space = 0;
};

struct JobState {
  JobId id{};
  JobOptions options;
  MetadataAccount* metadata = nullptr;           // Of its user.
  uint64_t charged_key_bytes = 0;                // To it, for `keys`.
  EntitlementSlot entitlement = kNoEntitlement;  // Its record in the ledger.
  memory::OwnerId owner{};
  base::BlockPool pool;
  std::unique_ptr<EvictionPolicy> policy;
  InternTable keys;
  ManifestHolds manifest;
  bool has_unclaimed_manifest =
      false;  // An earlier run left the manifest, and this one was not asked to take its place.
  bool includes_session_tensors = false;  // Sessions' tensors: when the last session has gone, it alone has them.
  std::vector<SessionState*> sessions;
  SessionState
      internal_session;  // Who asks when the daemon does: kInternalSession, no slot, no tensors, none of `sessions`.
  std::vector<WindowIndex> windows;  // Ready ones.
  std::array<uint32_t, kWindowKinds> windows_making{};
  uint32_t windows_returning = 0;  // Out of the pool; sessions still map them.
  // A slot takes a whole block where it finds no other room: the last slot window that was needed could not be had.
  bool slots_take_blocks = false;
  TensorSlot shared_tensors = kNoTensor;
  TensorSlot inherited_tensors = kNoTensor;
  std::vector<FreedNamespace> freed_namespaces;
  uint32_t teardown_count = 0;  // Sessions that are gone but for their leases.
  std::deque<TensorSlot>
      freed_tensors;     // Detached, without leases, with pieces that are still to be freed; oldest first.
  bool closing = false;  // Gone for everybody; waits for its last transfer.

  uint32_t wait_queue = 0;  // Its queue in the WaitTable.
  Claims claims;
  uint32_t cursor_count = 0;  // Sessions whose cursor stands at a tensor (everything.h).
  // Its places in the JobTable's queues: only that changes them.
  bool needs_maintenance = false;  // Something changed that write-behind, eviction or growth may follow.
  bool wants_port = false;         // Found the transfer port full: it looks again when transfers end.
  bool freeing = false;            // Has frees that a turn did not reach.
  uint32_t writes_inflight = 0;
  // What the first waiter without room still needs, and its number. Only the WaitTable changes them.
  uint64_t shortage_pages = 0;
  uint64_t shortage_waiter = 0;
  std::deque<PrefetchItem> prefetches;
  uint64_t prefetching_pages = 0;

  // Pages.
  uint64_t dirty_pages = 0;    // Sealed, in RAM only.
  uint64_t writing_pages = 0;  // Of them, on their way to a device.
  uint64_t reading_pages = 0;  // RAM that is being filled.
  uint64_t ssd_pages = 0;
  uint64_t logical_pages = 0;  // Of all its tensors' sizes, page-rounded per piece.
  uint64_t unnamed_pages = 0;  // The same of those that wait to take another's place: not in logical_pages.
  uint64_t transfer_count = 0;

  uint64_t steps = 0;
  uint64_t write_failure_count = 0;
  WriteFailure write_failure;
  base::TimePoint write_retry_at;
  bool write_retries = false;  // Something waits for that moment.
  uint32_t write_backoff = 0;  // Consecutive failures.
  JobCounters counters;        // The counters, and the gauges kept as they change; the rest by Snapshot.

  bool has_pending_frees() const { return !freed_namespaces.empty() || !freed_tensors.empty() || teardown_count != 0; }
  uint64_t used_pages() const { return pool.used_pages(); }
  uint32_t making(WindowKind kind) const { return windows_making[static_cast<size_t>(kind)]; }
  bool makes_windows() const { return making(WindowKind::kBlock) + making(WindowKind::kSlot) != 0; }
};

}  // namespace tier::tiering
