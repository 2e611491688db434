// See submit.h.
#include "daemon/tiering/requests/submit.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "daemon/tiering/durability/manifests.h"
#include "daemon/tiering/leases/updates.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/requests/answers.h"
#include "daemon/tiering/requests/lease_requests.h"
#include "daemon/tiering/requests/resolve.h"
#include "daemon/tiering/requests/scans.h"
#include "daemon/tiering/requests/waiting.h"

namespace tier::tiering {
namespace {

using proto::Op;

bool NeedsItems(Op op) {
  return op != Op::kStep && op != Op::kIntern && op != Op::kFlush && op != Op::kPersist && op != Op::kDrop;
}

bool CheckShape(Tables& tables, SessionState& session, const Request& request) {
  const char* wrong = nullptr;
  if (request.op == Op::kNone || static_cast<uint16_t>(request.op) >= proto::kOpCount) wrong = "unknown operation";
  if ((request.flags & ~proto::kFlagsKnown) != 0) wrong = "unknown flags";
  if (request.items.size() > proto::kItemsPerRequestMax) wrong = "too many items in one request";
  if (wrong == nullptr && NeedsItems(request.op) && request.items.empty()) wrong = "a request without items";
  if (wrong == nullptr) return true;
  Refuse(tables, session, request, 0,
         {Code::kInvalid,
          fmt::format("{} (operation {}, flags {:#x}, {} items)", wrong, static_cast<uint16_t>(request.op),
                      request.flags, request.items.size()),
          {.requested = request.items.size(), .limit = proto::kItemsPerRequestMax}});
  return false;
}

// The request named no tensor: all tensors are listed, with a part of each turn's work.
void EnqueueAllTensors(Tables& tables, SessionState& session, const Request& request, WaitKind kind) {
  const Ask ask{
      .session = &session, .sequence = request.sequence, .op = request.op, .flags = request.flags, .items = {}};
  Enqueue(tables, ask, {.timeout_ms = request.timeout_ms, .kind = std::move(kind)});
}

// What is named twice is gone through once: the later item names nothing. Returns the bytes of the others.
uint64_t NameOnce(Tables& tables) {
  std::unordered_set<uint32_t> named;
  uint64_t bytes = 0;
  for (WaitItem& item : tables.scratch.items) {
    if (named.insert(Value(item.tensor.index)).second) {
      bytes += item.length;
    } else {
      item.tensor = {};
    }
  }
  return bytes;
}

// Answers now, or keeps the request for the turns to come.
void ScanNow(Tables& tables, SessionState& session, const Request& request) {
  const Ask ask{.session = &session,
                .sequence = request.sequence,
                .op = request.op,
                .flags = request.flags,
                .items = tables.scratch.items};
  Scan scan;
  if (RunScan(tables, ask, &scan)) return;
  Enqueue(tables, ask, {.timeout_ms = request.timeout_ms, .kind = ScanWait{.scan = scan}});
}

void SubmitPrefetch(Tables& tables, SessionState& session, const Request& request) {
  if (!ResolveItems(tables, session, request, true)) return;
  JobState& job = *session.job;
  uint64_t queued = 0;
  for (const WaitItem& item : tables.scratch.items) {
    // A hint may be dropped; the value says how many were taken.
    if (!job.prefetches.TryAdd({item.tensor, item.first_piece, item.first_piece + item.piece_count})) break;
    ++queued;
  }
  tables.jobs.NeedMaintenance(job);
  AnswerValue(tables, session, request.sequence, request.op, queued);
}

WaitKind FlushKind(const JobState& job, Op op, Enumeration stage) {
  const FlushWait flush{.listing = {.stage = stage}, .write_failures = job.failures.count()};
  if (op == Op::kPersist) return PersistWait{.flush = flush};
  return flush;
}

void SubmitFlush(Tables& tables, SessionState& session, const Request& request) {
  if (request.op == Op::kPersist) {
    std::string why = WhyNothingPersists(tables);
    if (!why.empty()) return Refuse(tables, session, request, 0, {Code::kDenied, std::move(why), {}});
  }
  if (request.items.empty()) {
    return EnqueueAllTensors(tables, session, request, FlushKind(*session.job, request.op, Enumeration::kOwn));
  }
  if (!ResolveItems(tables, session, request, false)) return;
  const uint64_t bytes = NameOnce(tables);
  const Ask ask{.session = &session,
                .sequence = request.sequence,
                .op = request.op,
                .flags = request.flags,
                .items = tables.scratch.items};
  Enqueue(tables, ask,
          {.timeout_ms = request.timeout_ms,
           .requested_bytes = bytes,
           .kind = FlushKind(*session.job, request.op, Enumeration::kWhole)});
}

void SubmitDrop(Tables& tables, SessionState& session, const Request& request) {
  if (request.items.empty()) {
    return EnqueueAllTensors(tables, session, request, ScanWait{.listing = {.stage = Enumeration::kOwn}});
  }
  if (ResolveItems(tables, session, request, true)) ScanNow(tables, session, request);
}

void SubmitAccept(Tables& tables, SessionState& session, const Request& request) {
  if (ResolveItems(tables, session, request, false)) ScanNow(tables, session, request);
}

// A writer that sealed some ranges and cannot go on: what it leaves must not pass for whole.
void SubmitTear(Tables& tables, SessionState& session, const Request& request) {
  if (!ResolveItems(tables, session, request, true)) return;
  for (size_t i = 0; i < tables.scratch.items.size(); ++i) {
    const Tensor& tensor = tables.tensors[tables.scratch.items[i].tensor.index];
    if (tensor.has(kVisible)) continue;
    Refuse(tables, session, request, i,
           {Code::kInvalid,
            fmt::format("tensor {:#x} is still being created, so nobody can take it for whole: free it", tensor.id),
            {.tensor = tensor.id, .limit = tensor.size}});
    return;
  }
  for (const WaitItem& item : tables.scratch.items) TearRange(tables, session, item);
  const Tensor& first = tables.tensors[tables.scratch.items.front().tensor.index];
  AnswerValue(tables, session, request.sequence, request.op, first.generation);
}

void SubmitStat(Tables& tables, SessionState& session, const Request& request) {
  if (request.items.size() > 1) {
    Refuse(tables, session, request, 1,
           {Code::kInvalid,
            fmt::format("stat answers for one tensor, and {} are named: ask for each of them", request.items.size()),
            {.requested = request.items.size(), .limit = 1}});
    return;
  }
  if (!ResolveItems(tables, session, request, false)) return;
  ScanNow(tables, session, request);
}

void SubmitIntern(Tables& tables, SessionState& session, const Request& request) {
  const bool has_nul = request.text.find('\0') != std::string_view::npos;
  if (request.text.empty() || request.text.size() > proto::kKeyLengthMax || has_nul) {
    Refuse(tables, session, request, 0,
           {Code::kInvalid,
            fmt::format("a string key has 1 to {} bytes and no NUL; this one has {} bytes", proto::kKeyLengthMax,
                        request.text.size()),
            {.requested = request.text.size(), .limit = proto::kKeyLengthMax}});
    return;
  }
  InternTable& keys = session.job->keys;
  MetadataAccount& account = *session.job->metadata;
  InternTable::Limits limits{.keys_max = tables.options.keys_per_job_max,
                             .bytes_max = tables.options.key_bytes_per_job_max};
  // Without room a new key can only take the place of keys that name no tensor.
  const bool room = account.HasRoom(KeyCost(request.text.size()));
  if (!room) limits = {.keys_max = static_cast<uint32_t>(keys.size()), .bytes_max = keys.bytes()};
  const auto in_use = [&](uint64_t tensor) {
    tables.work.Charge(static_cast<uint32_t>(session.job->sessions.size()));
    return HasTensor(tables, *session.job, tensor);
  };
  const Result<uint64_t> id = keys.Intern(request.text, limits, in_use);
  account.Recharge(&session.job->key_charge, KeysCost(keys));
  if (id) return AnswerValue(tables, session, request.sequence, request.op, *id);
  if (!room) {
    tables.metadata.CountRefusal();
    return Refuse(tables, session, request, 0, account.RefusalOf(KeyCost(request.text.size())));
  }
  const bool many = keys.size() >= limits.keys_max;
  const uint64_t limit = many ? limits.keys_max : limits.bytes_max;
  Refuse(tables, session, request, 0,
         {id.error().code,
          id.error().message,
          {.requested = many ? 1 : request.text.size(),
           .available = limit - std::min<uint64_t>(limit, many ? keys.size() : keys.bytes()),
           .limit = limit}});
}

void SubmitStep(Tables& tables, SessionState& session, const Request& request) {
  JobState& job = *session.job;
  tables.sessions.Edit(session).step = request.argument == UINT64_MAX ? session.record.step + 1 : request.argument;
  job.prefetch_age.EndStep(session.record.step);
  if (!job.prefetches.empty()) tables.jobs.NeedMaintenance(job);
  tables.jobs.Edit(job).steps = std::max(job.record.steps, session.record.step);
  EndStep(tables, session);
  job.policy->Step(session.record.step);
  AnswerValue(tables, session, request.sequence, request.op, session.record.step);
}

}  // namespace

void SubmitRequest(Tables& tables, SessionState& session, const Request& request) {
  session.requests.Start();
  session.job->sessions.NoteRequest(tables.turn.now());
  tables.work.Charge(1 + static_cast<uint32_t>(std::min<size_t>(request.items.size(), proto::kItemsPerRequestMax)));
  if (!CheckShape(tables, session, request)) return;
  if (session.requests.unfinished() != 0) FinishReleases(tables, session);
  switch (request.op) {
    case Op::kCreate: return SubmitCreate(tables, session, request);
    case Op::kAcquire: return SubmitAcquire(tables, session, request);
    case Op::kRelease: return SubmitRelease(tables, session, request);
    case Op::kFree: return SubmitFree(tables, session, request);
    case Op::kPrefetch: return SubmitPrefetch(tables, session, request);
    case Op::kStep: return SubmitStep(tables, session, request);
    case Op::kPersist:
    case Op::kFlush: return SubmitFlush(tables, session, request);
    case Op::kAccept: return SubmitAccept(tables, session, request);
    case Op::kIntern: return SubmitIntern(tables, session, request);
    case Op::kStat: return SubmitStat(tables, session, request);
    case Op::kDrop: return SubmitDrop(tables, session, request);
    case Op::kTear: return SubmitTear(tables, session, request);
    case Op::kNone: break;
  }
  TIER_CHECK(false, "operation {} passed the check of its shape", static_cast<uint16_t>(request.op));
}

void SubmitJobFlush(Tables& tables, JobState& job, uint64_t sequence, uint32_t timeout_ms) {
  job.internal_session.requests.Start();
  if (job.replay.under_way()) {  // It comes back from SSD: nothing is to be written.
    return AnswerValue(tables, job.internal_session, sequence, Op::kFlush, 0);
  }
  EnqueueAllTensors(tables, job.internal_session,
                    {.sequence = sequence, .op = Op::kFlush, .timeout_ms = timeout_ms, .items = {}, .text = {}},
                    FlushKind(job, Op::kFlush, Enumeration::kOwn));
}

}  // namespace tier::tiering
