// See rollback.h.
#include "daemon/tiering/leases/rollback.h"

#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

// The bytes under the lease are not final and never will be.
void RevertPiece(Core& core, PieceId id) {
  const Piece& piece = core.pieces[id];
  switch (piece.copies) {
    case Copies::kRamSsd: return RevertToSsd(core, id);
    case Copies::kRam: AddTear(core, piece.tensor); break;
    case Copies::kTorn: break;  // It is counted already.
    default: TIER_CHECK(false, "piece {} reverts from {}", Value(id), CopiesName(piece.copies));
  }
  SetState(core, id, {Copies::kTorn, Activity::kNone});
}

// Nobody will see the tensor any more: its pieces only have to stop being leased.
void EndUnnamedWrite(Core& core, PieceId id) {
  const Piece& piece = core.pieces[id];
  if (piece.copies == Copies::kRamSsd) return RevertToSsd(core, id);
  SetState(core, id, {piece.copies, Activity::kNone});
}

}  // namespace

void RevertLease(Core& core, const Lease& lease) {
  const Tensor& tensor = core.tensors[lease.tensor];
  TIER_CHECK(lease.exclusive(), "a lease on tensor {} is shared", tensor.id);
  const bool named = tensor.has(kVisible) && !tensor.has(kDetached);
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    if (named) {
      RevertPiece(core, tensor.piece(k));
    } else {
      EndUnnamedWrite(core, tensor.piece(k));
    }
  }
}

}  // namespace tier::tiering
