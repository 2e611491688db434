// What an engine is built from: its limits, the interfaces through which it reaches the world, and the options of a
// job.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "daemon/base/time.h"
#include "daemon/memory/window_source.h"
#include "daemon/storage/extent_store.h"
#include "daemon/storage/manifest_store.h"
#include "daemon/storage/transfer.h"
#include "daemon/tiering/api/request.h"

namespace tier::tiering {

// Tensors and pieces freed, and as many leases of the dead ended, in one turn: a few milliseconds of work. What is
// beyond that waits for the next (deferred_free.h, teardown.h).
inline constexpr uint32_t kFreesPerTurn = 16384;
// Pieces of freed tensors that wait so, of all jobs. Who frees more frees it there and then, in its own requests' time.
inline constexpr uint32_t kPendingFreesMax = 1u << 22;

struct EngineOptions {
  base::Duration deadline_default = std::chrono::seconds(60);
  uint32_t tensors_per_job_max = 1u << 24;
  uint32_t leases_per_session_max = 1u << 16;
  uint32_t unfinished_swaps_per_session_max = 1024;  // Tensors with one (updates.h); libtier has 64 under way.
  uint32_t keys_per_job_max = 1u << 22;
  uint64_t key_bytes_per_job_max = 64 * kMiB;  // Of them all together.
  double write_behind_start = 0.50;            // Of a share in dirty bytes: begin writing the coldest.
  double evict_start = 0.90;                   // Of a share in use: begin dropping clean, cold pieces.
  uint64_t hash_seed = 0;                      // Of the tensor table: nobody who chooses ids should know it.
  uint32_t frees_per_turn = kFreesPerTurn;
  uint32_t pending_frees_max = kPendingFreesMax;
  uint64_t prefetch_bytes_max = 0;  // In flight a job; 0: a quarter of its share.
};

struct EnginePorts {
  memory::WindowSource& windows;
  storage::ExtentStore& extents;
  storage::TransferPort& transfers;
  storage::ManifestStore* manifests;  // Null: persist is DENIED (a private daemon without daemon.data_directory).
  ReplySink& replies;
};

struct JobOptions {
  std::string key;                // "uid/name": names its manifest.
  uint32_t uid = 0;               // Whose job it is: all jobs of one user have one equal part of the arena.
  uint64_t guarantee_bytes = 0;   // 0: the default part of the unguaranteed arena.
  uint64_t limit_bytes = 0;       // 0: none.
  bool named = false;             // Kept when its last session ends.
  bool resume = false;            // Load its manifest.
  bool replace_existing = false;  // A manifest that an earlier run left may be replaced, though it was not resumed.
};

}  // namespace tier::tiering
