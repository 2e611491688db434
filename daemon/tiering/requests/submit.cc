// See submit.h.
#include "daemon/tiering/requests/submit.h"

#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

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

bool CheckShape(Core& core, SessionState& session, const Request& request) {
  const char* wrong = nullptr;
  if (request.op == Op::kNone || static_cast<uint16_t>(request.op) >= proto::kOpCount) wrong = "unknown operation";
  if ((request.flags & ~proto::kFlagsKnown) != 0) wrong = "unknown flags";
  if (request.items.size() > proto::kItemsPerRequestMax) wrong = "too many items in one request";
  if (wrong == nullptr && NeedsItems(request.op) && request.items.empty()) wrong = "a request without items";
  if (wrong == nullptr) return true;
  Refuse(core, session, request, 0,
         {Code::kInvalid,
          fmt::format("{} (operation {}, flags {:#x}, {} items)", wrong, static_cast<uint16_t>(request.op),
                      request.flags, request.items.size()),
          {.requested = request.items.size(), .limit = proto::kItemsPerRequestMax}});
  return false;
}

// Named no tensor: all there are are listed, with some of each turn's looks.
void EnqueueAllTensors(Core& core, SessionState& session, const Request& request, WaitKind kind) {
  const Ask ask{
      .session = &session, .sequence = request.sequence, .op = request.op, .flags = request.flags, .items = {}};
  Enqueue(core, ask, {.timeout_ms = request.timeout_ms, .kind = std::move(kind)});
}

// What is named twice is gone through once: the later item names nothing. Returns the bytes of the others.
uint64_t NameOnce(Core& core) {
  std::unordered_set<uint32_t> named;
  uint64_t bytes = 0;
  for (WaitItem& item : core.items) {
    if (named.insert(Value(item.tensor.slot)).second) {
      bytes += item.length;
    } else {
      item.tensor = {};
    }
  }
  return bytes;
}

// Answers now, or keeps the request for the turns to come.
void ScanNow(Core& core, SessionState& session, const Request& request) {
  const Ask ask{
      .session = &session, .sequence = request.sequence, .op = request.op, .flags = request.flags, .items = core.items};
  Scan scan;
  if (RunScan(core, ask, &scan)) return;
  Enqueue(core, ask, {.timeout_ms = request.timeout_ms, .kind = ScanWait{.scan = scan}});
}

void SubmitPrefetch(Core& core, SessionState& session, const Request& request) {
  if (!ResolveItems(core, session, request, true)) return;
  JobState& job = *session.job;
  uint64_t queued = 0;
  for (const WaitItem& item : core.items) {
    if (job.prefetches.size() >= kPrefetchItemsMax)
      break;  // A hint may be dropped; the value says how many were taken.
    job.prefetches.push_back({item.tensor, item.first_piece, item.first_piece + item.piece_count});
    ++queued;
  }
  core.jobs.NeedMaintenance(job);
  AnswerValue(core, session, request.sequence, request.op, queued);
}

WaitKind FlushKind(const JobState& job, Op op, Enumeration stage) {
  const FlushWait flush{.listing = {.stage = stage}, .write_failures = job.write_failure_count};
  if (op == Op::kPersist) return PersistWait{.flush = flush};
  return flush;
}

void SubmitFlush(Core& core, SessionState& session, const Request& request) {
  if (request.op == Op::kPersist && core.ports.manifests == nullptr) {
    Refuse(core, session, request, 0,
           {Code::kDenied,
            "this daemon keeps nothing, so nothing can be made to survive it; set daemon.data_directory "
            "(tierd.connect: data_directory=)",
            {}});
    return;
  }
  if (request.items.empty()) {
    return EnqueueAllTensors(core, session, request, FlushKind(*session.job, request.op, Enumeration::kOwn));
  }
  if (!ResolveItems(core, session, request, false)) return;
  const uint64_t bytes = NameOnce(core);
  const Ask ask{
      .session = &session, .sequence = request.sequence, .op = request.op, .flags = request.flags, .items = core.items};
  Enqueue(core, ask,
          {.timeout_ms = request.timeout_ms,
           .requested_bytes = bytes,
           .kind = FlushKind(*session.job, request.op, Enumeration::kWhole)});
}

void SubmitDrop(Core& core, SessionState& session, const Request& request) {
  if (request.items.empty()) {
    return EnqueueAllTensors(core, session, request, ScanWait{.listing = {.stage = Enumeration::kOwn}});
  }
  if (ResolveItems(core, session, request, true)) ScanNow(core, session, request);
}

void SubmitAccept(Core& core, SessionState& session, const Request& request) {
  if (ResolveItems(core, session, request, false)) ScanNow(core, session, request);
}

// A writer that sealed some ranges and cannot go on: what it leaves must not pass for whole.
void SubmitTear(Core& core, SessionState& session, const Request& request) {
  if (!ResolveItems(core, session, request, true)) return;
  for (size_t i = 0; i < core.items.size(); ++i) {
    const Tensor& tensor = core.tensors[core.items[i].tensor.slot];
    if (tensor.has(kVisible)) continue;
    Refuse(core, session, request, i,
           {Code::kInvalid,
            fmt::format("tensor {:#x} is still being created, so nobody can take it for whole: free it", tensor.id),
            {.tensor = tensor.id, .limit = tensor.size}});
    return;
  }
  for (const WaitItem& item : core.items) TearRange(core, session, item);
  const Tensor& first = core.tensors[core.items.front().tensor.slot];
  AnswerValue(core, session, request.sequence, request.op, first.generation);
}

void SubmitStat(Core& core, SessionState& session, const Request& request) {
  if (request.items.size() > 1) {
    Refuse(core, session, request, 1,
           {Code::kInvalid,
            fmt::format("stat answers for one tensor, and {} are named: ask for each of them", request.items.size()),
            {.requested = request.items.size(), .limit = 1}});
    return;
  }
  if (!ResolveItems(core, session, request, false)) return;
  ScanNow(core, session, request);
}

void SubmitIntern(Core& core, SessionState& session, const Request& request) {
  const bool has_nul = request.text.find('\0') != std::string_view::npos;
  if (request.text.empty() || request.text.size() > proto::kKeyLengthMax || has_nul) {
    Refuse(core, session, request, 0,
           {Code::kInvalid,
            fmt::format("a string key has 1 to {} bytes and no NUL; this one has {} bytes", proto::kKeyLengthMax,
                        request.text.size()),
            {.requested = request.text.size(), .limit = proto::kKeyLengthMax}});
    return;
  }
  InternTable& keys = session.job->keys;
  MetadataAccount& account = *session.job->metadata;
  InternTable::Limits limits{.keys_max = core.options.keys_per_job_max,
                             .bytes_max = core.options.key_bytes_per_job_max};
  // Without room a new key can only take the place of keys that name no tensor.
  const bool room = account.HasRoom(kKeyCost + request.text.size());
  if (!room) limits = {.keys_max = static_cast<uint32_t>(keys.size()), .bytes_max = keys.bytes()};
  const auto in_use = [&](uint64_t tensor) { return HasTensor(core, *session.job, tensor); };
  const Result<uint64_t> id = keys.Intern(request.text, limits, in_use);
  account.Recharge(MetadataKind::kKeys, &session.job->charged_key_bytes, KeysCost(keys));
  if (id) return AnswerValue(core, session, request.sequence, request.op, *id);
  if (!room) {
    core.metadata.CountRefusal();
    return Refuse(core, session, request, 0, account.RefusalOf(kKeyCost + request.text.size()));
  }
  const bool many = keys.size() >= limits.keys_max;
  const uint64_t limit = many ? limits.keys_max : limits.bytes_max;
  Refuse(core, session, request, 0,
         {id.error().code,
          id.error().message,
          {.requested = many ? 1 : request.text.size(),
           .available = limit - std::min<uint64_t>(limit, many ? keys.size() : keys.bytes()),
           .limit = limit}});
}

void SubmitStep(Core& core, SessionState& session, const Request& request) {
  JobState& job = *session.job;
  session.step = request.argument == UINT64_MAX ? session.step + 1 : request.argument;
  job.steps = std::max(job.steps, session.step);
  EndStep(core, session);
  job.policy->Step(session.step);
  AnswerValue(core, session, request.sequence, request.op, session.step);
}

}  // namespace

void SubmitRequest(Core& core, SessionState& session, const Request& request) {
  ++session.outstanding;
  core.work.Charge(1 + static_cast<uint32_t>(std::min<size_t>(request.items.size(), proto::kItemsPerRequestMax)));
  if (!CheckShape(core, session, request)) return;
  if (session.releasing != 0) FinishReleases(core, session);
  switch (request.op) {
    case Op::kCreate: return SubmitCreate(core, session, request);
    case Op::kAcquire: return SubmitAcquire(core, session, request);
    case Op::kRelease: return SubmitRelease(core, session, request);
    case Op::kFree: return SubmitFree(core, session, request);
    case Op::kPrefetch: return SubmitPrefetch(core, session, request);
    case Op::kStep: return SubmitStep(core, session, request);
    case Op::kPersist:
    case Op::kFlush: return SubmitFlush(core, session, request);
    case Op::kAccept: return SubmitAccept(core, session, request);
    case Op::kIntern: return SubmitIntern(core, session, request);
    case Op::kStat: return SubmitStat(core, session, request);
    case Op::kDrop: return SubmitDrop(core, session, request);
    case Op::kTear: return SubmitTear(core, session, request);
    case Op::kNone: break;
  }
  TIER_CHECK(false, "operation {} passed the check of its shape", static_cast<uint16_t>(request.op));
}

void SubmitJobFlush(Core& core, JobState& job, uint64_t sequence, uint32_t timeout_ms) {
  ++job.internal_session.outstanding;
  EnqueueAllTensors(core, job.internal_session,
                    {.sequence = sequence, .op = Op::kFlush, .timeout_ms = timeout_ms, .items = {}, .text = {}},
                    FlushKind(job, Op::kFlush, Enumeration::kOwn));
}

}  // namespace tier::tiering
