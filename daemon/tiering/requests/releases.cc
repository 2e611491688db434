// See releases.h.
#include "daemon/tiering/requests/releases.h"

#include <optional>

#include <fmt/format.h>

#include "daemon/tiering/leases/abandon.h"
#include "daemon/tiering/leases/grants.h"
#include "daemon/tiering/leases/updates.h"
#include "daemon/tiering/pieces/catalog.h"

namespace tier::tiering {
namespace {

using proto::RequestItem;

// False: it sealed what another request had freed or replaced meanwhile, and its bytes are gone. (A creation is nobody
// else's: its own session gave it up.)
bool ReleaseOne(Core& core, LeaseSlot slot, uint32_t flags, const SwapPart& part) {
  const TensorRef tensor = core.RefOf(core.leases[slot].tensor);
  const bool attached = !core.tensors[tensor.slot].has(kDetached);
  const bool exclusive = core.leases[slot].exclusive();
  const bool rewrites = exclusive && core.tensors[tensor.slot].has(kVisible);
  if ((flags & proto::kFlagUntouched) != 0 && exclusive) {
    CancelGrant(core, slot);
  } else if ((flags & proto::kFlagAbandon) != 0 && exclusive) {
    Abandon(core, slot);
  } else {
    Release(core, slot, part);
  }
  if ((flags & proto::kFlagFreeAfter) != 0 && attached && core.Alive(tensor)) Detach(core, tensor.slot);
  return attached || !rewrites || (flags & (proto::kFlagAbandon | proto::kFlagUntouched | proto::kFlagFreeAfter)) != 0;
}

// Whatever is wrong with it, the lease ends.
std::optional<Refusal> ReleaseItem(Core& core, SessionState& session, const RequestItem& item, uint32_t flags) {
  const LeaseSlot slot = core.leases.Find(item.value, session.slot);
  if (slot == kNoLease) {
    return Refusal{
        Code::kStale,
        fmt::format("lease {:#x} is not one this session holds: it ended, or belongs to another epoch", item.value),
        {.tensor = item.tensor}};
  }
  const uint64_t tensor = core.tensors[core.leases[slot].tensor].id;
  SwapPart part;
  std::optional<Refusal> wrong = ReadSwapPart(core, slot, item, flags, &part);
  if (ReleaseOne(core, slot, flags, part)) return wrong;
  return Refusal{
      Code::kStale,
      fmt::format("tensor {:#x} was freed or replaced while it was being written: what was written is gone with it",
                  tensor),
      {.tensor = tensor}};
}

void ReleaseNext(Core& core, SessionState& session, const RequestItem& item, uint32_t flags, ReleaseWait* wait) {
  std::optional<Refusal> wrong = ReleaseItem(core, session, item, flags);
  if (!wrong || wait->refusal) return;
  wait->refused_item = wait->next;
  wait->refusal = std::move(wrong);
}

Outcome OutcomeOf(ReleaseWait& wait) {
  return wait.refusal ? Refused(*std::move(wait.refusal), wait.refused_item) : Finished(0);
}

}  // namespace

bool ReleaseMore(Core& core, SessionState& session, std::span<const RequestItem> items, uint32_t flags,
                 ReleaseWait* wait) {
  for (; wait->next < items.size(); ++wait->next) {
    const LeaseSlot slot = core.leases.Find(items[wait->next].value, session.slot);
    if (!core.work.TrySpend(slot == kNoLease ? 1 : core.leases[slot].piece_count + 1)) return false;
    ReleaseNext(core, session, items[wait->next], flags, wait);
  }
  return true;
}

Outcome AdvanceRelease(Core& core, Waiter& waiter) {
  ReleaseWait& wait = std::get<ReleaseWait>(waiter.kind);
  if (!ReleaseMore(core, core.AskerOf(waiter), wait.items, waiter.flags, &wait)) return core.WaitForNextTurn(waiter);
  return OutcomeOf(wait);
}

Outcome FinishRelease(Core& core, Waiter& waiter) {
  ReleaseWait& wait = std::get<ReleaseWait>(waiter.kind);
  for (; wait.next < wait.items.size(); ++wait.next) {
    core.work.Charge(1);
    ReleaseNext(core, core.AskerOf(waiter), wait.items[wait.next], waiter.flags, &wait);
  }
  return OutcomeOf(wait);
}

}  // namespace tier::tiering
