// Scratch: vectors that keep their memory from one use to the next, so that the steady state allocates nothing. The
// content of a vector is only valid within the call that filled it. Engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/base/page_run.h"
#include "daemon/memory/page_copier.h"
#include "daemon/memory/window_source.h"
#include "daemon/storage/manifest_store.h"
#include "daemon/storage/transfer.h"
#include "daemon/tiering/api/request.h"
#include "daemon/tiering/tables/manifest_holds.h"
#include "daemon/tiering/tables/piece.h"
#include "daemon/tiering/tables/tensor_range.h"

namespace tier::tiering {

struct JobState;

struct Scratch {
  std::vector<WaitItem> items;  // Resolved items of the request that is being worked on.
  std::vector<uint32_t> order;  // Indices of `items`, sorted.
  std::vector<base::PageRun> runs;
  std::vector<PieceId> given;
  std::vector<storage::TransferResult> results;
  std::vector<memory::PageCopyResult> copied;
  std::vector<storage::ProbeResult> probed;
  std::vector<memory::WindowEvent> events;
  std::vector<memory::KeptWindow> kept_windows;
  std::vector<storage::ManifestResult> manifest_results;
  std::vector<ManifestHolds::Dropped> dropped;
  std::vector<JobId> holders;
  std::vector<JobState*> ready_jobs;
  std::vector<JobState*> maintained_jobs;
  std::vector<JobState*> freeing_jobs;
  std::vector<JobState*> port_jobs;
};

}  // namespace tier::tiering
