// See updates.h.
#include "daemon/tiering/leases/updates.h"

#include <fmt/format.h>

#include "daemon/tiering/pieces/catalog.h"

namespace tier::tiering {
namespace {

// Charges what was looked at since `before`.
void ChargeVisits(Tables& tables, uint64_t before) {
  tables.work.Charge(static_cast<uint32_t>(tables.updates.visits() - before));
}

PieceRange PiecesOf(const Lease& lease) { return {lease.first_piece, lease.piece_count}; }

// Those of which the lease has every byte.
PieceRange WholePiecesOf(const Lease& lease, const Tensor& tensor) {
  const uint64_t end = lease.offset + lease.length;
  const auto first = static_cast<uint32_t>((lease.offset + kBlockSize - 1) / kBlockSize);
  const auto last = end == tensor.size ? tensor.piece_count : static_cast<uint32_t>(end / kBlockSize);
  return {first, last > first ? last - first : 0};
}

std::optional<Refusal> RangeRefusal(const Tables& tables, const Lease& lease, const proto::RequestItem& item) {
  const Tensor& tensor = tables.tensors[lease.tensor];
  return Refusal{Code::kInvalid,
                 fmt::format("a lease of bytes {} + {} of tensor {:#x} is no part of a swap_out of {} + {}",
                             lease.offset, lease.length, tensor.id, item.offset, item.length),
                 {.tensor = tensor.id, .requested = item.offset, .available = item.length, .limit = tensor.size}};
}

// Why the session cannot leave a swap_out of that range unfinished now.
std::optional<Refusal> UnfinishedRefusal(const Tables& tables, const Lease& lease, PieceRange range) {
  const Tensor& tensor = tables.tensors[lease.tensor];
  const UpdateIndex own = tables.updates.Find(lease.tensor, lease.session);
  const bool unfinished = own != kNoUpdate && tables.updates[own].swapping();
  if (unfinished && tables.updates[own].swap != range) {
    return Refusal{Code::kInvalid,
                   fmt::format("the session has an unfinished swap_out over pieces {} + {} of tensor {:#x}: it cannot "
                               "begin one over {} + {} before that has ended",
                               tables.updates[own].swap.first, tables.updates[own].swap.count, tensor.id, range.first,
                               range.count),
                   {.tensor = tensor.id, .limit = tensor.size}};
  }
  const SessionState& session = tables.sessions.At(lease.session);
  const SessionState* const other = LiveSwapperOf(tables, lease.tensor, range, session);
  if (other != nullptr) {
    return Refusal{Code::kWouldDeadlock,
                   fmt::format("session {} has an unfinished swap_out over tensor {:#x}: it writes the pieces of this "
                               "one last; begin again when that has ended",
                               static_cast<uint64_t>(other->id), tensor.id),
                   {.tensor = tensor.id, .limit = tensor.size}};
  }
  const uint32_t most = tables.options.unfinished_swaps_per_session_max;
  if (unfinished || tables.updates.swap_count(lease.session) < most) return std::nullopt;
  return Refusal{Code::kInvalid,
                 fmt::format("the session has unfinished swap_outs over {} tensors, at most that many", most),
                 {.tensor = tensor.id, .limit = most}};
}

// Notes which step of the session has written the bytes of the lease; they stay in its shard until another session
// seals them.
void NoteShard(Tables& tables, const Lease& lease) {
  const uint64_t number = tables.sessions.At(lease.session).record.step;
  const UpdateIndex index = tables.updates.Open(lease.tensor, lease.session);
  const uint64_t before = tables.updates.visits();
  tables.updates.AddToShard(index, number, {lease.offset, lease.offset + lease.length});
  ChargeVisits(tables, before);
}

void NoteChanged(Tables& tables, const Lease& lease) {
  const uint32_t piece_count = tables.tensors[lease.tensor].piece_count;
  UpdateIndex index = tables.updates.Find(lease.tensor, lease.session);
  if (lease.piece_count == piece_count && index == kNoUpdate) return;
  if (index == kNoUpdate) index = tables.updates.Open(lease.tensor, lease.session);
  tables.updates.AddChanged(index, PiecesOf(lease));
  // All of it was changed: what comes next is another update.
  if (tables.updates[index].changed.count == piece_count) tables.updates.EndChanged(index);
}

void NoteSwapped(Tables& tables, const Lease& lease, const SwapPart& part) {
  if (part.more) {
    const UpdateIndex index = tables.updates.Open(lease.tensor, lease.session);
    tables.updates.AddSwapped(index, part.range, PiecesOf(lease));
    tables.waits.OnTensorChanged(lease.tensor);  // Its own requests pass claims now.
    return;
  }
  const UpdateIndex index = tables.updates.Find(lease.tensor, lease.session);
  if (index == kNoUpdate || tables.updates[index].swap != part.range) return;  // It had one range.
  tables.updates.AddSwapped(index, part.range, PiecesOf(lease));
  if (part.whole && tables.updates[index].swapped.count == tables.tensors[lease.tensor].piece_count) {
    EndUpdates(tables, lease.tensor);
  } else {
    tables.updates.EndSwap(index);
  }
  tables.waits.OnTensorChanged(lease.tensor);
}

bool SwapsAnyOf(const Update& update, PieceRange pieces) { return update.swapping() && update.swap.Overlaps(pieces); }

// Whose update it is; null: there is none.
const SessionState* UpdaterOf(const Tables& tables, UpdateIndex index) {
  return index == kNoUpdate ? nullptr : &tables.sessions.At(tables.updates[index].session);
}

// What has to be rewritten when the session does not finish the update. Empty: what it changed was of an earlier step.
PieceRange UnfinishedOf(const Tables& tables, UpdateIndex index) {
  const Update& update = tables.updates[index];
  const TensorIndex tensor = tables.updates.TensorOf(index);
  return tables.updates.HasChanged(index) ? PieceRange{0, tables.tensors[tensor].piece_count} : update.swap;
}

// The session has ended. Its shard stays, in step with all others or torn with them.
void Break(Tables& tables, UpdateIndex index) {
  const TensorIndex tensor = tables.updates.TensorOf(index);
  const bool mixed = tables.updates.HasShard(index) && !tables.updates.InStep(tensor);
  const PieceRange torn = mixed ? PieceRange{0, tables.tensors[tensor].piece_count} : UnfinishedOf(tables, index);
  if (mixed) {
    tables.updates.Remove(index);
  } else {
    tables.updates.Leave(index);
  }
  if (!torn.empty()) MarkTorn(tables, tensor, torn);
}

// `pay` for each of them. False: it could not.
template <typename Pay>
bool BreakEndingOf(Tables& tables, TensorIndex index, Pay pay) {
  if (!tables.updates.any_ending()) return true;
  const uint64_t before = tables.updates.visits();
  bool all = true;
  tables.updates.VisitEnding(index, [&](UpdateIndex each) {
    all = pay();
    if (all) Break(tables, each);
    return all;
  });
  ChargeVisits(tables, before);
  return all;
}

}  // namespace

std::optional<Refusal> ReadSwapPart(const Tables& tables, LeaseIndex index, const proto::RequestItem& item,
                                    uint32_t flags, SwapPart* part) {
  const Lease& lease = tables.leases[index];
  const Tensor& tensor = tables.tensors[lease.tensor];
  const bool more = (flags & proto::kFlagMore) != 0;
  *part = {};
  WaitItem all;
  const bool covers = item.length != 0 && SetRange(item, tensor.size, &all) && item.offset <= lease.offset &&
                      lease.offset + lease.length <= item.offset + item.length;
  if (!covers || !lease.exclusive()) return RangeRefusal(tables, lease, item);
  if (!tensor.has(kVisible) || tensor.has(kDetached)) return std::nullopt;
  const PieceRange range{all.first_piece, all.piece_count};
  if (more) {
    if (std::optional<Refusal> refusal = UnfinishedRefusal(tables, lease, range)) return refusal;
  }
  *part = {.range = range, .whole = item.length == tensor.size, .more = more};
  return std::nullopt;
}

void NoteSeal(Tables& tables, const Lease& lease, const SwapPart& part) {
  const Tensor& tensor = tables.tensors[lease.tensor];
  if (lease.length == tensor.size && !part.more) return EndUpdates(tables, lease.tensor);
  // Updates of ended sessions are broken first, so that this seal counts as a rewrite of their torn pieces.
  BreakEndingOf(tables, lease.tensor, [&] {
    tables.work.Charge(kEndUpdateCost);
    return true;
  });
  const UpdateIndex broken = tables.updates.FindBroken(lease.tensor);
  if (broken != kNoUpdate && tables.updates.AddRewritten(broken, WholePiecesOf(lease, tensor))) {
    RemoveTear(tables, lease.tensor);
  }
  if (tensor.has(kSharded)) NoteShard(tables, lease);  // First: a record with a shard outlives its update.
  if (part.range.empty()) {
    NoteChanged(tables, lease);
  } else {
    NoteSwapped(tables, lease, part);
  }
}

void EndUpdates(Tables& tables, TensorIndex index) {
  if (!tables.updates.HasAny(index)) return;
  if (tables.updates.FindBroken(index) != kNoUpdate) RemoveTear(tables, index);
  EndAllUpdates(tables, index);
  tables.waits.OnTensorChanged(index);
}

void EndStep(Tables& tables, const SessionState& session) {
  tables.updates.EndStep(session.index);
  SettleEndedSteps(tables);
}

void SettleEndedSteps(Tables& tables) {
  while (tables.updates.any_to_settle() && tables.work.TrySpend(kEndUpdateCost)) tables.updates.SettleOne();
  tables.turn.NoteProgress(tables.updates.any_to_settle());
}

void BreakUpdate(Tables& tables, const SessionState& session, TensorIndex tensor) {
  const UpdateIndex index = tables.updates.Find(tensor, session.index);
  if (index == kNoUpdate) return;
  const PieceRange torn = UnfinishedOf(tables, index);
  tables.updates.EndBoth(index);
  if (!torn.empty()) MarkTorn(tables, tensor, torn);
}

bool BreakUpdates(Tables& tables, const SessionState& session) {
  for (;;) {
    const UpdateIndex index = tables.updates.FirstOfSession(session.index);
    if (index == kNoUpdate) return true;
    if (!tables.work.TrySpend(kEndUpdateCost)) return false;
    const TensorIndex tensor = tables.updates.TensorOf(index);
    // Its own namespace goes with it: no session asks for its tensors any more.
    if (tensor == kNoTensor || tables.tensors[tensor].space == static_cast<uint64_t>(session.id)) {
      tables.updates.Remove(index);
    } else {
      Break(tables, index);
    }
  }
}

bool BreakEnding(Tables& tables, TensorIndex index) {
  return BreakEndingOf(tables, index, [&] { return tables.work.TrySpend(kEndUpdateCost); });
}

void TearRange(Tables& tables, const SessionState& session, const WaitItem& item) {
  const PieceRange range{item.first_piece, item.piece_count};
  const UpdateIndex own = tables.updates.Find(item.tensor.index, session.index);
  if (own != kNoUpdate && tables.updates[own].swapping()) {
    const PieceRange swap = tables.updates[own].swap;
    if (range.first <= swap.first && swap.end() <= range.end()) tables.updates.EndSwap(own);
  }
  MarkTorn(tables, item.tensor.index, range);
}

void MarkTorn(Tables& tables, TensorIndex index, PieceRange pieces) {
  if (tables.updates.AddTorn(index, pieces)) AddTear(tables, index);
  // Nothing remains of what the shards say: only what is sealed from now on counts.
  if (pieces.count == tables.tensors[index].piece_count) tables.updates.ClearShards(index);
  tables.waits.OnTensorChanged(index);
}

const SessionState* LiveSwapperOf(const Tables& tables, TensorIndex index, PieceRange pieces,
                                  const SessionState& session) {
  if (!tables.tensors[index].has(kSwapping)) return nullptr;
  const UpdateIndex found = tables.updates.FindSwapIf(index, [&](UpdateIndex each) {
    const Update& update = tables.updates[each];
    return update.session != session.index && !tables.updates.ending(each) && SwapsAnyOf(update, pieces);
  });
  return UpdaterOf(tables, found);
}

const SessionState* SwapperOf(const Tables& tables, TensorIndex index, PieceRange pieces, const SessionState* session) {
  if (!MayHaveSwapper(tables, index)) return nullptr;
  const auto of_another = [&](UpdateIndex each) {
    return session == nullptr || tables.updates[each].session != session->index;
  };
  UpdateIndex found = tables.updates.FindSwapIf(
      index, [&](UpdateIndex each) { return of_another(each) && SwapsAnyOf(tables.updates[each], pieces); });
  if (found != kNoUpdate || !tables.updates.any_ending()) return UpdaterOf(tables, found);
  const bool mixed = !tables.updates.InStep(index);
  tables.updates.VisitEnding(index, [&](UpdateIndex each) {
    const bool tears = tables.updates.HasChanged(each) || (mixed && tables.updates.HasShard(each));
    if (tears && of_another(each)) found = each;
    return found == kNoUpdate;
  });
  return UpdaterOf(tables, found);
}

bool HasUnfinishedSwap(const Tables& tables, TensorIndex index, const SessionState& session) {
  if (!tables.tensors[index].has(kSwapping)) return false;
  const UpdateIndex own = tables.updates.Find(index, session.index);
  return own != kNoUpdate && tables.updates[own].swapping();
}

void CaptureUpdate(Tables& tables, const SessionState& session, TensorIndex index, uint64_t commit) {
  const UpdateIndex own = tables.updates.Find(index, session.index);
  if (own != kNoUpdate) tables.updates.SetCommit(own, commit);
}

void EndCaptured(Tables& tables, TensorIndex index, uint16_t session, uint64_t commit) {
  const UpdateIndex own = tables.updates.Find(index, session);
  if (own == kNoUpdate || tables.updates[own].commit != commit) return;
  const bool awaited = tables.updates.ending(own);
  tables.updates.EndChanged(own);
  if (awaited) tables.waits.OnTensorChanged(index);
}

bool MixedForOthers(const Tables& tables, TensorIndex index, const SessionState& session) {
  if (!tables.updates.InStep(index)) return true;
  const auto by_another = [&](UpdateIndex each) {
    return tables.updates[each].session != session.index && tables.updates.HasChanged(each);
  };
  return tables.updates.FindIf(index, by_another) != kNoUpdate;
}

}  // namespace tier::tiering
