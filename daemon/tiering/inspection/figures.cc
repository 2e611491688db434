// See figures.h.
#include "daemon/tiering/inspection/figures.h"

#include <algorithm>

#include "daemon/tiering/durability/manifests.h"

namespace tier::tiering {
namespace {

JobView ViewOf(const Core& core, const JobState& job) {
  JobView view{.id = job.id, .counters = job.counters};
  JobCounters& counters = view.counters;
  counters.ram_bytes = job.used_pages() * kPageSize;
  counters.ssd_bytes = job.ssd_pages * kPageSize;
  counters.dirty_bytes = job.dirty_pages * kPageSize;
  counters.persisted = job.manifest.stored();
  counters.persisting = ManifestUnderWay(core, job);
  counters.guarantee_bytes = core.ledger.PromisedTo(job.entitlement);
  counters.limit_bytes = job.options.limit_bytes;
  counters.share_bytes = core.ledger.AllowedTo(job.entitlement);
  counters.window_count = job.windows.size();
  counters.held_bytes = core.ledger.HeldBy(job.entitlement);
  counters.session_count = job.sessions.size();
  return view;
}

TensorView ViewOf(const Tensor& tensor) {
  TensorView view{.space = tensor.space, .tensor = tensor.id, .key = std::string(tensor.job->keys.KeyOf(tensor.id))};
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

// Somebody can name it.
bool Listed(const Core& core, const Tensor& tensor, const JobState& job) {
  if (tensor.job != &job || tensor.has(kDetached | kUnnamed)) return false;
  return tensor.space == 0 || tensor.space == kInheritedSpace || core.sessions.Find(SessionId{tensor.space}) != nullptr;
}

void CountWindows(const Core& core, const JobState& job, EngineSnapshot* snapshot) {
  snapshot->window_count += job.windows.size() + job.windows_returning;
  snapshot->arena_free_bytes += job.pool.free_pages() * kPageSize;
  snapshot->lease_bound_bytes += job.pool.bound_free_pages() * kPageSize;
  for (const WindowIndex window : job.windows) {
    const memory::WindowShape& shape = core.windows[window].shape;
    if (shape.kind == WindowKind::kSlot) ++snapshot->slot_window_count;
    if (shape.page_size > kPageSize) ++snapshot->window_hugetlb_count;
  }
}

}  // namespace

EngineSnapshot TakeSnapshot(const Core& core) {
  EngineSnapshot snapshot;
  snapshot.turns = core.turns;
  snapshot.turn_work_max = core.work.most_spent();
  snapshot.arena_bytes = core.ports.windows.arena_bytes();
  snapshot.arena_max_bytes = core.ports.windows.arena_max_bytes();
  snapshot.window_size = core.windows.window_size(WindowKind::kBlock);
  snapshot.slot_window_size = core.windows.window_size(WindowKind::kSlot);
  snapshot.session_count = core.sessions.size();
  snapshot.tensor_count = core.tensors.used();
  snapshot.lease_count = core.leases.used();
  snapshot.waiting_count = core.waits.size();
  snapshot.metadata = core.metadata.figures();
  core.figures.AddTo(&snapshot);
  snapshot.totals = core.jobs.closed_totals();
  for (const JobState* job : core.jobs.closing()) AddCounters(job->counters, &snapshot.totals);
  for (const JobState* job : core.jobs.open()) {
    snapshot.torn_count += job->counters.torn_count;
    AddCounters(job->counters, &snapshot.totals);
    CountWindows(core, *job, &snapshot);
    snapshot.jobs.push_back(ViewOf(core, *job));
  }
  std::sort(snapshot.jobs.begin(), snapshot.jobs.end(), [](const JobView& a, const JobView& b) {
    return static_cast<uint64_t>(a.id) < static_cast<uint64_t>(b.id);
  });
  for (uint16_t device = 0; device < core.ports.extents.device_count(); ++device) {
    snapshot.devices.push_back(core.ports.extents.space(device));
    snapshot.traffic.push_back(core.ports.transfers.traffic(device));
  }
  return snapshot;
}

JobCounters CountersOf(const Core& core, JobId id) {
  const JobState* job = core.jobs.Find(id);
  return job == nullptr ? JobCounters{} : ViewOf(core, *job).counters;
}

TensorPage ListTensors(const Core& core, JobId id, uint32_t from, size_t max) {
  TensorPage page;
  const JobState* job = core.jobs.Find(id);
  if (job == nullptr) return page;
  const size_t most = std::min(max, kTensorsPerPage);
  const uint32_t end =
      from + std::min(core.tensors.capacity() - std::min(from, core.tensors.capacity()), kSlotsPerPage);
  uint32_t at = from;
  for (; at < end && page.tensors.size() < most; ++at) {
    const Tensor& tensor = core.tensors[TensorSlot{at}];
    if (Listed(core, tensor, *job)) page.tensors.push_back(ViewOf(tensor));
  }
  page.next = at == core.tensors.capacity() ? 0 : at;
  return page;
}

}  // namespace tier::tiering
