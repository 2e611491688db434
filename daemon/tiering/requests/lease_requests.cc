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
#include "daemon/tiering/requests/creation.h"
#include "daemon/tiering/requests/need.h"
#include "daemon/tiering/requests/refusals.h"
#include "daemon/tiering/requests/releases.h"
#include "daemon/tiering/requests/replace.h"
#include "daemon/tiering/requests/reserve.h"
#include "daemon/tiering/requests/resolve.h"
#include "daemon/tiering/requests/scattered_room.h"
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

uint64_t SizeAsked(const Tables& tables, const Request& request, size_t index) {
  return request.op == proto::Op::kCreate ? request.items[index].value
                                          : tables.tensors[tables.scratch.items[index].tensor.index].size;
}

// Sorts tables.scratch.order so that items over the same pieces stand side by side.
void SortItems(Tables& tables) {
  tables.scratch.order.resize(tables.scratch.items.size());
  for (uint32_t i = 0; i < tables.scratch.order.size(); ++i) tables.scratch.order[i] = i;
  const auto key = [&](uint32_t i) {
    return std::pair(Value(tables.scratch.items[i].tensor.index), tables.scratch.items[i].first_piece);
  };
  std::sort(tables.scratch.order.begin(), tables.scratch.order.end(),
            [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
}

// Pages of all pieces that an acquire touches, each counted once; 0 if every one of them is in RAM already.
uint64_t PagesToReserve(Tables& tables) {
  SortItems(tables);
  uint64_t pages = 0;
  bool missing = false;
  TensorIndex previous = kNoTensor;
  uint32_t next = 0;  // Pieces of that tensor below it are counted.
  for (const uint32_t index : tables.scratch.order) {
    const WaitItem& item = tables.scratch.items[index];
    const Tensor& tensor = tables.tensors[item.tensor.index];
    if (item.tensor.index != previous) next = 0;
    previous = item.tensor.index;
    const uint32_t end = item.first_piece + item.piece_count;
    for (uint32_t k = std::max(next, item.first_piece); k < end; ++k) {
      pages += PagesFor(tensor.piece_length(k));
      missing |= !tables.PieceOf(tensor, k).ram;
    }
    next = std::max(next, end);
  }
  return missing ? pages : 0;
}

// More than the job may ever lease at once would only wait for its deadline. What lies in RAM is given beyond the job's
// own limit, but not beyond what others' guarantees leave.
bool CheckShare(Tables& tables, SessionState& session, const Request& request) {
  uint64_t pages = 0;
  for (size_t i = 0; i < tables.scratch.items.size(); ++i)
    pages += PagesTouched(tables.scratch.items[i], SizeAsked(tables, request, i));
  const uint64_t share = AlignUp(tables.ledger.LeaseMax(session.job->entitlement), kPageSize);
  if (pages * kPageSize <= share) return true;
  if (request.op != proto::Op::kCreate) pages = PagesToReserve(tables);
  if (pages * kPageSize <= share) {
    pages = NewlyHeldPages(tables, tables.scratch.items);
    if (pages <= tables.ledger.LeasableBy(session.job->entitlement) / kPageSize) return true;
  }
  Refusal refusal = NoMemoryRefusal(tables, *session.job, pages * kPageSize);
  refusal.detail = "more than the job can ever have in RAM at once, ask by ranges: " + refusal.detail;
  Refuse(tables, session, request, 0, std::move(refusal));
  return false;
}

Ask AskFor(Tables& tables, SessionState& session, const Request& request) {
  return {.session = &session,
          .sequence = request.sequence,
          .op = request.op,
          .flags = request.flags,
          .items = tables.scratch.items};
}

// What the request adds to its user's metadata when it is granted.
uint64_t MetadataAsked(Tables& tables, SessionState& session, const Request& request) {
  if (request.op != proto::Op::kCreate) return GrantCost(tables, AskFor(tables, session, request));
  return MetadataOf(request.items);
}

// The most spans in which the answer can be: a piece of less than a block may lie in several runs.
uint64_t SpansOf(const Tables& tables) {
  uint64_t spans = 0;
  for (const WaitItem& item : tables.scratch.items) {
    const bool whole = (item.offset + item.length) % kBlockSize == 0;
    spans += item.piece_count + (whole ? 0 : kRamRunsMax - 1);
  }
  return spans;
}

// Limits on what one request may ask for, and on what a session and its user may hold.
bool CheckLimits(Tables& tables, SessionState& session, const Request& request) {
  const uint64_t spans = SpansOf(tables);
  const uint64_t leases = session.record.lease_count + tables.scratch.items.size();
  const uint32_t most = tables.options.leases_per_session_max;
  if (spans > proto::kSpansPerCompletionMax) {
    Refuse(tables, session, request, 0,
           {Code::kInvalid,
            fmt::format("one request for what may lie in {} places of RAM, at most {}: ask in smaller ranges", spans,
                        proto::kSpansPerCompletionMax),
            {.requested = spans, .limit = proto::kSpansPerCompletionMax}});
    return false;
  }
  if (leases > most) {
    Refuse(tables, session, request, 0,
           {Code::kNoMemory,
            fmt::format("the session would hold {} leases, at most {}: release some", leases, most),
            {.requested = tables.scratch.items.size(),
             .available = most - std::min(most, session.record.lease_count),  // It may have been lowered.
             .limit = most}});
    return false;
  }
  if (std::optional<Refusal> refusal = tables.metadata.Check(session, MetadataAsked(tables, session, request), false)) {
    Refuse(tables, session, request, 0, *std::move(refusal));
    return false;
  }
  return CheckShare(tables, session, request);
}

bool RefuseWhileDraining(Tables& tables, SessionState& session, const Request& request) {
  if (!tables.drain.draining()) return false;
  Refuse(tables, session, request, 0, {Code::kDisconnected, tables.drain.reason(), {}});
  return true;
}

// Only shared tensors can be divided.
bool RefuseShardedAlone(Tables& tables, SessionState& session, const Request& request) {
  if (!IsSharded(request) || IsShared(request)) return false;
  const RequestItem& asked = request.items.front();
  Refuse(tables, session, request, 0,
         {Code::kInvalid,
          fmt::format("tensor {:#x} cannot be sharded and of one session: only sessions that share a tensor can divide "
                      "it; create it as shared too",
                      asked.tensor),
          {.tensor = asked.tensor, .requested = asked.value}});
  return true;
}

// What a manifest names of the replaced tensor stays beside the new one.
bool RefuseSecondGeneration(Tables& tables, SessionState& session, const Request& request, TensorIndex replaced) {
  const JobState& job = *session.job;
  if (replaced == kNoTensor || job.manifest.empty()) return false;
  const Tensor& tensor = tables.tensors[replaced];
  std::optional<Refusal> refusal = SecondGenerationRefusal(tables, job, tensor.id, tensor.ssd_pages);
  if (refusal) Refuse(tables, session, request, 0, *std::move(refusal));
  return refusal.has_value();
}

// Adds the tensor that is to take another's place, nameless until then.
bool AddUnnamed(Tables& tables, SessionState& session, const Request& request) {
  TIER_CHECK(tables.scratch.items.size() == 1, "{} tensors take one place", tables.scratch.items.size());
  const RequestItem& asked = request.items.front();
  const Wanted wanted{.tensor = asked.tensor, .size = asked.value};
  std::optional<Refusal> refusal = QueueRefusal(tables, *session.job, wanted);
  if (refusal) {
    Refuse(tables, session, request, 0, *std::move(refusal));
    return false;
  }
  tables.scratch.items.front().tensor =
      tables.RefOf(AddTensor(tables, *session.job,
                             {.space = IsShared(request) ? 0 : static_cast<uint64_t>(session.id),
                              .id = asked.tensor,
                              .size = asked.value,
                              .creator = &session,
                              .unnamed = true,
                              .sharded = IsSharded(request),
                              .transient = (request.flags & proto::kFlagTransient) != 0}));
  return true;
}

uint64_t BytesAsked(const Tables& tables) {
  uint64_t bytes = 0;
  for (const WaitItem& item : tables.scratch.items) bytes += item.length;
  return bytes;
}

// `known`: what a check has just found.
void KeepLeaseRequest(Tables& tables, const Ask& ask, const Request& request,
                      const std::optional<ConflictCheck>& known = std::nullopt) {
  Enqueue(tables, ask,
          {.timeout_ms = request.timeout_ms,
           .requested_bytes = BytesAsked(tables),
           .known = known,
           .kind = LeaseWait{.write_failures = ask.session->job->failures.count()}});
}

// What it asks for is within the limits. Its tensors are made turn by turn.
void KeepLongCreate(Tables& tables, SessionState& session, const Request& request) {
  CreateWait wait{.items = {request.items.begin(), request.items.end()}, .spans = {}};
  wait.spans.reserve(SpansOf(tables));
  const Ask ask{
      .session = &session, .sequence = request.sequence, .op = request.op, .flags = request.flags, .items = {}};
  Enqueue(tables, ask,
          {.timeout_ms = request.timeout_ms, .requested_bytes = BytesAsked(tables), .kind = std::move(wait)});
}

// Two items of one exclusive request must not name the same piece: it would wait for itself.
bool ItemsOverlap(Tables& tables) {
  if (tables.scratch.items.size() < 2) return false;
  SortItems(tables);
  for (size_t i = 1; i < tables.scratch.order.size(); ++i) {
    const WaitItem& before = tables.scratch.items[tables.scratch.order[i - 1]];
    const WaitItem& after = tables.scratch.items[tables.scratch.order[i]];
    const bool same = before.tensor.index == after.tensor.index;
    if (same && after.first_piece < before.first_piece + before.piece_count) return true;
  }
  return false;
}

// The check of all pieces that the ask names, charged to the turn's work. A client may send a request for thousands of
// pieces in each message: when the turn has no work left, the request waits for the next one (none).
std::optional<ConflictCheck> CheckWithinBudget(Tables& tables, const Ask& ask) {
  if (!tables.work.TrySpend(CostOf(tables, ask))) return std::nullopt;
  const ConflictCheck found = CheckConflicts(tables, ask);
  tables.work.Charge(CostOfRecordsScanned(found));
  return found;
}

}  // namespace

void SubmitCreate(Tables& tables, SessionState& session, const Request& request) {
  if (RefuseWhileDraining(tables, session, request) || RefuseShardedAlone(tables, session, request)) return;
  JobState& job = *session.job;
  // Counted out of all checks, and freed only with the grant: a refusal leaves it as it was.
  const bool replaces = (request.flags & proto::kFlagReplace) != 0 && request.items.size() == 1;
  const TensorIndex replaced =
      replaces ? ReplacedBy(tables, session, request.items.front().tensor, IsShared(request)) : kNoTensor;
  NewTensors wanted{.items = request.items};
  if (replaced != kNoTensor) {
    wanted.replaced = 1;
    wanted.replaced_pages = PagesOf(tables.tensors[replaced].size);
  }
  if (auto wrong = CheckNewTensors(tables, job, wanted)) {
    return Refuse(tables, session, request, wrong->item, std::move(wrong->refusal));
  }
  if (!CheckLimits(tables, session, request) || RefuseSecondGeneration(tables, session, request, replaced)) return;
  if (request.items.size() > kItemsPerTurnMax) return KeepLongCreate(tables, session, request);
  if (replaced != kNoTensor) {
    if (!AddUnnamed(tables, session, request)) return;
  } else if (auto wrong = AddTensors(tables, session, request.flags, request.items)) {
    return Refuse(tables, session, request, wrong->item, std::move(wrong->refusal));
  }
  const Ask ask = AskFor(tables, session, request);
  if (tables.work.TrySpend(CostOf(tables, ask)) && TryReserveNow(tables, ask)) {
    TakePlace(tables, ask);
    Grant(tables, ask);
    return;
  }
  ReleaseUnused(tables, ask);
  KeepLeaseRequest(tables, ask, request);
}

void SubmitAcquire(Tables& tables, SessionState& session, const Request& request) {
  if (RefuseWhileDraining(tables, session, request)) return;
  if (!ResolveItems(tables, session, request, true) || !CheckLimits(tables, session, request)) return;
  const Ask ask = AskFor(tables, session, request);
  if (ask.exclusive() && ItemsOverlap(tables)) {
    Refuse(tables, session, request, 0,
           {Code::kInvalid,
            "two items of one write request name the same 2 MiB piece of a tensor; join their ranges",
            {}});
    return;
  }
  if (ask.exclusive()) {
    if (std::optional<Refusal> refusal = RewriteRefusal(tables, *session.job, ask.items)) {
      return Refuse(tables, session, request, 0, *std::move(refusal));
    }
  }
  const std::optional<ConflictCheck> found = CheckWithinBudget(tables, ask);
  if (found && found->outcome == ConflictOutcome::kReady && LeasesFit(tables, ask) && !WantsRuns(tables, ask)) {
    tables.jobs.Edit(*session.job).counters.acquire_hits += tables.scratch.items.size();
    Grant(tables, ask);
  } else if (found && found->outcome == ConflictOutcome::kRefused) {
    Refuse(tables, session, request, found->item, RefusalOf(tables, ask, *found));
  } else {
    KeepLeaseRequest(tables, ask, request, found);
  }
}

void SubmitRelease(Tables& tables, SessionState& session, const Request& request) {
  ReleaseWait wait;
  const Released released = ReleaseMore(tables, session, request.items, request.flags, &wait);
  if (released != Released::kAll) {
    wait.items.assign(request.items.begin(), request.items.end());
    const Ask ask{
        .session = &session, .sequence = request.sequence, .op = request.op, .flags = request.flags, .items = {}};
    Enqueue(tables, ask,
            {.timeout_ms = request.timeout_ms, .put_off = released == Released::kPart, .kind = std::move(wait)});
  } else if (wait.refusal) {
    Refuse(tables, session, request, wait.refused_item, *std::move(wait.refusal));
  } else {
    AnswerValue(tables, session, request.sequence, request.op, 0);
  }
}

void SubmitFree(Tables& tables, SessionState& session, const Request& request) {
  if (!ResolveItems(tables, session, request, false)) return;
  const Ask ask = AskFor(tables, session, request);
  const std::optional<ConflictCheck> found = CheckWithinBudget(tables, ask);
  if (!found || found->outcome != ConflictOutcome::kReady) {
    Enqueue(tables, ask, {.timeout_ms = request.timeout_ms, .kind = FreeWait{}});
    return;
  }
  AnswerValue(tables, session, request.sequence, request.op, DetachAll(tables, *session.job, tables.scratch.items));
}

}  // namespace tier::tiering
