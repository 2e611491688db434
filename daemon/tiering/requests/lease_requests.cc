// See lease_requests.h.
#include "daemon/tiering/requests/lease_requests.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/tiering/leases/grants.h"
#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/requests/answers.h"
#include "daemon/tiering/requests/capacity.h"
#include "daemon/tiering/requests/need.h"
#include "daemon/tiering/requests/refusals.h"
#include "daemon/tiering/requests/releases.h"
#include "daemon/tiering/requests/replace.h"
#include "daemon/tiering/requests/reserve.h"
#include "daemon/tiering/requests/resolve.h"
#include "daemon/tiering/requests/waiting.h"

namespace tier::tiering {
namespace {

using base::FormatBytes;
using proto::RequestItem;

// What an item needs in RAM to be leased: its pieces come and go whole.
uint64_t PagesTouched(const WaitItem& item, uint64_t size) {
  TIER_CHECK(uint64_t{item.first_piece} * kBlockSize < size, "piece {} of {} bytes", item.first_piece, size);
  const uint64_t end = (uint64_t{item.first_piece} + item.piece_count) * kBlockSize;
  return PagesFor(std::min(size, end)) - uint64_t{item.first_piece} * kPagesPerBlock;
}

uint64_t SizeAsked(const Core& core, const Request& request, size_t index) {
  return request.op == proto::Op::kCreate ? request.items[index].value
                                          : core.tensors[core.items[index].tensor.slot].size;
}

// Sorts core.order so that items over the same pieces stand side by side.
void SortItems(Core& core) {
  core.order.resize(core.items.size());
  for (uint32_t i = 0; i < core.order.size(); ++i) core.order[i] = i;
  const auto key = [&](uint32_t i) { return std::pair(Value(core.items[i].tensor.slot), core.items[i].first_piece); };
  std::sort(core.order.begin(), core.order.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
}

// Pages of all pieces that an acquire touches, each counted once; 0 if every one of them is in RAM already.
uint64_t PagesToReserve(Core& core) {
  SortItems(core);
  uint64_t pages = 0;
  bool missing = false;
  TensorSlot slot = kNoTensor;
  uint32_t next = 0;  // Pieces of that tensor below it are counted.
  for (const uint32_t index : core.order) {
    const WaitItem& item = core.items[index];
    const Tensor& tensor = core.tensors[item.tensor.slot];
    if (item.tensor.slot != slot) next = 0;
    slot = item.tensor.slot;
    const uint32_t end = item.first_piece + item.piece_count;
    for (uint32_t k = std::max(next, item.first_piece); k < end; ++k) {
      pages += PagesFor(tensor.piece_length(k));
      missing |= !core.PieceOf(tensor, k).ram;
    }
    next = std::max(next, end);
  }
  return missing ? pages : 0;
}

// More than the job may ever lease at once would only wait for its deadline. What lies in RAM is given beyond the job's
// own limit, but not beyond what others' guarantees leave.
bool CheckShare(Core& core, SessionState& session, const Request& request) {
  uint64_t pages = 0;
  for (size_t i = 0; i < core.items.size(); ++i) pages += PagesTouched(core.items[i], SizeAsked(core, request, i));
  const uint64_t share = AlignUp(core.ledger.LeaseMax(session.job->entitlement), kPageSize);
  if (pages * kPageSize <= share) return true;
  if (request.op != proto::Op::kCreate) pages = PagesToReserve(core);
  if (pages * kPageSize <= share) {
    pages = NewlyHeldPages(core, core.items);
    if (pages <= core.ledger.LeasableBy(session.job->entitlement) / kPageSize) return true;
  }
  Refusal refusal = NoMemoryRefusal(core, *session.job, pages * kPageSize);
  refusal.detail = "more than the job can ever have in RAM at once, ask by ranges: " + refusal.detail;
  Refuse(core, session, request, 0, std::move(refusal));
  return false;
}

Ask AskFor(Core& core, SessionState& session, const Request& request) {
  return {
      .session = &session, .sequence = request.sequence, .op = request.op, .flags = request.flags, .items = core.items};
}

// What the request adds to its user's metadata when it is granted.
uint64_t MetadataAsked(Core& core, SessionState& session, const Request& request) {
  if (request.op != proto::Op::kCreate) return GrantCost(core, AskFor(core, session, request));
  uint64_t bytes = 0;
  for (const RequestItem& item : request.items) {
    bytes += TensorCost(PieceCountOf(item.value)) + LeaseCost(true, PieceCountOf(item.value));
  }
  return bytes;
}

// Limits on what one request may ask for, and on what a session and its user may hold.
bool CheckLimits(Core& core, SessionState& session, const Request& request) {
  uint64_t pieces = 0;
  for (const WaitItem& item : core.items) pieces += item.piece_count;
  const uint64_t leases = session.lease_count + core.items.size();
  if (pieces > proto::kSpansPerCompletionMax) {
    Refuse(core, session, request, 0,
           {Code::kInvalid,
            fmt::format("{} pieces of 2 MiB in one request, at most {}: ask in smaller ranges", pieces,
                        proto::kSpansPerCompletionMax),
            {.requested = pieces, .limit = proto::kSpansPerCompletionMax}});
    return false;
  }
  if (leases > core.options.leases_per_session_max) {
    Refuse(core, session, request, 0,
           {Code::kNoMemory,
            fmt::format("the session would hold {} leases, at most {}: release some", leases,
                        core.options.leases_per_session_max),
            {.requested = core.items.size(),
             .available = core.options.leases_per_session_max - session.lease_count,
             .limit = core.options.leases_per_session_max}});
    return false;
  }
  if (std::optional<Refusal> refusal = core.metadata.Check(session, MetadataAsked(core, session, request), false)) {
    Refuse(core, session, request, 0, *std::move(refusal));
    return false;
  }
  return CheckShare(core, session, request);
}

bool RefuseWhileDraining(Core& core, SessionState& session, const Request& request) {
  if (!core.draining) return false;
  Refuse(core, session, request, 0, {Code::kDisconnected, core.drain_reason, {}});
  return true;
}

// `pages_held`: by the job's tensors, once all before this one exist.
bool CheckNewTensor(Core& core, SessionState& session, const Request& request, uint64_t pages_held) {
  const size_t index = core.items.size();
  const RequestItem& asked = request.items[index];
  if (asked.value == 0) {
    Refuse(core, session, request, index, {Code::kInvalid, "a tensor has at least one byte", {.tensor = asked.tensor}});
    return false;
  }
  const Wanted wanted{.tensor = asked.tensor, .size = asked.value};
  if (std::optional<Refusal> refusal = CapacityRefusal(core, *session.job, wanted, pages_held)) {
    Refuse(core, session, request, index, *std::move(refusal));
    return false;
  }
  if (PieceCountOf(asked.value) > kPiecesPerTensorMax) {
    Refuse(core, session, request, index,
           {Code::kInvalid,
            fmt::format("tensor {:#x} of {} is larger than {}: use several", asked.tensor, FormatBytes(asked.value),
                        FormatBytes(kPiecesPerTensorMax * kBlockSize)),
            {.tensor = asked.tensor, .requested = asked.value, .limit = kPiecesPerTensorMax * kBlockSize}});
    return false;
  }
  WaitItem item{.id = asked.tensor};
  if (!SetRange(asked, asked.value, &item)) {
    Refuse(core, session, request, index, BadRange(asked, asked.value));
    return false;
  }
  core.items.push_back(item);
  return true;
}

// Adds the tensors of core.items. On a duplicate nothing is left of the request.
bool AddTensors(Core& core, SessionState& session, const Request& request) {
  JobState& job = *session.job;
  const uint64_t space = IsShared(request) ? 0 : static_cast<uint64_t>(session.id);
  for (size_t i = 0; i < core.items.size(); ++i) {
    const RequestItem& asked = request.items[i];
    const TensorSlot present = core.table.Find({static_cast<uint64_t>(job.id), space, asked.tensor});
    if (present == kNoTensor) {
      core.items[i].tensor = core.RefOf(
          AddTensor(core, job, {.space = space, .id = asked.tensor, .size = asked.value, .creator = &session}));
      continue;
    }
    Refusal refusal = ExistsRefusal(core.tensors[present], asked.value);
    for (size_t added = 0; added < i; ++added) Detach(core, core.items[added].tensor.slot);
    Refuse(core, session, request, i, std::move(refusal));
    return false;
  }
  return true;
}

// Adds the tensor that is to take another's place, nameless until then.
bool AddUnnamed(Core& core, SessionState& session, const Request& request) {
  TIER_CHECK(core.items.size() == 1, "{} tensors take one place", core.items.size());
  const RequestItem& asked = request.items.front();
  const Wanted wanted{.tensor = asked.tensor, .size = asked.value};
  std::optional<Refusal> refusal = QueueRefusal(core, *session.job, wanted);
  if (refusal) {
    Refuse(core, session, request, 0, *std::move(refusal));
    return false;
  }
  core.items.front().tensor = core.RefOf(AddTensor(core, *session.job,
                                                   {.space = IsShared(request) ? 0 : static_cast<uint64_t>(session.id),
                                                    .id = asked.tensor,
                                                    .size = asked.value,
                                                    .creator = &session,
                                                    .unnamed = true}));
  return true;
}

// Room for a create, there and then.
bool TryReserveNow(Core& core, const Ask& ask) {
  AddPieces(core, ask);
  if (core.waits.anybody_waits_for_room(*ask.session->job) || !LeasesFit(core, ask)) return false;
  if (AwaitsPlace(core, ask) && ReserveInPlace(core, ask)) return true;
  return Reserve(core, ask) && CheckConflicts(core, ask).verdict == Verdict::kReady;
}

// Pieces that were given room but are not waited for after all lose it again.
void ReleaseUnused(Core& core, const Ask& ask) {
  for (const WaitItem& item : ask.items) {
    const Tensor& tensor = core.tensors[item.tensor.slot];
    for (uint32_t k = item.first_piece; k < item.first_piece + item.piece_count; ++k) {
      if (core.PieceOf(tensor, k).has(kReserved) && Pin(core, tensor.piece(k))) Unpin(core, tensor.piece(k));
    }
  }
}

uint64_t BytesAsked(const Core& core) {
  uint64_t bytes = 0;
  for (const WaitItem& item : core.items) bytes += item.length;
  return bytes;
}

void KeepLeaseRequest(Core& core, const Ask& ask, const Request& request) {
  Enqueue(core, ask,
          {.timeout_ms = request.timeout_ms,
           .requested_bytes = BytesAsked(core),
           .kind = LeaseWait{.write_failures = ask.session->job->write_failure_count}});
}

// Two items of one exclusive request must not name the same piece: it would wait for itself.
bool ItemsOverlap(Core& core) {
  if (core.items.size() < 2) return false;
  SortItems(core);
  for (size_t i = 1; i < core.order.size(); ++i) {
    const WaitItem& before = core.items[core.order[i - 1]];
    const WaitItem& after = core.items[core.order[i]];
    const bool same = before.tensor.slot == after.tensor.slot;
    if (same && after.first_piece < before.first_piece + before.piece_count) return true;
  }
  return false;
}

// The check of all pieces that the ask names, charged to the turn's work. A client may send a request for thousands of
// pieces in each message: when the turn has no work left, the request waits for the next one (kNeedsRoom).
ConflictCheck CheckWithinBudget(Core& core, const Ask& ask) {
  if (!core.work.TrySpend(CostOf(core, ask))) return {.verdict = Verdict::kNeedsRoom};
  return CheckConflicts(core, ask);
}

}  // namespace

void SubmitCreate(Core& core, SessionState& session, const Request& request) {
  if (RefuseWhileDraining(core, session, request)) return;
  JobState& job = *session.job;
  // Counted out of all checks, and freed only with the grant: a refusal leaves it as it was.
  const bool replaces = (request.flags & proto::kFlagReplace) != 0 && request.items.size() == 1;
  const TensorSlot replaced =
      replaces ? ReplacedBy(core, session, request.items.front().tensor, IsShared(request)) : kNoTensor;
  const uint64_t tensors = job.counters.tensor_count - (replaced == kNoTensor ? 0 : 1);
  if (tensors + request.items.size() > core.options.tensors_per_job_max) {
    Refuse(
        core, session, request, 0,
        {Code::kNoMemory,
         fmt::format("the job has {} tensors, at most {}", job.counters.tensor_count, core.options.tensors_per_job_max),
         {.requested = request.items.size(), .limit = core.options.tensors_per_job_max}});
    return;
  }
  core.items.clear();
  uint64_t pages = job.logical_pages - (replaced == kNoTensor ? 0 : PagesOf(core.tensors[replaced].size));
  for (const RequestItem& asked : request.items) {
    if (!CheckNewTensor(core, session, request, pages)) return;
    pages += PagesFor(asked.value);
  }
  if (!CheckLimits(core, session, request)) return;
  const bool added = replaced != kNoTensor ? AddUnnamed(core, session, request) : AddTensors(core, session, request);
  if (!added) return;
  const Ask ask = AskFor(core, session, request);
  if (core.work.TrySpend(CostOf(core, ask)) && TryReserveNow(core, ask)) {
    TakePlace(core, ask);
    Grant(core, ask);
    return;
  }
  ReleaseUnused(core, ask);
  KeepLeaseRequest(core, ask, request);
}

void SubmitAcquire(Core& core, SessionState& session, const Request& request) {
  if (RefuseWhileDraining(core, session, request)) return;
  if (!ResolveItems(core, session, request, true) || !CheckLimits(core, session, request)) return;
  const Ask ask = AskFor(core, session, request);
  if (ask.exclusive() && ItemsOverlap(core)) {
    Refuse(core, session, request, 0,
           {Code::kInvalid,
            "two items of one write request name the same 2 MiB piece of a tensor; join their ranges",
            {}});
    return;
  }
  const ConflictCheck found = CheckWithinBudget(core, ask);
  if (found.verdict == Verdict::kReady && LeasesFit(core, ask)) {
    session.job->counters.acquire_hits += core.items.size();
    Grant(core, ask);
  } else if (found.verdict == Verdict::kRefused) {
    Refuse(core, session, request, found.item, RefusalOf(core, ask, found));
  } else {
    KeepLeaseRequest(core, ask, request);
  }
}

void SubmitRelease(Core& core, SessionState& session, const Request& request) {
  ReleaseWait wait;
  if (!ReleaseMore(core, session, request.items, request.flags, &wait)) {
    wait.items.assign(request.items.begin(), request.items.end());
    const Ask ask{
        .session = &session, .sequence = request.sequence, .op = request.op, .flags = request.flags, .items = {}};
    Enqueue(core, ask, {.timeout_ms = request.timeout_ms, .kind = std::move(wait)});
  } else if (wait.refusal) {
    Refuse(core, session, request, wait.refused_item, *std::move(wait.refusal));
  } else {
    AnswerValue(core, session, request.sequence, request.op, 0);
  }
}

void SubmitFree(Core& core, SessionState& session, const Request& request) {
  if (!ResolveItems(core, session, request, false)) return;
  const Ask ask = AskFor(core, session, request);
  const ConflictCheck found = CheckWithinBudget(core, ask);
  if (found.verdict != Verdict::kReady) {
    Enqueue(core, ask, {.timeout_ms = request.timeout_ms, .kind = FreeWait{}});
    return;
  }
  AnswerValue(core, session, request.sequence, request.op, DetachAll(core, core.items));
}

}  // namespace tier::tiering
