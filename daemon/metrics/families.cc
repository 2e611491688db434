#include "daemon/metrics/families.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/metrics/device_families.h"
#include "daemon/metrics/family_builder.h"
#include "daemon/session/degraded.h"

namespace tier::metrics {
namespace {

using session::DaemonDescription;
using tiering::EngineSnapshot;
using tiering::JobCounters;

// One series for each value of an enumeration, by its name.
template <typename Enum, size_t kCount, typename Values>
void AddEach(FamilyBuilder& out, const char* label, const char* (*name)(Enum), const Values& values) {
  for (size_t i = 0; i < kCount; ++i) out.Add(values[i], {{label, name(static_cast<Enum>(i))}});
}

void AddArena(FamilyBuilder& out, const DaemonDescription& daemon) {
  const EngineSnapshot& engine = daemon.engine;
  out.Gauge("tierd_arena_bytes", "Host memory in windows.").Add(engine.arena_bytes);
  out.Gauge("tierd_arena_max_bytes", "Host memory that windows may reach now.").Add(engine.arena_max_bytes);
  out.Gauge(
         "tierd_arena_stock_bytes",
         "Host memory in windows that are made ahead of need (arena.prefault): no job has them, and tierd_arena_bytes "
         "is without them.")
      .Add(engine.stock_bytes);
  out.Gauge("tierd_arena_debt_bytes", "Windows beyond what the host has memory for: leased, or on their way back.")
      .Add(engine.arena_bytes - std::min(engine.arena_bytes, engine.arena_max_bytes));
  out.Gauge("tierd_arena_prefaulted_bytes",
            "Host memory that was populated at the start (arena.prefault), less what was closed before a job had it.")
      .Add(daemon.prefault.done_bytes);
  out.Gauge("tierd_arena_prefault_target_bytes",
            "Host memory that was to be, less what the host did not give and what was closed before a job had it.")
      .Add(daemon.prefault.target_bytes);
  out.Gauge("tierd_arena_free_bytes", "Free pages in windows.").Add(engine.arena_free_bytes);
  out.Gauge("tierd_arena_lease_bound_bytes", "Free pages in blocks that hold a leased slot: they serve slots only.")
      .Add(engine.lease_bound_bytes);
  out.Gauge("tierd_arena_owed_bytes",
            "Windows that jobs below their promise wait for; a job may ask for one after the other.")
      .Add(engine.owed_bytes);
  out.Gauge("tierd_arena_kept_bytes",
            "Windows that were taken from jobs without an answer and that their processes still have open or mapped.")
      .Add(engine.kept_bytes);
  out.Gauge("tierd_arena_refilled_bytes",
            "Bytes that clients put into windows that they no longer have, found and taken out in the last look, which "
            "is made every second.")
      .Add(engine.refilled_bytes);
  out.Gauge("tierd_arena_node_bytes", "Windows by the NUMA node of their first pages, where the host has several.");
  for (const auto& [node, bytes] : engine.node_bytes) out.Add(bytes, {{"node", std::to_string(node)}});
  out.Counter("tierd_arena_given_back_bytes_total", "Windows closed because the host was short of memory.")
      .Add(daemon.shortage.given_back_bytes);
  out.Gauge("tierd_windows", "Windows of the arena.").Add(engine.window_count);
  out.Gauge("tierd_slot_windows",
            "Windows for small tensors and tails, always in 4 KiB pages; the others hold whole blocks.")
      .Add(engine.slot_window_count);
  out.Gauge("tierd_hugetlb_windows", "Windows in 2 MiB pages of the kernel's pool.").Add(engine.window_hugetlb_count);
  out.Gauge("tierd_window_conditions",
            "Windows by what becomes of them: making; ready; emptying (in use until what they hold has left them, for "
            "another job); returning (their job's processes were asked to unmap them); overdue (and have not within "
            "2 s); closing (of no job, and SSD devices may still use them).");
  AddEach<tiering::PoolCondition, tiering::kPoolConditions>(out, "condition", tiering::PoolConditionName,
                                                            engine.windows_by_condition);
  out.Counter(
      "tierd_forced_returns_total",
      "Memory taken back from clients that did not give it after jobs.reclaim_deadline: session, a session that "
      "leased too much was ended; window, an empty window was taken without its clients' answer; refill, a "
      "session that filled such a window again was ended; process, a process that kept such a window was "
      "killed (jobs.on_unreturned).");
  AddEach<tiering::ForcedReturnKind, tiering::kForcedReturnKinds>(out, "kind", tiering::ForcedReturnKindName,
                                                                  engine.forced_returns);
}

void AddCompaction(FamilyBuilder& out, const EngineSnapshot& engine) {
  const auto add = [&](uint64_t tiering::CompactionFigures::* member) {
    for (size_t cause = 0; cause < tiering::kCompactionCauses; ++cause) {
      out.Add(engine.compaction[cause].*member,
              {{"cause", tiering::CompactionCauseName(static_cast<tiering::CompactionCause>(cause))}});
    }
  };
  out.Counter("tierd_compaction_moves_total",
              "Pieces that were moved in RAM so that scattered free pages become a run: because a request lacked a "
              "whole block, or pages of a slot side by side, a window was emptied for another job, a client with few "
              "mappings left wants blocks side by side (run), or small windows became a larger one (merge).");
  add(&tiering::CompactionFigures::moves);
  out.Counter("tierd_compaction_moved_bytes_total", "Bytes of these.");
  add(&tiering::CompactionFigures::bytes);
  out.Counter("tierd_compaction_cancelled_moves_total",
              "Moves that a lease or a free came before: the piece stayed where it was.");
  add(&tiering::CompactionFigures::cancelled);
  out.Counter("tierd_hand_over_windows_total",
              "Windows that went to other jobs, by how they had become empty: empty (nothing lay in them), moved (what "
              "lay there was moved in RAM), evicted (some of it was evicted).");
  AddEach<tiering::LeftBy, tiering::kLeftByKinds>(out, "how", tiering::LeftByName, engine.hand_over.windows);
  out.Counter("tierd_hand_over_evicted_bytes_total", "Bytes that were evicted to empty windows for other jobs.")
      .Add(engine.hand_over.evicted_bytes);
  out.Counter("tierd_window_merges_total",
              "Merges of small windows of a job while window indices run short, by their outcome: effective (the job "
              "had fewer windows after it), in_vain (as many as before; a pause follows, longer each time).");
  out.Add(engine.merges.effective, {{"outcome", "effective"}});
  out.Add(engine.merges.in_vain, {{"outcome", "in_vain"}});
  out.Counter("tierd_merged_windows_total", "Windows that were emptied by merges and returned.")
      .Add(engine.merges.windows);
  out.Counter("tierd_lent_bytes_total",
              "Windows of idle jobs (jobs.idle_after) that went to others, beyond what these are promised.")
      .Add(engine.hand_over.lent_bytes);
}

void AddMetadata(FamilyBuilder& out, const DaemonDescription& daemon) {
  const tiering::MetadataFigures& metadata = daemon.engine.metadata;
  out.Gauge("tierd_metadata_bytes",
            "The daemon's own memory for records of users: tensors, leases, updates, keys, requests that wait, answers "
            "that are not read, manifests that are being written and what those of all jobs name.");
  AddEach<tiering::MetadataKind, tiering::kMetadataKinds>(out, "kind", tiering::MetadataKindName, metadata.of_kind);
  out.Gauge("tierd_metadata_held_bytes",
            "What the tables of these records take, with room for records that are gone or to come; what is not needed "
            "goes back to the system some at a time. The arena leaves room for it beside the host reserve.")
      .Add(metadata.held);
  out.Gauge("tierd_metadata_largest_user_bytes", "Records of the user who has most.").Add(metadata.of_largest_user);
  out.Gauge("tierd_metadata_limit_bytes", "The most of them that one user may have (jobs.max_metadata).")
      .Add(metadata.limit);
  out.Counter("tierd_metadata_refusals_total", "Requests refused and sessions ended at that limit.")
      .Add(metadata.refusals);
  out.Gauge("tierd_daemon_memory_bytes",
            "The daemon's heap, tables, stacks and page tables; they count beside the windows.")
      .Add(daemon.shortage.daemon_own_bytes);
}

void AddWaits(FamilyBuilder& out, const EngineSnapshot& engine) {
  out.Histogram("tierd_acquire_wait_seconds", "How long creates and acquires waited.");
  out.AddHistogram(engine.wait_histogram, tiering::kWaitBucketsSeconds, engine.wait_sum_ns);
}

void AddStalls(FamilyBuilder& out, const EngineSnapshot& engine) {
  out.Gauge("tierd_waiting_requests",
            "Requests that wait, by what for: ram (memory within their job's share, or pages side by side; also where "
            "leases of other tensors hold it), ssd_read, ssd_write, lease (another lease of the same tensor, or an "
            "update that is not finished), budget (the work budget of the engine's turns), queue (other requests of "
            "their job, which come first).");
  AddEach<tiering::StallCause, tiering::kStallCauses>(out, "cause", tiering::StallCauseName, engine.waiting_for);
  out.Counter("tierd_stall_seconds_total",
              "Time that requests of all kinds waited, by the causes of tierd_waiting_requests; a request that still "
              "waits counts too.");
  const auto add = [&](const tiering::StallParts& times) {
    for (size_t cause = 0; cause < tiering::kStallCauses; ++cause) {
      out.Add(std::chrono::duration<double>(times[cause]).count(),
              {{"cause", tiering::StallCauseName(static_cast<tiering::StallCause>(cause))}});
    }
  };
  add(engine.waited_for);
  out.Counter("tierd_waiting_seconds_total",
              "Time in which at least one request waited, by the same causes: it rises by one a second at most.");
  add(engine.any_waited_for);
}

void AddRequests(FamilyBuilder& out, const EngineSnapshot& engine) {
  constexpr const char* kOpNames[proto::kOpCount] = {"none",     "create", "acquire", "release", "free",
                                                     "prefetch", "step",   "persist", "flush",   "accept",
                                                     "intern",   "stat",   "drop",    "tear"};
  out.Gauge("tierd_sessions", "Attached client processes.").Add(engine.session_count);
  out.Gauge("tierd_leases", "Leases held by clients.").Add(engine.lease_count);
  out.Gauge("tierd_tensors", "Tensors stored.").Add(engine.tensor_count);
  out.Gauge("tierd_torn_tensors", "Tensors that answer TORN.").Add(engine.torn_count);
  AddStalls(out, engine);
  out.Counter("tierd_requests_total",
              "Requests answered, by operation and code; a code other than OK appears once it has happened.");
  for (size_t op = 1; op < engine.requests.size(); ++op) {
    for (size_t code = 0; code < engine.requests[op].size(); ++code) {
      if (code != 0 && engine.requests[op][code] == 0) continue;
      out.Add(engine.requests[op][code],
              {{"op", kOpNames[op]}, {"code", std::string(CodeName(static_cast<Code>(code)))}});
    }
  }
  out.Counter("tierd_refusals_total",
              "Requests refused, by what would have to change: request (wrong, missing or not allowed), limit (more "
              "than the job may have), own_leases (of the session), other_leases (of jobs beyond their guarantees), "
              "conflict (others at the same tensor), host_memory (the host has none for the rest of the arena), "
              "not_returned (windows that other jobs were asked for), arena (it is full), records (the daemon's own "
              "memory), ssd_space, device (it fails or does not answer), deadline (not done in time).");
  AddEach<tiering::RefusalReason, tiering::kRefusalReasons>(out, "reason", tiering::RefusalReasonName, engine.refusals);
  AddWaits(out, engine);
}

// Of all jobs there ever were: they do not vanish with a job.
void AddTotals(FamilyBuilder& out, const JobCounters& totals) {
  out.Counter(
         "tierd_sealed_bytes_total",
         "Bytes of the pieces of tensors (2 MiB, or the rest of a tensor) that jobs wrote and sealed, each time that "
         "they did. What was written to the devices (tierd_device_written_bytes_total), divided by this, is the "
         "write amplification of tierd: below 1 where tensors stay in RAM or are gone before they are written.")
      .Add(totals.sealed_bytes);
  out.Counter("tierd_swap_out_bytes_total", "Bytes of tensors written to SSD.").Add(totals.swap_out_bytes);
  out.Counter("tierd_swap_in_bytes_total", "Bytes of tensors read back from SSD.").Add(totals.swap_in_bytes);
  out.Counter("tierd_acquires_total", "Ranges asked for that were in RAM (hit) and that had to be waited for (miss).")
      .Add(totals.acquire_hits, {{"result", "hit"}})
      .Add(totals.acquire_misses, {{"result", "miss"}});
  out.Counter("tierd_evicted_bytes_total", "Bytes dropped from RAM to make room.").Add(totals.evicted_bytes);
  out.Counter("tierd_writeback_avoided_bytes_total", "Bytes that needed no SSD write: unchanged, or dead before it.")
      .Add(totals.write_avoided_bytes);
}

Labels LabelsOf(const JobRow& row) { return {{"tierd_job", row.name}, {"uid", row.uid}}; }
Labels LabelsOf(const JobRow& row, const char* label, std::string value) {
  Labels labels = LabelsOf(row);
  labels.emplace_back(label, std::move(value));
  return labels;
}

struct JobGauge {
  const char* name;
  const char* help;
  uint64_t (*figure)(const JobCounters&);
  bool absent_at_zero = false;
};

constexpr JobGauge kJobGauges[] = {
    {"tierd_job_ram_bytes", "Bytes of arena pages that hold the job's tensors.",
     [](const JobCounters& job) { return job.ram_bytes; }},
    {"tierd_job_ssd_bytes", "Bytes of extents that hold the job's tensors.",
     [](const JobCounters& job) { return job.ssd_bytes; }},
    {"tierd_job_leased_bytes", "Bytes under leases.", [](const JobCounters& job) { return job.leased_bytes; }},
    {"tierd_job_dirty_bytes", "Sealed bytes in RAM without a valid SSD copy.",
     [](const JobCounters& job) { return job.dirty_bytes; }},
    {"tierd_job_logical_bytes", "Bytes of the job's tensors, in whole pages, wherever they lie.",
     [](const JobCounters& job) { return job.logical_bytes; }},
    {"tierd_job_guarantee_bytes", "RAM that the job is promised: its guarantee, or its equal part.",
     [](const JobCounters& job) { return job.guarantee_bytes; }},
    {"tierd_job_share_bytes", "RAM that the job may hold now.", [](const JobCounters& job) { return job.share_bytes; }},
    {"tierd_job_limit_bytes", "RAM that the job may not exceed. Absent: it has no limit.",
     [](const JobCounters& job) { return job.limit_bytes; }, true},
    {"tierd_job_ssd_guarantee_bytes", "SSD space that the job's tensors may always take.",
     [](const JobCounters& job) { return job.ssd_guarantee_bytes; }},
    {"tierd_job_ssd_limit_bytes", "SSD space that the job's tensors may not exceed. Absent: it has no limit.",
     [](const JobCounters& job) { return job.ssd_limit_bytes; }, true},
    {"tierd_job_kept_bytes",
     "Windows that were taken from the job and that its processes still have: they count as held where it asks for "
     "more.",
     [](const JobCounters& job) { return job.kept_bytes; }},
    {"tierd_job_waste_bytes", "Held less requested.", [](const JobCounters& job) { return job.pool.waste(); }},
    {"tierd_job_free_bytes", "Free pages in the job's windows.",
     [](const JobCounters& job) { return job.pool.free_bytes; }},
    {"tierd_job_largest_run_bytes",
     "The longest run of free 2 MiB blocks; without a free one, of pages in a block. Of (other): the longest of one "
     "job.",
     [](const JobCounters& job) { return job.pool.largest_run_bytes; }},
    {"tierd_job_borrowed_bytes", "Bytes of windows beyond what the job is promised.",
     [](const JobCounters& job) { return job.pool.borrowed_bytes; }},
    {"tierd_job_owed_bytes", "Bytes of windows that the job asked for within its promise and has not got yet.",
     [](const JobCounters& job) { return job.pool.owed_bytes; }},
    {"tierd_job_emptying_bytes",
     "Bytes of windows that the job uses until what they hold has left them: they go to another job, or to the host.",
     [](const JobCounters& job) { return job.pool.emptying_bytes; }},
    {"tierd_job_returning_bytes", "Bytes of windows that the job's processes were asked to unmap; not held any more.",
     [](const JobCounters& job) { return job.pool.returning_bytes; }},
    {"tierd_job_sessions", "Attached client processes.", [](const JobCounters& job) { return job.session_count; }},
    {"tierd_job_tensors", "Tensors stored.", [](const JobCounters& job) { return job.tensor_count; }},
    {"tierd_job_torn_tensors", "Tensors that answer TORN.", [](const JobCounters& job) { return job.torn_count; }},
};

void AddJobTraffic(FamilyBuilder& out, const std::vector<JobRow>& rows) {
  out.Counter("tierd_job_swap_out_bytes_total", "Bytes of the job's tensors written to SSD.");
  for (const JobRow& row : rows) out.Add(row.counters.swap_out_bytes, LabelsOf(row));
  out.Counter("tierd_job_swap_in_bytes_total", "Bytes of the job's tensors read back from SSD.");
  for (const JobRow& row : rows) out.Add(row.counters.swap_in_bytes, LabelsOf(row));
  out.Counter("tierd_job_acquires_total",
              "Ranges asked for that were in RAM (hit) and that had to be waited for (miss).");
  for (const JobRow& row : rows) {
    out.Add(row.counters.acquire_hits, LabelsOf(row, "result", "hit"));
    out.Add(row.counters.acquire_misses, LabelsOf(row, "result", "miss"));
  }
  out.Counter("tierd_job_stall_seconds_total", "Time that the job's requests waited.");
  for (const JobRow& row : rows) out.Add(static_cast<double>(row.counters.stall_ns) * 1e-9, LabelsOf(row));
  out.Counter("tierd_job_compaction_moved_bytes_total", "Bytes of the job's pieces that were moved in RAM.");
  for (const JobRow& row : rows) out.Add(row.counters.moved_bytes, LabelsOf(row));
}

// A job has few reasons: one that it never met has no series.
void AddJobRefusals(FamilyBuilder& out, const std::vector<JobRow>& rows) {
  out.Counter("tierd_job_refusals_total",
              "Requests of the job that were refused, by the reasons of tierd_refusals_total; a reason appears once it "
              "has happened.");
  for (const JobRow& row : rows) {
    for (size_t i = 0; i < tiering::kRefusalReasons; ++i) {
      if (row.counters.refusals[i] == 0) continue;
      out.Add(row.counters.refusals[i],
              LabelsOf(row, "reason", tiering::RefusalReasonName(static_cast<tiering::RefusalReason>(i))));
    }
  }
}

void AddJobs(FamilyBuilder& out, const std::vector<JobRow>& rows) {
  out.Gauge("tierd_job_held_bytes",
            "Bytes of the job's windows, ready or being made, for whole blocks (block) and for small tensors and tails "
            "(slot).");
  for (const JobRow& row : rows) {
    for (const WindowKind kind : {WindowKind::kBlock, WindowKind::kSlot}) {
      out.Add(row.counters.pool.held_bytes[static_cast<size_t>(kind)],
              LabelsOf(row, "kind", tiering::WindowKindName(kind)));
    }
  }
  out.Gauge("tierd_job_requested_bytes",
            "Bytes of the job's tensors in RAM, to the byte: whole blocks (block), tails of tensors of several blocks "
            "(tail), small tensors (slot).");
  for (const JobRow& row : rows) {
    for (size_t i = 0; i < tiering::kRamClasses; ++i) {
      out.Add(row.counters.pool.requested_bytes[i],
              LabelsOf(row, "class", tiering::RamClassName(static_cast<tiering::RamClass>(i))));
    }
  }
  out.Gauge("tierd_job_node_bytes",
            "Bytes of the job's windows by the NUMA node of their first pages, where the host has several.");
  for (const JobRow& row : rows) {
    for (const auto& [node, bytes] : row.node_bytes) out.Add(bytes, LabelsOf(row, "node", std::to_string(node)));
  }
  for (const JobGauge& gauge : kJobGauges) {
    out.Gauge(gauge.name, gauge.help);
    for (const JobRow& row : rows) {
      const uint64_t figure = gauge.figure(row.counters);
      if (figure != 0 || !gauge.absent_at_zero) out.Add(figure, LabelsOf(row));
    }
  }
  AddJobTraffic(out, rows);
  AddJobRefusals(out, rows);
}

void AddDaemon(FamilyBuilder& out, const DaemonDescription& daemon) {
  using Names = std::vector<std::string_view>;
  out.Gauge("tierd_build_info", "1, labelled with the version.").Add(1, {{"version", daemon.version}});
  out.Gauge("tierd_draining", "1 while no new job or process is taken (tierctl drain), and while tierd stops.")
      .Add(daemon.draining ? 1 : 0);
  out.Gauge(
      "tierd_degraded",
      "1 for each cause by which tierd does less than it was set up for, 0 for the others: ssd_tier (there is "
      "none), ssd_size (less than configured), ssd_drained (no device takes new tensors), index (nothing can be "
      "persisted any more), memory (it may not be locked), torn_tensors, device (one is not online, has quarantined "
      "places, or had errors or corrupt pieces in the last hour), missing_device (one was not there at the start).");
  const auto causes = session::DegradedBy(daemon);
  for (size_t i = 0; i < session::kDegradedCauses; ++i) {
    const auto cause = static_cast<session::DegradedCause>(i);
    const bool holds = std::ranges::any_of(causes, [&](const auto& each) { return each.cause == cause; });
    out.Add(holds ? 1 : 0, {{"cause", session::DegradedCauseName(cause)}});
  }
  out.Gauge("tierd_config_reload_failed",
            "1 while the last reload of the configuration was refused: all settings stay as they were, and the log "
            "says why.")
      .Add(daemon.reload_failure ? 1 : 0);
  out.Gauge("tierd_io_mode", "1 for the mode in force, 0 for the other.")
      .AddOneOf(Names{"io_uring", "threads"}, daemon.io_mode, "mode");
  out.Gauge("tierd_memory_mode", "1 for the mode in force, 0 for the other.")
      .AddOneOf(Names{"pinned", "unpinned"}, daemon.memory_mode, "mode");
  out.Gauge("tierd_huge_page_mode",
            "1 for the pages of the windows that there are, 0 for the others: hugetlb (of the kernel's pool), thp, "
            "small. All are 0 while there is no window.")
      .AddOneOf(Names{"hugetlb", "thp", "small"}, daemon.huge_page_mode, "mode");
  out.Gauge("tierd_ssd_mode",
            "1 for the mode in force, 0 for the others: full (as configured, however much is in use), reduced (the "
            "disk is too full for the usual default file, or for a file to grow to ssd.file_size), none (no SSD tier: "
            "tensors stay in RAM).")
      .AddOneOf(Names{"full", "reduced", "none"}, daemon.ssd_mode, "mode");
  out.Gauge("tierd_engine_spin_mode",
            "1 for the configured engine.spin, whether the engine spins at the moment or not; 0 for the others.")
      .AddOneOf(Names{"auto", "always", "never"}, daemon.spin_mode, "mode");
  out.Counter("tierd_engine_spin_pauses_total",
              "Spins that ended because another thread had the processor; the engine then sleeps between messages for "
              "10 ms to 1 s.")
      .Add(daemon.spin_pauses);
  out.Counter("tierd_engine_observed_seconds_total",
              "Seconds that scrapes took of the engine thread, or kept it from waking; those of the page itself are "
              "told by the next one.")
      .Add(daemon.observed_seconds);
  out.Counter("tierd_engine_turns_total", "Turns of the engine thread.").Add(daemon.engine.turns);
}

void AddHost(FamilyBuilder& out, const DaemonDescription& daemon) {
  out.Gauge("tierd_host_available_bytes",
            "What the host, or the tightest control group above the daemon, can still give.")
      .Add(daemon.host_available_bytes);
  out.Gauge("tierd_host_memory_short", "1 while the arena is held down because the host is short of memory.")
      .Add(daemon.shortage.why.empty() ? 0 : 1);
  out.Counter("tierd_host_shortages_total", "Shortages of the host in which the arena gave memory back.")
      .Add(daemon.shortage.count);
  out.Gauge("tierd_host_psi_memory_some_ratio", "Part of the last 10 s in which some task waited for memory.")
      .Add(daemon.psi_memory_some_ratio);
}

// The names that Prometheus' own client libraries give these.
void AddProcess(FamilyBuilder& out, const ProcessFigures& process) {
  out.Counter("process_cpu_seconds_total", "User and system time of the daemon.").Add(process.cpu_seconds);
  out.Gauge("process_start_time_seconds", "When the daemon was started, in seconds of the Unix epoch.")
      .Add(process.start_time_seconds);
  out.Gauge("process_resident_memory_bytes", "Memory of the daemon that is in RAM, windows included.")
      .Add(process.resident_bytes);
  out.Gauge("process_virtual_memory_bytes", "Address space of the daemon.").Add(process.virtual_bytes);
  out.Gauge("process_open_fds", "Open file descriptors of the daemon.").Add(process.open_fds);
  out.Gauge("process_max_fds", "The most that it may open.").Add(process.max_fds);
  out.Gauge("process_threads", "Threads of the daemon.").Add(process.threads);
}

}  // namespace

std::vector<prometheus::MetricFamily> BuildFamilies(const DaemonDescription& daemon, const std::vector<JobRow>& jobs,
                                                    const ProcessFigures& process) {
  FamilyBuilder out;
  AddDaemon(out, daemon);
  AddArena(out, daemon);
  AddRequests(out, daemon.engine);
  AddTotals(out, daemon.engine.totals);
  AddCompaction(out, daemon.engine);
  AddMetadata(out, daemon);
  AddJobs(out, jobs);
  AddDevices(out, daemon);
  AddHost(out, daemon);
  AddProcess(out, process);
  return out.Take();
}

}  // namespace tier::metrics
