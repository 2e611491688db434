// See updates.h.
#include "daemon/tiering/leases/updates.h"

#include <fmt/format.h>

#include "daemon/tiering/pieces/catalog.h"

namespace tier::tiering {
namespace {

PieceRange PiecesOf(const Lease& lease) { return {lease.first_piece, lease.piece_count}; }

// Those of which the lease has every byte.
PieceRange WholePiecesOf(const Lease& lease, const Tensor& tensor) {
  const uint64_t end = lease.offset + lease.length;
  const auto first = static_cast<uint32_t>((lease.offset + kBlockSize - 1) / kBlockSize);
  const auto last = end == tensor.size ? tensor.piece_count : static_cast<uint32_t>(end / kBlockSize);
  return {first, last > first ? last - first : 0};
}

std::optional<Refusal> RangeRefusal(const Core& core, const Lease& lease, const proto::RequestItem& item) {
  const Tensor& tensor = core.tensors[lease.tensor];
  return Refusal{Code::kInvalid,
                 fmt::format("a lease of bytes {} + {} of tensor {:#x} is no part of a swap_out of {} + {}",
                             lease.offset, lease.length, tensor.id, item.offset, item.length),
                 {.tensor = tensor.id, .requested = item.offset, .available = item.length, .limit = tensor.size}};
}

// Why the session cannot leave a swap_out of that range unfinished now.
std::optional<Refusal> UnfinishedRefusal(const Core& core, const Lease& lease, PieceRange range) {
  const Tensor& tensor = core.tensors[lease.tensor];
  const UpdateSlot own = core.updates.Find(lease.tensor, lease.session);
  const bool unfinished = own != kNoUpdate && core.updates[own].swapping();
  if (unfinished && core.updates[own].swap != range) {
    return Refusal{
        Code::kInvalid,
        fmt::format("the session has an unfinished swap_out over pieces {} + {} of tensor {:#x}: it cannot "
                    "begin one over {} + {} before that has ended",
                    core.updates[own].swap.first, core.updates[own].swap.count, tensor.id, range.first, range.count),
        {.tensor = tensor.id, .limit = tensor.size}};
  }
  const SessionState& session = core.sessions.At(lease.session);
  if (const SessionState* other = SwapperOf(core, lease.tensor, range, &session)) {
    return Refusal{Code::kWouldDeadlock,
                   fmt::format("session {} has an unfinished swap_out over tensor {:#x}: it writes the pieces of this "
                               "one last; begin again when that has ended",
                               static_cast<uint64_t>(other->id), tensor.id),
                   {.tensor = tensor.id, .limit = tensor.size}};
  }
  const uint32_t most = core.options.unfinished_swaps_per_session_max;
  if (unfinished || core.updates.swap_count(lease.session) < most) return std::nullopt;
  return Refusal{Code::kInvalid,
                 fmt::format("the session has unfinished swap_outs over {} tensors, at most that many", most),
                 {.tensor = tensor.id, .limit = most}};
}

void NoteChanged(Core& core, const Lease& lease) {
  const uint32_t piece_count = core.tensors[lease.tensor].piece_count;
  UpdateSlot slot = core.updates.Find(lease.tensor, lease.session);
  if (lease.piece_count == piece_count && slot == kNoUpdate) return;
  if (slot == kNoUpdate) slot = core.updates.Open(lease.tensor, lease.session);
  core.updates.AddChanged(slot, PiecesOf(lease));
  // All of it was changed: what comes next is another update.
  if (core.updates[slot].changed.count() == piece_count) core.updates.EndChanged(slot);
}

void NoteSwapped(Core& core, const Lease& lease, const SwapPart& part) {
  if (part.more) {
    const UpdateSlot slot = core.updates.Open(lease.tensor, lease.session);
    core.updates.AddSwapped(slot, part.range, PiecesOf(lease));
    core.waits.OnTensorChanged(lease.tensor);  // Its own requests pass claims now.
    return;
  }
  const UpdateSlot slot = core.updates.Find(lease.tensor, lease.session);
  if (slot == kNoUpdate || core.updates[slot].swap != part.range) return;  // It had one range.
  core.updates.AddSwapped(slot, part.range, PiecesOf(lease));
  if (part.whole && core.updates[slot].swapped.count() == core.tensors[lease.tensor].piece_count) {
    EndUpdates(core, lease.tensor);
  } else {
    core.updates.EndSwap(slot);
  }
  core.waits.OnTensorChanged(lease.tensor);
}

void Break(Core& core, UpdateSlot slot) {
  const Update& update = core.updates[slot];
  const TensorSlot tensor = update.tensor;
  const PieceRange torn = update.changed.empty() ? update.swap : PieceRange{0, core.tensors[tensor].piece_count};
  core.updates.Remove(slot);
  MarkTorn(core, tensor, torn);
}

}  // namespace

std::optional<Refusal> ReadSwapPart(const Core& core, LeaseSlot slot, const proto::RequestItem& item, uint32_t flags,
                                    SwapPart* part) {
  const Lease& lease = core.leases[slot];
  const Tensor& tensor = core.tensors[lease.tensor];
  const bool more = (flags & proto::kFlagMore) != 0;
  *part = {};
  if (item.length == 0 && item.offset == 0 && !more) return std::nullopt;
  WaitItem all;
  const bool covers = item.length != 0 && SetRange(item, tensor.size, &all) && item.offset <= lease.offset &&
                      lease.offset + lease.length <= item.offset + item.length;
  if (!covers || !lease.exclusive()) return RangeRefusal(core, lease, item);
  if (!tensor.has(kVisible) || tensor.has(kDetached)) return std::nullopt;
  const PieceRange range{all.first_piece, all.piece_count};
  if (more) {
    if (std::optional<Refusal> refusal = UnfinishedRefusal(core, lease, range)) return refusal;
  }
  *part = {.range = range, .whole = item.length == tensor.size, .more = more};
  return std::nullopt;
}

void NoteSeal(Core& core, const Lease& lease, const SwapPart& part) {
  const Tensor& tensor = core.tensors[lease.tensor];
  if (lease.length == tensor.size && !part.more) return EndUpdates(core, lease.tensor);
  const UpdateSlot broken = core.updates.FindBroken(lease.tensor);
  if (broken != kNoUpdate && core.updates.AddRewritten(broken, WholePiecesOf(lease, tensor))) {
    RemoveTear(core, lease.tensor);
  }
  if (part.range.empty()) {
    NoteChanged(core, lease);
  } else {
    NoteSwapped(core, lease, part);
  }
}

void EndUpdates(Core& core, TensorSlot slot) {
  Tensor& tensor = core.tensors[slot];
  if (tensor.updates == kNoUpdate) return;
  if (core.updates.FindBroken(slot) != kNoUpdate) RemoveTear(core, slot);
  while (tensor.updates != kNoUpdate) core.updates.Remove(tensor.updates);
  core.waits.OnTensorChanged(slot);
}

void EndStep(Core& core, const SessionState& session) {
  for (UpdateSlot slot = core.updates.FirstOfSession(session.slot); slot != kNoUpdate;) {
    const UpdateSlot next = core.updates[slot].next_of_session;
    core.updates.EndChanged(slot);
    slot = next;
  }
}

void BreakUpdate(Core& core, const SessionState& session, TensorSlot tensor) {
  const UpdateSlot slot = core.updates.Find(tensor, session.slot);
  if (slot != kNoUpdate) Break(core, slot);
}

void BreakUpdates(Core& core, const SessionState& session) {
  for (UpdateSlot slot = core.updates.FirstOfSession(session.slot); slot != kNoUpdate;) {
    const UpdateSlot next = core.updates[slot].next_of_session;
    // Its own namespace goes with it: its tensors are asked for by no one any more.
    const bool own = core.tensors[core.updates[slot].tensor].space == static_cast<uint64_t>(session.id);
    if (own) {
      core.updates.Remove(slot);
    } else {
      Break(core, slot);
    }
    slot = next;
  }
}

void TearRange(Core& core, const SessionState& session, const WaitItem& item) {
  const PieceRange range{item.first_piece, item.piece_count};
  const UpdateSlot own = core.updates.Find(item.tensor.slot, session.slot);
  if (own != kNoUpdate && core.updates[own].swapping()) {
    const PieceRange swap = core.updates[own].swap;
    if (range.first <= swap.first && swap.end() <= range.end()) core.updates.EndSwap(own);
  }
  MarkTorn(core, item.tensor.slot, range);
}

void MarkTorn(Core& core, TensorSlot slot, PieceRange pieces) {
  if (core.updates.AddTorn(slot, pieces)) AddTear(core, slot);
  core.waits.OnTensorChanged(slot);
}

const SessionState* SwapperOf(const Core& core, TensorSlot slot, PieceRange pieces, const SessionState* session) {
  if (!core.tensors[slot].has(kSwapping)) return nullptr;
  for (UpdateSlot each = core.updates.FirstOf(slot); each != kNoUpdate; each = core.updates[each].next_of_tensor) {
    const Update& update = core.updates[each];
    const bool others = update.swapping() && update.swap.Overlaps(pieces);
    if (others && (session == nullptr || update.session != session->slot)) return &core.sessions.At(update.session);
  }
  return nullptr;
}

bool HasUnfinishedSwap(const Core& core, TensorSlot slot, const SessionState& session) {
  if (!core.tensors[slot].has(kSwapping)) return false;
  const UpdateSlot own = core.updates.Find(slot, session.slot);
  return own != kNoUpdate && core.updates[own].swapping();
}

void CaptureUpdate(Core& core, const SessionState& session, TensorSlot slot, uint64_t commit) {
  const UpdateSlot own = core.updates.Find(slot, session.slot);
  if (own != kNoUpdate) core.updates.SetCommit(own, commit);
}

void EndCaptured(Core& core, TensorSlot slot, uint64_t commit) {
  for (UpdateSlot each = core.updates.FirstOf(slot); each != kNoUpdate;) {
    const UpdateSlot next = core.updates[each].next_of_tensor;
    if (core.updates[each].open && core.updates[each].commit == commit) core.updates.EndChanged(each);
    each = next;
  }
}

bool UpdatedByOthers(const Core& core, TensorSlot slot, const SessionState& session) {
  for (UpdateSlot each = core.updates.FirstOf(slot); each != kNoUpdate; each = core.updates[each].next_of_tensor) {
    const Update& update = core.updates[each];
    if (update.open && update.session != session.slot && !update.changed.empty()) return true;
  }
  return false;
}

}  // namespace tier::tiering
