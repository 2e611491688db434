// See releases.h.
#include "daemon/tiering/requests/releases.h"

#include <optional>

#include <fmt/format.h>

#include "daemon/tiering/leases/abandon.h"
#include "daemon/tiering/leases/grants.h"
#include "daemon/tiering/leases/updates.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

using proto::RequestItem;

constexpr uint32_t kRetireCost = 4;  // Its place among the retired is sought.

// A piece that another lease is on is used once more, when that ends.
void RetirePieces(Tables& tables, const Lease& lease) {
  const Tensor& tensor = tables.tensors[lease.tensor];
  for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
    const PieceId id = tables.tensors.PieceOf(tensor, k);
    if (id != kNoPiece) Retire(tables, id);
  }
}

// False: it sealed a tensor that another request had freed or replaced meanwhile, and its bytes are gone. (Not so for a
// creation: only its own session can have given it up.)
bool ReleaseOne(Tables& tables, LeaseIndex index, uint32_t flags, const SwapPart& part) {
  const Lease lease = tables.leases[index];
  const TensorRef tensor = tables.RefOf(lease.tensor);
  const bool attached = !tables.tensors[tensor.index].has(kDetached);
  const bool exclusive = tables.leases[index].exclusive();
  const bool rewrites = exclusive && tables.tensors[tensor.index].has(kVisible);
  if ((flags & proto::kFlagUntouched) != 0 && exclusive) {
    CancelGrant(tables, index);
  } else if ((flags & proto::kFlagAbandon) != 0 && exclusive) {
    Abandon(tables, index);
  } else {
    Release(tables, index, part);
  }
  if ((flags & proto::kFlagEvictFirst) != 0 && attached && tables.Alive(tensor)) RetirePieces(tables, lease);
  if ((flags & proto::kFlagFreeAfter) != 0 && attached && tables.Alive(tensor)) Detach(tables, tensor.index);
  return attached || !rewrites || (flags & (proto::kFlagAbandon | proto::kFlagUntouched | proto::kFlagFreeAfter)) != 0;
}

// Whatever is wrong with it, the lease ends. `index`: the one that the item names.
std::optional<Refusal> ReleaseItem(Tables& tables, LeaseIndex index, const RequestItem& item, uint32_t flags) {
  if (index == kNoLease) {
    return Refusal{
        Code::kStale,
        fmt::format("lease {:#x} is not one this session holds: it ended, or belongs to another epoch", item.value),
        {.tensor = item.tensor}};
  }
  SwapPart part;
  const bool of_swap = item.length != 0 || item.offset != 0 || (flags & proto::kFlagMore) != 0;
  if (!of_swap && flags == 0 && !tables.leases[index].exclusive()) {
    Release(tables, index, part);
    return std::nullopt;
  }
  const uint64_t tensor = tables.tensors[tables.leases[index].tensor].id;
  std::optional<Refusal> wrong;
  if (of_swap) {
    tables.work.Charge(tables.updates.SwapsOf(tables.leases[index].tensor));
    wrong = ReadSwapPart(tables, index, item, flags, &part);
  }
  if (ReleaseOne(tables, index, flags, part)) return wrong;
  return Refusal{
      Code::kStale,
      fmt::format("tensor {:#x} was freed or replaced while it was being written: what was written is gone with it",
                  tensor),
      {.tensor = tensor}};
}

struct Releasing {
  std::span<const RequestItem> items;
  uint32_t flags = 0;
  bool all = false;  // However much it is.
};
Released ReleaseItems(Tables& tables, SessionState& session, const Releasing& releasing, ReleaseWait* wait) {
  uint32_t done = 0;
  for (; wait->next < releasing.items.size(); ++wait->next) {
    if (!releasing.all && !session.ending() && done++ == kItemsPerTurnMax) return Released::kPart;
    const RequestItem& item = releasing.items[wait->next];
    const LeaseIndex index = tables.leases.Find(item.value, session.index);
    const uint32_t each = (releasing.flags & proto::kFlagEvictFirst) != 0 ? 1 + kRetireCost : 1;
    const uint32_t cost = 1 + (index == kNoLease ? 0 : tables.leases[index].piece_count * each);
    if (releasing.all) {
      tables.work.Charge(cost);
    } else if (!tables.work.TrySpend(cost)) {
      return Released::kNoWork;
    }
    std::optional<Refusal> wrong = ReleaseItem(tables, index, item, releasing.flags);
    if (!wrong || wait->refusal) continue;
    wait->refused_item = wait->next;
    wait->refusal = std::move(wrong);
  }
  return Released::kAll;
}

Outcome OutcomeOf(ReleaseWait& wait) {
  return wait.refusal ? Refused(*std::move(wait.refusal), wait.refused_item) : Finished(0);
}

}  // namespace

Released ReleaseMore(Tables& tables, SessionState& session, std::span<const RequestItem> items, uint32_t flags,
                     ReleaseWait* wait) {
  return ReleaseItems(tables, session, {items, flags, false}, wait);
}

Outcome AdvanceRelease(Tables& tables, Waiter& waiter) {
  ReleaseWait& wait = std::get<ReleaseWait>(waiter.kind);
  switch (ReleaseMore(tables, tables.AskerOf(waiter), wait.items, waiter.flags, &wait)) {
    case Released::kPart: return tables.PutOff(waiter);
    case Released::kNoWork: return tables.WaitForNextTurn(waiter);
    case Released::kAll: break;
  }
  return OutcomeOf(wait);
}

Outcome FinishRelease(Tables& tables, Waiter& waiter) {
  ReleaseWait& wait = std::get<ReleaseWait>(waiter.kind);
  ReleaseItems(tables, tables.AskerOf(waiter), {wait.items, waiter.flags, true}, &wait);
  return OutcomeOf(wait);
}

}  // namespace tier::tiering
