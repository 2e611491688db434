// See stalls.h.
#include "daemon/tiering/requests/stalls.h"

#include <algorithm>
#include <utility>

namespace tier::tiering {
namespace {

using Lack = WaitTable::Lack;

StallCause CauseAt(const Piece& piece) {
  if (piece.activity == Activity::kReadingIn) return StallCause::kSsdRead;
  if (piece.in_transfer()) return StallCause::kSsdWrite;
  return piece.activity == Activity::kMoving ? StallCause::kRam : StallCause::kLease;
}

StallCause CauseOf(const Tables& tables, const Waiter& waiter, const WaitTable::Standing& standing) {
  const LeaseWait* const lease = std::get_if<LeaseWait>(&waiter.kind);
  if (lease != nullptr && lease->awaits_runs) return StallCause::kRam;
  switch (standing.lack) {
    case Lack::kTurn: return StallCause::kQueue;
    case Lack::kRoom:
    case Lack::kLeases: return StallCause::kRam;  // Leases of whatever tensors hold all that may be leased.
    case Lack::kReads: return StallCause::kSsdRead;
    case Lack::kWrite: return StallCause::kSsdWrite;
    case Lack::kWork: return StallCause::kBudget;
    case Lack::kPlace: break;
  }
  if (!standing.piece) return StallCause::kLease;
  return CauseAt(tables.PieceOf(tables.tensors[standing.tensor], *standing.piece));
}

// The tensor where it stands, or the first that it named.
void NotePlace(const Tables& tables, Waiter& waiter, TensorIndex standing) {
  if (standing != kNoTensor) {
    const Tensor& tensor = tables.tensors[standing];
    return waiter.stall.SetPlace(tensor.id, tensor.space);
  }
  if (waiter.stall.tensor() != 0) return;
  const CreateWait* const create = std::get_if<CreateWait>(&waiter.kind);
  if (create != nullptr && !create->items.empty()) {
    const uint64_t space = (waiter.flags & proto::kFlagShared) != 0 ? 0 : static_cast<uint64_t>(waiter.session);
    return waiter.stall.SetPlace(create->items.front().tensor, space);
  }
  if (waiter.items.empty()) return;
  const WaitItem& first = waiter.items.front();
  if (!tables.Alive(first.tensor)) return waiter.stall.SetPlace(first.id, 0);
  const Tensor& tensor = tables.tensors[first.tensor.index];
  waiter.stall.SetPlace(tensor.id, tensor.space);
}

uint32_t TensorsOf(const Waiter& waiter) {
  const CreateWait* const create = std::get_if<CreateWait>(&waiter.kind);
  return static_cast<uint32_t>(create != nullptr ? create->items.size() : waiter.items.size());
}

Stall StallOf(const Tables& tables, const Waiter& waiter, const StallClock& clock) {
  return {.session = waiter.session,
          .op = waiter.op,
          .tensor = clock.tensor(),
          .space = clock.space(),
          .tensor_count = TensorsOf(waiter),
          .requested_bytes = waiter.requested_bytes,
          .step = tables.AskerOf(waiter).record.step,
          .began = waiter.arrived,
          .waited = clock.total(),
          .parts = clock.parts()};
}

}  // namespace

void NoteWait(Tables& tables, Waiter& waiter) {
  const WaitTable::Standing standing = tables.waits.StandingOf(waiter.number);
  tables.waits.NoteCause(waiter, CauseOf(tables, waiter, standing), tables.turn.now());
  NotePlace(tables, waiter, standing.tensor);
}

void RecordStall(Tables& tables, Waiter& waiter, Code code) {
  if (!waiter.timed) return;  // It ends in the turn in which it came.
  if (tables.turn.now() - waiter.arrived < tables.options.stall_threshold) return;
  waiter.NoteCause(waiter.stall.cause(), tables.turn.now());
  Stall stall = StallOf(tables, waiter, waiter.stall);
  TIER_CHECK(stall.waited == tables.turn.now() - waiter.arrived, "request {} waited for {} ns by its causes",
             waiter.number, stall.waited.count());
  stall.code = code;
  waiter.job->stalls.Add(stall);
}

StallList ListStalls(const Tables& tables, JobId id, base::TimePoint now) {
  StallList list{.stalls = {}, .ended = 0, .threshold = tables.options.stall_threshold};
  const JobState* const job = tables.jobs.Find(id);
  if (job == nullptr) return list;
  const auto add = [&](const Stall& stall) {
    list.stalls.push_back({.stall = stall, .key = job->keys.KeyOf(stall.tensor)});
  };
  for (const uint64_t number : tables.waits.ListJob(*job, kWaitingListedMax)) {
    const Waiter& waiter = *tables.waits.Find(number);
    if (!waiter.timed || now - waiter.arrived < list.threshold || tables.AskerOf(waiter).ending()) continue;
    StallClock clock = waiter.stall;  // Until now, and not longer than this answer.
    clock.Note(clock.cause(), waiter.arrived, std::max(now, tables.turn.now()));
    Stall stall = StallOf(tables, waiter, clock);
    stall.waiting = true;
    add(stall);
  }
  list.ended = job->stalls.ended();
  job->stalls.ForEach(add);
  return list;
}

}  // namespace tier::tiering
