// See abandon.h.
#include "daemon/tiering/leases/abandon.h"

#include "daemon/tiering/leases/grants.h"
#include "daemon/tiering/leases/rollback.h"
#include "daemon/tiering/leases/updates.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {

void Abandon(Tables& tables, LeaseIndex index) {
  const Lease& lease = tables.leases[index];
  const TensorRef tensor = tables.RefOf(lease.tensor);
  BreakUpdate(tables, tables.sessions.At(lease.session), tensor.index);
  RevertLease(tables, lease);
  const bool attached = !tables.tensors[tensor.index].has(kDetached);
  const bool visible = tables.tensors[tensor.index].has(kVisible);
  EndLease(tables, index);
  if (attached && !visible) Detach(tables, tensor.index);
}

void CancelGrant(Tables& tables, LeaseIndex index) {
  const Lease& lease = tables.leases[index];
  const TensorIndex tensor_index = lease.tensor;
  const Tensor& tensor = tables.tensors[tensor_index];
  TIER_CHECK(lease.exclusive(), "lease {} is shared", Value(index));
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
  EndLease(tables, index);
  if (created) Detach(tables, tensor_index);
}

}  // namespace tier::tiering
