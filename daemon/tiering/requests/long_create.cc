// See long_create.h.
#include "daemon/tiering/requests/long_create.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/tiering/leases/abandon.h"
#include "daemon/tiering/leases/conflicts.h"
#include "daemon/tiering/leases/grants.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/requests/creation.h"
#include "daemon/tiering/requests/need.h"
#include "daemon/tiering/requests/resolve.h"

namespace tier::tiering {
namespace {

using proto::RequestItem;

uint32_t CostOfItems(std::span<const RequestItem> items) {
  uint32_t cost = 0;
  for (const RequestItem& asked : items) {
    WaitItem item;
    TIER_CHECK(SetRange(asked, asked.value, &item), "a range of tensor {} was not checked", asked.tensor);
    cost += 1 + item.piece_count;
  }
  return cost;
}

std::span<const RequestItem> NextPart(const CreateWait& wait) {
  const auto left = std::span(wait.items).subspan(wait.next);
  return left.first(std::min<size_t>(left.size(), kItemsPerTurnMax));
}

// Fills tables.scratch.items. What others have asked meanwhile may have left too little.
std::optional<RefusedItem> CheckPart(Tables& tables, SessionState& session, std::span<const RequestItem> part,
                                     uint64_t record_bytes) {
  if (tables.drain.draining()) return RefusedItem{{Code::kDisconnected, tables.drain.reason(), {}}};
  if (auto wrong = CheckNewTensors(tables, *session.job, {.items = part})) return wrong;
  auto refusal = tables.metadata.Check(session, MetadataOf(part) + record_bytes, false);
  return refusal ? std::optional(RefusedItem{*std::move(refusal)}) : std::nullopt;
}

// It waits for room as a request does that one turn can make. REQUIRES: nothing of it is granted.
Outcome WaitForAll(Tables& tables, SessionState& session, Waiter& waiter) {
  const std::vector<RequestItem> items = std::move(std::get<CreateWait>(waiter.kind).items);
  const uint32_t work_cost = 1 + CostOfItems(items) - static_cast<uint32_t>(items.size());
  auto wrong = CheckPart(tables, session, items, items.size() * sizeof(WaitItem) + work_cost * kAwaitedPieceCost);
  if (!wrong) wrong = AddTensors(tables, session, waiter.flags, items);
  if (wrong) return Refused(std::move(wrong->refusal), wrong->item);
  session.requests.LetNextPass();
  waiter.items = tables.scratch.items;
  waiter.grant_cost = GrantCost(tables, AskOf(tables, waiter));
  waiter.work_cost = work_cost;
  waiter.kind = LeaseWait{.write_failures = waiter.job->failures.count()};
  WaitTable::Recharge(waiter);
  tables.waits.RestoreDeadline(waiter.number);
  return tables.PutOff(waiter);
}

// Of its leases, of which no client has been told: kItemsPerTurnMax in a turn. Behind the last one it is refused, or
// waits for all of its room from the next turn on, which has the work for that.
Outcome TakeBack(Tables& tables, SessionState& session, Waiter& waiter) {
  CreateWait& wait = std::get<CreateWait>(waiter.kind);
  for (uint32_t i = 0; i < kItemsPerTurnMax && !wait.spans.empty(); ++i) {
    const uint64_t id = wait.spans.back().lease;
    while (!wait.spans.empty() && wait.spans.back().lease == id) wait.spans.pop_back();
    const LeaseIndex lease = tables.leases.Find(id, session.index);
    if (lease == kNoLease) continue;
    tables.work.Charge(1 + tables.leases[lease].piece_count);
    CancelGrant(tables, lease);
  }
  if (wait.spans.empty() && wait.refusal) return Refused(*std::move(wait.refusal), wait.refused_item);
  waiter.work_cost = wait.spans.empty() ? CostOfItems(wait.items) : 1;
  return tables.PutOff(waiter);
}

Outcome ComesToNothing(Tables& tables, SessionState& session, Waiter& waiter, std::optional<RefusedItem> why) {
  CreateWait& wait = std::get<CreateWait>(waiter.kind);
  wait.taken_back = true;
  if (why) {
    wait.refused_item = wait.next + why->item;
    wait.refusal = std::move(why->refusal);
  }
  return TakeBack(tables, session, waiter);
}

}  // namespace

uint32_t CostOfPart(const CreateWait& wait) { return CostOfItems(NextPart(wait)); }

Outcome AdvanceCreate(Tables& tables, Waiter& waiter) {
  CreateWait& wait = std::get<CreateWait>(waiter.kind);
  SessionState& session = tables.AskerOf(waiter);
  if (wait.taken_back) {
    return wait.spans.empty() ? WaitForAll(tables, session, waiter) : TakeBack(tables, session, waiter);
  }
  const auto part = NextPart(wait);
  std::optional<RefusedItem> wrong = CheckPart(tables, session, part, 0);
  if (!wrong) wrong = AddTensors(tables, session, waiter.flags, part);
  if (wrong) return ComesToNothing(tables, session, waiter, std::move(wrong));
  Ask ask = AskOf(tables, waiter);
  ask.items = tables.scratch.items;
  if (!TryReserveNow(tables, ask)) {
    ReleaseUnused(tables, ask);
    DetachAll(tables, *session.job, ask.items);
    return ComesToNothing(tables, session, waiter, std::nullopt);
  }
  GrantPart(tables, ask, wait.next, &wait.spans);
  wait.next += static_cast<uint32_t>(part.size());
  if (wait.next == wait.items.size()) {
    AnswerParts(tables, session, waiter.sequence, wait.spans);
    return AnsweredAlready();
  }
  waiter.work_cost = CostOfPart(wait);
  return tables.PutOff(waiter);
}

}  // namespace tier::tiering
