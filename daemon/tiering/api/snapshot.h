// The engine's figures for operators: plain values, copied out on the engine thread, read in any thread. A figure is a
// byte count unless its name says otherwise; counters only rise.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/storage/device_health.h"
#include "daemon/storage/device_latency.h"
#include "daemon/storage/extent_store.h"
#include "daemon/storage/transfer.h"
#include "daemon/tiering/api/pool_view.h"
#include "daemon/tiering/api/refusal_reason.h"
#include "daemon/tiering/api/request.h"
#include "daemon/tiering/api/stalls.h"

namespace tier::tiering {

inline constexpr std::array<double, 12> kWaitBucketsSeconds = {1e-6, 1e-5, 1e-4, 5e-4, 1e-3, 5e-3,
                                                               1e-2, 5e-2, 1e-1, 5e-1, 1.0,  10.0};

struct JobCounters {
  uint64_t ram_bytes = 0;  // Bytes of pages that hold its pieces in RAM.
  uint64_t ssd_bytes = 0;  // Bytes of extents that hold its pieces.
  uint64_t leased_bytes = 0;
  uint64_t dirty_bytes = 0;          // Sealed in RAM, no valid SSD copy.
  uint64_t guarantee_bytes = 0;      // What it is promised: its own guarantee, or its equal part.
  uint64_t own_guarantee_bytes = 0;  // That was asked for. 0: none.
  uint64_t limit_bytes = 0;          // 0: none.
  uint64_t logical_bytes = 0;        // Of its tensors, each piece in whole pages, wherever they lie.
  uint64_t ssd_guarantee_bytes = 0;
  uint64_t ssd_limit_bytes = 0;  // 0: none.
  bool persisted = false;        // The store has a manifest of it, its own or an earlier run's.
  bool persisting = false;       // A manifest of it is at the store, unanswered.
  uint64_t share_bytes = 0;      // What the job may hold in RAM now.
  uint64_t window_count = 0;     // Ready windows.
  uint64_t held_bytes = 0;       // Size of its windows, ready or being made.
  uint64_t kept_bytes = 0;       // Of windows that were taken from it and that its processes still have.
  PoolFigures pool;              // The same, and what lies in them.
  uint64_t session_count = 0;
  uint64_t tensor_count = 0;
  uint64_t torn_count = 0;
  uint64_t lease_count = 0;
  uint64_t sealed_bytes = 0;         // Of pieces that its clients wrote. Counter.
  uint64_t swap_out_bytes = 0;       // Written to SSD. Counter.
  uint64_t swap_in_bytes = 0;        // Read back. Counter.
  uint64_t acquire_hits = 0;         // Ranges that were in RAM when asked for. Counter.
  uint64_t acquire_misses = 0;       // Counter.
  uint64_t stall_ns = 0;             // Time that requests waited. Counter.
  uint64_t prefetched_bytes = 0;     // Counter.
  uint64_t evicted_bytes = 0;        // Counter.
  uint64_t write_avoided_bytes = 0;  // Evicted clean, or freed before being written. Counter.
  uint64_t moved_bytes = 0;          // Moved in RAM by compaction. Counter.
  RefusalCounts refusals{};          // Of its requests. Counters.
};

// Adds the counters; gauges stay as they are.
inline void AddCounters(const JobCounters& job, JobCounters* sum) {
  sum->sealed_bytes += job.sealed_bytes;
  sum->swap_out_bytes += job.swap_out_bytes;
  sum->swap_in_bytes += job.swap_in_bytes;
  sum->acquire_hits += job.acquire_hits;
  sum->acquire_misses += job.acquire_misses;
  sum->stall_ns += job.stall_ns;
  sum->prefetched_bytes += job.prefetched_bytes;
  sum->evicted_bytes += job.evicted_bytes;
  sum->write_avoided_bytes += job.write_avoided_bytes;
  sum->moved_bytes += job.moved_bytes;
  for (size_t i = 0; i < kRefusalReasons; ++i) sum->refusals[i] += job.refusals[i];
}

// What the daemon itself keeps in memory for users (tables/metadata_budget.h), by kind.
enum class MetadataKind : uint8_t { kTensors, kLeases, kUpdates, kKeys, kRequests, kAnswers, kManifests };
inline constexpr size_t kMetadataKinds = 7;
using MetadataSums = std::array<uint64_t, kMetadataKinds>;  // Bytes.
constexpr const char* MetadataKindName(MetadataKind kind) {
  constexpr std::array<const char*, kMetadataKinds> kNames = {"tensors",  "leases",  "updates",  "keys",
                                                              "requests", "answers", "manifests"};
  return kNames[static_cast<size_t>(kind)];
}

struct MetadataFigures {
  MetadataSums of_kind{};  // Of all users.
  uint64_t of_largest_user = 0;
  uint64_t held = 0;      // What the tables take, with room for records that are gone or to come.
  uint64_t limit = 0;     // Of one user.
  uint64_t refusals = 0;  // Requests refused, and sessions ended, at that limit. Counter.
};

// What was taken back from clients that did not give it (jobs/forced_return.h).
enum class ForcedReturnKind : uint8_t {
  kSession,  // A session with too many leases was ended.
  kWindow,   // An empty window was taken without its clients' answer.
  kRefill,   // A session that put bytes into such a window again was ended.
  kProcess,  // A process that kept such a window was killed.
};
inline constexpr size_t kForcedReturnKinds = 4;
using ForcedReturnCounts = std::array<uint64_t, kForcedReturnKinds>;
constexpr const char* ForcedReturnKindName(ForcedReturnKind kind) {
  constexpr std::array<const char*, kForcedReturnKinds> kNames = {"session", "window", "refill", "process"};
  return kNames[static_cast<size_t>(kind)];
}

// Why pieces are moved in RAM.
enum class CompactionCause : uint8_t {
  kBlock,   // A request needs a whole block.
  kSlot,    // A request needs pages side by side.
  kWindow,  // A window is emptied for another job.
  kRun,     // A client has few mappings left, and wants blocks side by side.
  kMerge,   // A window is emptied so that its job has fewer, larger ones.
};
inline constexpr size_t kCompactionCauses = 5;
constexpr bool EmptiesWindow(CompactionCause cause) {
  return cause == CompactionCause::kWindow || cause == CompactionCause::kMerge;
}
constexpr const char* CompactionCauseName(CompactionCause cause) {
  constexpr std::array<const char*, kCompactionCauses> kNames = {"block", "slot", "window", "run", "merge"};
  return kNames[static_cast<size_t>(cause)];
}

// How a window that went to another job had become empty: the costliest way that was taken.
enum class LeftBy : uint8_t {
  kItself,    // Nothing had to be done for it.
  kMoves,     // What lay in it was moved to other windows of its job.
  kEviction,  // Some of it was evicted.
};
inline constexpr size_t kLeftByKinds = 3;
constexpr const char* LeftByName(LeftBy how) {
  constexpr std::array<const char*, kLeftByKinds> kNames = {"empty", "moved", "evicted"};
  return kNames[static_cast<size_t>(how)];
}

struct HandOverFigures {  // Counters.
  std::array<uint64_t, kLeftByKinds> windows{};
  uint64_t evicted_bytes = 0;  // To empty windows.
  uint64_t lent_bytes = 0;     // Of windows of idle jobs.
};

struct MergeFigures {      // Counters.
  uint64_t effective = 0;  // Merges after which their job had fewer windows, …
  uint64_t in_vain = 0;    // … and those after which it had as many as before.
  uint64_t windows = 0;    // That were emptied and returned.
};

struct CompactionFigures {  // Counters.
  uint64_t moves = 0;       // Pieces that were moved in RAM.
  uint64_t bytes = 0;       // Of these.
  uint64_t cancelled = 0;   // Moves that something else came before.
};

struct JobView {
  JobId id{};
  JobCounters counters;
  std::map<int, uint64_t> node_bytes{};  // Of its windows, by NUMA node, as EngineSnapshot has it.
};

struct TensorView {
  uint64_t space = 0;  // 0: shared, else the session.
  uint64_t tensor = 0;
  std::string key;  // If it was interned.
  uint64_t size = 0;
  uint64_t generation = 0;
  uint64_t ram_bytes = 0;
  uint64_t ssd_bytes = 0;
  uint32_t lease_count = 0;
  uint32_t piece_count = 0;
  bool sealed = false;
  bool torn = false;
};

struct TensorPage {
  std::vector<TensorView> tensors;
  uint32_t next = 0;  // Where the next page begins; 0: this was the last.
};

// Runs of one piece: nearly always one, for which nothing is allocated.
class PlaceRuns {
 public:
  PlaceRuns() = default;
  explicit PlaceRuns(base::PageRun run) : one_(run) {}
  void Add(base::PageRun run) {
    if (begin() == end()) {
      one_ = run;
      return;
    }
    if (several_.empty()) several_.push_back(one_);
    several_.push_back(run);
  }
  const base::PageRun* begin() const { return several_.empty() ? &one_ : several_.data(); }
  const base::PageRun* end() const { return begin() + (several_.empty() ? (one_ ? 1 : 0) : several_.size()); }

 private:
  base::PageRun one_;  // Alone.
  std::vector<base::PageRun> several_;
};

// The RAM and the extent that belong to one piece.
struct PiecePlace {
  uint64_t tensor = 0;
  uint32_t piece = 0;  // Its number in the tensor.
  uint32_t generation = 0;
  PlaceRuns ram;                     // Block: window × blocks of the largest window + block in the window.
  storage::Extent extent;            // Empty: none.
  PlaceRuns runs;                    // Of the extent.
  std::optional<uint64_t> transfer;  // Cookie of the transfer that moves it.
};

// What a job that is not open persisted: it waits for the run that resumes it, and takes up the SSD until then.
struct StoredManifest {
  std::string key;  // JobOptions::key.
  uint64_t ssd_bytes = 0;
  std::string damage;  // Why it cannot be resumed; ssd_bytes is unknown then. Empty: it can be resumed.
  std::vector<std::string> lost_devices;  // Uuids of missing devices that hold a part of it: it is lost without them.
};

struct MissingDeviceView {  // An SSD device that this run does without (storage/missing_device.h).
  std::string uuid;
  std::string path;
  std::string reason;
  uint64_t lost_job_count = 0;
};

struct DeviceView {
  storage::DeviceSpace space;
  storage::DeviceTraffic traffic;
  storage::LatencyByPurpose latency;
  storage::DeviceState state = storage::DeviceState::kOnline;
  std::string reason;  // Why it is not online; empty: it is.
  bool draining = false;
  bool failing = false;           // As many of its places are quarantined as are written down; more are not.
  uint64_t scattered_pieces = 0;  // Lie in several runs each, for want of a longer one.
  uint64_t rewritten_blocks = 0;  // Counter: sparse blocks that were emptied, so that there are long runs again.
  std::string drain_note;         // While it is drained: what stays on it for now, and why. Empty: nothing is known to.
};

struct CorruptPieces {  // That came back from a device with a wrong checksum, twice.
  JobId job{};      // It may have ended.
  std::string key;  // JobOptions::key.
  uint16_t device = 0;
  uint64_t count = 0;  // Counter.
};

// What the devices may be written, all together (tables/write_budget.h).
struct WriteBudgetFigures {
  uint64_t bytes_per_day = 0;  // 0: there is no budget.
  int64_t left_bytes = 0;      // That may be written now; negative: more was written than the budget gave.
  bool slowing = false;        // Write-behind waits for it.
  uint64_t delays = 0;         // How often it began to wait. Counter.
};

struct EngineSnapshot {
  uint64_t turns = 0;
  uint64_t turn_work_max = 0;  // Units of work (WorkUnits) that the longest turn spent.
  uint64_t arena_bytes = 0;
  uint64_t arena_max_bytes = 0;
  uint64_t stock_bytes = 0;        // Of windows that are made ahead of need: no job has them.
  uint64_t arena_free_bytes = 0;   // Free pages in windows.
  uint64_t lease_bound_bytes = 0;  // Free pages in blocks that hold a leased slot.
  uint64_t owed_bytes = 0;         // Claimed by jobs below their promise, and not there yet.
  ForcedReturnCounts forced_returns{};
  uint64_t kept_bytes = 0;      // Of windows that were taken from jobs and that their processes still have.
  uint64_t refilled_bytes = 0;  // Put by clients into windows that they no longer have, found in the last look.
  uint64_t window_size_min = 0;
  uint64_t window_size_max = 0;
  uint64_t window_count = 0;          // Of both kinds.
  uint64_t slot_window_count = 0;     // Windows for small tensors and tails.
  uint64_t window_hugetlb_count = 0;  // In 2 MiB pages: all are block windows.
  std::map<int, uint64_t> node_bytes;  // Of ready windows, by the NUMA nodes of their first pages; empty: one node.
  std::array<uint64_t, kPoolConditions> windows_by_condition{};
  uint64_t session_count = 0;
  uint64_t tensor_count = 0;
  uint64_t torn_count = 0;
  uint64_t lease_count = 0;
  uint64_t waiting_count = 0;   // Requests waiting for RAM, SSD or a lease.
  StallCounts waiting_for{};    // Of these, those that came by the end of the last turn, by what they wait for.
  StallParts waited_for{};      // Time that requests have waited, or wait already, as of the last turn. Counter.
  StallParts any_waited_for{};  // Time in which at least one did. Counter.
  std::array<std::array<uint64_t, kCodeCount>, proto::kOpCount> requests{};  // [op][code]
  RefusalCounts refusals{};                                                  // Of these. Counters.
  std::array<uint64_t, kWaitBucketsSeconds.size() + 1> wait_histogram{};     // Of acquires and creates; last: longer.
  uint64_t wait_sum_ns = 0;
  MetadataFigures metadata;
  std::array<CompactionFigures, kCompactionCauses> compaction{};
  HandOverFigures hand_over;
  MergeFigures merges;
  WriteBudgetFigures write_budget;
  JobCounters totals;  // Counters of all jobs, also of closed ones. Its gauges are 0.
  std::vector<JobView> jobs;
  std::vector<DeviceView> devices;
  std::vector<CorruptPieces> corrupt_pieces;  // By job and device, of those that had some last.
  std::vector<MissingDeviceView> missing;
  std::string index_failure;  // Why nothing can be persisted any more, or resumed either; empty: both can.
};

}  // namespace tier::tiering
