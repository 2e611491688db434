// See everything.h.
#include "daemon/tiering/requests/listing.h"

#include <algorithm>

#include <fmt/format.h>

#include "daemon/tiering/pieces/catalog.h"

namespace tier::tiering {
namespace {

using proto::Op;

// Whether a flush has to do with it: something of it is not on SSD. Unasked for, what others write is not waited for.
bool ToBeFlushed(const Core& core, const Tensor& tensor, bool unasked) {
  bool dirty = false;
  for (uint32_t k = 0; k < tensor.piece_count; ++k) {
    const Piece& piece = core.PieceOf(tensor, k);
    const bool writing = piece.activity == Activity::kLeasedWrite;
    if (writing && unasked) return false;
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
    core.looks_left -= std::min(core.looks_left, 1u);
    if (core.tensors[slot].has(kVisible)) List(core, waiter, slot);
  }
}

// In one go: a manifest is a picture of one moment, and names every piece at once anyway.
void ListForPersist(Core& core, Waiter& waiter) {
  const JobState& job = *waiter.job;
  for (const SessionState* session : job.sessions) ListAll(core, waiter, session->tensors);
  ListAll(core, waiter, job.shared_tensors);
  ListAll(core, waiter, job.inherited_tensors);
  waiter.listing = Listing::kWhole;
}

TensorSlot HeadOf(const SessionState& session, Listing listing) {
  switch (listing) {
    case Listing::kOwn: return session.tensors;
    case Listing::kInherited: return session.job->inherited_tensors;
    case Listing::kShared: return session.job->shared_tensors;
    case Listing::kWhole: break;
  }
  return kNoTensor;
}

// Whether what is in there is others' as much as the caller's. The daemon asks for all of the job.
bool OfOthersToo(const SessionState& session, Listing listing) {
  if (session.id == kDaemonItself) return false;
  return listing == Listing::kShared || (listing == Listing::kInherited && session.job->sessions.size() > 1);
}

void Begin(SessionState& session, Waiter& waiter) {
  const bool shared = (waiter.flags & proto::kFlagShared) != 0;
  session.everything = waiter.number;
  waiter.listing = shared ? Listing::kShared : Listing::kOwn;
  SetListingCursor(session, HeadOf(session, waiter.listing));
}

// A namespace is at its end: on to what goes by the same names, and for a flush to what the job shares.
void EndNamespace(SessionState& session, Waiter& waiter) {
  const bool flush = waiter.op == Op::kFlush;
  switch (waiter.listing) {
    case Listing::kOwn: waiter.listing = Listing::kInherited; break;
    case Listing::kInherited: waiter.listing = flush ? Listing::kShared : Listing::kWhole; break;
    default: waiter.listing = Listing::kWhole;
  }
  SetListingCursor(session, HeadOf(session, waiter.listing));
  if (!flush || waiter.unasked_from != kAllAsked || !OfOthersToo(session, waiter.listing)) return;
  waiter.unasked_from = static_cast<uint32_t>(waiter.items.size());
}

// As far as the looks reach. True: there is something to work on.
bool GoOn(Core& core, SessionState& session, Waiter& waiter) {
  const size_t most = waiter.op == Op::kDrop ? kDropListMax : kFlushTensorsMax + 1;
  while (waiter.listing != Listing::kWhole && waiter.items.size() < most) {
    const TensorSlot slot = session.cursor;
    if (slot == kNoTensor) {
      EndNamespace(session, waiter);
      continue;
    }
    if (core.looks_left == 0) return false;
    const Tensor& tensor = core.tensors[slot];
    core.looks_left -= waiter.op == Op::kFlush ? std::min(core.looks_left, tensor.piece_count) : 1;
    const bool unasked = waiter.unasked_from != kAllAsked;
    if (tensor.has(kVisible) && (waiter.op != Op::kFlush || ToBeFlushed(core, tensor, unasked))) {
      List(core, waiter, slot);
    }
    SetListingCursor(session, tensor.next);
  }
  return true;
}

}  // namespace

Outcome ListEverything(Core& core, Waiter& waiter) {
  if (waiter.listing == Listing::kWhole) return Ready();
  SessionState& session = core.AskerOf(waiter);
  if (session.everything == 0) Begin(session, waiter);
  if (session.everything != waiter.number) return Waits();  // Its end has the job pumped.
  const bool persist = waiter.op == Op::kPersist;
  if (core.looks_left == 0 || !(persist || GoOn(core, session, waiter))) {
    waiter.job->pump = true;
    core.acted = true;
    return Waits();
  }
  if (persist) ListForPersist(core, waiter);
  if (waiter.op == Op::kDrop || waiter.items.size() <= kFlushTensorsMax) return Ready();
  return Refused({Code::kInvalid,
                  fmt::format("more than {} tensors in one request: name them, some at a time", kFlushTensorsMax),
                  {.limit = kFlushTensorsMax}},
                 0);
}

bool ListNextPart(Waiter& waiter) {
  if (waiter.listing == Listing::kWhole) return false;
  waiter.items.clear();
  waiter.scan.item = 0;
  waiter.scan.piece = 0;
  return true;
}

void EndListing(SessionState& session, const Waiter& waiter) {
  if (session.everything != waiter.number) return;
  session.everything = 0;
  SetListingCursor(session, kNoTensor);
}

}  // namespace tier::tiering
