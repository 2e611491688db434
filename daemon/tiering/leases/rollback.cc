// See rollback.h.
#include "daemon/tiering/leases/rollback.h"

#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

bool IsVisible(const Tensor& tensor) { return tensor.has(kVisible) && !tensor.has(kDetached); }

// The bytes under the lease are not final and never will be.
void RevertPiece(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  switch (piece.copies) {
    case Copies::kRamSsd:
      piece.generation = piece.ssd_generation;
      SetState(core, id, {Copies::kSsd, Activity::kNone});
      piece.set(kReserved);
      if (piece.pins == 0) DropRam(core, id);
      return;
    case Copies::kRam:
      // It falls from a clean slate only once: a mixed piece that tears counts as it did.
      if (!piece.has(kMixedGeneration)) AddTornPiece(core, piece.tensor);
      piece.clear(kMixedGeneration);
      SetState(core, id, {Copies::kTorn, Activity::kNone});
      return;
    case Copies::kTorn: SetState(core, id, {Copies::kTorn, Activity::kNone}); return;
    default: TIER_CHECK(false, "piece {} reverts from {}", Value(id), CopiesName(piece.copies));
  }
}

// Nobody will see the tensor any more: its pieces only have to stop being leased.
void EndUnnamedWrite(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  const bool had_ssd = piece.copies == Copies::kRamSsd;
  SetState(core, id, {had_ssd ? Copies::kSsd : piece.copies, Activity::kNone});
  if (!had_ssd) return;
  piece.set(kReserved);
  if (piece.pins == 0) DropRam(core, id);
}

bool ChangedBy(const SessionState& session, const Piece& piece) {
  const bool changed = piece.changed_by == session.slot + 1 || piece.changed_by == kChangedByMany;
  return changed && piece.changed_at >= session.mark;
}

bool Spend(uint32_t* budget) {
  if (*budget == 0) return false;
  --*budget;
  return true;
}

// Whether the session changed a piece of the tensor that does not go back with the others. False: out of budget.
bool DetectInTensor(const Core& core, const SessionState& session, TensorSlot slot, Rollback* rollback,
                    uint32_t* budget) {
  const Tensor& tensor = core.tensors[slot];
  for (; rollback->next_piece < tensor.piece_count; ++rollback->next_piece) {
    if (!Spend(budget)) return false;
    const PieceId id = tensor.piece(rollback->next_piece);
    if (!ChangedBy(session, core.pieces[id]) || rollback->covered.contains(Value(id))) continue;
    rollback->mixed_tensors[Value(slot)] = true;
    return true;
  }
  rollback->mixed_tensors[Value(slot)] = false;
  return true;
}

// What is to go back while other changes stay, and what is to tear, makes its tensor TORN from now on.
void MarkPiece(Core& core, const SessionState& session, PieceId id, bool mixture) {
  Piece& piece = core.pieces[id];
  if (!mixture && piece.changed_by == session.slot + 1) piece.changed_by = kChangedByNobody;
  const bool tears = piece.copies == Copies::kRam;
  if ((!mixture && !tears) || piece.copies == Copies::kTorn || piece.has(kMixedGeneration)) return;
  piece.set(kMixedGeneration);
  AddTornPiece(core, piece.tensor);
}

}  // namespace

void AddToRollback(const Core& core, const Lease& lease, Rollback* rollback) {
  const Tensor& tensor = core.tensors[lease.tensor];
  TIER_CHECK(lease.exclusive(), "a lease on tensor {} is shared", tensor.id);
  if (!IsVisible(tensor)) return;
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    rollback->pieces.push_back({core.RefOf(lease.tensor), tensor.piece(k)});
    rollback->covered.insert(Value(tensor.piece(k)));
  }
}

bool DetectMixedGenerations(Core& core, const SessionState& session, Rollback* rollback, uint32_t* budget) {
  for (; rollback->next_to_detect < rollback->pieces.size(); ++rollback->next_to_detect, rollback->next_piece = 0) {
    const TensorRef tensor = rollback->pieces[rollback->next_to_detect].tensor;
    const bool judged = !core.Alive(tensor) || rollback->mixed_tensors.contains(Value(tensor.slot));
    if (judged && !Spend(budget)) return false;
    if (judged) continue;
    if (!DetectInTensor(core, session, tensor.slot, rollback, budget)) return false;
  }
  for (; rollback->next_to_mark < rollback->pieces.size(); ++rollback->next_to_mark) {
    const Rollback::Written& written = rollback->pieces[rollback->next_to_mark];
    if (!Spend(budget)) return false;
    if (core.Alive(written.tensor)) {
      MarkPiece(core, session, written.piece, rollback->mixed_tensors.at(Value(written.tensor.slot)));
    }
  }
  return true;
}

void RevertLease(Core& core, const Lease& lease) {
  const Tensor& tensor = core.tensors[lease.tensor];
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    if (IsVisible(tensor)) {
      RevertPiece(core, tensor.piece(k));
    } else {
      EndUnnamedWrite(core, tensor.piece(k));
    }
  }
}

}  // namespace tier::tiering
