// See abandon.h.
#include "daemon/tiering/leases/abandon.h"

#include "daemon/tiering/leases/grants.h"
#include "daemon/tiering/leases/rollback.h"
#include "daemon/tiering/leases/updates.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {

void Abandon(Tables& tables, LeaseSlot slot) {
  const Lease& lease = tables.leases[slot];
  const TensorRef tensor = tables.RefOf(lease.tensor);
  BreakUpdate(tables, tables.sessions.At(lease.session), tensor.slot);
  RevertLease(tables, lease);
  const bool attached = !tables.tensors[tensor.slot].has(kDetached);
  const bool visible = tables.tensors[tensor.slot].has(kVisible);
  EndLease(tables, slot);
  if (attached && !visible) Detach(tables, tensor.slot);
}

void CancelGrant(Tables& tables, LeaseSlot slot) {
  const Lease& lease = tables.leases[slot];
  const TensorSlot tensor_slot = lease.tensor;
  const Tensor& tensor = tables.tensors[tensor_slot];
  TIER_CHECK(lease.exclusive(), "lease {} is shared", Value(slot));
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    const PieceId id = tables.tensors.PieceOf(tensor, k);
    Piece& piece = tables.pieces.Edit(id);
    // What was to be overwritten whole may have been given room without its bytes.
    const bool content_missing = piece.copies == Copies::kRamSsd && lease.discard;
    if (content_missing) {
      RevertToSsd(tables, id);
      continue;
    }
    if (piece.copies == Copies::kRamSsd) piece.generation = piece.ssd_generation;
    SetState(tables, id, {piece.copies, Activity::kNone});
  }
  // Others of its ranges may have made it visible before the create was granted.
  const bool created = lease.kind == LeaseKind::kCreate && !tensor.has(kDetached | kVisible);
  EndLease(tables, slot);
  if (created) Detach(tables, tensor_slot);
}

}  // namespace tier::tiering
