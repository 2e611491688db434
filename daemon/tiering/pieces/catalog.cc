// See catalog.h.
#include "daemon/tiering/pieces/catalog.h"

#include <algorithm>

#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

constexpr uint64_t kCreationsForgottenMin = 64;

TensorKey KeyOf(const Tensor& tensor) { return {static_cast<uint64_t>(tensor.job->id), tensor.space, tensor.id}; }

TensorSlot& HeadOf(Core& core, TensorSlot slot) {
  const Tensor& tensor = core.tensors[slot];
  std::vector<FreedNamespace>& freed_namespaces = tensor.job->freed_namespaces;
  if (!freed_namespaces.empty() && freed_namespaces.back().head == slot) return freed_namespaces.back().head;
  if (tensor.space == 0) return tensor.job->shared_tensors;
  if (tensor.space == kInheritedSpace) return tensor.job->inherited_tensors;
  SessionState* session = core.sessions.Find(SessionId{tensor.space});
  TIER_CHECK(session != nullptr, "tensor {} of session {}, which is gone", tensor.id, tensor.space);
  return session->tensors;
}

void Link(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  TensorSlot& head = HeadOf(core, slot);
  tensor.previous = kNoTensor;
  tensor.next = head;
  if (head != kNoTensor) core.tensors[head].previous = slot;
  head = slot;
}

// The tensor leaves its namespace: cursors at it move on.
void MoveCursorsOn(JobState& job, TensorSlot slot, TensorSlot next) {
  for (SessionState* session : job.sessions) {
    if (session->cursor == slot) SetEnumerationCursor(*session, next);
  }
  if (job.internal_session.cursor == slot) SetEnumerationCursor(job.internal_session, next);
}

void Unlink(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  if (tensor.job->cursor_count != 0) MoveCursorsOn(*tensor.job, slot, tensor.next);
  if (tensor.next != kNoTensor) core.tensors[tensor.next].previous = tensor.previous;
  (tensor.previous == kNoTensor ? HeadOf(core, slot) : core.tensors[tensor.previous].next) = tensor.next;
  tensor.next = kNoTensor;
  tensor.previous = kNoTensor;
}

void AddPiece(Core& core, TensorSlot slot, uint32_t number) {
  Tensor& tensor = core.tensors[slot];
  const PieceId id = core.pieces.Allocate();
  Piece& piece = core.pieces[id];
  piece = Piece{};
  piece.tensor = slot;
  piece.number = number;
  if (tensor.pieces.open()) {
    tensor.pieces.Set(number, id);
  } else {
    tensor.only_piece = id;
  }
  if (!tensor.has(kVisible)) SetState(core, id, {Copies::kCreating, Activity::kNone});
}

void ReleasePiece(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  if (piece.ssd_run) DropExtent(core, id);
  if (piece.ram) DropRam(core, id);
  core.pieces.Free(id);
}

void FreePiece(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  JobState& job = core.JobOf(piece);
  TIER_CHECK(piece.read_leases == 0 && piece.activity != Activity::kLeasedWrite, "piece {} is leased", Value(id));
  if (piece.copies == Copies::kRam) job.counters.write_avoided_bytes += piece.ram.size_bytes();
  if (piece.has(kWanted)) job.claims.Forget(id);
  CountUse(core, piece, -1);
  piece.pins = 0;  // Waiters name it through the tensor, whose salt has risen.
  CountUse(core, piece, 1);
  if (piece.in_transfer()) {
    SetState(core, id, {Copies::kFreed, piece.activity});
    return;
  }
  SetState(core, id, {Copies::kFreed, Activity::kNone});
  ReleasePiece(core, id);
}

void DropCreation(Tensor& tensor) {
  tensor.job->metadata->Release(MetadataKind::kUpdates, CreationCost(tensor));
  tensor.creation.reset();
}

void ReleaseTensor(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  tensor.pieces.Close();
  DropCreation(tensor);
  tensor.job->metadata->Release(MetadataKind::kTensors, TensorCost(PieceCountOf(tensor.size)));
  tensor.piece_count = 0;
  tensor.only_piece = kNoPiece;
  tensor.flags = 0;
  --tensor.job->counters.tensor_count;
  tensor.job = nullptr;
  core.tensors.Free(slot);
}

// A session's own creations go with its namespace; of the others it keeps count and names.
void AddCreation(Core& core, SessionState& creator, TensorRef tensor) {
  ++creator.creating_count;
  if (creator.creations.size() >= kCreationsForgottenMin + 2 * uint64_t{creator.creating_count}) {
    std::erase_if(creator.creations, [&](TensorRef other) { return !Creates(core, creator, other); });
  }
  creator.creations.push_back(tensor);
}

void CountCreated(Core& core, const Tensor& tensor) {
  SessionState* creator = tensor.space == 0 ? core.sessions.Find(SessionId{tensor.creator}) : nullptr;
  if (creator == nullptr) return;
  TIER_CHECK(creator->creating_count != 0, "tensor {} of session {}", tensor.id, tensor.creator);
  --creator->creating_count;
}

}  // namespace

TensorSlot FindTensor(const Core& core, const SessionState& session, uint64_t id, bool shared) {
  const auto job = static_cast<uint64_t>(session.job->id);
  if (shared) return core.table.Find({job, 0, id});
  const TensorSlot own = core.table.Find({job, static_cast<uint64_t>(session.id), id});
  if (own != kNoTensor || session.job->inherited_tensors == kNoTensor) return own;
  return core.table.Find({job, kInheritedSpace, id});
}

bool HasTensor(const Core& core, const JobState& job, uint64_t id) {
  const auto there = [&](uint64_t space) {
    return core.table.Find({static_cast<uint64_t>(job.id), space, id}) != kNoTensor;
  };
  return there(0) || there(kInheritedSpace) || std::ranges::any_of(job.sessions, there, [](const SessionState* each) {
           return static_cast<uint64_t>(each->id);
         });
}

TensorSlot AddTensor(Core& core, JobState& job, const NewTensor& added) {
  TIER_CHECK(added.size != 0 && PieceCountOf(added.size) < UINT32_MAX, "size {}", added.size);
  const TensorSlot slot = core.tensors.Allocate();
  Tensor& tensor = core.tensors[slot];
  tensor.job = &job;
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
  tensor.only_piece = kNoPiece;
  if (tensor.piece_count != 1) tensor.pieces.Open(tensor.piece_count);
  core.work.Charge(PieceList::ChunksOf(tensor.piece_count));
  job.metadata->Charge(MetadataKind::kTensors, TensorCost(tensor.piece_count));
  job.unnamed_pages += PagesOf(added.size);
  ++job.counters.tensor_count;
  if (added.creator == nullptr) tensor.set(kVisible);
  if (!added.unnamed) NameTensor(core, slot);
  if (added.creator != nullptr && added.space == 0) AddCreation(core, *added.creator, core.RefOf(slot));
  return slot;
}

void AddPieces(Core& core, TensorSlot slot, uint32_t first, uint32_t count) {
  const Tensor& tensor = core.tensors[slot];
  TIER_CHECK(first + count <= tensor.piece_count, "pieces {} + {} of {}", first, count, tensor.piece_count);
  for (uint32_t k = first; k < first + count; ++k) {
    if (tensor.piece(k) == kNoPiece) AddPiece(core, slot, k);
  }
}

void NameTensor(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  TIER_CHECK(tensor.has(kUnnamed), "tensor {} has its name", tensor.id);
  tensor.clear(kUnnamed);
  core.table.Insert(KeyOf(tensor), slot);
  Link(core, slot);
  tensor.job->unnamed_pages -= PagesOf(tensor.size);
  tensor.job->logical_pages += PagesOf(tensor.size);
}

void MakeVisible(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  TIER_CHECK(!tensor.has(kVisible), "tensor {} is visible", tensor.id);
  CountCreated(core, tensor);
  tensor.creator = 0;
  DropCreation(tensor);
  tensor.set(kVisible);
  core.waits.OnTensorChanged(slot);
}

void Detach(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  TIER_CHECK(!tensor.has(kDetached), "tensor {} detached twice", tensor.id);
  if (tensor.has(kUnnamed)) {
    tensor.job->unnamed_pages -= PagesOf(tensor.size);
  } else {
    core.table.Erase(KeyOf(tensor));
    Unlink(core, slot);
    tensor.job->logical_pages -= PagesOf(tensor.size);
  }
  if (!tensor.has(kVisible)) CountCreated(core, tensor);
  while (tensor.updates != kNoUpdate) core.updates.Remove(tensor.updates);
  if (tensor.torn()) {
    --tensor.job->counters.torn_count;
    tensor.torn_count = 0;
  }
  tensor.clear(kUnnamed);
  tensor.set(kDetached);
  ++tensor.salt;
  core.waits.OnTensorChanged(slot);
  FinishDetached(core, slot);
}

uint64_t DetachAll(Core& core, std::span<const WaitItem> items) {
  uint64_t detached = 0;
  for (const WaitItem& item : items) {
    if (!core.Alive(item.tensor)) continue;  // Named twice, or gone.
    Detach(core, item.tensor.slot);
    ++detached;
  }
  return detached;
}

void FinishDetached(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  TIER_CHECK(tensor.has(kDetached), "tensor {} is not detached", tensor.id);
  if (tensor.lease_count != 0) return;
  if (ContinueFree(core, slot)) return;
  tensor.job->freed_tensors.push_back(slot);
  core.jobs.NoteFrees(*tensor.job);
}

bool ContinueFree(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  TIER_CHECK(tensor.has(kDetached) && tensor.lease_count == 0, "tensor {} has {} leases", tensor.id,
             tensor.lease_count);
  while (tensor.piece_count != 0 && core.work.TrySpend()) {
    if (tensor.pieces.open()) tensor.piece_count = tensor.pieces.EndOfMade(tensor.piece_count);
    if (tensor.piece_count == 0) break;
    const PieceId id = tensor.piece(tensor.piece_count - 1);
    if (id == kNoPiece && tensor.pieces.open()) continue;  // In the chunk before.
    --tensor.piece_count;
    if (id != kNoPiece) FreePiece(core, id);
  }
  if (tensor.piece_count != 0) return false;
  tensor.pieces.Close();  // What is left is reached through its transfers.
  if (tensor.transfer_count == 0) ReleaseTensor(core, slot);
  return true;
}

void FinishFreedPiece(Core& core, PieceId id) {
  const TensorSlot slot = core.pieces[id].tensor;
  SetState(core, id, {Copies::kFreed, Activity::kNone});
  ReleasePiece(core, id);
  Tensor& tensor = core.tensors[slot];
  TIER_CHECK(tensor.has(kDetached) && tensor.transfer_count != 0, "tensor {} transfers {}", tensor.id,
             tensor.transfer_count);
  if (--tensor.transfer_count == 0 && tensor.piece_count == 0) ReleaseTensor(core, slot);
}

bool Creates(const Core& core, const SessionState& session, TensorRef ref) {
  if (!core.Alive(ref)) return false;
  const Tensor& tensor = core.tensors[ref.slot];
  return !tensor.has(kVisible) && tensor.creator == static_cast<uint64_t>(session.id);
}

void AddTear(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  if (tensor.torn_count++ != 0) return;
  ++tensor.job->counters.torn_count;
}

void RemoveTear(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  TIER_CHECK(tensor.torn_count != 0, "tensor {} is not torn", tensor.id);
  if (--tensor.torn_count != 0) return;
  --tensor.job->counters.torn_count;
}

void SetEnumerationCursor(SessionState& session, TensorSlot slot) {
  JobState& job = *session.job;
  TIER_CHECK(session.cursor == kNoTensor || job.cursor_count != 0, "a cursor of session {} is not counted",
             static_cast<uint64_t>(session.id));
  job.cursor_count -= session.cursor != kNoTensor ? 1 : 0;
  job.cursor_count += slot != kNoTensor ? 1 : 0;
  session.cursor = slot;
}

}  // namespace tier::tiering
