// See manifest_replay.h.
#include "daemon/tiering/durability/manifest_replay.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "daemon/tiering/leases/updates.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kReplayCost = 12;    // Of a piece: its extent is looked up among those that are held.
constexpr size_t kSummedPerUnit = 256;  // Bytes that one unit of work checks.

using Stage = ManifestReplay::Stage;

// The user may not have so much more: the job is not resumed. What was persisted within the reserve can be resumed.
template <MetadataKind kKind>
Status Charge(JobState& job, MetadataCharge<kKind>* charge, uint64_t bytes) {
  if (!job.metadata->HasRoomInReserve(bytes)) {
    const Refusal refusal = job.metadata->RefusalOf(bytes);
    return Fail(refusal.code, "the job cannot be resumed: " + refusal.detail);
  }
  job.metadata->Recharge(charge, bytes);
  return {};
}

Result<bool> SumSome(Tables& tables, ManifestReplay& replay) {
  const uint32_t units = std::clamp(replay.reader->UnitsToSum(kSummedPerUnit), 1u, std::max(tables.work.left(), 1u));
  if (!tables.work.TrySpend(units)) return false;
  if (Status summed = replay.reader->Sum(units * kSummedPerUnit); !summed) return std::unexpected(summed.error());
  return replay.reader->summed();
}

// True: all of it was counted, and the user has been charged for it.
Result<bool> CountSome(Tables& tables, JobState& job, ManifestReplay& replay) {
  ManifestReader& reader = *replay.reader;
  while (reader.tensors_left() + reader.keys_left() != 0) {
    if (!tables.work.TrySpend()) return false;
    if (reader.tensors_left() != 0) {
      const auto tensor = reader.NextTensor();
      if (!tensor) return std::unexpected(tensor.error());
      replay.metadata_bytes += TensorCost(tensor->piece_count);
      reader.SkipPieces();
    } else {
      const Result<ManifestKey> key = reader.NextKey();
      if (!key) return std::unexpected(key.error());
      replay.metadata_bytes += KeyCost(key->key.size());
    }
  }
  if (Status ended = reader.End(); !ended) return std::unexpected(ended.error());
  const Status charged = Charge(job, &job.replay_charge, replay.metadata_bytes);
  if (!charged) return std::unexpected(charged.error());
  reader.Rewind();
  return true;
}

// What was charged for all of it is charged for the record itself from now on.
void ChargeLess(JobState& job, uint64_t bytes) {
  job.metadata->Recharge(&job.replay_charge, job.replay_charge.bytes() - bytes);
}

Status BeginTensor(Tables& tables, JobState& job, ManifestReplay& replay) {
  const auto saved = replay.reader->NextTensor();
  if (!saved) return std::unexpected(saved.error());
  const uint64_t space = saved->space == 0 ? 0 : kInheritedSpace;
  if (tables.names.Find({job.index, space, saved->tensor}) != kNoTensor) {
    return Fail(Code::kCorrupt, fmt::format("the manifest names tensor {:#x} twice", saved->tensor));
  }
  ChargeLess(job, TensorCost(saved->piece_count));
  const bool sharded = (saved->flags & proto::kManifestSharded) != 0;
  replay.tensor =
      AddTensor(tables, job, {.space = space, .id = saved->tensor, .size = saved->size, .sharded = sharded});
  tables.tensors.Edit(replay.tensor).generation = static_cast<uint32_t>(saved->generation);
  replay.torn = (saved->flags & proto::kManifestTorn) != 0;
  return {};
}

Status PutBackPiece(Tables& tables, JobState& job, ManifestReplay& replay) {
  const Tensor& tensor = tables.tensors[replay.tensor];
  const uint32_t number = tensor.piece_count - replay.reader->pieces_left();
  const auto saved = replay.reader->NextPiece();
  if (!saved) return std::unexpected(saved.error());
  if (!job.manifest.Use(ExtentOf(*saved))) {
    return Fail(Code::kCorrupt, fmt::format("the manifest gives one extent to tensor {:#x} and to another", tensor.id));
  }
  AddPieces(tables, replay.tensor, number, 1);
  const PieceId id = tables.tensors.PieceOf(tensor, number);
  GiveExtent(tables, id, ExtentOf(*saved));
  Piece& piece = tables.pieces.Edit(id);
  piece.crc = saved->crc;
  piece.generation = saved->generation;
  piece.ssd_generation = piece.generation;
  SetState(tables, id, {Copies::kSsd, Activity::kNone});
  return {};
}

Result<bool> PutBackTensors(Tables& tables, JobState& job, ManifestReplay& replay) {
  const ManifestReader& reader = *replay.reader;
  while (reader.tensors_left() + reader.pieces_left() != 0) {
    const bool begins = reader.pieces_left() == 0;
    if (!tables.work.TrySpend(begins ? 1 : kReplayCost)) return false;
    const Status put = begins ? BeginTensor(tables, job, replay) : PutBackPiece(tables, job, replay);
    if (!put) return std::unexpected(put.error());
    if (reader.pieces_left() == 0 && replay.torn) {
      MarkTorn(tables, replay.tensor, {0, tables.tensors[replay.tensor].piece_count});
    }
  }
  return true;
}

Result<bool> PutBackKeys(Tables& tables, JobState& job, ManifestReplay& replay) {
  while (replay.reader->keys_left() != 0) {
    if (!tables.work.TrySpend()) return false;
    const Result<ManifestKey> key = replay.reader->NextKey();
    if (!key) return std::unexpected(key.error());
    if (Status restored = job.keys.Restore(key->key, key->id); !restored) return std::unexpected(restored.error());
    ChargeLess(job, KeyCost(key->key.size()));
    job.metadata->Recharge(&job.key_charge, KeysCost(job.keys));
  }
  return true;
}

// True: its stage has ended.
Result<bool> ContinueStage(Tables& tables, JobState& job, ManifestReplay& replay) {
  switch (replay.stage) {
    case Stage::kLoading: break;
    case Stage::kSumming: return SumSome(tables, replay);
    case Stage::kCounting: return CountSome(tables, job, replay);
    case Stage::kTensors: return PutBackTensors(tables, job, replay);
    case Stage::kKeys: return PutBackKeys(tables, job, replay);
  }
  TIER_CHECK(false, "the manifest of job {} is not loaded", job.key);
}

void Finish(Tables& tables, JobState& job, Status status) {
  if (status) tables.jobs.Edit(job).steps = (*job.replay).reader->step();
  DropReplay(tables, job);
  tables.reports.Add(OpenedJob{job.id, std::move(status)});
}

// False: the turn has no more work left for it.
bool Continue(Tables& tables, JobState& job) {
  ManifestReplay& replay = *job.replay;
  for (;;) {
    const Result<bool> ended = ContinueStage(tables, job, replay);
    if (ended && !*ended) return false;
    if (!ended || replay.stage == Stage::kKeys) {
      Finish(tables, job, ended ? Status{} : Status(std::unexpected(ended.error())));
      return true;
    }
    replay.stage = static_cast<Stage>(static_cast<uint8_t>(replay.stage) + 1);
  }
}

}  // namespace

void StartReplay(Tables& tables, JobState& job) {
  job.replay.Start(std::make_shared<ManifestReplay>());
  const uint64_t cookie = tables.manifests.NewCookie();
  tables.manifests.StartLoad(cookie, job.id);
  tables.ports.manifests->StartLoad(cookie, job.key);
}

bool TakeLoaded(Tables& tables, storage::ManifestResult* result) {
  const std::optional<JobId> id = tables.manifests.EndLoad(result->cookie);
  if (!id) return false;
  JobState* const job = tables.jobs.Find(*id);
  if (job == nullptr) {  // Closed meanwhile.
    tables.ports.manifests->Discard(std::make_shared<std::vector<std::byte>>(std::move(result->manifest)));
    return true;
  }
  if (result->code != Code::kOk) {
    Finish(tables, *job, Fail(result->code, result->message));
    return true;
  }
  ManifestReplay& replay = *job->replay;
  replay.bytes = std::move(result->manifest);
  replay.reader.emplace(replay.bytes, tables.ports.manifests->device_numbers());
  Status opened = Charge(*job, &job->manifest_charge, replay.bytes.size());
  if (opened) opened = replay.reader->Open();
  if (!opened) {
    Finish(tables, *job, std::move(opened));
    return true;
  }
  replay.stage = Stage::kSumming;
  tables.manifests.replays().push_back(*id);
  return true;
}

bool ContinueReplays(Tables& tables) {
  std::deque<JobId>& replays = tables.manifests.replays();
  const bool any = !replays.empty();
  while (!replays.empty()) {
    const JobId id = replays.front();
    replays.pop_front();
    JobState* const job = tables.jobs.Find(id);
    if (job == nullptr || Continue(tables, *job)) continue;
    replays.push_back(id);  // Others come before it goes on.
    break;
  }
  return any;
}

void DropReplay(Tables& tables, JobState& job) {
  if (!job.replay.under_way()) return;
  tables.ports.manifests->Discard(job.replay.End());
  job.metadata->Recharge(&job.replay_charge, 0);
  job.metadata->Recharge(&job.manifest_charge, 0);
}

}  // namespace tier::tiering
