// See enumeration.h.
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
bool ToBeFlushed(const Tables& tables, const Tensor& tensor, bool unnamed_items) {
  if (tensor.piece_count > kLookedThroughMax) return true;
  bool dirty = false;
  for (uint32_t k = 0; k < tensor.piece_count; ++k) {
    const Piece& piece = tables.PieceOf(tensor, k);
    if (piece.activity == Activity::kLeasedWrite && unnamed_items) return false;
    dirty |= !piece.on_ssd();
  }
  return dirty;
}

void List(const Tables& tables, Waiter& waiter, TensorIndex index) {
  const Tensor& tensor = tables.tensors[index];
  waiter.items.push_back({.tensor = {index, tensor.salt}, .piece_count = tensor.piece_count, .length = tensor.size});
  waiter.requested_bytes += tensor.size;
}

TensorIndex HeadOf(const SessionState& session, Enumeration enumeration) {
  switch (enumeration) {
    case Enumeration::kOwn: return session.record.tensors;
    case Enumeration::kInherited: return session.job->record.inherited_tensors;
    case Enumeration::kShared: return session.job->record.shared_tensors;
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

// A persist means all tensors of the job: those of each session, one after the other, and then the others.
void ListNextSession(SessionState& session, Listing* listing) {
  const SessionState* const next = session.job->sessions.NextAfter(listing->session);
  if (next == nullptr) {
    listing->stage = Enumeration::kInherited;
    session.listing.MoveTo(session.job->record.inherited_tensors);
  } else {
    listing->session = next->id;
    session.listing.MoveTo(next->record.tensors);
  }
}

void BeginForPersist(SessionState& session, Listing* listing) {
  listing->stage = Enumeration::kOwn;
  listing->session = SessionId{};
  ListNextSession(session, listing);
}

void Begin(SessionState& session, Waiter& waiter, Listing* listing) {
  const bool shared = (waiter.flags & proto::kFlagShared) != 0;
  session.listing.Start(waiter.number);
  listing->stage = shared ? Enumeration::kShared : Enumeration::kOwn;
  session.listing.MoveTo(HeadOf(session, listing->stage));
  if (waiter.op == Op::kPersist) BeginForPersist(session, listing);
  if (waiter.op != Op::kDrop)
    waiter.items.reserve(std::min<size_t>(session.job->record.counters.tensor_count, kFlushTensorsMax));
}

// A namespace is at its end: on to what goes by the same names, and for a flush to what the job shares.
void EndNamespace(SessionState& session, const Waiter& waiter, Listing* listing) {
  if (waiter.op == Op::kPersist && listing->stage == Enumeration::kOwn) return ListNextSession(session, listing);
  const bool flush = waiter.op != Op::kDrop;
  switch (listing->stage) {
    case Enumeration::kOwn: listing->stage = Enumeration::kInherited; break;
    case Enumeration::kInherited: listing->stage = flush ? Enumeration::kShared : Enumeration::kWhole; break;
    default: listing->stage = Enumeration::kWhole;
  }
  session.listing.MoveTo(HeadOf(session, listing->stage));
  if (waiter.op != Op::kFlush || listing->first_unnamed != kAllNamed || !OfOthersToo(session, listing->stage)) return;
  listing->first_unnamed = static_cast<uint32_t>(waiter.items.size());
}

// What is left of its namespace is being freed.
bool OfSessionThatIsGone(const Tables& tables, const Tensor& tensor) {
  return tensor.space != 0 && tensor.space != kInheritedSpace &&
         tables.sessions.Find(SessionId{tensor.space}) == nullptr;
}

// As far as the turn's work reaches. True: there is something to work on.
bool GoOn(Tables& tables, SessionState& session, Waiter& waiter, Listing* listing) {
  const size_t most = waiter.op == Op::kDrop ? kDropPartMax : kFlushTensorsMax + 1;
  while (listing->stage != Enumeration::kWhole && waiter.items.size() < most) {
    const TensorIndex index = session.listing.cursor();
    if (index == kNoTensor) {
      if (!tables.work.TrySpend()) return false;
      EndNamespace(session, waiter, listing);
      continue;
    }
    const Tensor& tensor = tables.tensors[index];
    if (!tables.work.TrySpend(ListingCost(waiter, tensor))) return false;
    if (waiter.op == Op::kPersist && OfSessionThatIsGone(tables, tensor)) {
      session.listing.MoveTo(kNoTensor);
      continue;
    }
    const bool unnamed_items = listing->first_unnamed != kAllNamed;
    const bool meant = tensor.has(kVisible) && !(waiter.op == Op::kPersist && tensor.has(kTransient));
    if (meant && (waiter.op != Op::kFlush || ToBeFlushed(tables, tensor, unnamed_items))) {
      List(tables, waiter, index);
    }
    session.listing.MoveTo(tensor.next);
  }
  return true;
}

// Its list has grown at the user's cost.
std::optional<Refusal> ChargeList(Tables& tables, const SessionState& session, Waiter& waiter) {
  const uint64_t charged = waiter.charge.bytes();
  tables.waits.Recharge(waiter);
  if (waiter.charge.bytes() <= charged) return std::nullopt;
  return tables.metadata.Check(session, 0, true);
}

}  // namespace

Outcome Enumerate(Tables& tables, Waiter& waiter, Listing* listing) {
  if (listing->stage == Enumeration::kWhole) return Ready();
  SessionState& session = tables.AskerOf(waiter);
  if (session.listing.waiter() == 0) Begin(session, waiter, listing);
  if (session.listing.waiter() != waiter.number) {
    tables.waits.WaitToList(waiter.number);
    return Waits();
  }
  const bool listed = GoOn(tables, session, waiter, listing);
  if (std::optional<Refusal> refusal = ChargeList(tables, session, waiter)) return Refused(*std::move(refusal), 0);
  if (!listed) return tables.WaitForNextTurn(waiter);
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

void EndEnumeration(Tables& tables, SessionState& session, const Waiter& waiter) {
  if (session.listing.waiter() != waiter.number) return;
  session.listing.End();
  tables.waits.OnListed(session.index);
}

}  // namespace tier::tiering
