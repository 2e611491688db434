// See figures.h.
#include "daemon/tiering/inspection/figures.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/tiering/durability/manifests.h"
#include "daemon/tiering/inspection/pool.h"

namespace tier::tiering {

constexpr size_t kCacheLine = 64;

static_assert(kWindowsMax <= kRecordsPerPage, "a look at each window is no more work than a page of tensors");

namespace {

// What the job may hold: leases bound it too, and where there is no device, so does what is promised to others.
uint64_t ShareOf(const Tables& tables, const JobState& job) {
  const uint64_t most = tables.ledger.LeaseMax(job.entitlement);
  if (tables.ports.extents.device_count() != 0) return most;
  return std::min(most, std::max(tables.ledger.FirmBytes(job.entitlement), tables.ledger.PromisedTo(job.entitlement)));
}

JobView ViewOf(const Tables& tables, const JobState& job) {
  JobView view{.id = job.id, .counters = job.record.counters};
  JobCounters& counters = view.counters;
  counters.ram_bytes = job.used_pages() * kPageSize;
  counters.ssd_bytes = job.pages.ssd() * kPageSize;
  counters.dirty_bytes = job.pages.dirty() * kPageSize;
  counters.persisted = job.manifest.stored();
  counters.persisting = ManifestUnderWay(tables, job);
  counters.guarantee_bytes = tables.ledger.PromisedTo(job.entitlement);
  counters.own_guarantee_bytes = job.record.guarantee_bytes;
  counters.limit_bytes = job.record.limit_bytes;
  counters.logical_bytes = job.pages.logical() * kPageSize;
  counters.ssd_guarantee_bytes = job.record.ssd_guarantee_bytes;
  counters.ssd_limit_bytes = job.record.ssd_limit_bytes;
  counters.share_bytes = ShareOf(tables, job);
  counters.window_count = job.windows.ready().size();
  counters.held_bytes = tables.ledger.HeldBy(job.entitlement);
  counters.kept_bytes = tables.ledger.KeptBy(job.entitlement);
  counters.pool = PoolOf(tables, job);
  counters.session_count = job.sessions.size();
  return view;
}

TensorView ViewOf(const Tables& tables, const Tensor& tensor) {
  TensorView view{.space = tensor.space, .tensor = tensor.id, .key = tables.JobOf(tensor).keys.KeyOf(tensor.id)};
  view.size = tensor.size;
  view.generation = tensor.generation;
  view.lease_count = tensor.lease_count;
  view.piece_count = tensor.piece_count;
  view.sealed = tensor.has(kVisible);
  view.torn = tensor.torn();
  view.ram_bytes = uint64_t{tensor.ram_pages} * kPageSize;
  view.ssd_bytes = uint64_t{tensor.ssd_pages} * kPageSize;
  return view;
}

// A client can name it.
bool Listed(const Tables& tables, const Tensor& tensor, const JobState& job) {
  if (tensor.job != job.index || tensor.has(kDetached | kUnnamed)) return false;
  return tensor.space == 0 || tensor.space == kInheritedSpace ||
         tables.sessions.Find(SessionId{tensor.space}) != nullptr;
}

void CountWindows(const Tables& tables, const JobState& job, JobView* view, EngineSnapshot* snapshot) {
  snapshot->window_count += job.windows.ready().size() + job.windows.returning();
  snapshot->arena_free_bytes += (job.pool.free_pages() + job.pool.closed_free_pages()) * kPageSize;
  snapshot->lease_bound_bytes += job.pool.bound_free_pages() * kPageSize;
  for (const WindowIndex window : job.windows.ready()) {
    const memory::WindowShape& shape = tables.windows[window].shape;
    if (shape.kind == WindowKind::kSlot) ++snapshot->slot_window_count;
    if (shape.page_size > kPageSize) ++snapshot->window_hugetlb_count;
    if (shape.node != memory::kAnyNode) view->node_bytes[shape.node] += shape.size;
  }
  for (const auto& [node, bytes] : view->node_bytes) snapshot->node_bytes[node] += bytes;
}

// Jobs that do nothing lie in no cache, and a miss takes longer than all that is done with what it brings.
void PrefetchLines(const void* begin, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kCacheLine) __builtin_prefetch(static_cast<const std::byte*>(begin) + at);
}

// Each job is asked for while the one before it is looked at. Pointers are sorted, not what is told of the jobs.
void AddJobs(const Tables& tables, EngineSnapshot* snapshot) {
  std::vector<const JobState*> jobs(tables.jobs.open().begin(), tables.jobs.open().end());
  std::ranges::sort(jobs, {}, [](const JobState* job) { return static_cast<uint64_t>(job->id); });
  snapshot->jobs.reserve(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (i + 1 < jobs.size()) {
      PrefetchLines(jobs[i + 1], sizeof(JobState));
      PrefetchLines(&jobs[i + 1]->record, sizeof(JobRecord));
    }
    const JobState& job = *jobs[i];
    snapshot->torn_count += job.record.counters.torn_count;
    AddCounters(job.record.counters, &snapshot->totals);
    JobView& view = snapshot->jobs.emplace_back(ViewOf(tables, job));
    CountWindows(tables, job, &view, snapshot);
  }
}

bool AnyTakesExtents(const Tables& tables) {
  for (uint16_t device = 0; device < tables.ports.extents.device_count(); ++device) {
    if (!tables.drain.drains(device) && !tables.devices[device].away) return true;
  }
  return false;
}

// From sums alone: manifests may be many.
std::string DrainNote(const Tables& tables, uint16_t device) {
  if (!AnyTakesExtents(tables)) {
    const uint64_t live = tables.ports.extents.space(device).live;
    return live == 0 ? "" : fmt::format("{} stay, as no other SSD device takes them", base::FormatBytes(live));
  }
  struct Part {
    uint64_t pages = 0;
    std::string why;
  };
  const UnusedPages& unused = tables.manifests.unused();
  const bool rests = unused.drain() == tables.move.drain;  // What is known is of the devices that drain now.
  const auto resting = [&](Stay stay) { return rests ? unused.on(device, stay) : 0; };
  Part open{unused.on(device, Stay::kOpenJob),
            "held by the last manifests of open jobs until these persist again or are closed"};
  Part unread{resting(Stay::kUnread), "cannot be read, which is tried again"};
  Part full{resting(Stay::kNoRoom), "for which other devices have no room"};
  Part failed{resting(Stay::kNotCommitted), "could not be committed at their new places, which is tried again"};
  Part broken{unused.on(device, Stay::kDamaged), {}};
  if (tables.manifests.store_lost() != nullptr) {
    unread = full = {};
    failed = {unused.on(device) - open.pages - broken.pages,
              "held by manifests, and nothing is committed before a restart"};
  }
  if (broken.pages != 0) {
    const std::string* const first = tables.manifests.FindBrokenOn(device);
    broken.why = fmt::format("of damaged manifests{}: tierctl job remove --purge gives them up",
                             first == nullptr ? "" : ", first job " + *first);
  }
  std::string note;
  for (const Part& part : {open, unread, full, failed, broken}) {
    if (part.pages == 0) continue;
    note += fmt::format("{}{} {}", note.empty() ? "" : "; ", base::FormatBytes(part.pages * kPageSize), part.why);
  }
  return note;
}

}  // namespace

uint64_t HeldMetadata(const Tables& tables) {
  uint64_t bytes = tables.bytes();
  tables.jobs.ForEach([&](const JobState& job) { bytes += job.keys.memory_bytes(); });
  const MetadataSums charged = tables.metadata.figures().of_kind;
  for (const MetadataKind kind : {MetadataKind::kRequests, MetadataKind::kAnswers, MetadataKind::kManifests}) {
    bytes += charged[static_cast<size_t>(kind)];
  }
  return bytes;
}

EngineSnapshot TakeSnapshot(const Tables& tables) {
  EngineSnapshot snapshot;
  snapshot.turns = tables.turn.number();
  snapshot.turn_work_max = tables.work.most_spent();
  snapshot.arena_bytes = tables.ports.windows.arena_bytes();
  snapshot.arena_max_bytes = tables.ports.windows.arena_max_bytes();
  snapshot.stock_bytes = tables.ports.windows.stock_bytes();
  snapshot.owed_bytes = tables.ledger.claimed_bytes();
  snapshot.forced_returns = tables.forced_returns.counts();
  snapshot.kept_bytes = tables.forced_returns.kept_bytes();
  snapshot.refilled_bytes = tables.forced_returns.refilled_bytes();
  snapshot.window_size_min = tables.windows.grain();
  snapshot.window_size_max = tables.windows.sizes(WindowKind::kBlock).most;
  snapshot.windows_by_condition = CountConditions(tables);
  snapshot.session_count = tables.sessions.size();
  snapshot.tensor_count = tables.tensors.used();
  snapshot.lease_count = tables.leases.used();
  snapshot.waiting_count = tables.waits.size();
  snapshot.waiting_for = tables.waits.meter().waiting();
  snapshot.waited_for = tables.waits.meter().waited(tables.turn.now());
  snapshot.any_waited_for = tables.waits.meter().any_waited(tables.turn.now());
  snapshot.metadata = tables.metadata.figures();
  for (size_t cause = 0; cause < kCompactionCauses; ++cause) {
    snapshot.compaction[cause] = tables.ram_moves.figures(static_cast<CompactionCause>(cause));
  }
  snapshot.hand_over = tables.hand_over.figures();
  snapshot.merges = tables.merge.figures();
  snapshot.write_budget = tables.write_budget.figures(tables.turn.now());
  tables.figures.AddTo(&snapshot);
  snapshot.corrupt_pieces = tables.corrupt_reads.pieces();
  snapshot.totals = tables.jobs.closed_totals();
  for (const JobState* job : tables.jobs.closing()) AddCounters(job->record.counters, &snapshot.totals);
  AddJobs(tables, &snapshot);
  snapshot.metadata.held = HeldMetadata(tables);
  for (uint16_t device = 0; device < tables.ports.extents.device_count(); ++device) {
    const storage::DeviceHealth& health = tables.devices[device].health;
    snapshot.devices.push_back({.space = tables.ports.extents.space(device),
                                .traffic = tables.ports.transfers.traffic(device),
                                .latency = tables.ports.transfers.latency(device),
                                .state = health.state(),
                                .reason = health.ErrorText(),
                                .draining = tables.drain.drains(device),
                                .failing = tables.ports.extents.IsFailing(device),
                                .scattered_pieces = tables.ports.extents.scattered_extents(device),
                                .rewritten_blocks = tables.ports.extents.cleared_blocks(device),
                                .drain_note = tables.drain.drains(device) ? DrainNote(tables, device) : ""});
  }
  if (tables.ports.manifests == nullptr) return snapshot;
  snapshot.index_failure = tables.ports.manifests->failure();
  for (const storage::MissingDevice& device : tables.ports.manifests->missing_devices()) {
    snapshot.missing.push_back({.uuid = device.uuid,
                                .path = device.path,
                                .reason = device.reason,
                                .lost_job_count = tables.manifests.CountLostOn(device.uuid)});
  }
  return snapshot;
}

JobCounters CountersOf(const Tables& tables, JobId id) {
  const JobState* job = tables.jobs.Find(id);
  return job == nullptr ? JobCounters{} : ViewOf(tables, *job).counters;
}

TensorPage ListTensors(const Tables& tables, JobId id, uint32_t from, size_t max) {
  TensorPage page;
  const JobState* job = tables.jobs.Find(id);
  if (job == nullptr) return page;
  const size_t most = std::min(max, kTensorsPerPage);
  const uint32_t end =
      from + std::min(tables.tensors.capacity() - std::min(from, tables.tensors.capacity()), kRecordsPerPage);
  uint32_t at = from;
  for (; at < end && page.tensors.size() < most; ++at) {
    const Tensor& tensor = tables.tensors[TensorIndex{at}];
    if (Listed(tables, tensor, *job)) page.tensors.push_back(ViewOf(tables, tensor));
  }
  page.next = at >= tables.tensors.capacity() ? 0 : at;  // A caller may ask for more than there is.
  return page;
}

}  // namespace tier::tiering
