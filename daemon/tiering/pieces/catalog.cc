// See catalog.h.
#include "daemon/tiering/pieces/catalog.h"

#include <algorithm>

#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kEndedAtOnceMax = 16;  // Records of updates.

TensorKey KeyOf(const Tensor& tensor) { return {tensor.job, tensor.space, tensor.id}; }

// The head of the tensor's namespace, which is still there.
TensorIndex& HeadOf(Tables& tables, const Tensor& tensor) {
  if (tensor.space == 0) return tables.jobs.Edit(tables.JobOf(tensor)).shared_tensors;
  if (tensor.space == kInheritedSpace) return tables.jobs.Edit(tables.JobOf(tensor)).inherited_tensors;
  SessionState* session = tables.sessions.Find(SessionId{tensor.space});
  TIER_CHECK(session != nullptr, "tensor {} of session {}, which is gone", tensor.id, tensor.space);
  return tables.sessions.Edit(*session).tensors;
}

void Link(Tables& tables, TensorIndex index) {
  Tensor& tensor = tables.tensors.Edit(index);
  TensorIndex& head = HeadOf(tables, tensor);
  tensor.previous = kNoTensor;
  tensor.next = head;
  if (head != kNoTensor) tables.tensors.Edit(head).previous = index;
  head = index;
}

// The tensor leaves its namespace: lists that would go on with it go on with the next.
void MoveCursorsOn(Tables& tables, JobState& job, TensorIndex index, TensorIndex next) {
  const std::vector<SessionListing*>& listings = job.listings.at_tensors();
  tables.work.Charge(static_cast<uint32_t>(listings.size()));
  for (size_t i = listings.size(); i-- != 0;) {  // A list that ends makes room for the last one.
    if (listings[i]->cursor() == index) listings[i]->MoveTo(next);
  }
}

void Unlink(Tables& tables, TensorIndex index) {
  Tensor& tensor = tables.tensors.Edit(index);
  JobState& job = tables.JobOf(tensor);
  if (!job.listings.at_tensors().empty()) MoveCursorsOn(tables, job, index, tensor.next);
  if (tensor.next != kNoTensor) tables.tensors.Edit(tensor.next).previous = tensor.previous;
  if (tensor.previous != kNoTensor) {
    tables.tensors.Edit(tensor.previous).next = tensor.next;
  } else if (!job.frees.SetHead(tensor.space, tensor.next)) {
    HeadOf(tables, tensor) = tensor.next;
  }
  tensor.next = kNoTensor;
  tensor.previous = kNoTensor;
}

void AddPiece(Tables& tables, TensorIndex index, uint32_t number) {
  const PieceId id = tables.pieces.Allocate();
  Piece& piece = tables.pieces.Edit(id);
  piece = Piece{};
  piece.tensor = index;
  piece.number = number;
  tables.tensors.SetPiece(index, number, id);
  if (!tables.tensors[index].has(kVisible)) SetState(tables, id, {Copies::kCreating, Activity::kNone});
}

void ReleasePiece(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  if (piece.ssd_run) DropExtent(tables, id);
  if (piece.ram) DropRam(tables, id);
  tables.pieces.Free(id);
}

void FreePiece(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  JobState& job = tables.JobOf(piece);
  TIER_CHECK(piece.read_leases == 0 && piece.activity != Activity::kLeasedWrite, "piece {} is leased", Value(id));
  if (piece.copies == Copies::kRam) tables.jobs.Edit(job).counters.write_avoided_bytes += piece.ram.size_bytes();
  if (piece.has(kWanted)) job.claims.Drop(id);
  CancelMove(tables, id);
  const UseOfRam before = UseOfRamOf(piece);
  piece.pins = 0;  // Waiters name it through the tensor, whose salt has risen.
  ChangeUse(tables, piece, before);
  if (piece.in_transfer()) {
    SetState(tables, id, {Copies::kFreed, piece.activity});
    return;
  }
  SetState(tables, id, {Copies::kFreed, Activity::kNone});
  ReleasePiece(tables, id);
}

void ClearSealed(Tables& tables, TensorIndex index) {
  tables.JobOf(tables.tensors[index])
      .metadata->Release(MetadataKind::kUpdates, SealedCost(tables.tensors.SealedOf(index)));
  tables.tensors.ClearSealed(index);
}

void ReleaseTensor(Tables& tables, TensorIndex index) {
  Tensor& tensor = tables.tensors.Edit(index);
  tables.tensors.ClearPieces(index);
  ClearSealed(tables, index);
  tables.JobOf(tensor).metadata->Release(MetadataKind::kTensors, TensorCost(PieceCountOf(tensor.size)));
  tensor.piece_count = 0;
  tensor.flags = 0;
  --tables.jobs.Edit(tables.JobOf(tensor)).counters.tensor_count;
  tensor.job = kNoJob;
  tables.tensors.Free(index);
}

// The tensors that a session creates in its own namespace go with that; it keeps count and names of the shared ones.
void AddCreation(Tables& tables, SessionState& creator, TensorRef tensor) {
  ++tables.sessions.Edit(creator).creating_count;
  const auto creates = [&](TensorRef other) { return Creates(tables, creator, other); };
  creator.creations.Add(tensor, creator.record.creating_count, creates);
}

void CountCreated(Tables& tables, const Tensor& tensor) {
  SessionState* creator = tensor.space == 0 ? tables.sessions.Find(SessionId{tensor.creator}) : nullptr;
  if (creator == nullptr) return;
  TIER_CHECK(creator->record.creating_count != 0, "tensor {} of session {}", tensor.id, tensor.creator);
  --tables.sessions.Edit(*creator).creating_count;
}

}  // namespace

TensorIndex FindTensor(const Tables& tables, const SessionState& session, uint64_t id, bool shared) {
  const JobIndex job = session.job->index;
  if (shared) return tables.names.Find({job, 0, id});
  const TensorIndex own = tables.names.Find({job, static_cast<uint64_t>(session.id), id});
  if (own != kNoTensor || session.job->record.inherited_tensors == kNoTensor) return own;
  return tables.names.Find({job, kInheritedSpace, id});
}

bool HasTensor(const Tables& tables, const JobState& job, uint64_t id) {
  const auto there = [&](uint64_t space) { return tables.names.Find({job.index, space, id}) != kNoTensor; };
  return there(0) || there(kInheritedSpace) || std::ranges::any_of(job.sessions, there, [](const SessionState* each) {
           return static_cast<uint64_t>(each->id);
         });
}

TensorIndex AddTensor(Tables& tables, JobState& job, const NewTensor& added) {
  TIER_CHECK(added.size != 0 && PieceCountOf(added.size) < UINT32_MAX && (!added.sharded || added.space == 0),
             "size {} in space {}", added.size, added.space);
  const TensorIndex index = tables.tensors.Allocate();
  tables.tensors.BeginContent(index);
  Tensor& tensor = tables.tensors.Edit(index);
  tensor.job = job.index;
  tensor.space = added.space;
  tensor.id = added.id;
  tensor.size = added.size;
  tensor.creator = added.creator == nullptr ? 0 : static_cast<uint64_t>(added.creator->id);
  tensor.piece_count = static_cast<uint32_t>(PieceCountOf(added.size));
  tensor.generation = 0;
  tensor.lease_count = 0;
  tensor.transfer_count = 0;
  tensor.torn_count = 0;
  tensor.ram_pages = 0;
  tensor.ssd_pages = 0;
  tensor.flags = kUnnamed;
  if (added.sharded) tensor.set(kSharded);
  if (added.transient) tensor.set(kTransient);
  tensor.pieces = {.size = tensor.piece_count};
  job.metadata->Charge(MetadataKind::kTensors, TensorCost(tensor.piece_count));
  job.pages.AddUnnamed(PagesOf(added.size));
  ++tables.jobs.Edit(job).counters.tensor_count;
  if (added.creator == nullptr) tensor.set(kVisible);
  if (!added.unnamed) NameTensor(tables, index);
  if (added.creator != nullptr && added.space == 0) AddCreation(tables, *added.creator, tables.RefOf(index));
  return index;
}

void AddPieces(Tables& tables, TensorIndex index, uint32_t first, uint32_t count) {
  const Tensor& tensor = tables.tensors[index];
  TIER_CHECK(first + count <= tensor.piece_count, "pieces {} + {} of {}", first, count, tensor.piece_count);
  for (uint32_t k = first; k < first + count; ++k) {
    if (tables.tensors.PieceOf(tensor, k) == kNoPiece) AddPiece(tables, index, k);
  }
}

void NameTensor(Tables& tables, TensorIndex index) {
  Tensor& tensor = tables.tensors.Edit(index);
  TIER_CHECK(tensor.has(kUnnamed), "tensor {} has its name", tensor.id);
  tensor.clear(kUnnamed);
  tables.names.Insert(KeyOf(tensor), index);
  Link(tables, index);
  tables.JobOf(tensor).pages.RemoveUnnamed(PagesOf(tensor.size));
  tables.JobOf(tensor).pages.AddLogical(PagesOf(tensor.size));
  tables.storage.AddUsed(tables.JobOf(tensor).entitlement, PagesOf(tensor.size) * kPageSize);
}

void MakeVisible(Tables& tables, TensorIndex index) {
  Tensor& tensor = tables.tensors.Edit(index);
  TIER_CHECK(!tensor.has(kVisible), "tensor {} is visible", tensor.id);
  CountCreated(tables, tensor);
  tensor.creator = 0;
  ClearSealed(tables, index);
  tensor.set(kVisible);
  tables.waits.OnTensorChanged(index);
}

void Detach(Tables& tables, TensorIndex index) {
  Tensor& tensor = tables.tensors.Edit(index);
  TIER_CHECK(!tensor.has(kDetached), "tensor {} detached twice", tensor.id);
  if (tensor.has(kUnnamed)) {
    tables.JobOf(tensor).pages.RemoveUnnamed(PagesOf(tensor.size));
  } else {
    tables.names.Erase(KeyOf(tensor));
    Unlink(tables, index);
    tensor.set(kKeepsRoom);
  }
  if (!tensor.has(kVisible)) CountCreated(tables, tensor);
  EndAllUpdates(tables, index);
  if (tensor.torn()) {
    --tables.jobs.Edit(tables.JobOf(tensor)).counters.torn_count;
    tensor.torn_count = 0;
  }
  tensor.clear(kUnnamed);
  tensor.set(kDetached);
  ++tensor.salt;
  tables.waits.OnTensorChanged(index);
  FinishDetached(tables, index);
}

uint64_t DetachAll(Tables& tables, const JobState& job, std::span<const WaitItem> items) {
  uint64_t detached = 0;
  const size_t now = FreedNow(job);
  const auto detach = [&](std::span<const WaitItem> some) {
    for (const WaitItem& item : some) {
      if (!tables.Alive(item.tensor)) continue;  // Named twice, or gone.
      Detach(tables, item.tensor.index);
      ++detached;
    }
  };
  detach(items.first(std::min(now, items.size())));
  if (items.size() > now) tables.work.PutOff([&] { detach(items.subspan(now)); });
  return detached;
}

void FinishDetached(Tables& tables, TensorIndex index) {
  Tensor& tensor = tables.tensors.Edit(index);
  TIER_CHECK(tensor.has(kDetached), "tensor {} is not detached", tensor.id);
  if (tensor.lease_count != 0) return;
  if (tensor.has(kKeepsRoom)) {  // Leases kept all of it where it is.
    tensor.clear(kKeepsRoom);
    tables.JobOf(tensor).pages.RemoveLogical(PagesOf(tensor.size));
    tables.storage.SubtractUsed(tables.JobOf(tensor).entitlement, PagesOf(tensor.size) * kPageSize);
  }
  if (ContinueFree(tables, index)) return;
  tables.JobOf(tensor).frees.AddTensor(index);
  tables.jobs.NoteFrees(tables.JobOf(tensor));
}

bool ContinueFree(Tables& tables, TensorIndex index) {
  Tensor& tensor = tables.tensors.Edit(index);
  TIER_CHECK(tensor.has(kDetached) && tensor.lease_count == 0, "tensor {} has {} leases", tensor.id,
             tensor.lease_count);
  const uint32_t cost = kFreeCost + (tables.JobOf(tensor).manifest.empty() ? 0 : kUnuseCost);
  while (tensor.piece_count != 0) {
    const PieceId id = tables.tensors.PieceOf(tensor, tensor.piece_count - 1);
    if (!tables.work.TrySpend(id == kNoPiece ? 1 : cost)) return false;
    if (id == kNoPiece) {  // It was never leased, perhaps no piece of its node was.
      tensor.piece_count = tables.tensors.EndOfPieces(tensor, tensor.piece_count);
      continue;
    }
    --tensor.piece_count;
    FreePiece(tables, id);
  }
  tables.tensors.ClearPieces(index);  // What is left is reached through its transfers.
  if (tensor.transfer_count == 0) ReleaseTensor(tables, index);
  return true;
}

void EndAllUpdates(Tables& tables, TensorIndex index) {
  if (!tables.updates.HasAny(index)) return;
  JobState& job = tables.JobOf(tables.tensors[index]);
  // The request that ends many of them does not wait for their records, and a prepaid attempt has not paid for them.
  const bool few = tables.updates.CountOf(index) <= kEndedAtOnceMax && !tables.work.prepaid();
  const UpdateListIndex ended = tables.updates.EndList(index);
  if (few && ContinueEndUpdates(tables, ended)) return;
  job.frees.AddUpdates(ended);
  tables.jobs.NoteFrees(job);
}

bool ContinueEndUpdates(Tables& tables, UpdateListIndex index) {
  do {
    if (!tables.work.TrySpend(kEndUpdateCost)) return false;
  } while (tables.updates.RemoveEnded(index));
  return true;
}

void FinishFreedPiece(Tables& tables, PieceId id) {
  const TensorIndex index = tables.pieces[id].tensor;
  SetState(tables, id, {Copies::kFreed, Activity::kNone});
  ReleasePiece(tables, id);
  Tensor& tensor = tables.tensors.Edit(index);
  TIER_CHECK(tensor.has(kDetached) && tensor.transfer_count != 0, "tensor {} transfers {}", tensor.id,
             tensor.transfer_count);
  if (--tensor.transfer_count == 0 && tensor.piece_count == 0) ReleaseTensor(tables, index);
}

bool Creates(const Tables& tables, const SessionState& session, TensorRef ref) {
  if (!tables.Alive(ref)) return false;
  const Tensor& tensor = tables.tensors[ref.index];
  return !tensor.has(kVisible) && tensor.creator == static_cast<uint64_t>(session.id);
}

void AddTear(Tables& tables, TensorIndex index) {
  Tensor& tensor = tables.tensors.Edit(index);
  if (tensor.torn_count++ != 0) return;
  ++tables.jobs.Edit(tables.JobOf(tensor)).counters.torn_count;
  tables.waits.OnTensorChanged(index);  // Those that wait for a lease of another piece are refused.
}

void RemoveTear(Tables& tables, TensorIndex index) {
  Tensor& tensor = tables.tensors.Edit(index);
  TIER_CHECK(tensor.torn_count != 0, "tensor {} is not torn", tensor.id);
  if (--tensor.torn_count != 0) return;
  --tables.jobs.Edit(tables.JobOf(tensor)).counters.torn_count;
}

}  // namespace tier::tiering
