// See grants.h.
#include "daemon/tiering/leases/grants.h"

#include <algorithm>

#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

using proto::Op;

LeaseKind KindOf(const Ask& ask) {
  if (ask.op == Op::kCreate) return LeaseKind::kCreate;
  return ask.exclusive() ? LeaseKind::kWrite : LeaseKind::kRead;
}

uint64_t CostOf(const Core& core, const Lease& lease) {
  return LeaseCost(lease.exclusive(), PieceCountOf(core.tensors[lease.tensor].size));
}

void LinkLease(Core& core, SessionState& session, LeaseSlot slot) {
  Lease& lease = core.leases[slot];
  lease.previous = kNoLease;
  lease.next = session.leases;
  if (session.leases != kNoLease) core.leases[session.leases].previous = slot;
  session.leases = slot;
  ++session.lease_count;
  if (session.lease_count == 1 && session.waiter_count != 0) core.waits.OnFirstLease(session.slot);
  session.leased_bytes += lease.length;
  ++session.job->counters.lease_count;
  session.job->metadata->Charge(MetadataKind::kLeases, CostOf(core, lease));
  session.job->counters.leased_bytes += lease.length;
}

void TakeForWriting(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  const Tensor& tensor = core.tensors[piece.tensor];
  piece.clear(kReserved | kPrefetched);
  piece.generation = tensor.generation;
  Copies copies = piece.copies;
  if (copies == Copies::kSsd) copies = Copies::kRamSsd;  // Overwritten whole; the SSD copy is what it reverts to.
  SetState(core, id, {copies, Activity::kLeasedWrite});
}

void AddSpan(Core& core, SessionState& session, const Piece& piece, proto::SpanRecord span) {
  const WindowIndex window = core.windows.WindowOf(piece.ram);
  span.window = tier::Value(window);
  proto::SpanRecord* last = core.replies.LastSpan();
  if (last != nullptr && last->lease == span.lease && last->window == span.window &&
      last->offset + last->length == span.offset) {
    last->length += span.length;
    return;
  }
  if (!session.knows(window)) {
    session.learn(window);
    core.replies.Window(session.id, core.windows[window].shape);
  }
  core.replies.AddSpan(span);
}

void GrantItem(Core& core, const Ask& ask, uint32_t index, LeaseKind kind) {
  const WaitItem& item = ask.items[index];
  Tensor& tensor = core.tensors[item.tensor.slot];
  const LeaseSlot slot = core.leases.Allocate();
  Lease& lease = core.leases[slot];
  lease.offset = item.offset;
  lease.length = item.length;
  lease.tensor = item.tensor.slot;
  lease.first_piece = item.first_piece;
  lease.piece_count = item.piece_count;
  lease.session = ask.session->slot;
  lease.kind = kind;
  lease.discard = ask.discards();
  lease.publication = core.publications;
  ++tensor.lease_count;
  if (tensor.has(kSwapping)) core.waits.OnTensorChanged(item.tensor.slot);  // Its holder must not wait for that.
  LinkLease(core, *ask.session, slot);
  if (kind != LeaseKind::kRead) ++tensor.generation;
  const uint64_t lease_id = core.leases.IdOf(slot);
  uint64_t at = item.offset;
  const uint64_t end = item.offset + item.length;
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    const PieceId id = tensor.piece(k);
    Piece& piece = core.pieces[id];
    if (kind == LeaseKind::kRead) {
      AddReader(core, id);
      piece.clear(kPrefetched);
    } else {
      TakeForWriting(core, id);
    }
    core.waits.OnLeaseGranted(piece, ask.session->slot);
    const uint64_t begin = uint64_t{k} * kBlockSize;
    const uint64_t stop = std::min(end, begin + kBlockSize);
    AddSpan(core, *ask.session, piece,
            {.lease = lease_id,
             .item = index,
             .offset = core.windows.OffsetOf(piece.ram) + (at - begin),
             .length = stop - at});
    at = stop;
  }
}

// A whole piece has been sealed.
void SealPiece(Core& core, PieceId id) {
  const Piece& piece = core.pieces[id];
  JobState& job = core.JobOf(piece);
  if (piece.ssd_run) DropExtent(core, id);
  if (piece.copies == Copies::kTorn && !core.tensors[piece.tensor].has(kDetached)) RemoveTear(core, piece.tensor);
  job.policy->Use(id);
  SetState(core, id, {Copies::kRam, Activity::kNone});
}

void SealCreation(Core& core, const Lease& lease) {
  Tensor& tensor = core.tensors[lease.tensor];
  const bool whole = lease.offset == 0 && lease.length == tensor.size;
  if (!whole) {
    uint64_t charged = CreationCost(tensor);
    if (tensor.creation == nullptr) tensor.creation = std::make_unique<Creation>();
    tensor.creation->sealed.Add(lease.offset, lease.offset + lease.length);
    tensor.job->metadata->Recharge(MetadataKind::kUpdates, &charged, CreationCost(tensor));
    TIER_CHECK(tensor.creation->sealed.intervals().size() <= kCreationRangesMax + proto::kItemsPerRequestMax,
               "tensor {} has {} sealed ranges", tensor.id, tensor.creation->sealed.intervals().size());
  }
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    const PieceId id = tensor.piece(k);
    const uint64_t begin = uint64_t{k} * kBlockSize;
    if (whole || tensor.creation->sealed.Covers(begin, begin + tensor.piece_length(k))) {
      SealPiece(core, id);
    } else {
      SetState(core, id, {Copies::kCreating, Activity::kNone});
    }
  }
  if (tensor.has(kDetached)) return;
  if (whole || tensor.creation->sealed.Covers(0, tensor.size)) MakeVisible(core, lease.tensor);
}

void SealUpdate(Core& core, const Lease& lease, const SwapPart& part) {
  const Tensor& tensor = core.tensors[lease.tensor];
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    SealPiece(core, tensor.piece(k));
  }
  if (!tensor.has(kDetached)) NoteSeal(core, lease, part);
}

void ReleaseRead(Core& core, const Lease& lease) {
  const Tensor& tensor = core.tensors[lease.tensor];
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    RemoveReader(core, tensor.piece(k));
  }
}

}  // namespace

uint64_t GrantCost(const Core& core, const Ask& ask) {
  const bool exclusive = KindOf(ask) != LeaseKind::kRead;
  if (!exclusive) return ask.items.size() * LeaseCost(false, 0);
  uint64_t bytes = 0;
  for (const WaitItem& item : ask.items) {
    bytes += LeaseCost(true, PieceCountOf(core.tensors[item.tensor.slot].size));
  }
  return bytes;
}

void Grant(Core& core, const Ask& ask) {
  const LeaseKind kind = KindOf(ask);
  core.replies.Begin({ask.session->id, ask.sequence});
  for (uint32_t i = 0; i < ask.items.size(); ++i) GrantItem(core, ask, i, kind);
  core.replies.End(0);
  --ask.session->outstanding;
  core.figures.CountAnswer(ask.op, Code::kOk);
}

void Release(Core& core, LeaseSlot slot, const SwapPart& part) {
  const Lease& lease = core.leases[slot];
  if (lease.kind == LeaseKind::kRead) {
    ReleaseRead(core, lease);
  } else if (!core.tensors[lease.tensor].has(kVisible)) {
    SealCreation(core, lease);
  } else {
    SealUpdate(core, lease, part);
  }
  EndLease(core, slot);
}

void EndLease(Core& core, LeaseSlot slot) {
  Lease& lease = core.leases[slot];
  SessionState& session = core.sessions.At(lease.session);
  Tensor& tensor = core.tensors[lease.tensor];
  JobState& job = *session.job;
  if (lease.next != kNoLease) core.leases[lease.next].previous = lease.previous;
  (lease.previous == kNoLease ? session.leases : core.leases[lease.previous].next) = lease.next;
  TIER_CHECK(session.lease_count != 0 && tensor.lease_count != 0, "session {} tensor {}", session.lease_count,
             tensor.lease_count);
  --session.lease_count;
  session.leased_bytes -= lease.length;
  --job.counters.lease_count;
  job.metadata->Release(MetadataKind::kLeases, CostOf(core, lease));
  job.counters.leased_bytes -= lease.length;
  --tensor.lease_count;
  const TensorSlot tensor_slot = lease.tensor;
  core.leases.Free(slot);
  core.waits.OnLeaseEnded(tensor_slot);
  core.waits.OnRoom(job);
  if (tensor.has(kDetached)) FinishDetached(core, tensor_slot);
}

}  // namespace tier::tiering
