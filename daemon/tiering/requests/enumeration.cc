// See everything.h.
#include "daemon/tiering/requests/enumeration.h"

#include <algorithm>

#include <fmt/format.h>

#include "daemon/tiering/pieces/catalog.h"

namespace tier::tiering {
namespace {

using proto::Op;

constexpr uint32_t kLookedThroughMax = 512;  // Pieces of a tensor, while it is listed for a flush.

uint32_t ListingCost(const Waiter& waiter, const Tensor& tensor) {
  const bool looked_through = waiter.op == Op::kFlush && tensor.piece_count <= kLookedThroughMax;
  return 1 + (looked_through ? tensor.piece_count : 0);
}

// Whether a flush has to do with it: something of it is not on SSD. Unasked for, what others write is not waited for.
// The pieces of a large tensor are gone through by the flush alone.
bool ToBeFlushed(const Core& core, const Tensor& tensor, bool unnamed_items) {
  if (tensor.piece_count > kLookedThroughMax) return true;
  bool dirty = false;
  for (uint32_t k = 0; k < tensor.piece_count; ++k) {
    const Piece& piece = core.PieceOf(tensor, k);
    const bool writing = piece.activity == Activity::kLeasedWrite;
    if (writing && unnamed_items) return false;
    dirty |= writing || !piece.ssd_run;
  }
  return dirty;
}

void List(const Core& core, Waiter& waiter, TensorSlot slot) {
  const Tensor& tensor = core.tensors[slot];
  waiter.items.push_back({.tensor = {slot, tensor.salt}, .piece_count = tensor.piece_count, .length = tensor.size});
  waiter.requested_bytes += tensor.size;
}

void ListAll(Core& core, Waiter& waiter, TensorSlot head) {
  for (TensorSlot slot = head; slot != kNoTensor; slot = core.tensors[slot].next) {
    core.work.Charge(1);
    if (core.tensors[slot].has(kVisible)) List(core, waiter, slot);
  }
}

// In one go: a manifest is a picture of one moment, and names every piece at once anyway.
void EnumerateForPersist(Core& core, Waiter& waiter, Listing* listing) {
  const JobState& job = *waiter.job;
  for (const SessionState* session : job.sessions) ListAll(core, waiter, session->tensors);
  ListAll(core, waiter, job.shared_tensors);
  ListAll(core, waiter, job.inherited_tensors);
  listing->stage = Enumeration::kWhole;
}

TensorSlot HeadOf(const SessionState& session, Enumeration enumeration) {
  switch (enumeration) {
    case Enumeration::kOwn: return session.tensors;
    case Enumeration::kInherited: return session.job->inherited_tensors;
    case Enumeration::kShared: return session.job->shared_tensors;
    case Enumeration::kWhole: break;
  }
  return kNoTensor;
}

// Whether what is in there is others' as much as the caller's. The daemon asks for all of the job.
bool OfOthersToo(const SessionState& session, Enumeration enumeration) {
  if (session.id == kInternalSession) return false;
  return enumeration == Enumeration::kShared ||
         (enumeration == Enumeration::kInherited && session.job->sessions.size() > 1);
}

void Begin(SessionState& session, const Waiter& waiter, Listing* listing) {
  const bool shared = (waiter.flags & proto::kFlagShared) != 0;
  session.enumerating = waiter.number;
  listing->stage = shared ? Enumeration::kShared : Enumeration::kOwn;
  SetEnumerationCursor(session, HeadOf(session, listing->stage));
}

// A namespace is at its end: on to what goes by the same names, and for a flush to what the job shares.
void EndNamespace(SessionState& session, const Waiter& waiter, Listing* listing) {
  const bool flush = waiter.op == Op::kFlush;
  switch (listing->stage) {
    case Enumeration::kOwn: listing->stage = Enumeration::kInherited; break;
    case Enumeration::kInherited: listing->stage = flush ? Enumeration::kShared : Enumeration::kWhole; break;
    default: listing->stage = Enumeration::kWhole;
  }
  SetEnumerationCursor(session, HeadOf(session, listing->stage));
  if (!flush || listing->first_unnamed != kAllNamed || !OfOthersToo(session, listing->stage)) return;
  listing->first_unnamed = static_cast<uint32_t>(waiter.items.size());
}

// As far as the looks reach. True: there is something to work on.
bool GoOn(Core& core, SessionState& session, Waiter& waiter, Listing* listing) {
  const size_t most = waiter.op == Op::kDrop ? kDropPartMax : kFlushTensorsMax + 1;
  while (listing->stage != Enumeration::kWhole && waiter.items.size() < most) {
    const TensorSlot slot = session.cursor;
    if (slot == kNoTensor) {
      EndNamespace(session, waiter, listing);
      continue;
    }
    const Tensor& tensor = core.tensors[slot];
    if (!core.work.TrySpend(ListingCost(waiter, tensor))) return false;
    const bool unnamed_items = listing->first_unnamed != kAllNamed;
    if (tensor.has(kVisible) && (waiter.op != Op::kFlush || ToBeFlushed(core, tensor, unnamed_items))) {
      List(core, waiter, slot);
    }
    SetEnumerationCursor(session, tensor.next);
  }
  return true;
}

}  // namespace

Outcome Enumerate(Core& core, Waiter& waiter, Listing* listing) {
  if (listing->stage == Enumeration::kWhole) return Ready();
  SessionState& session = core.AskerOf(waiter);
  if (session.enumerating == 0) Begin(session, waiter, listing);
  if (session.enumerating != waiter.number) {
    core.waits.WaitToList(waiter.number);
    return Waits();
  }
  const bool persist = waiter.op == Op::kPersist;
  if (core.work.exhausted() || !(persist || GoOn(core, session, waiter, listing))) return core.WaitForNextTurn(waiter);
  if (persist) EnumerateForPersist(core, waiter, listing);
  if (waiter.op == Op::kDrop || waiter.items.size() <= kFlushTensorsMax) return Ready();
  return Refused({Code::kInvalid,
                  fmt::format("more than {} tensors in one request: name them, some at a time", kFlushTensorsMax),
                  {.limit = kFlushTensorsMax}},
                 0);
}

bool EnumerateNextPart(Waiter& waiter, ScanWait* scan) {
  if (scan->listing.stage == Enumeration::kWhole) return false;
  waiter.items.clear();
  scan->scan.item = 0;
  scan->scan.piece = 0;
  return true;
}

void EndEnumeration(Core& core, SessionState& session, const Waiter& waiter) {
  if (session.enumerating != waiter.number) return;
  session.enumerating = 0;
  SetEnumerationCursor(session, kNoTensor);
  core.waits.OnListed(session.slot);
}

}  // namespace tier::tiering
