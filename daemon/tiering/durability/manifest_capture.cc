// See manifest_capture.h.
#include "daemon/tiering/durability/manifest_capture.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "daemon/tiering/leases/conflicts.h"
#include "daemon/tiering/leases/updates.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kCaptureCost = 12;        // Of a piece: its extent is entered among those that are held.
constexpr uint32_t kCaptureTensorCost = 16;  // Of a tensor besides, once all of its pieces are.
constexpr size_t kRunCost = sizeof(proto::ManifestRunRecord) + sizeof(proto::ExtentListRun);
constexpr size_t kSealedPerUnit = 256;  // Bytes that one unit of work adds to the checksum.

enum class Step : uint8_t { kDone, kEndOfTurn, kUnsettled, kDamaged, kUnread, kTwice };

// Of all tensors that it names, at most.
uint64_t PiecesOf(const Waiter& waiter) { return PieceCountOf(waiter.requested_bytes) + waiter.items.size(); }

// Its records, and what is noted of each of its tensors.
uint64_t CaptureCost(const Waiter& waiter) {
  constexpr uint64_t kNoted = sizeof(TensorRef) + sizeof(uint64_t) + 2 * 48;  // Nodes of two sets.
  return waiter.items.size() * (sizeof(proto::ManifestTensorRecord) + kNoted) +
         PiecesOf(waiter) * (sizeof(proto::ManifestPieceRecord) + sizeof(proto::ExtentListRun)) +
         KeysCost(waiter.job->keys);
}

ManifestCapture& BeginCapture(Tables& tables, Waiter& waiter) {
  PersistWait& persist = std::get<PersistWait>(waiter.kind);
  const size_t pieces = PieceCountOf(waiter.requested_bytes);
  const size_t records =
      waiter.items.size() * sizeof(proto::ManifestTensorRecord) + pieces * sizeof(proto::ManifestPieceRecord);
  persist.capture = std::make_shared<ManifestCapture>(records, pieces, tables.ports.manifests->device_numbers());
  JobState& job = *waiter.job;
  job.metadata->Recharge(&job.manifest_charge, CaptureCost(waiter));
  persist.capture->cookie = tables.manifests.NewCookie();
  persist.capture->tensors.reserve(waiter.items.size());
  persist.capture->ids.reserve(waiter.items.size());
  job.manifest.Begin();
  job.capture.Start(waiter.number);
  return *persist.capture;
}

void BeginTensor(const Tensor& tensor, ManifestCapture* capture) {
  capture->generation = tensor.generation;
  capture->extents.Mark();
  capture->writer.BeginTensor({.tensor = tensor.id,
                               .size = tensor.size,
                               .generation = tensor.generation,
                               .piece_count = tensor.piece_count,
                               .space = static_cast<uint16_t>(tensor.space == 0 ? 0 : 1)});
}

void CapturePiece(Tables& tables, const Piece& piece, const Waiter& waiter, ManifestCapture* capture) {
  JobState& job = *waiter.job;
  const storage::Extent extent = piece.extent();
  const std::span<const base::PageRun> runs = tables.ports.extents.RunsOf(extent);
  capture->writer.AddPiece({.block = extent.run.block,
                            .page = extent.run.page,
                            .pages = extent.run.pages,
                            .crc = piece.crc,
                            .generation = piece.generation,
                            .device = extent.device,
                            .run_count = 0,
                            .first_run = 0},
                           runs);
  for (const base::PageRun run : runs) capture->extents.Add({.run = run, .device = extent.device});
  if (extent.scattered) {
    tables.work.Charge(std::min(static_cast<uint32_t>(runs.size()), tables.work.left()));
    job.metadata->Recharge(&job.manifest_charge, CaptureCost(waiter) + capture->writer.run_count() * kRunCost);
  }
  job.manifest.Name(extent);
  job.metadata->Recharge(&job.manifest.charge(), HoldsCost(job.manifest));
}

void EndTensor(Tables& tables, const SessionState& session, TensorRef ref, ManifestCapture* capture) {
  const Tensor& tensor = tables.tensors[ref.index];
  uint32_t flags = tensor.has(kSharded) ? proto::kManifestSharded : 0;
  if (MixedForOthers(tables, ref.index, session)) flags |= proto::kManifestTorn;
  capture->writer.EndTensor(static_cast<uint16_t>(flags));
  CaptureUpdate(tables, session, ref.index, capture->cookie);
  capture->own |= tensor.space != 0 && tensor.space != kInheritedSpace;
  capture->tensors.push_back(ref);
  capture->ids.push_back(tensor.id);
}

void DropTensor(ManifestCapture* capture) {
  capture->writer.DropTensor();
  capture->extents.DropToMark();
}

// The tensor at the cursor, as far as the turn's work reaches.
Step CaptureTensor(Tables& tables, Waiter& waiter, ManifestCapture* capture) {
  const TensorRef ref = waiter.items[capture->at.item].tensor;
  uint32_t& piece = capture->at.piece;
  const bool changed =
      piece != 0 && (!tables.Alive(ref) || tables.tensors[ref.index].generation != capture->generation);
  if (changed) {
    DropTensor(capture);
    piece = 0;
  }
  if (!tables.Alive(ref)) return Step::kDone;
  const Tensor& tensor = tables.tensors[ref.index];
  if (tensor.torn()) return Step::kDamaged;
  if (tensor.has(kSwapping)) return Step::kUnsettled;
  for (; piece < tensor.piece_count; ++piece) {
    if (!tables.work.TrySpend(kCaptureCost)) return Step::kEndOfTurn;
    const Piece& captured = tables.PieceOf(tensor, piece);
    if (captured.has(kCorrupt)) return Step::kDamaged;
    if (captured.has(kBadExtent)) return Step::kUnread;
    if (!captured.on_ssd()) return Step::kUnsettled;
    if (piece == 0) BeginTensor(tensor, capture);
    CapturePiece(tables, captured, waiter, capture);
  }
  // It is asked whether any of them is of another session (MixedForOthers).
  if (!tables.work.TrySpend(tables.updates.CountOf(ref.index))) return Step::kEndOfTurn;
  // Two sessions' tensors of one id would become one after a resume.
  if (tensor.space != 0 && !capture->session_ids.insert(tensor.id).second) return Step::kTwice;
  EndTensor(tables, tables.AskerOf(waiter), ref, capture);
  tables.work.Charge(std::min(kCaptureTensorCost, tables.work.left()));
  return Step::kDone;
}

// The piece at the cursor is to be written; then the tensor is captured from its first piece.
Outcome WaitForTensor(Waiter& waiter, ManifestCapture* capture) {
  std::get<PersistWait>(waiter.kind).flush.written = capture->at;
  if (std::exchange(capture->at.piece, 0) != 0) DropTensor(capture);
  return Waits();
}

Outcome Refuse(Tables& tables, const Waiter& waiter, const ManifestCapture& capture, Step step) {
  const Ask ask = AskOf(tables, waiter);
  const uint64_t tensor = tables.tensors[waiter.items[capture.at.item].tensor.index].id;
  if (step == Step::kTwice) {
    return Refused({Code::kInvalid,
                    fmt::format("two sessions have a tensor {:#x}: a resumed job could not tell them apart; use the "
                                "shared namespace, or different ids",
                                tensor),
                    {.tensor = tensor}},
                   0);
  }
  if (step == Step::kUnread) {
    return Refused({Code::kIoError,
                    fmt::format("a device failed to read tensor {:#x} at byte {} when it was asked for last, so its "
                                "copy there cannot be relied on: read the tensor again, rewrite it or free it, then "
                                "persist",
                                tensor, uint64_t{capture.at.piece} * kBlockSize),
                    {.tensor = tensor, .requested = uint64_t{capture.at.piece} * kBlockSize}},
                   capture.at.item);
  }
  // A mixture lies on SSD like anything else, and so do bytes that came back wrong.
  const ConflictCheck damage{.outcome = ConflictOutcome::kRefused, .item = capture.at.item, .piece = capture.at.piece};
  return Refused(RefusalOf(tables, ask, damage), damage.item);
}

// False: the turn has no more work left.
bool CaptureKeys(Tables& tables, const JobState& job, ManifestCapture* capture) {
  for (; capture->next_key < capture->ids.size(); ++capture->next_key) {
    if (!tables.work.TrySpend()) return false;
    const uint64_t id = capture->ids[capture->next_key];
    const std::string key = job.keys.KeyOf(id);
    if (!key.empty() && capture->keys.insert(id).second) capture->writer.AddKey(id, key);
  }
  return true;
}

bool Seal(Tables& tables, ManifestCapture* capture) {
  const uint32_t units = std::min(tables.work.left(), capture->writer.UnitsToSeal(kSealedPerUnit));
  return units != 0 && tables.work.TrySpend(units) && capture->writer.Seal(units * kSealedPerUnit);
}

}  // namespace

std::optional<Refusal> CaptureRefusal(Tables& tables, const Waiter& waiter) {
  return tables.metadata.Check(tables.AskerOf(waiter), CaptureCost(waiter) + PiecesOf(waiter) * kHoldCost, true);
}

Outcome Capture(Tables& tables, Waiter& waiter) {
  PersistWait& persist = std::get<PersistWait>(waiter.kind);
  ManifestCapture& capture = persist.capture != nullptr ? *persist.capture : BeginCapture(tables, waiter);
  for (; capture.at.item < waiter.items.size(); ++capture.at.item, capture.at.piece = 0) {
    switch (const Step step = CaptureTensor(tables, waiter, &capture)) {
      case Step::kDone: break;
      case Step::kEndOfTurn: return tables.WaitForNextTurn(waiter);
      case Step::kUnsettled: return WaitForTensor(waiter, &capture);
      case Step::kDamaged:
      case Step::kUnread:
      case Step::kTwice: return Refuse(tables, waiter, capture, step);
    }
  }
  if (!CaptureKeys(tables, *waiter.job, &capture)) return tables.WaitForNextTurn(waiter);
  if (!capture.writer.sealing())
    capture.writer.SetStep(waiter.job->record.steps);  // That its last tensor is of, or before.
  if (!Seal(tables, &capture)) return tables.WaitForNextTurn(waiter);
  return Ready();
}

void DropCapture(Tables& tables, Waiter& waiter) {
  PersistWait& persist = std::get<PersistWait>(waiter.kind);
  if (persist.capture == nullptr) return;
  tables.ports.manifests->Discard(std::exchange(persist.capture, nullptr));
  JobState& job = *waiter.job;
  job.capture.End();
  job.metadata->Recharge(&job.manifest_charge, 0);
  job.manifest.OnFailed();
  tables.manifests.NeedSweep(job.manifest.id());
  tables.waits.OnWrite(job);  // The next persist of the job may begin.
}

}  // namespace tier::tiering
