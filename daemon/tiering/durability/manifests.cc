// See manifests.h.
#include "daemon/tiering/durability/manifests.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/tiering/durability/lost_manifests.h"
#include "daemon/tiering/durability/manifest_capture.h"
#include "daemon/tiering/durability/manifest_codec.h"
#include "daemon/tiering/durability/manifest_move.h"
#include "daemon/tiering/durability/manifest_replay.h"
#include "daemon/tiering/durability/stored_extents.h"
#include "daemon/tiering/leases/updates.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kSweepCost = 2;  // Of an extent.

bool CommitUnderWay(const Tables& tables, const std::string& key) {
  return tables.manifests.AnyCommit([&](const ManifestCommit& commit) { return commit.key == key; });
}

void FreeDropped(Tables& tables) {
  for (const ManifestHolds::Dropped& dropped : tables.scratch.dropped) {
    const storage::Extent& extent = dropped.extent;
    if (extent.scattered) tables.work.Charge(std::min(uint32_t{extent.run.pages}, tables.work.left()));
    if (dropped.bad) {
      tables.ports.extents.SetInDoubt(extent, true);
    } else {
      tables.ports.extents.FreeAtTurnEnd(extent);  // A piece may have used it until this turn.
    }
  }
  tables.scratch.dropped.clear();
}

JobState* JobOfKey(const Tables& tables, const std::string& key) {
  if (JobState* open = tables.jobs.FindByKey(key)) return open;
  const auto closing = std::ranges::find_if(tables.jobs.closing(), [&](JobState* job) { return job->key == key; });
  return closing == tables.jobs.closing().end() ? nullptr : *closing;
}

// What a manifest holds, of an open job or of one that is not, and who pays for it.
struct Held {
  ManifestHolds* holds = nullptr;  // Null: the job is gone, and had nothing to hold.
  MetadataAccount* account = nullptr;
  JobState* job = nullptr;  // Null: it is not open, nor closing.

  void Charge() const { account->Recharge(&holds->charge(), HoldsCost(*holds)); }
};
Held FindHeld(Tables& tables, uint64_t id) {
  if (ManifestHolds* inactive = tables.manifests.FindInactive(id)) {
    return {.holds = inactive, .account = &tables.metadata.At(inactive->uid())};
  }
  const JobIndex index = tables.manifests.JobOf(id);
  if (index == kNoJob) return {};
  JobState& job = tables.jobs.At(index);
  return {.holds = &job.manifest, .account = job.metadata, .job = &job};
}

// Its job is not open, or no more.
void Deactivate(Tables& tables, const std::string& key, uint32_t uid, ManifestHolds holds) {
  MetadataAccount& account = tables.metadata.Open(uid);
  holds.set_uid(uid);
  holds.set_move_rest({});
  account.Recharge(&holds.charge(), HoldsCost(holds));
  tables.manifests.Deactivate(key, std::move(holds));
}

// From here on no account is charged for it: the caller charges it to its job, or removes it.
void ReleaseInactive(Tables& tables, ManifestHolds* holds) {
  MetadataAccount& account = tables.metadata.At(holds->uid());
  account.Recharge(&holds->charge(), 0);
  tables.metadata.Close(account);
}

// "uid/name".
uint32_t UidOfKey(const std::string& key) {
  uint32_t uid = 0;
  std::from_chars(key.data(), key.data() + key.size(), uid);
  return uid;
}

// What an earlier run was promised must not be lost to one that does not know of it: not to a named job that never
// resumed it, nor to an ephemeral one, whose own goes with it.
std::optional<Refusal> ReplaceRefusal(const Tables& tables, const JobState& job) {
  const std::string& key = job.key;
  const bool inactive = tables.manifests.FindStored(key) != nullptr || tables.manifests.FindBroken(key) != nullptr;
  if (!job.record.has_unclaimed_manifest && (job.record.named || !inactive)) return std::nullopt;
  const char* const why =
      job.record.has_unclaimed_manifest
          ? "run did not resume and would replace; open the job with mode resume to go on from there; to "
            "begin again remove that run's first (tierctl job remove --purge), or open a job that is closed with mode "
            "create"
          : "ephemeral job would replace and take with it when it ends; open the job as named, or resume it, "
            "or choose another name";
  return Refusal{Code::kDenied, fmt::format("an earlier run of job {} left a manifest, which this {}", key, why), {}};
}

// What the session that persisted had changed is finished: its death later cannot mix it with what came before. False:
// the turn has no more work left.
bool EndCapturedUpdates(Tables& tables, const storage::ManifestResult& result) {
  ManifestCommit& commit = tables.manifests.CommitOf(result.cookie);
  if (result.code != Code::kOk) return true;
  for (; commit.ended < commit.tensors.size(); ++commit.ended) {
    if (!tables.work.TrySpend()) return false;
    const TensorRef tensor = commit.tensors[commit.ended];
    if (tables.Alive(tensor)) EndCaptured(tables, tensor.index, commit.session, result.cookie);
  }
  return true;
}

void UpdateHolds(Tables& tables, const ManifestCommit& commit, const storage::ManifestResult& result) {
  const Held held = FindHeld(tables, commit.holds);
  ManifestHolds* const holds = held.holds;
  if (holds == nullptr) return;
  if (held.job != nullptr && !commit.erase) {
    held.account->Recharge(&held.job->manifest_charge, 0);
  }
  if (result.unknown) {
    holds->OnUnknown();
  } else if (result.code == Code::kOk) {
    commit.erase ? holds->OnErased() : holds->OnSynced();
    holds->set_stored(!commit.erase);
  } else if (!commit.erase) {
    holds->OnFailed();
  }
  tables.manifests.NeedSweep(commit.holds);
}

void TakeManifestResult(Tables& tables, const storage::ManifestResult& result) {
  const ManifestCommit commit = tables.manifests.EndCommit(result.cookie);
  UpdateHolds(tables, commit, result);
  if (result.unknown) tables.manifests.SetStoreLost({result.code, result.message});
  OnMoveAnswered(tables, result);
  if (result.code == Code::kOk && tables.manifests.FindBroken(commit.key) != nullptr) {
    tables.manifests.ClearBroken(commit.key);  // A whole one is in its place, or none.
    CloseToUnknownExtents(tables);
  }
  if (JobState* job = JobOfKey(tables, commit.key)) {
    tables.waits.OnWrite(*job);  // The next persist of the job may begin.
    if (result.code == Code::kOk && job->manifest.id() == commit.holds) {
      tables.jobs.Edit(*job).includes_session_tensors = commit.own;
      tables.jobs.Edit(*job).has_unclaimed_manifest |= commit.own && commit.sessions_gone;
    }
  }
  const std::string detail = result.unknown ? result.message : "the manifest was not committed: " + result.message;
  tables.reports.Add(CommittedManifest{
      commit.waiter, result.code == Code::kOk ? Finished(result.commit) : Refused({result.code, detail, {}}, 0)});
}

// Extents that no manifest names any more become free. False: the turn has no more work left.
bool Sweep(Tables& tables, uint64_t id) {
  const Held held = FindHeld(tables, id);
  ManifestHolds* const holds = held.holds;
  while (holds != nullptr && holds->sweeping()) {
    if (!tables.work.TrySpend(kSweepCost)) return false;
    holds->SweepOne(&tables.scratch.dropped);
    FreeDropped(tables);
    held.Charge();
  }
  // Of a job that is not open, and the store has nothing of it.
  if (holds != nullptr && held.job == nullptr && holds->empty() && !holds->stored()) {
    ReleaseInactive(tables, holds);
    tables.manifests.RemoveInactive(id);
  }
  return true;
}

// Why that much more does not fit on SSD. None: it does.
std::optional<Refusal> SpaceRefusal(const Tables& tables, const JobState& job, uint64_t bytes) {
  if (bytes == 0 || tables.ports.extents.HasRoom(bytes)) return std::nullopt;
  // Extents are being freed turn by turn: what is short in the end is found out by writing.
  if (!tables.manifests.idle()) return std::nullopt;
  if (tables.FreesUnderWay()) return std::nullopt;
  const storage::DeviceSpace space = tables.ports.extents.usable();
  const uint64_t held = job.manifest.unused_pages() * kPageSize;
  return Refusal{
      Code::kNoSpace,
      fmt::format("persisting needs {} more on SSD, {} of {} are free ({} are held only by the last manifest){}; "
                  "{}",
                  base::FormatBytes(bytes), base::FormatBytes(space.free), base::FormatBytes(space.capacity),
                  base::FormatBytes(held), tables.ports.extents.UnusableNote(), storage::kRoomAdvice),
      {.requested = bytes, .available = space.free, .limit = space.capacity}};
}

}  // namespace

Outcome CheckSpace(Tables& tables, Waiter& waiter) {
  Scan& scan = std::get<PersistWait>(waiter.kind).space;
  if (scan.item == waiter.items.size()) return Ready();
  for (; scan.item < waiter.items.size(); ++scan.item, scan.piece = 0) {
    const WaitItem& item = waiter.items[scan.item];
    if (!tables.Alive(item.tensor)) continue;
    const Tensor& tensor = tables.tensors[item.tensor.index];
    for (; scan.piece < tensor.piece_count; ++scan.piece) {
      if (!tables.work.TrySpend()) return tables.WaitForNextTurn(waiter);
      const bool settled = tables.PieceOf(tensor, scan.piece).on_ssd();
      if (!settled) scan.ssd_bytes += PagesFor(tensor.piece_length(scan.piece)) * kPageSize;
    }
  }
  std::optional<Refusal> refusal = SpaceRefusal(tables, *waiter.job, scan.ssd_bytes);
  return refusal ? Refused(*std::move(refusal), 0) : Ready();
}

namespace {

// A persist that waits for what others write must not hold up theirs: it begins again. False: none sleeps.
bool DropSleepingCapture(Tables& tables, const JobState& job) {
  const uint64_t number = job.capture.waiter();
  if (number == 0 || tables.waits.ready(number)) return false;
  DropCapture(tables, *tables.waits.Find(number));
  return true;
}

}  // namespace

Outcome StartManifest(Tables& tables, Waiter& waiter) {
  JobState& job = *waiter.job;
  PersistWait& persist = std::get<PersistWait>(waiter.kind);
  if (persist.capture == nullptr) {
    if (const Error* lost = tables.manifests.store_lost()) return Refused({lost->code, lost->message, {}}, 0);
    if (CommitUnderWay(tables, job.key)) return Waits();
    if (job.manifest.begun() && !DropSleepingCapture(tables, job)) return Waits();
    if (std::optional<Refusal> refusal = ReplaceRefusal(tables, job)) return Refused(*std::move(refusal), 0);
    if (std::optional<Refusal> refusal = CaptureRefusal(tables, waiter)) return Refused(*std::move(refusal), 0);
  }
  if (Outcome captured = Capture(tables, waiter); captured.progress != Progress::kReady) return captured;
  std::shared_ptr<ManifestCapture> capture = std::exchange(persist.capture, nullptr);
  job.capture.End();
  persist.cookie = capture->cookie;
  tables.manifests.StartCommit(persist.cookie, {.key = job.key,
                                                .holds = job.manifest.id(),
                                                .waiter = waiter.number,
                                                .session = waiter.session_index,
                                                .own = capture->own,
                                                .tensors = std::move(capture->tensors)});
  tables.ports.manifests->StartPut(persist.cookie, job.key, std::move(capture->writer).Take(),
                                   std::move(capture->extents).Take());
  tables.ports.manifests->Discard(std::move(capture));
  tables.turn.NoteProgress();
  return Waits();
}

bool ErasureUnderWay(const Tables& tables, const std::string& key) {
  return tables.manifests.AnyCommit([&](const ManifestCommit& commit) { return commit.key == key && commit.erase; });
}

bool ManifestUnderWay(const Tables& tables, const JobState& job) {
  return tables.manifests.AnyCommit(
      [&](const ManifestCommit& commit) { return commit.holds == job.manifest.id() && !commit.erase; });
}

bool HasCommitted(const Tables& tables, const JobState& job) {
  return job.manifest.stored() || !job.manifest.empty() || ManifestUnderWay(tables, job);
}

bool AwaitsSweep(const Tables& tables, const JobState& job) {
  return tables.manifests.HasInactive(job.key) && (job.manifest.stored() || !job.manifest.empty());
}

bool IsClosing(const Tables& tables, const std::string& key) {
  return std::ranges::any_of(tables.jobs.closing(),
                             [&](const JobState* job) { return job->key == key && HasCommitted(tables, *job); });
}

bool TakeManifestResults(Tables& tables) {
  if (tables.ports.manifests == nullptr || tables.manifests.idle()) return false;
  std::deque<storage::ManifestResult>& results = tables.manifests.results();
  tables.scratch.manifest_results.clear();
  tables.ports.manifests->Poll(&tables.scratch.manifest_results);
  for (storage::ManifestResult& result : tables.scratch.manifest_results) {
    const bool taken = TakeMoveLoaded(tables, &result) || TakeLoaded(tables, &result) || TakePurged(tables, result);
    if (!taken) results.push_back(std::move(result));
  }
  const bool progress =
      !tables.scratch.manifest_results.empty() || !results.empty() || !tables.manifests.sweeps().empty();
  for (; !results.empty() && EndCapturedUpdates(tables, results.front()); results.pop_front()) {
    TakeManifestResult(tables, results.front());
  }
  for (std::deque<uint64_t>& sweeps = tables.manifests.sweeps(); !sweeps.empty();) {
    const uint64_t holds = sweeps.front();
    sweeps.pop_front();
    std::erase(sweeps, holds);
    if (Sweep(tables, holds)) continue;
    sweeps.push_back(holds);  // Others come before it goes on.
    break;
  }
  return progress;
}

void LoadManifests(Tables& tables) {
  if (tables.ports.manifests == nullptr) return;
  const Result<std::vector<std::string>> jobs = tables.ports.manifests->Jobs();
  if (!jobs) {
    tables.ports.extents.CloseToWrites("nothing is written to SSD: it is unknown where persisted tensors lie: " +
                                       jobs.error().message);
    return;
  }
  const auto keep = [&](const std::string& key, ManifestHolds holds) {
    holds.set_stored(true);
    Deactivate(tables, key, UidOfKey(key), std::move(holds));
  };
  std::vector<std::string> unreadable;
  for (const std::string& key : *jobs) {
    if (SetIfLost(tables, key)) {
      unreadable.push_back(key);
      continue;
    }
    const Result<Manifest> manifest = ReadManifest(tables, key);
    if (!manifest) {
      tables.manifests.SetBroken(key, manifest.error());
      unreadable.push_back(key);
      continue;
    }
    ManifestHolds holds = tables.manifests.NewHolds(UidOfKey(key));
    if (Status taken = TakeExtents(tables, *manifest, &holds); !taken) tables.manifests.SetBroken(key, taken.error());
    keep(key, std::move(holds));
  }
  // After those that can be read: a list takes nothing away from them.
  for (const std::string& key : unreadable) {
    ManifestHolds holds = tables.manifests.NewHolds(UidOfKey(key));
    const Status taken = TakeListedExtents(tables, key, &holds);
    if (!taken) tables.manifests.SetExtentsUnknown(key, taken.error());
    keep(key, std::move(holds));
  }
  CloseToUnknownExtents(tables);
}

std::string WhyNothingPersists(const Tables& tables) {
  const bool index = tables.ports.manifests != nullptr;
  if (tables.ports.extents.device_count() == 0) {
    return fmt::format(
        "this daemon has no SSD tier (see 'tierctl status'), so nothing can be persisted or resumed; to have one, "
        "restart tierd with ssd.devices other than [\"none\"], and with room for its file (ssd.file_size; "
        "tierd.connect: ssd=){}",
        index ? "" : ", and with daemon.data_directory on a disk that has room for the index (data_directory=)");
  }
  if (index) return "";
  return "this daemon keeps nothing, so nothing can be persisted or resumed; set daemon.data_directory (tierd.connect: "
         "data_directory=)";
}

Status AdoptManifest(Tables& tables, JobState& job, bool resume) {
  const std::string& key = job.key;
  job.manifest = tables.manifests.NewHolds(job.record.uid);
  tables.manifests.SetJobOf(job.manifest.id(), job.index);
  if (resume && tables.ports.manifests == nullptr) {
    return Fail(Code::kDenied, WhyNothingPersists(tables));
  }
  if (resume) {
    if (const Error* lost = tables.manifests.store_lost()) return std::unexpected(*lost);
    if (const Error* broken = tables.manifests.FindBroken(key)) return std::unexpected(*broken);
    if (tables.manifests.FindStored(key) == nullptr) {
      return Fail(Code::kNotFound,
                  fmt::format("nothing is persisted of job {}: open it with mode resume_or_create, attach or "
                              "create",
                              key));
    }
  }
  // Nothing that it persists may replace what is whole again when the device is back.
  if (job.record.named && tables.ports.manifests != nullptr) {
    if (Status whole = RefuseLost(tables, key); !whole) return whole;
  }
  // An ephemeral job has nothing to do with what an earlier run of its name persisted: it stays inactive.
  if (job.record.named) {
    if (std::optional<ManifestHolds> inactive = tables.manifests.Activate(key)) {
      ReleaseInactive(tables, &*inactive);
      tables.manifests.EndJobOf(job.manifest.id());
      job.manifest = *std::move(inactive);
      tables.manifests.SetJobOf(job.manifest.id(), job.index);
      job.metadata->Recharge(&job.manifest.charge(), HoldsCost(job.manifest));
      tables.jobs.Edit(job).has_unclaimed_manifest = job.manifest.stored() && !resume && !job.record.replaces_existing;
    }
  }
  if (resume) StartReplay(tables, job);
  return {};
}

void OnSessionsGone(Tables& tables, JobState& job) {
  TIER_CHECK(job.sessions.empty(), "job {} has {} sessions", job.key, job.sessions.size());
  if (!job.record.named) return;
  tables.jobs.Edit(job).has_unclaimed_manifest |= job.record.includes_session_tensors;
  tables.manifests.NoteSessionsGone(job.manifest.id());
}

void DeactivateManifest(Tables& tables, JobState& job) {
  tables.manifests.EndJobOf(job.manifest.id());
  job.metadata->Recharge(&job.manifest.charge(), 0);
  if (job.manifest.empty() && !job.manifest.stored()) return;
  Deactivate(tables, job.key, job.record.uid, std::move(job.manifest));
}

namespace {

// `holds`: 0 where nothing is known of what it names.
void StartErase(Tables& tables, const std::string& key, uint64_t holds) {
  TIER_CHECK(tables.ports.manifests != nullptr, "a manifest of job {} without a store", key);
  const uint64_t cookie = tables.manifests.NewCookie();
  tables.manifests.StartCommit(cookie, ManifestCommit{.key = key, .holds = holds, .erase = true, .tensors = {}});
  tables.ports.manifests->StartErase(cookie, key);
}

bool IsOpenAndNamed(const Tables& tables, const std::string& key) {
  const JobState* job = tables.jobs.FindByKey(key);
  return job != nullptr && job->record.named;
}

}  // namespace

void DeleteManifest(Tables& tables, JobState& job) {
  if (tables.ports.manifests != nullptr) StartErase(tables, job.key, job.manifest.id());
}

std::vector<StoredManifest> ListStoredManifests(const Tables& tables, const std::string& prefix, size_t max) {
  std::unordered_set<std::string> gone;  // Open, or about to be removed.
  for (const JobState* job : tables.jobs.open()) {
    if (job->record.named) gone.insert(job->key);
  }
  tables.manifests.ForEachCommit([&](const ManifestCommit& commit) {
    if (commit.erase) gone.insert(commit.key);
  });
  std::map<std::string, StoredManifest> kept;
  const auto add = [&](const std::string& key) -> StoredManifest* {
    if (!key.starts_with(prefix) || gone.contains(key)) return nullptr;
    StoredManifest& manifest = kept.try_emplace(key).first->second;
    manifest.key = key;
    return &manifest;
  };
  tables.manifests.ForEachInactive([&](const std::string& key, const ManifestHolds& holds) {
    if (!holds.stored()) return;
    if (StoredManifest* manifest = add(key)) manifest->ssd_bytes = holds.unused_pages() * kPageSize;
  });
  tables.manifests.ForEachBroken([&](const std::string& key, const Error& error) {
    StoredManifest* const manifest = add(key);
    if (manifest == nullptr) return;
    manifest->damage = error.message;
    if (const auto* const devices = tables.manifests.FindLost(key)) manifest->lost_devices = *devices;
  });
  std::vector<StoredManifest> listed;
  for (auto& [key, manifest] : kept) {
    if (listed.size() == max) break;
    listed.push_back(std::move(manifest));
  }
  return listed;
}

// A closing job is no inactive one yet, and its last persist may still be at the store.
Status CheckManifestsSettled(const Tables& tables, const std::string& prefix) {
  if (const Error* lost = tables.manifests.store_lost()) return std::unexpected(*lost);
  const auto is_closing = [&](const JobState* job) {
    return job->key.starts_with(prefix) && HasCommitted(tables, *job);
  };
  const auto is_changed = [&](const ManifestCommit& commit) { return commit.key.starts_with(prefix); };
  if (std::ranges::none_of(tables.jobs.closing(), is_closing) && !tables.manifests.AnyCommit(is_changed)) return {};
  return Fail(Code::kTimeout,
              "jobs are still being closed, or what they persisted is being written or removed; try again");
}

Status DeleteStoredManifest(Tables& tables, const std::string& key) {
  if (IsClosing(tables, key) || ErasureUnderWay(tables, key)) {
    return Fail(Code::kTimeout, fmt::format("job {} is still being closed, or removed; try again", key));
  }
  if (const Error* lost = tables.manifests.store_lost()) return std::unexpected(*lost);
  if (StopMoveOf(tables, key)) {
    return Fail(Code::kTimeout,
                fmt::format("what job {} persisted is being moved off a device that is drained; try again", key));
  }
  const ManifestHolds* inactive = tables.manifests.FindStored(key);
  const bool broken = tables.manifests.FindBroken(key) != nullptr && !IsOpenAndNamed(tables, key);
  if (inactive == nullptr && !broken) {
    return Fail(Code::kNotFound, fmt::format("job {} is not open, and has no manifest", key));
  }
  StartErase(tables, key, inactive == nullptr ? 0 : inactive->id());
  return {};
}

}  // namespace tier::tiering
