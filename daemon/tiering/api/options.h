// What an engine is built from: its limits, the interfaces through which it reaches the world, and the options of a
// job.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "daemon/base/time.h"
#include "daemon/memory/page_copier.h"
#include "daemon/memory/window_source.h"
#include "daemon/storage/extent_store.h"
#include "daemon/storage/manifest_store.h"
#include "daemon/storage/transfer.h"
#include "daemon/tiering/api/quota.h"
#include "daemon/tiering/api/request.h"
#include "proto/result.h"

namespace tier::tiering {

// The most that one look at a request costs: its own pieces, and those of the tensor that it replaces, which are freed
// with it (requests/replace.h).
inline constexpr uint32_t kLookMax = 18432;
// To put a request into the WaitTable, and to take it out and answer it: some microseconds, with nodes of its sets
// that no cache holds.
inline constexpr uint32_t kWaiterCost = 128;

// Units of each stage, in their order.
struct WorkUnits {
  uint32_t submit = 8192;  // Requests that arrive, from the end of the last turn on.
  uint32_t store = 8192;   // What the manifest store has answered, and extents that no manifest names any more.
  uint32_t teardown = kLookMax / 2 + 1;          // Gives back what ended sessions held.
  uint32_t frees = 8192;                         // Frees tensors of removed namespaces, and large tensors.
  uint32_t share = 8192;                         // Retries waiting requests: an equal part for each job …
  uint32_t look = kLookMax + kWaiterCost;        // … and the rest for the job whose turn it is.
  uint32_t expiry = kLookMax + 2 * kWaiterCost;  // Refuses requests at their deadline.
  uint32_t maintain = 4096;                      // Evicts and fetches ahead.
  uint32_t compact = 8192;                       // Plans moves in RAM.
  uint32_t move = 8192;                          // Empties windows and devices.
  uint32_t count = 8192;                         // Counts the windows that leases keep from jobs that are owed them.
  uint32_t drop = 4096;                          // Cancels reads that no request needs any more.
  uint32_t shrink = 4096;                        // Gives memory of a table back to the system.
  // Of no stage: waiting requests that all the events of a turn make ready. The others follow turn by turn.
  uint32_t wake = 256;
  // Of no stage either: windows that are started in a turn, beside one for each request that lacks some; windows that
  // closed jobs lose in it; and windows that it gives back to their source.
  uint32_t windows = 256;

  constexpr uint32_t all() const {
    return submit + store + teardown + frees + share + look + expiry + maintain + compact + move + count + drop +
           shrink;
  }
};

// Engine::SetOptions takes some of them over while the engine runs (jobs/options_change.h).
struct EngineOptions {
  base::Duration deadline_default = std::chrono::seconds(60);
  // How long a job is owed memory within its promise before it is taken from others (jobs/forced_return.h). Less than
  // deadline_default: the request that waits for it is to see it come.
  base::Duration reclaim_deadline = std::chrono::seconds(30);
  // Whether a process is killed that keeps windows for so long after they were taken from it (jobs/kept_windows.h).
  bool kills_keepers = false;
  // A job without requests and leases for so long is idle: its memory may be lent (memory/lending.h). 0: never.
  base::Duration idle_after = std::chrono::seconds(60);
  uint32_t tensors_per_job_max = 1u << 24;
  uint32_t leases_per_session_max = 1u << 16;
  uint32_t unfinished_swaps_per_session_max = 1024;  // In tensors (updates.h); libtier has 64 under way.
  uint32_t keys_per_job_max = 1u << 22;
  uint64_t key_bytes_per_job_max = 64 * kMiB;  // All its keys together.
  uint64_t metadata_bytes_per_uid_max = kGiB;  // Of the daemon's own memory (tables/metadata_budget.h).
  UserQuota quota;                             // Of users whose jobs are opened without one.
  double write_behind_start = 0.50;            // Part of a share that is dirty: begin writing the coldest.
  double evict_start = 0.90;                   // Part of a share in use: begin dropping clean, cold pieces.
  uint64_t hash_seed = 0;                      // Of the tensor table. Secret: clients choose the ids.
  WorkUnits work;
  uint64_t write_budget_per_day = 0;  // Bytes on all devices (tables/write_budget.h). 0: no budget.
  uint64_t prefetch_bytes_max = 0;    // In flight for one job; 0: a quarter of its share.
  // A request that waited for so long is kept in the list of its job (requests/stalls.h).
  base::Duration stall_threshold = std::chrono::milliseconds(10);
};

inline constexpr uint32_t kMoveBlocks = 8;  // Of MoveMemory that are used at most: pieces on their way at a time.

// Memory of the daemon itself, through which pieces go that no job has in RAM: whole blocks, page-aligned.
struct MoveMemory {
  std::byte* address = nullptr;
  uint64_t size = 0;     // Bytes. 0: none; what only manifests hold stays on a device that is being emptied.
  WindowIndex window{};  // For the transfer port. No window of the arena has it.
};

struct EnginePorts {
  memory::WindowSource& windows;
  storage::ExtentStore& extents;
  storage::TransferPort& transfers;
  storage::ManifestStore* manifests;  // Null: persist is DENIED (a private daemon without daemon.data_directory).
  ReplySink& replies;
  MoveMemory move_memory{};
  memory::PageCopyPort* copier = nullptr;  // Null: pieces stay where they are in RAM.
};

struct JobOptions {
  std::string key;                   // "uid/name"; also the name of its manifest.
  uint32_t uid = 0;                  // Whose job it is: all jobs of one user have one equal part of the arena.
  uint64_t guarantee_bytes = 0;      // 0: the default part of the unguaranteed arena.
  uint64_t limit_bytes = 0;          // 0: none.
  uint64_t ssd_guarantee_bytes = 0;  // Of SSD devices, which it may always fill.
  uint64_t ssd_limit_bytes = 0;      // 0: none.
  std::optional<UserQuota> quota;    // Of the user, from now on. None: EngineOptions::quota.
  bool named = false;                // Kept when its last session ends.
  bool resume = false;               // Load its manifest.
  bool replace_existing = false;     // A manifest that an earlier run left may be replaced, though it was not resumed.
};

// What is to change of a job's terms. What is not given stays as it was.
struct TermsChange {
  std::optional<uint64_t> guarantee_bytes;
  std::optional<uint64_t> limit_bytes;  // 0: none.
  std::optional<uint64_t> ssd_guarantee_bytes;
  std::optional<uint64_t> ssd_limit_bytes;  // 0: none.

  bool any() const { return guarantee_bytes || limit_bytes || ssd_guarantee_bytes || ssd_limit_bytes; }
  friend bool operator==(const TermsChange&, const TermsChange&) = default;
};

// INVALID: there is a limit, and it is below the guarantee, or in RAM less than a whole block, without which a tensor
// of a block could not be read.
Status CheckRamLimit(uint64_t guarantee_bytes, uint64_t limit_bytes);
Status CheckSsdLimit(uint64_t guarantee_bytes, uint64_t limit_bytes);

}  // namespace tier::tiering
