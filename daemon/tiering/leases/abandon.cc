// See abandon.h.
#include "daemon/tiering/leases/abandon.h"

#include "daemon/tiering/leases/grants.h"
#include "daemon/tiering/leases/rollback.h"
#include "daemon/tiering/leases/updates.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {

void Abandon(Core& core, LeaseSlot slot) {
  const Lease& lease = core.leases[slot];
  const TensorRef tensor = core.RefOf(lease.tensor);
  BreakUpdate(core, core.sessions.At(lease.session), tensor.slot);
  RevertLease(core, lease);
  const bool attached = !core.tensors[tensor.slot].has(kDetached);
  const bool visible = core.tensors[tensor.slot].has(kVisible);
  EndLease(core, slot);
  if (attached && !visible) Detach(core, tensor.slot);
}

void CancelGrant(Core& core, LeaseSlot slot) {
  const Lease& lease = core.leases[slot];
  const TensorSlot tensor_slot = lease.tensor;
  const Tensor& tensor = core.tensors[tensor_slot];
  TIER_CHECK(lease.exclusive(), "lease {} is shared", Value(slot));
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    const PieceId id = tensor.piece(k);
    Piece& piece = core.pieces[id];
    // What was to be overwritten whole may have been given room without its bytes.
    const bool content_missing = piece.copies == Copies::kRamSsd && lease.discard;
    if (content_missing) {
      RevertToSsd(core, id);
      continue;
    }
    if (piece.copies == Copies::kRamSsd) piece.generation = piece.ssd_generation;
    SetState(core, id, {piece.copies, Activity::kNone});
  }
  // Others of its ranges may have made it visible before the create was granted.
  const bool created = lease.kind == LeaseKind::kCreate && !tensor.has(kDetached | kVisible);
  EndLease(core, slot);
  if (created) Detach(core, tensor_slot);
}

}  // namespace tier::tiering
