// See rollback.h.
#include "daemon/tiering/leases/rollback.h"

#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

// The bytes under the lease are not final and never will be.
void RevertPiece(Tables& tables, PieceId id) {
  const Piece& piece = tables.pieces[id];
  switch (piece.copies) {
    case Copies::kRamSsd: return RevertToSsd(tables, id);
    case Copies::kRam: AddTear(tables, piece.tensor); break;
    case Copies::kTorn: break;  // It is counted already.
    default: TIER_CHECK(false, "piece {} reverts from {}", Value(id), CopiesName(piece.copies));
  }
  SetState(tables, id, {Copies::kTorn, Activity::kNone});
}

// No session can see the tensor: its pieces only have to stop being leased.
void EndUnnamedWrite(Tables& tables, PieceId id) {
  const Piece& piece = tables.pieces[id];
  if (piece.copies == Copies::kRamSsd) return RevertToSsd(tables, id);
  SetState(tables, id, {piece.copies, Activity::kNone});
}

}  // namespace

void RevertLease(Tables& tables, const Lease& lease) {
  const Tensor& tensor = tables.tensors[lease.tensor];
  TIER_CHECK(lease.exclusive(), "a lease on tensor {} is shared", tensor.id);
  const bool named = tensor.has(kVisible) && !tensor.has(kDetached);
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    if (named) {
      RevertPiece(tables, tables.tensors.PieceOf(tensor, k));
    } else {
      EndUnnamedWrite(tables, tables.tensors.PieceOf(tensor, k));
    }
  }
}

}  // namespace tier::tiering
