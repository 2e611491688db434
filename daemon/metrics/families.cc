#include "daemon/metrics/families.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace tier::metrics {
namespace {

using Labels = std::vector<std::pair<std::string, std::string>>;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

// Collects families one after the other; each Add goes to the family begun last.
class Builder {
 public:
  Builder& Gauge(const char* name, const char* help) { return Begin(name, help, MetricType::Gauge); }
  Builder& Counter(const char* name, const char* help) { return Begin(name, help, MetricType::Counter); }
  Builder& Histogram(const char* name, const char* help) { return Begin(name, help, MetricType::Histogram); }
  Builder& Add(double value, const Labels& labels = {}) {
    ClientMetric& metric = NewMetric(labels);
    if (families_.back().type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    return *this;
  }
  ClientMetric& NewMetric(const Labels& labels) {
    ClientMetric& metric = families_.back().metric.emplace_back();
    for (const auto& [name, value] : labels) {
      metric.label.emplace_back();
      metric.label.back().name = name;
      metric.label.back().value = value;
    }
    return metric;
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  Builder& Begin(const char* name, const char* help, MetricType type) {
    MetricFamily& family = families_.emplace_back();
    family.name = name;
    family.help = help;
    family.type = type;
    return *this;
  }
  std::vector<MetricFamily> families_;
};

double Number(uint64_t value) { return static_cast<double>(value); }

struct JobField {
  const char* name;
  const char* help;
  bool counter;
  uint64_t tiering::JobCounters::* member;
};

constexpr JobField kJobFields[] = {
    {"tier_job_ram_bytes", "Bytes of arena pages that hold the job's tensors.", false,
     &tiering::JobCounters::ram_bytes},
    {"tier_job_ssd_bytes", "Bytes of extents that hold the job's tensors.", false, &tiering::JobCounters::ssd_bytes},
    {"tier_job_leased_bytes", "Bytes under leases.", false, &tiering::JobCounters::leased_bytes},
    {"tier_job_dirty_bytes", "Sealed bytes in RAM without a valid SSD copy.", false,
     &tiering::JobCounters::dirty_bytes},
    {"tier_job_guarantee_bytes", "RAM that the job must always get.", false, &tiering::JobCounters::guarantee_bytes},
    {"tier_job_limit_bytes", "RAM that the job may never exceed; 0 means no limit.", false,
     &tiering::JobCounters::limit_bytes},
    {"tier_job_logical_bytes", "Bytes of the job's tensors, in whole pages, wherever they lie.", false,
     &tiering::JobCounters::logical_bytes},
    {"tier_job_ssd_guarantee_bytes", "SSD space that the job's tensors may always take.", false,
     &tiering::JobCounters::ssd_guarantee_bytes},
    {"tier_job_ssd_limit_bytes", "SSD space that the job's tensors may never exceed; 0 means no limit.", false,
     &tiering::JobCounters::ssd_limit_bytes},
    {"tier_job_sessions", "Attached client processes.", false, &tiering::JobCounters::session_count},
    {"tier_job_tensors", "Tensors stored.", false, &tiering::JobCounters::tensor_count},
    {"tier_swap_out_bytes_total", "Bytes written to SSD for the job.", true, &tiering::JobCounters::swap_out_bytes},
    {"tier_swap_in_bytes_total", "Bytes read back from SSD for the job.", true, &tiering::JobCounters::swap_in_bytes},
    {"tier_acquire_hit_total", "Acquires whose range was in RAM.", true, &tiering::JobCounters::acquire_hits},
    {"tier_acquire_miss_total", "Acquires that had to wait for the SSD.", true, &tiering::JobCounters::acquire_misses},
};

void AddArena(Builder& out, const session::DaemonDescription& daemon) {
  const tiering::EngineSnapshot& engine = daemon.engine;
  out.Gauge("tier_arena_bytes", "Host memory in windows.").Add(Number(engine.arena_bytes));
  out.Gauge("tier_arena_max_bytes", "Host memory that windows may reach now.").Add(Number(engine.arena_max_bytes));
  out.Gauge("tier_arena_prefault_bytes", "Host memory that was to be populated at the start, and is.")
      .Add(Number(daemon.prefault.done_bytes));
  out.Gauge("tier_arena_prefault_target_bytes", "All of it, less what the host did not give.")
      .Add(Number(daemon.prefault.target_bytes));
  out.Gauge("tier_arena_free_bytes", "Free pages in windows.").Add(Number(engine.arena_free_bytes));
  out.Gauge("tier_lease_bound_bytes", "Free pages in blocks that hold a leased slot.")
      .Add(Number(engine.lease_bound_bytes));
  out.Gauge("tier_owed_bytes", "Windows that jobs below their promise wait for.").Add(Number(engine.owed_bytes));
  out.Counter("tier_forced_return_total", "Memory taken back from clients that did not give it, by kind.");
  for (size_t kind = 0; kind < tiering::kForcedReturnKinds; ++kind) {
    out.Add(Number(engine.forced_returns[kind]),
            {{"kind", tiering::ForcedReturnKindName(static_cast<tiering::ForcedReturnKind>(kind))}});
  }
  out.Gauge("tier_kept_bytes", "Windows that were taken from jobs and that their processes still have.")
      .Add(Number(engine.kept_bytes));
  out.Gauge("tier_refilled_bytes", "Bytes that clients put into windows that they no longer have, found last.")
      .Add(Number(engine.refilled_bytes));
  out.Gauge("tier_windows", "Windows of the arena.").Add(Number(engine.window_count));
  out.Gauge("tier_windows_slot", "Windows for small tensors and tails, always in 4 KiB pages.")
      .Add(Number(engine.slot_window_count));
  out.Gauge("tier_windows_hugetlb", "Windows in 2 MiB pages.").Add(Number(engine.window_hugetlb_count));
  out.Gauge("tier_arena_node_bytes", "Windows by the NUMA node of their first pages, where the host has several.");
  for (const auto& [node, bytes] : engine.node_bytes) out.Add(Number(bytes), {{"node", std::to_string(node)}});
  out.Gauge("tier_windows_by_condition", "Windows by what becomes of them now.");
  for (size_t condition = 0; condition < tiering::kPoolConditions; ++condition) {
    out.Add(Number(engine.windows_by_condition[condition]),
            {{"condition", tiering::PoolConditionName(static_cast<tiering::PoolCondition>(condition))}});
  }
  out.Gauge("tier_sessions", "Attached client processes.").Add(Number(engine.session_count));
  out.Gauge("tier_leases", "Leases held by clients.").Add(Number(engine.lease_count));
  out.Gauge("tier_requests_waiting", "Requests waiting for RAM, SSD or a lease.").Add(Number(engine.waiting_count));
  out.Gauge("tier_tensors_torn", "Tensors that answer TORN.").Add(Number(engine.torn_count));
  out.Counter("tier_engine_turn_total", "Turns of the engine thread.").Add(Number(engine.turns));
}

void AddCompaction(Builder& out, const tiering::EngineSnapshot& engine) {
  const auto add = [&](uint64_t tiering::CompactionFigures::* member) {
    for (size_t cause = 0; cause < tiering::kCompactionCauses; ++cause) {
      out.Add(Number(engine.compaction[cause].*member),
              {{"cause", tiering::CompactionCauseName(static_cast<tiering::CompactionCause>(cause))}});
    }
  };
  out.Counter("tier_compaction_moves_total", "Pieces that were moved in RAM, by cause.");
  add(&tiering::CompactionFigures::moves);
  out.Counter("tier_compaction_moved_bytes_total", "Bytes of these.");
  add(&tiering::CompactionFigures::bytes);
  out.Counter("tier_compaction_cancelled_total", "Moves that a lease or a free came before.");
  add(&tiering::CompactionFigures::cancelled);
  out.Counter("tier_hand_over_windows_total", "Windows that went to other jobs, by how they had become empty.");
  for (size_t how = 0; how < tiering::kLeftByKinds; ++how) {
    out.Add(Number(engine.hand_over.windows[how]), {{"how", tiering::LeftByName(static_cast<tiering::LeftBy>(how))}});
  }
  out.Counter("tier_hand_over_evicted_bytes_total", "Bytes that were evicted to empty windows for other jobs.")
      .Add(Number(engine.hand_over.evicted_bytes));
  out.Counter("tier_lent_bytes_total", "Windows of idle jobs that went to others, beyond what these are promised.")
      .Add(Number(engine.hand_over.lent_bytes));
}

void AddMetadata(Builder& out, const tiering::MetadataFigures& metadata) {
  out.Gauge("tier_metadata_bytes", "The daemon's own memory for records of users, by kind.");
  for (size_t kind = 0; kind < tiering::kMetadataKinds; ++kind) {
    out.Add(Number(metadata.of_kind[kind]),
            {{"kind", tiering::MetadataKindName(static_cast<tiering::MetadataKind>(kind))}});
  }
  out.Gauge("tier_metadata_held_bytes", "What the tables of records take, used or not.").Add(Number(metadata.held));
  out.Gauge("tier_metadata_largest_user_bytes", "The same of the user who has most.")
      .Add(Number(metadata.of_largest_user));
  out.Gauge("tier_metadata_limit_bytes", "What one user may have of it.").Add(Number(metadata.limit));
  out.Counter("tier_metadata_refusal_total", "Requests refused and sessions ended at that limit.")
      .Add(Number(metadata.refusals));
}

void AddRequests(Builder& out, const tiering::EngineSnapshot& engine) {
  constexpr const char* kOpNames[proto::kOpCount] = {"none",     "create", "acquire", "release", "free",
                                                     "prefetch", "step",   "persist", "flush",   "accept",
                                                     "intern",   "stat",   "drop",    "tear"};
  out.Counter("tier_request_total", "Requests answered, by operation and code.");
  for (size_t op = 1; op < engine.requests.size(); ++op) {
    for (size_t code = 0; code < engine.requests[op].size(); ++code) {
      // OK is always shown, so that a rate exists before the first request; refusals once they have happened.
      if (code != 0 && engine.requests[op][code] == 0) continue;
      out.Add(Number(engine.requests[op][code]),
              {{"op", kOpNames[op]}, {"code", std::string(CodeName(static_cast<Code>(code)))}});
    }
  }
  out.Counter("tier_refusal_total", "Requests refused, by what would have to change for them to be granted.");
  for (size_t reason = 0; reason < engine.refusals.size(); ++reason) {
    out.Add(Number(engine.refusals[reason]),
            {{"reason", tiering::RefusalReasonName(static_cast<tiering::RefusalReason>(reason))}});
  }
  out.Histogram("tier_acquire_wait_seconds", "How long creates and acquires waited.");
  ClientMetric& metric = out.NewMetric({});
  uint64_t cumulative = 0;
  for (size_t i = 0; i < engine.wait_histogram.size(); ++i) {
    cumulative += engine.wait_histogram[i];
    const bool last = i == tiering::kWaitBucketsSeconds.size();
    ClientMetric::Bucket bucket;
    bucket.cumulative_count = cumulative;
    bucket.upper_bound = last ? std::numeric_limits<double>::infinity() : tiering::kWaitBucketsSeconds[i];
    metric.histogram.bucket.push_back(bucket);
  }
  metric.histogram.sample_count = cumulative;
  metric.histogram.sample_sum = Number(engine.wait_sum_ns) * 1e-9;
}

constexpr const char* kRestLabel = "(other)";  // No legal job name.

// The jobs that get a label: the largest in RAM; all others become one row, so that labels stay bounded.
std::vector<std::pair<std::string, tiering::JobCounters>> LabelledJobs(std::vector<session::JobDescription> jobs) {
  std::sort(jobs.begin(), jobs.end(), [](const auto& a, const auto& b) {
    return std::pair(b.counters.ram_bytes, a.name) < std::pair(a.counters.ram_bytes, b.name);
  });
  std::vector<std::pair<std::string, tiering::JobCounters>> rows;
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (i < kJobLabelsMax) {
      rows.emplace_back(jobs[i].name, jobs[i].counters);
      continue;
    }
    if (i == kJobLabelsMax) rows.emplace_back(kRestLabel, tiering::JobCounters{});
    tiering::JobCounters& other = rows.back().second;
    for (const JobField& field : kJobFields) other.*field.member += jobs[i].counters.*field.member;
    other.stall_ns += jobs[i].counters.stall_ns;
    tiering::AddPool(jobs[i].counters.pool, &other.pool);
  }
  return rows;
}

struct PoolField {
  const char* name;
  const char* help;
  uint64_t (*figure)(const tiering::PoolFigures&);
};

constexpr PoolField kPoolFields[] = {
    {"tier_job_waste_bytes", "Bytes of the job's windows that hold no byte of a tensor.",
     [](const tiering::PoolFigures& pool) { return pool.waste(); }},
    {"tier_job_free_bytes", "Free pages in the job's windows.",
     [](const tiering::PoolFigures& pool) { return pool.free_bytes; }},
    {"tier_job_largest_run_bytes", "The job's longest run of free blocks; without one, of pages in a block.",
     [](const tiering::PoolFigures& pool) { return pool.largest_run_bytes; }},
    {"tier_job_borrowed_bytes", "Bytes of windows beyond what the job is promised.",
     [](const tiering::PoolFigures& pool) { return pool.borrowed_bytes; }},
    {"tier_job_owed_bytes", "Bytes of windows that the job asked for within its promise and has not got yet.",
     [](const tiering::PoolFigures& pool) { return pool.owed_bytes; }},
    {"tier_job_returning_bytes", "Bytes of windows that the job's processes were asked to unmap.",
     [](const tiering::PoolFigures& pool) { return pool.returning_bytes; }},
};

// `rows` as LabelledJobs makes them.
void AddPool(Builder& out, const std::vector<std::pair<std::string, tiering::JobCounters>>& rows) {
  out.Gauge("tier_job_held_bytes", "Bytes of the job's windows, ready or being made, by kind of window.");
  for (const auto& [name, counters] : rows) {
    for (const WindowKind kind : {WindowKind::kBlock, WindowKind::kSlot}) {
      out.Add(Number(counters.pool.held_bytes[static_cast<size_t>(kind)]),
              {{"job", name}, {"kind", tiering::WindowKindName(kind)}});
    }
  }
  out.Gauge("tier_job_kept_bytes", "Windows that were taken from the job and that its processes still have.");
  for (const auto& [name, counters] : rows) out.Add(Number(counters.kept_bytes), {{"job", name}});
  out.Gauge("tier_job_requested_bytes", "Bytes of the job's tensors in RAM, by what they take of a window.");
  for (const auto& [name, counters] : rows) {
    for (size_t i = 0; i < tiering::kRamClasses; ++i) {
      out.Add(Number(counters.pool.requested_bytes[i]),
              {{"job", name}, {"class", tiering::RamClassName(static_cast<tiering::RamClass>(i))}});
    }
  }
  for (const PoolField& field : kPoolFields) {
    out.Gauge(field.name, field.help);
    for (const auto& [name, counters] : rows) out.Add(Number(field.figure(counters.pool)), {{"job", name}});
  }
}

// Sums over all jobs there ever were: a counter that fell when a job closed would be read as a restart.
void AddTotals(Builder& out, const tiering::JobCounters& totals) {
  out.Counter("tier_eviction_bytes_total", "Bytes dropped from RAM to make room.").Add(Number(totals.evicted_bytes));
  out.Counter("tier_writeback_avoided_bytes_total", "Bytes that needed no SSD write: unchanged, or dead before it.")
      .Add(Number(totals.write_avoided_bytes));
}

void AddJobs(Builder& out, std::vector<session::JobDescription> jobs) {
  // Two users may own jobs of one name; a series must be unique. No job name holds a space or a bracket.
  std::sort(jobs.begin(), jobs.end(),
            [](const auto& a, const auto& b) { return std::pair(a.name, a.uid) < std::pair(b.name, b.uid); });
  for (size_t i = jobs.size(); i-- > 1;) {
    if (jobs[i].name == jobs[i - 1].name) jobs[i].name += " (uid " + std::to_string(jobs[i].uid) + ")";
  }
  const auto rows = LabelledJobs(std::move(jobs));
  for (const JobField& field : kJobFields) {
    field.counter ? out.Counter(field.name, field.help) : out.Gauge(field.name, field.help);
    for (const auto& [name, counters] : rows) out.Add(Number(counters.*field.member), {{"job", name}});
  }
  AddPool(out, rows);
  out.Counter("tier_stall_seconds_total", "Time that the job's requests waited.");
  for (const auto& [name, counters] : rows) out.Add(Number(counters.stall_ns) * 1e-9, {{"job", name}});
}

void AddDevices(Builder& out, const std::vector<session::DeviceDescription>& devices) {
  const auto row = [&](auto figure) {
    for (const auto& device : devices) out.Add(Number(figure(device)), {{"device", std::to_string(device.index)}});
  };
  using Device = session::DeviceDescription;
  out.Gauge("tier_device_capacity_bytes", "Size of the device's data area.");
  row([](const Device& d) { return d.now.space.capacity; });
  out.Gauge("tier_device_free_bytes", "Bytes free for extents.");
  row([](const Device& d) { return d.now.space.free; });
  out.Gauge("tier_device_live_bytes", "Bytes of live extents.");
  row([](const Device& d) { return d.now.space.live; });
  out.Gauge("tier_device_quarantined_bytes", "Bytes of places that failed twice while others worked.");
  row([](const Device& d) { return d.now.space.quarantined; });
  out.Counter("tier_device_read_bytes_total", "Bytes read.");
  row([](const Device& d) { return d.now.traffic.read_bytes; });
  out.Counter("tier_device_written_bytes_total", "Bytes written.");
  row([](const Device& d) { return d.now.traffic.written_bytes; });
  out.Counter("tier_device_errors_total", "Transfers that the device failed, after a retry.");
  row([](const Device& d) { return d.now.traffic.errors; });
  out.Counter("tier_device_corrupt_total", "Pieces read back with a wrong checksum, twice.");
  row([](const Device& d) { return d.now.traffic.corrupt; });
  out.Counter("tier_device_window_faults_total", "Transfers whose memory a client had taken away.");
  row([](const Device& d) { return d.now.traffic.window_faults; });
  out.Gauge("tier_device_doubtful_bytes", "Bytes where the device failed, until it is known whether all of it does.");
  row([](const Device& d) { return d.now.space.doubtful; });
  out.Gauge("tier_device_state", "1 for the state of the device.");
  for (const Device& device : devices) {
    out.Add(1, {{"device", std::to_string(device.index)}, {"state", DeviceStateName(device.now.state)}});
  }
  out.Gauge("tier_device_draining", "1 while the device is being emptied.");
  row([](const Device& d) { return uint64_t{d.now.draining ? 1u : 0u}; });
  out.Gauge("tier_device_requests_inflight", "Requests at the device now.");
  row([](const Device& d) { return uint64_t{d.now.traffic.inflight}; });
}

void AddModes(Builder& out, const session::DaemonDescription& daemon) {
  out.Gauge("tier_engine_spin_mode", "1 for the configured mode.").Add(1, {{"mode", daemon.spin_mode}});
  out.Counter("tier_engine_spin_pauses_total", "Spins that ended because another thread had the processor.")
      .Add(Number(daemon.spin_pauses));
  out.Gauge("tier_io_mode", "1 for the mode in force.").Add(1, {{"mode", daemon.io_mode}});
  out.Gauge("tier_memory_mode", "1 for the mode in force.").Add(1, {{"mode", daemon.memory_mode}});
  out.Gauge("tier_ssd_mode", "1 for the mode in force.").Add(1, {{"mode", daemon.ssd_mode}});
  out.Gauge("tier_host_available_bytes", "What the host, or the tightest control group, can still give.")
      .Add(Number(daemon.host_available_bytes));
  out.Gauge("tier_host_short", "1 while the arena is held down because the host is short of memory.")
      .Add(daemon.shortage.why.empty() ? 0 : 1);
  out.Counter("tier_host_shortages_total", "Shortages of the host in which the arena gave memory back.")
      .Add(Number(daemon.shortage.count));
  out.Counter("tier_arena_given_back_bytes_total", "Windows closed because the host was short of memory.")
      .Add(Number(daemon.shortage.given_back_bytes));
  const tiering::EngineSnapshot& engine = daemon.engine;
  const uint64_t debt = engine.arena_bytes - std::min(engine.arena_bytes, engine.arena_max_bytes);
  out.Gauge("tier_arena_debt_bytes", "Windows beyond what the host has memory for.").Add(Number(debt));
  out.Gauge("tier_daemon_own_bytes", "Heap, tables, stacks and page tables of the daemon.")
      .Add(Number(daemon.shortage.daemon_own_bytes));
  out.Gauge("tier_psi_memory_some_ratio", "Part of the last 10 s in which some task waited for memory.")
      .Add(daemon.psi_memory_some_ratio);
  out.Gauge("tier_build_info", "1, labelled with the version.").Add(1, {{"version", daemon.version}});
}

}  // namespace

std::vector<MetricFamily> BuildFamilies(const session::DaemonDescription& daemon,
                                        std::vector<session::JobDescription> jobs) {
  Builder out;
  AddArena(out, daemon);
  AddCompaction(out, daemon.engine);
  AddMetadata(out, daemon.engine.metadata);
  AddRequests(out, daemon.engine);
  AddTotals(out, daemon.engine.totals);
  AddJobs(out, std::move(jobs));
  AddDevices(out, daemon.devices);
  AddModes(out, daemon);
  return out.Take();
}

}  // namespace tier::metrics
