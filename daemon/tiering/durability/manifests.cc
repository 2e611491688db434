// See manifests.h.
#include "daemon/tiering/durability/manifests.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/tiering/durability/manifest_capture.h"
#include "daemon/tiering/leases/updates.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

storage::Extent ExtentOf(const proto::ManifestPieceRecord& piece) {
  return {.run = {.block = piece.block, .page = piece.page, .pages = piece.pages}, .device = piece.device};
}

bool Settled(const Piece& piece) { return piece.ssd_run && piece.activity != Activity::kLeasedWrite; }

bool CommitUnderWay(const Core& core, const std::string& key) {
  return core.manifests.AnyCommit([&](const ManifestCommit& commit) { return commit.key == key; });
}

void FreeDropped(Core& core) {
  for (const ManifestHolds::Dropped& dropped : core.dropped_scratch) {
    if (dropped.bad) {
      core.ports.extents.Quarantine(dropped.extent);
    } else {
      core.ports.extents.FreeAtTurnEnd(dropped.extent);  // A piece may have used it until this turn.
    }
  }
  core.dropped_scratch.clear();
}

JobState* JobOfKey(const Core& core, const std::string& key) {
  if (JobState* open = core.jobs.FindByKey(key)) return open;
  const auto closing =
      std::ranges::find_if(core.jobs.closing(), [&](JobState* job) { return job->options.key == key; });
  return closing == core.jobs.closing().end() ? nullptr : *closing;
}

// Null: the job is gone, and had nothing to hold.
ManifestHolds* FindHolds(Core& core, uint64_t id) {
  if (ManifestHolds* inactive = core.manifests.FindInactive(id)) return inactive;
  ManifestHolds* found = nullptr;
  core.jobs.ForEach([&](JobState& job) {
    if (job.manifest.id() == id) found = &job.manifest;
  });
  return found;
}

// What an earlier run was promised must not be lost to one that does not know of it: not to a named job that never
// resumed it, nor to an ephemeral one, whose own goes with it.
std::optional<Refusal> ReplaceRefusal(const Core& core, const JobState& job) {
  const std::string& key = job.options.key;
  const bool inactive = core.manifests.FindStored(key) != nullptr || core.manifests.FindBroken(key) != nullptr;
  if (!job.has_unclaimed_manifest && (job.options.named || !inactive)) return std::nullopt;
  const char* const why =
      job.has_unclaimed_manifest
          ? "run did not resume and would replace; open the job with mode resume to go on from there; to begin "
            "anew remove that run's first (tierctl job remove --purge), or open a job that is closed with mode "
            "create"
          : "ephemeral job would replace and take with it when it ends; open the job as named, or resume it, "
            "or choose another name";
  return Refusal{Code::kDenied, fmt::format("an earlier run of job {} left a manifest, which this {}", key, why), {}};
}

// What the session that persisted had changed is finished: its death later cannot mix it with what came before. False:
// the turn has no more work left.
bool EndCapturedUpdates(Core& core, const storage::ManifestResult& result) {
  ManifestCommit& commit = core.manifests.CommitOf(result.cookie);
  if (result.code != Code::kOk) return true;
  for (; commit.ended < commit.tensors.size(); ++commit.ended) {
    if (!core.work.TrySpend()) return false;
    const TensorRef tensor = commit.tensors[commit.ended];
    if (core.Alive(tensor)) EndCaptured(core, tensor.slot, result.cookie);
  }
  return true;
}

void UpdateHolds(Core& core, const ManifestCommit& commit, Code code) {
  ManifestHolds* const holds = FindHolds(core, commit.holds);
  if (holds == nullptr) return;
  if (code == Code::kOk) {
    commit.erase ? holds->OnErased() : holds->OnSynced();
    holds->set_stored(!commit.erase);
  } else if (!commit.erase) {
    holds->OnFailed();
  }
  core.manifests.NeedSweep(commit.holds);
}

void TakeManifestResult(Core& core, const storage::ManifestResult& result) {
  const ManifestCommit commit = core.manifests.EndCommit(result.cookie);
  UpdateHolds(core, commit, result.code);
  if (result.code == Code::kOk) core.manifests.ClearBroken(commit.key);  // A whole one is in its place.
  if (JobState* job = JobOfKey(core, commit.key)) {
    core.waits.OnWrite(*job);  // The next persist of the job may begin.
    if (result.code == Code::kOk && job->manifest.id() == commit.holds) {
      job->includes_session_tensors = commit.own;
      job->has_unclaimed_manifest |= commit.own && commit.sessions_gone;
    }
  }
  core.reports.Add(CommittedManifest{
      commit.waiter, result.code == Code::kOk
                         ? Finished(result.commit)
                         : Refused({result.code, "the manifest was not committed: " + result.message, {}}, 0)});
}

// Extents that no manifest names any more become free. False: the turn has no more work left.
bool Sweep(Core& core, uint64_t id) {
  ManifestHolds* const holds = FindHolds(core, id);
  while (holds != nullptr && holds->sweeping()) {
    if (!core.work.TrySpend()) return false;
    holds->SweepOne(&core.dropped_scratch);
    FreeDropped(core);
  }
  // Of a job that is not open, and the store has nothing of it.
  if (holds != nullptr && holds == core.manifests.FindInactive(id) && holds->empty() && !holds->stored()) {
    core.manifests.RemoveInactive(id);
  }
  return true;
}

Status ReplayTensor(Core& core, JobState& job, const ManifestTensor& saved) {
  const uint64_t space = saved.record.space == 0 ? 0 : kInheritedSpace;
  if (core.table.Find({static_cast<uint64_t>(job.id), space, saved.record.tensor}) != kNoTensor) {
    return Fail(Code::kCorrupt, fmt::format("the manifest names tensor {:#x} twice", saved.record.tensor));
  }
  for (size_t k = 0; k < saved.pieces.size(); ++k) {
    if (job.manifest.Use(ExtentOf(saved.pieces[k]))) continue;
    for (size_t used = 0; used < k; ++used) job.manifest.Unuse(ExtentOf(saved.pieces[used]), false);
    return Fail(Code::kCorrupt,
                fmt::format("the manifest gives one extent to tensor {:#x} and to another", saved.record.tensor));
  }
  const TensorSlot slot = AddTensor(core, job, {.space = space, .id = saved.record.tensor, .size = saved.record.size});
  Tensor& tensor = core.tensors[slot];
  AddPieces(core, slot, 0, tensor.piece_count);
  tensor.generation = static_cast<uint32_t>(saved.record.generation);
  for (uint32_t k = 0; k < tensor.piece_count; ++k) {
    const PieceId id = tensor.piece(k);
    GiveExtent(core, id, ExtentOf(saved.pieces[k]));
    Piece& piece = core.pieces[id];
    piece.crc = saved.pieces[k].crc;
    piece.generation = saved.pieces[k].generation;
    piece.ssd_generation = piece.generation;
    SetState(core, id, {Copies::kSsd, Activity::kNone});
  }
  if ((saved.record.flags & proto::kManifestTorn) != 0) MarkTorn(core, slot, {0, tensor.piece_count});
  return {};
}

Status CheckMetadata(const JobState& job, const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const ManifestKey& key : manifest.keys) bytes += kKeyCost + key.key.size();
  for (const ManifestTensor& tensor : manifest.tensors) bytes += TensorCost(tensor.pieces.size());
  if (job.metadata->HasRoom(bytes)) return {};
  const Refusal refusal = job.metadata->RefusalOf(bytes);
  return Fail(refusal.code, "the job cannot be resumed: " + refusal.detail);
}

Status Replay(Core& core, JobState& job, const Manifest& manifest) {
  if (Status room = CheckMetadata(job, manifest); !room) return room;
  for (const ManifestKey& key : manifest.keys) {
    if (Status restored = job.keys.Restore(key.key, key.id); !restored) return restored;
    job.metadata->Recharge(MetadataKind::kKeys, &job.charged_key_bytes, KeysCost(job.keys));
  }
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (Status replayed = ReplayTensor(core, job, tensor); !replayed) return replayed;
  }
  job.steps = manifest.step;
  return {};
}

// Takes every extent that a manifest names. On failure what was taken stays taken: it may be somebody's.
Status TakeExtents(Core& core, const Manifest& manifest, ManifestHolds* holds) {
  for (const ManifestTensor& tensor : manifest.tensors) {
    for (const proto::ManifestPieceRecord& piece : tensor.pieces) {
      if (Status taken = core.ports.extents.Take(ExtentOf(piece)); !taken) return taken;
      holds->Adopt(ExtentOf(piece));
    }
  }
  return {};
}

// Why that much more does not fit on SSD. None: it does.
std::optional<Refusal> SpaceRefusal(const Core& core, const JobState& job, uint64_t bytes) {
  if (bytes == 0 || core.ports.extents.HasRoom(bytes)) return std::nullopt;
  // Extents are being freed turn by turn: what is short in the end is found out by writing.
  if (!core.manifests.idle()) return std::nullopt;
  if (std::ranges::any_of(core.jobs.open(), [](const JobState* other) { return other->has_pending_frees(); })) {
    return std::nullopt;
  }
  const storage::DeviceSpace space = core.ports.extents.usable();
  const uint64_t held = job.manifest.unused_pages() * kPageSize;
  return Refusal{
      Code::kNoSpace,
      fmt::format("persisting needs {} more on SSD, {} of {} are free ({} are held only by the last manifest){}; "
                  "free tensors, or restart tierd with one more device in ssd.devices",
                  base::FormatBytes(bytes), base::FormatBytes(space.free), base::FormatBytes(space.capacity),
                  base::FormatBytes(held), core.ports.extents.DrainNote()),
      {.requested = bytes, .available = space.free, .limit = space.capacity}};
}

}  // namespace

Outcome CheckSpace(Core& core, Waiter& waiter) {
  Scan& scan = std::get<PersistWait>(waiter.kind).space;
  if (scan.item == waiter.items.size()) return Ready();
  for (; scan.item < waiter.items.size(); ++scan.item, scan.piece = 0) {
    const WaitItem& item = waiter.items[scan.item];
    if (!core.Alive(item.tensor)) continue;
    const Tensor& tensor = core.tensors[item.tensor.slot];
    for (; scan.piece < tensor.piece_count; ++scan.piece) {
      if (!core.work.TrySpend()) return core.WaitForNextTurn(waiter);
      const bool settled = Settled(core.PieceOf(tensor, scan.piece));
      if (!settled) scan.ssd_bytes += PagesFor(tensor.piece_length(scan.piece)) * kPageSize;
    }
  }
  std::optional<Refusal> refusal = SpaceRefusal(core, *waiter.job, scan.ssd_bytes);
  return refusal ? Refused(*std::move(refusal), 0) : Ready();
}

namespace {

// A persist that waits for what others write must not hold up theirs: it begins again. False: none sleeps.
bool DropSleepingCapture(Core& core, const JobState& job) {
  for (const uint64_t number : core.waits.ListJob(job)) {
    Waiter& waiter = *core.waits.Find(number);
    const PersistWait* const persist = std::get_if<PersistWait>(&waiter.kind);
    if (persist == nullptr || persist->capture == nullptr || core.waits.ready(number)) continue;
    DropCapture(core, waiter);
    return true;
  }
  return false;
}

}  // namespace

Outcome StartManifest(Core& core, Waiter& waiter) {
  JobState& job = *waiter.job;
  PersistWait& persist = std::get<PersistWait>(waiter.kind);
  if (persist.capture == nullptr) {
    if (CommitUnderWay(core, job.options.key)) return Waits();
    if (job.manifest.begun() && !DropSleepingCapture(core, job)) return Waits();
    if (std::optional<Refusal> refusal = ReplaceRefusal(core, job)) return Refused(*std::move(refusal), 0);
  }
  if (Outcome captured = Capture(core, waiter); captured.progress != Progress::kReady) return captured;
  const std::shared_ptr<ManifestCapture> capture = std::exchange(persist.capture, nullptr);
  persist.cookie = capture->cookie;
  core.manifests.StartCommit(persist.cookie, {.key = job.options.key,
                                              .holds = job.manifest.id(),
                                              .waiter = waiter.number,
                                              .own = capture->own,
                                              .tensors = std::move(capture->tensors)});
  core.ports.manifests->StartPut(persist.cookie, job.options.key, std::move(capture->writer).Take());
  core.made_progress = true;
  return Waits();
}

bool ErasureUnderWay(const Core& core, const std::string& key) {
  return core.manifests.AnyCommit([&](const ManifestCommit& commit) { return commit.key == key && commit.erase; });
}

bool ManifestUnderWay(const Core& core, const JobState& job) {
  return core.manifests.AnyCommit(
      [&](const ManifestCommit& commit) { return commit.holds == job.manifest.id() && !commit.erase; });
}

bool HasCommitted(const Core& core, const JobState& job) {
  return job.manifest.stored() || !job.manifest.empty() || ManifestUnderWay(core, job);
}

bool AwaitsSweep(const Core& core, const JobState& job) {
  bool there = false;
  core.manifests.ForEachInactive(
      [&](const std::string& key, const ManifestHolds&) { there |= key == job.options.key; });
  return there && (job.manifest.stored() || !job.manifest.empty());
}

bool IsClosing(const Core& core, const std::string& key) {
  return std::ranges::any_of(core.jobs.closing(),
                             [&](const JobState* job) { return job->options.key == key && HasCommitted(core, *job); });
}

bool TakeManifestResults(Core& core) {
  if (core.ports.manifests == nullptr) return false;
  std::deque<storage::ManifestResult>& results = core.manifests.results();
  core.manifest_results.clear();
  core.ports.manifests->Poll(&core.manifest_results);
  results.insert(results.end(), core.manifest_results.begin(), core.manifest_results.end());
  bool progress = !results.empty() || !core.manifests.sweeps().empty();
  for (; !results.empty() && EndCapturedUpdates(core, results.front()); results.pop_front()) {
    TakeManifestResult(core, results.front());
  }
  for (std::deque<uint64_t>& sweeps = core.manifests.sweeps(); !sweeps.empty();) {
    const uint64_t holds = sweeps.front();
    sweeps.pop_front();
    std::erase(sweeps, holds);
    if (Sweep(core, holds)) continue;
    sweeps.push_back(holds);  // Others come before it goes on.
    break;
  }
  return progress;
}

void LoadManifests(Core& core) {
  if (core.ports.manifests == nullptr) return;
  for (const std::string& key : core.ports.manifests->Jobs()) {
    const Result<std::vector<std::byte>> bytes = core.ports.manifests->Load(key);
    if (!bytes) {
      core.manifests.SetBroken(key, bytes.error());
      continue;
    }
    const Result<Manifest> manifest = DecodeManifest(*bytes);
    if (!manifest) {
      core.manifests.SetBroken(key, manifest.error());
      continue;
    }
    ManifestHolds holds;
    holds.set_id(core.manifests.NewHoldsId());
    holds.set_stored(true);
    if (Status taken = TakeExtents(core, *manifest, &holds); !taken) core.manifests.SetBroken(key, taken.error());
    core.manifests.Deactivate(key, std::move(holds));
  }
}

Status AdoptManifest(Core& core, JobState& job, bool resume) {
  const std::string& key = job.options.key;
  job.manifest.set_id(core.manifests.NewHoldsId());
  if (resume && core.ports.manifests == nullptr) {
    return Fail(Code::kDenied,
                "this daemon keeps nothing, so no job can be resumed; set daemon.data_directory (tierd.connect: "
                "data_directory=)");
  }
  Result<Manifest> manifest = Fail(Code::kNotFound, "");
  if (resume) {
    if (const Error* broken = core.manifests.FindBroken(key)) return std::unexpected(*broken);
    const Result<std::vector<std::byte>> bytes = core.ports.manifests->Load(key);
    if (!bytes) return std::unexpected(bytes.error());
    manifest = DecodeManifest(*bytes);
    if (!manifest) return std::unexpected(manifest.error());
  }
  // An ephemeral job has nothing to do with what an earlier run of its name persisted: it stays parked.
  if (job.options.named) {
    if (std::optional<ManifestHolds> inactive = core.manifests.Activate(key)) {
      job.manifest = *std::move(inactive);
      job.has_unclaimed_manifest = job.manifest.stored() && !resume && !job.options.replace_existing;
    }
  }
  return resume ? Replay(core, job, *manifest) : Status{};
}

void OnSessionsGone(Core& core, JobState& job) {
  TIER_CHECK(job.sessions.empty(), "job {} has {} sessions", job.options.key, job.sessions.size());
  if (!job.options.named) return;
  job.has_unclaimed_manifest |= job.includes_session_tensors;
  core.manifests.NoteSessionsGone(job.manifest.id());
}

void DeactivateManifest(Core& core, JobState& job) {
  if (job.manifest.empty() && !job.manifest.stored()) return;
  core.manifests.Deactivate(job.options.key, std::move(job.manifest));
}

namespace {

// `holds`: 0 where nothing is known of what it names.
void StartErase(Core& core, const std::string& key, uint64_t holds) {
  TIER_CHECK(core.ports.manifests != nullptr, "a manifest of job {} without a store", key);
  const uint64_t cookie = core.manifests.NewCookie();
  core.manifests.StartCommit(cookie,
                             ManifestCommit{.key = key, .holds = holds, .waiter = 0, .erase = true, .tensors = {}});
  core.ports.manifests->StartErase(cookie, key);
}

bool IsOpenAndNamed(const Core& core, const std::string& key) {
  const JobState* job = core.jobs.FindByKey(key);
  return job != nullptr && job->options.named;
}

}  // namespace

void DeleteManifest(Core& core, JobState& job) {
  if (core.ports.manifests != nullptr) StartErase(core, job.options.key, job.manifest.id());
}

std::vector<StoredManifest> ListStoredManifests(const Core& core, const std::string& prefix, size_t max) {
  std::unordered_set<std::string> gone;  // Open, or about to be removed.
  for (const JobState* job : core.jobs.open()) {
    if (job->options.named) gone.insert(job->options.key);
  }
  core.manifests.ForEachCommit([&](const ManifestCommit& commit) {
    if (commit.erase) gone.insert(commit.key);
  });
  std::map<std::string, StoredManifest> kept;
  const auto add = [&](const std::string& key) -> StoredManifest* {
    if (!key.starts_with(prefix) || gone.contains(key)) return nullptr;
    StoredManifest& manifest = kept.try_emplace(key).first->second;
    manifest.key = key;
    return &manifest;
  };
  core.manifests.ForEachInactive([&](const std::string& key, const ManifestHolds& holds) {
    if (!holds.stored()) return;
    if (StoredManifest* manifest = add(key)) manifest->ssd_bytes = holds.unused_pages() * kPageSize;
  });
  core.manifests.ForEachBroken([&](const std::string& key, const Error& error) {
    if (StoredManifest* manifest = add(key)) manifest->damage = error.message;
  });
  std::vector<StoredManifest> listed;
  for (auto& [key, manifest] : kept) {
    if (listed.size() == max) break;
    listed.push_back(std::move(manifest));
  }
  return listed;
}

Status DeleteStoredManifest(Core& core, const std::string& key) {
  if (IsClosing(core, key) || ErasureUnderWay(core, key)) {
    return Fail(Code::kTimeout, fmt::format("job {} is still being closed, or removed; try again", key));
  }
  const ManifestHolds* inactive = core.manifests.FindStored(key);
  const bool broken = core.manifests.FindBroken(key) != nullptr && !IsOpenAndNamed(core, key);
  if (inactive == nullptr && !broken) {
    return Fail(Code::kNotFound, fmt::format("job {} is not open, and has no manifest", key));
  }
  StartErase(core, key, inactive == nullptr ? 0 : inactive->id());
  return {};
}

}  // namespace tier::tiering
