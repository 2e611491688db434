// See manifest_capture.h.
#include "daemon/tiering/durability/manifest_capture.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "daemon/tiering/leases/conflicts.h"
#include "daemon/tiering/leases/updates.h"

namespace tier::tiering {
namespace {

constexpr size_t kSealedPerUnit = 256;  // Bytes that one unit of work adds to the checksum.

enum class Step : uint8_t { kDone, kEndOfTurn, kUnsettled, kDamaged, kTwice };

// It is being written, now or between two ranges of a swap_out.
bool Unsettled(const Piece& piece) { return !piece.ssd_run || piece.activity == Activity::kLeasedWrite; }

ManifestCapture& BeginCapture(Core& core, Waiter& waiter) {
  PersistWait& persist = std::get<PersistWait>(waiter.kind);
  const size_t records = waiter.items.size() * sizeof(proto::ManifestTensorRecord) +
                         PieceCountOf(waiter.requested_bytes) * sizeof(proto::ManifestPieceRecord);
  persist.capture = std::make_shared<ManifestCapture>(waiter.job->steps, records);
  persist.capture->cookie = core.manifests.NewCookie();
  persist.capture->tensors.reserve(waiter.items.size());
  persist.capture->ids.reserve(waiter.items.size());
  waiter.job->manifest.Begin();
  return *persist.capture;
}

void BeginTensor(const Tensor& tensor, ManifestCapture* capture) {
  capture->generation = tensor.generation;
  capture->writer.BeginTensor({.tensor = tensor.id,
                               .size = tensor.size,
                               .generation = tensor.generation,
                               .piece_count = tensor.piece_count,
                               .space = static_cast<uint16_t>(tensor.space == 0 ? 0 : 1)});
}

void CapturePiece(const Piece& piece, JobState& job, ManifestCapture* capture) {
  capture->writer.AddPiece({.block = piece.ssd_run.block,
                            .page = piece.ssd_run.page,
                            .pages = piece.ssd_run.pages,
                            .crc = piece.crc,
                            .generation = piece.generation,
                            .device = piece.ssd_device});
  job.manifest.Name(piece.extent());
}

void EndTensor(Core& core, const SessionState& session, TensorRef ref, ManifestCapture* capture) {
  const Tensor& tensor = core.tensors[ref.slot];
  capture->writer.EndTensor(UpdatedByOthers(core, ref.slot, session) ? proto::kManifestTorn : uint16_t{0});
  CaptureUpdate(core, session, ref.slot, capture->cookie);
  capture->own |= tensor.space != 0 && tensor.space != kInheritedSpace;
  capture->tensors.push_back(ref);
  capture->ids.push_back(tensor.id);
}

// The tensor at the cursor, as far as the turn's work reaches.
Step CaptureTensor(Core& core, Waiter& waiter, ManifestCapture* capture) {
  const TensorRef ref = waiter.items[capture->at.item].tensor;
  uint32_t& piece = capture->at.piece;
  const bool changed = piece != 0 && (!core.Alive(ref) || core.tensors[ref.slot].generation != capture->generation);
  if (changed) {
    capture->writer.DropTensor();
    piece = 0;
  }
  if (!core.Alive(ref)) return Step::kDone;
  const Tensor& tensor = core.tensors[ref.slot];
  if (tensor.torn()) return Step::kDamaged;
  if (tensor.has(kSwapping)) return Step::kUnsettled;
  for (; piece < tensor.piece_count; ++piece) {
    if (!core.work.TrySpend()) return Step::kEndOfTurn;
    const Piece& captured = core.PieceOf(tensor, piece);
    if (captured.has(kCorrupt)) return Step::kDamaged;
    if (Unsettled(captured)) return Step::kUnsettled;
    if (piece == 0) BeginTensor(tensor, capture);
    CapturePiece(captured, *waiter.job, capture);
  }
  // Two sessions' tensors of one id would become one after a resume.
  if (tensor.space != 0 && !capture->session_ids.insert(tensor.id).second) return Step::kTwice;
  EndTensor(core, core.AskerOf(waiter), ref, capture);
  return Step::kDone;
}

// The piece at the cursor is to be written; then the tensor is captured from its first piece.
Outcome WaitForTensor(Waiter& waiter, ManifestCapture* capture) {
  std::get<PersistWait>(waiter.kind).flush.written = capture->at;
  if (std::exchange(capture->at.piece, 0) != 0) capture->writer.DropTensor();
  return Waits();
}

Outcome Refuse(Core& core, const Waiter& waiter, const ManifestCapture& capture, Step step) {
  const Ask ask = AskOf(core, waiter);
  const uint64_t tensor = core.tensors[waiter.items[capture.at.item].tensor.slot].id;
  if (step == Step::kTwice) {
    return Refused({Code::kInvalid,
                    fmt::format("two sessions have a tensor {:#x}: a resumed job could not tell them apart; use the "
                                "shared namespace, or different ids",
                                tensor),
                    {.tensor = tensor}},
                   0);
  }
  // A mixture lies on SSD like anything else, and so do bytes that came back wrong.
  const ConflictCheck damage{.verdict = Verdict::kRefused, .item = capture.at.item, .piece = capture.at.piece};
  return Refused(RefusalOf(core, ask, damage), damage.item);
}

// False: the turn has no more work left.
bool CaptureKeys(Core& core, const JobState& job, ManifestCapture* capture) {
  for (; capture->next_key < capture->ids.size(); ++capture->next_key) {
    if (!core.work.TrySpend()) return false;
    const uint64_t id = capture->ids[capture->next_key];
    const std::string_view key = job.keys.KeyOf(id);
    if (!key.empty() && capture->keys.insert(id).second) capture->writer.AddKey(id, key);
  }
  return true;
}

bool Seal(Core& core, ManifestCapture* capture) {
  const uint32_t units = std::min(core.work.left(), capture->writer.UnitsToSeal(kSealedPerUnit));
  return units != 0 && core.work.TrySpend(units) && capture->writer.Seal(units * kSealedPerUnit);
}

}  // namespace

Outcome Capture(Core& core, Waiter& waiter) {
  PersistWait& persist = std::get<PersistWait>(waiter.kind);
  ManifestCapture& capture = persist.capture != nullptr ? *persist.capture : BeginCapture(core, waiter);
  for (; capture.at.item < waiter.items.size(); ++capture.at.item, capture.at.piece = 0) {
    switch (const Step step = CaptureTensor(core, waiter, &capture)) {
      case Step::kDone: break;
      case Step::kEndOfTurn: return core.WaitForNextTurn(waiter);
      case Step::kUnsettled: return WaitForTensor(waiter, &capture);
      case Step::kDamaged:
      case Step::kTwice: return Refuse(core, waiter, capture, step);
    }
  }
  if (!CaptureKeys(core, *waiter.job, &capture) || !Seal(core, &capture)) return core.WaitForNextTurn(waiter);
  return Ready();
}

void DropCapture(Core& core, Waiter& waiter) {
  PersistWait& persist = std::get<PersistWait>(waiter.kind);
  if (std::exchange(persist.capture, nullptr) == nullptr) return;
  JobState& job = *waiter.job;
  job.manifest.OnFailed();
  core.manifests.NeedSweep(job.manifest.id());
  core.waits.OnWrite(job);  // The next persist of the job may begin.
}

}  // namespace tier::tiering
