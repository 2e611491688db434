// See grants.h.
#include "daemon/tiering/leases/grants.h"

#include <algorithm>

#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

using proto::Op;

constexpr size_t kRangesMovedPerUnit = 8;  // Of 16 bytes each.

LeaseKind KindOf(const Ask& ask) {
  if (ask.op == Op::kCreate) return LeaseKind::kCreate;
  return ask.exclusive() ? LeaseKind::kWrite : LeaseKind::kRead;
}

uint64_t CostOf(const Tables& tables, const Lease& lease) {
  return LeaseCost(lease.exclusive(), PieceCountOf(tables.tensors[lease.tensor].size));
}

void LinkLease(Tables& tables, SessionState& session, LeaseIndex index) {
  Lease& lease = tables.leases.Edit(index);
  lease.previous = kNoLease;
  lease.next = session.record.leases;
  if (session.record.leases != kNoLease) tables.leases.Edit(session.record.leases).previous = index;
  SessionRecord& record = tables.sessions.Edit(session);
  record.leases = index;
  ++record.lease_count;
  record.leased_bytes += lease.length;
  if (record.lease_count == 1 && session.requests.waiting() != 0) tables.waits.OnFirstLease(session.index);
  JobCounters& counters = tables.jobs.Edit(*session.job).counters;
  ++counters.lease_count;
  counters.leased_bytes += lease.length;
  session.job->metadata->Charge(MetadataKind::kLeases, CostOf(tables, lease));
}

void TakeForWriting(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  if (piece.activity == Activity::kMoving) [[unlikely]]
    CancelMove(tables, id);
  const Tensor& tensor = tables.tensors[piece.tensor];
  piece.clear(kReserved);
  piece.generation = tensor.generation;
  Copies copies = piece.copies;
  if (copies == Copies::kSsd) copies = Copies::kRamSsd;  // Overwritten whole; the SSD copy is what it reverts to.
  SetState(tables, id, {copies, Activity::kLeasedWrite});
  piece.clear(kPrefetched);  // In no order now.
}

void AddSpan(Tables& tables, SessionState& session, WindowIndex window, proto::SpanRecord span) {
  span.window = tier::Value(window);
  proto::SpanRecord* last = tables.replies.LastSpan();
  if (last != nullptr && last->lease == span.lease && last->window == span.window &&
      last->offset + last->length == span.offset) {
    last->length += span.length;
    return;
  }
  if (!session.windows.maps(window)) {
    session.windows.Announce(window);
    tables.ports.windows.ClearUnreturned(window);
    tables.replies.Window(session.id, tables.windows[window].shape);
  }
  tables.replies.AddSpan(span);
}

// `skipped`: bytes of the piece before the span.
void AddSpans(Tables& tables, SessionState& session, const Piece& piece, uint64_t skipped, proto::SpanRecord span) {
  uint64_t left = span.length;
  for (const base::PageRun run : tables.RunsOf(piece)) {
    const uint64_t before = std::min(skipped, run.size_bytes());
    skipped -= before;
    span.offset = tables.windows.OffsetOf(run) + before;
    span.length = std::min(run.size_bytes() - before, left);
    left -= span.length;
    if (span.length != 0) AddSpan(tables, session, tables.windows.WindowOf(run), span);
  }
  TIER_CHECK(left == 0, "{} bytes of piece {} lie nowhere", left, piece.number);
}

void GrantItem(Tables& tables, const Ask& ask, uint32_t index, LeaseKind kind) {
  const WaitItem& item = ask.items[index];
  Tensor& tensor = tables.tensors.Edit(item.tensor.index);
  const LeaseIndex granted = tables.leases.Allocate();
  Lease& lease = tables.leases.Edit(granted);
  lease.offset = item.offset;
  lease.length = item.length;
  lease.tensor = item.tensor.index;
  lease.first_piece = item.first_piece;
  lease.piece_count = item.piece_count;
  lease.session = ask.session->index;
  lease.kind = kind;
  lease.discard = ask.discards();
  lease.publication = tables.turn.publications();
  ++tensor.lease_count;
  if (tensor.has(kSwapping)) tables.waits.OnTensorChanged(item.tensor.index);  // Its holder must not wait for that.
  LinkLease(tables, *ask.session, granted);
  if (kind != LeaseKind::kRead) {
    ++tensor.generation;
    tables.tensors.BeginContent(item.tensor.index);
  }
  const uint64_t lease_id = tables.leases.IdOf(granted);
  uint64_t at = item.offset;
  const uint64_t end = item.offset + item.length;
  for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
    const PieceId id = tables.tensors.PieceOf(tensor, k);
    Piece& piece = tables.pieces.Edit(id);
    if (kind == LeaseKind::kRead) {
      AddReader(tables, id);
      piece.clear(kPrefetched);  // In no order now.
    } else {
      TakeForWriting(tables, id);
    }
    tables.waits.OnLeaseGranted(piece, ask.session->index);
    const uint64_t begin = uint64_t{k} * kBlockSize;
    const uint64_t stop = std::min(end, begin + kBlockSize);
    AddSpans(tables, *ask.session, piece, at - begin, {.lease = lease_id, .item = index, .length = stop - at});
    at = stop;
  }
}

// A whole piece has been sealed.
void SealPiece(Tables& tables, PieceId id) {
  const Piece& piece = tables.pieces[id];
  JobState& job = tables.JobOf(piece);
  tables.jobs.Edit(job).counters.sealed_bytes += tables.tensors[piece.tensor].piece_length(piece.number);
  if (piece.ssd_run) DropExtent(tables, id);
  if (piece.copies == Copies::kTorn && !tables.tensors[piece.tensor].has(kDetached)) RemoveTear(tables, piece.tensor);
  job.policy->Use(id);
  SetState(tables, id, {Copies::kRam, Activity::kNone});
}

void SealCreation(Tables& tables, const Lease& lease) {
  const Tensor& tensor = tables.tensors[lease.tensor];
  const bool whole = lease.offset == 0 && lease.length == tensor.size;
  if (!whole) {
    MetadataAccount& account = *tables.JobOf(tensor).metadata;
    account.Release(MetadataKind::kUpdates, SealedCost(tables.tensors.SealedOf(lease.tensor)));
    const size_t moved = tables.tensors.AddSealed(lease.tensor, lease.offset, lease.offset + lease.length);
    tables.work.Charge(static_cast<uint32_t>(moved / kRangesMovedPerUnit));
    const IntervalSet* sealed = tables.tensors.SealedOf(lease.tensor);
    account.Charge(MetadataKind::kUpdates, SealedCost(sealed));
    TIER_CHECK(sealed->intervals().size() <= kCreationRangesMax + proto::kItemsPerRequestMax,
               "tensor {} has {} sealed ranges", tensor.id, sealed->intervals().size());
  }
  const auto covers = [&](uint64_t begin, uint64_t end) {
    return whole || tables.tensors.SealedOf(lease.tensor)->Covers(begin, end);
  };
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    const PieceId id = tables.tensors.PieceOf(tensor, k);
    const uint64_t begin = uint64_t{k} * kBlockSize;
    if (covers(begin, begin + tensor.piece_length(k))) {
      SealPiece(tables, id);
    } else {
      SetState(tables, id, {Copies::kCreating, Activity::kNone});
    }
  }
  if (tensor.has(kDetached)) return;
  if (covers(0, tensor.size)) MakeVisible(tables, lease.tensor);
}

void SealUpdate(Tables& tables, const Lease& lease, const SwapPart& part) {
  const Tensor& tensor = tables.tensors[lease.tensor];
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    SealPiece(tables, tables.tensors.PieceOf(tensor, k));
  }
  if (!tensor.has(kDetached)) NoteSeal(tables, lease, part);
}

void ReleaseRead(Tables& tables, const Lease& lease) {
  const Tensor& tensor = tables.tensors[lease.tensor];
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    RemoveReader(tables, tables.tensors.PieceOf(tensor, k));
  }
}

// Begins the reply, too.
void GrantItems(Tables& tables, const Ask& ask) {
  const LeaseKind kind = KindOf(ask);
  tables.replies.Begin({ask.session->id, ask.sequence});
  for (uint32_t i = 0; i < ask.items.size(); ++i) GrantItem(tables, ask, i, kind);
}

}  // namespace

uint64_t GrantCost(const Tables& tables, const Ask& ask) {
  const bool exclusive = KindOf(ask) != LeaseKind::kRead;
  if (!exclusive) return ask.items.size() * LeaseCost(false, 0);
  uint64_t bytes = 0;
  for (const WaitItem& item : ask.items) {
    bytes += LeaseCost(true, PieceCountOf(tables.tensors[item.tensor.index].size));
  }
  return bytes;
}

void Grant(Tables& tables, const Ask& ask) {
  GrantItems(tables, ask);
  tables.replies.End(tables.tensors[ask.items.front().tensor.index].content);
  ask.session->requests.End();
  tables.figures.CountAnswer(ask.op, Code::kOk);
}

void GrantPart(Tables& tables, const Ask& ask, uint32_t first, std::vector<proto::SpanRecord>* spans) {
  const size_t before = spans->size();
  GrantItems(tables, ask);
  tables.replies.Withdraw(spans);
  for (proto::SpanRecord& span : std::span(*spans).subspan(before)) span.item += first;
}

void AnswerParts(Tables& tables, SessionState& session, uint64_t sequence, std::span<const proto::SpanRecord> spans) {
  const LeaseIndex lease = tables.leases.Find(spans.front().lease, session.index);
  tables.replies.Begin({session.id, sequence});
  for (const proto::SpanRecord& span : spans) tables.replies.AddSpan(span);
  tables.replies.End(lease == kNoLease ? 0 : tables.tensors[tables.leases[lease].tensor].content);
  session.requests.End();
  tables.figures.CountAnswer(Op::kCreate, Code::kOk);
}

void Release(Tables& tables, LeaseIndex index, const SwapPart& part) {
  const Lease& lease = tables.leases[index];
  if (lease.kind == LeaseKind::kRead) {
    ReleaseRead(tables, lease);
  } else if (!tables.tensors[lease.tensor].has(kVisible)) {
    SealCreation(tables, lease);
  } else {
    SealUpdate(tables, lease, part);
  }
  EndLease(tables, index);
}

void EndLease(Tables& tables, LeaseIndex index) {
  Lease& lease = tables.leases.Edit(index);
  SessionState& session = tables.sessions.At(lease.session);
  Tensor& tensor = tables.tensors.Edit(lease.tensor);
  JobState& job = *session.job;
  if (lease.next != kNoLease) tables.leases.Edit(lease.next).previous = lease.previous;
  SessionRecord& record = tables.sessions.Edit(session);
  (lease.previous == kNoLease ? record.leases : tables.leases.Edit(lease.previous).next) = lease.next;
  TIER_CHECK(session.record.lease_count != 0 && tensor.lease_count != 0, "session {} tensor {}",
             session.record.lease_count, tensor.lease_count);
  --record.lease_count;
  record.leased_bytes -= lease.length;
  JobCounters& counters = tables.jobs.Edit(job).counters;
  --counters.lease_count;
  counters.leased_bytes -= lease.length;
  job.metadata->Release(MetadataKind::kLeases, CostOf(tables, lease));
  --tensor.lease_count;
  const TensorIndex tensor_index = lease.tensor;
  tables.forced_returns.bound_count().OnLeaseEnded(index, lease.next);
  tables.leases.Free(index);
  tables.waits.OnLeaseEnded(tensor_index);
  tables.waits.OnRoom(job);
  if (tensor.has(kDetached)) FinishDetached(tables, tensor_index);
}

}  // namespace tier::tiering
