// JobState: what the engine keeps of one job: its share of the arena, its tensors, its waiters. Who it is, and what
// other tables keep for it, never changes; each thing that changes has one owner among its parts. Engine thread only.
//
// Invariant: pool.free_pages + pool.used_pages = pages of its ready windows; pool.used_pages = Σ pages of its pieces'
// runs + moves.extra_pages.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "daemon/base/block_pool.h"
#include "daemon/base/time.h"
#include "daemon/tiering/tables/intern_table.h"
#include "daemon/tiering/tables/job_moves.h"
#include "daemon/tiering/tables/job_parts.h"
#include "daemon/tiering/tables/job_queues.h"
#include "daemon/tiering/tables/job_record.h"
#include "daemon/tiering/tables/ledger.h"
#include "daemon/tiering/tables/manifest_holds.h"
#include "daemon/tiering/tables/metadata_charge.h"
#include "daemon/tiering/tables/policy.h"
#include "daemon/tiering/tables/session_state.h"
#include "daemon/tiering/tables/stall_clock.h"
#include "daemon/tiering/tables/waiter.h"

namespace tier::tiering {

class MetadataAccount;

// The space of tensors that a resumed job's sessions inherit from sessions that are gone.
inline constexpr uint64_t kInheritedSpace = UINT64_MAX;

inline constexpr base::TimePoint kNever{base::Duration::max()};

// What other tables and units keep for a job, from its start to its end.
struct NewJob {
  MetadataAccount* metadata = nullptr;            // Of its user.
  EntitlementIndex entitlement = kNoEntitlement;  // Its record in the ledger.
  std::unique_ptr<EvictionPolicy> policy;
};

struct JobState {
  JobState(JobIndex job_index, const JobRecord& job_record, NewJob job, uint64_t& prefetches_of_all)
      : record(job_record),
        index(job_index),
        id(job_record.id),
        key(job_record.key.data()),
        metadata(job.metadata),
        entitlement(job.entitlement),
        policy(std::move(job.policy)),
        internal_record{.id = kInternalSession, .job = job_index},
        prefetches(prefetches_of_all) {}
  JobState(const JobState&) = delete;
  JobState& operator=(const JobState&) = delete;

  const JobRecord& record;  // Changes through JobTable::Edit.
  const JobIndex index;
  const JobId id;
  const std::string key;  // "uid/name": names its manifest.
  MetadataAccount* const metadata;
  const EntitlementIndex entitlement;
  const std::unique_ptr<EvictionPolicy> policy;

  base::BlockPool pool;
  InternTable keys;
  MetadataCharge<MetadataKind::kKeys> key_charge;  // For `keys`.
  ManifestHolds manifest;
  // For the manifest that is being put together, is at the store, or is replayed.
  MetadataCharge<MetadataKind::kManifests> manifest_charge;
  JobCapture capture;                                    // durability/manifest_capture.h
  JobReplay replay;                                      // durability/manifest_replay.h
  MetadataCharge<MetadataKind::kTensors> replay_charge;  // For the tensors and keys that it has still to put back.

  JobSessions sessions;
  JobListings listings;  // Of those, and of internal_session.
  const SessionRecord internal_record;
  // It asks for what the daemon itself wants of the job: kInternalSession, no index, no tensors, none of `sessions`.
  SessionState internal_session{kNoSessionIndex, internal_record, *this, listings};

  JobWindows windows;
  JobTransfers transfers;
  JobMoves moves;
  WriteFailures failures;
  TensorPages pages;
  JobRequested requested;
  PendingFrees frees;
  PrefetchQueue prefetches;
  PrefetchAge prefetch_age;
  Claims claims;
  JobStalls stalls;

  uint64_t last_service = 0;  // The number of the last time that a request of it was served (tables/serving.h).

  uint64_t used_pages() const { return pool.used_pages() - moves.extra_pages(); }  // By its pieces.
};

}  // namespace tier::tiering
