#include "libclient/swap/request_queue.h"

#include <algorithm>
#include <string>

#include "libclient/client/invariant.h"

namespace tier::swap {

using client::Clock;
using client::Credit;
using client::Pending;
using proto::Op;

Error BehindSwap() {
  return {Code::kTimeout, "a swap of this client's own is not finished on a tensor that the request names"};
}

Status MayWait(uint32_t flags) {
  if ((flags & proto::kFlagNoWait) != 0) return std::unexpected(BehindSwap());
  if ((flags & proto::kFlagNoWaitOwn) == 0) return {};
  return Fail(Code::kWouldDeadlock, BehindSwap().message + ": end it with tier_wait first");
}

void RequestQueue::Defer(const std::shared_ptr<RequestOperation>& request) {
  const auto& submission = request->submission();
  const auto ticket = order_.Add(TensorOrder::Kind::kRequest, submission.flags, submission.items);
  const bool follows_swap = !order_.MayBegin(ticket) && order_.FollowsSwap(ticket);
  const auto entry = deferred_.insert(deferred_.end(), {request, ticket, follows_swap});
  if (!follows_swap) return;
  if (auto may_wait = MayWait(submission.flags); !may_wait) {
    request->Refuse(may_wait.error());
    Leave(entry);
  }
}

RequestQueue::Entry RequestQueue::Leave(Entry entry) {
  const bool had_ticket = order_.Remove(entry->ticket);
  (void)TIER_INVARIANT(session_.channel(), had_ticket, "a deferred request without a ticket");
  return deferred_.erase(entry);
}

bool RequestQueue::SendReady() {
  starved_ = false;
  const size_t before = deferred_.size();
  for (auto entry = deferred_.begin(); entry != deferred_.end();) {
    if (MustWaitForAnswers(*entry) || !order_.MayBegin(entry->ticket)) {
      ++entry;
      continue;
    }
    if (!TrySend(*entry)) {
      starved_ = true;
      break;
    }
    entry = Leave(entry);
  }
  return deferred_.size() != before;
}

bool RequestQueue::MustWaitForAnswers(const Deferred& deferred) const {
  const bool awaited = deferred.awaited && !deferred.request->cancelled().load();
  return deferred.request->frees() && !awaited && !closing_ && abandoned_.size() >= kAbandonedMax;
}

bool RequestQueue::TrySend(const Deferred& deferred) {
  RequestOperation& request = *deferred.request;
  if (closing_) return TrySendAtClose(request);
  client::Submission submission = request.submission();
  const bool unowned = request.cancelled().load();  // No caller waits for it: it has no deadline either.
  const auto now = Clock::now();
  if (!unowned && now >= request.expires()) {
    request.Refuse(deferred.follows_swap ? BehindSwap() : client::NoRoom());
    return true;
  }
  if (!unowned) submission.timeout_ms = client::LeftUntil(request.expires(), now);
  auto pending = session_.channel().TrySubmit(submission, Credit::kStarted, &answers_);
  if (pending && *pending == nullptr) return false;
  if (!pending) {
    request.Refuse(pending.error());
  } else if (unowned) {
    request.MarkSent(nullptr);
    Abandon(*pending, submission);
  } else {
    request.MarkSent(*pending);
  }
  return true;
}

// No caller takes its answer any more, and what it would be granted could not be used. Best effort: a daemon that makes
// no room is not worth waiting for.
bool RequestQueue::TrySendAtClose(RequestOperation& request) {
  const Op op = request.submission().op;
  const bool grants = op == Op::kCreate || op == Op::kAcquire;
  const auto sent = grants ? Result<bool>(true) : session_.channel().TrySubmitDetached(request.submission());
  if (sent && !*sent && Clock::now() < *closing_) return false;
  request.Refuse(sent ? Error{Code::kStale, "this client was closed"} : sent.error());
  return true;
}

RequestQueue::Entry RequestQueue::Find(const RequestOperation& request) {
  return std::ranges::find(deferred_, &request, [](const Deferred& deferred) { return deferred.request.get(); });
}

bool RequestQueue::Withdraw(const RequestOperation& request, Error error) {
  const auto entry = Find(request);
  if (entry == deferred_.end()) return false;
  entry->request->Refuse(std::move(error));
  Leave(entry);
  return true;
}

bool RequestQueue::Expire(const RequestOperation& request) {
  const auto entry = Find(request);
  return entry != deferred_.end() && Withdraw(request, entry->follows_swap ? BehindSwap() : client::NoRoom());
}

bool RequestQueue::MarkAwaited(const RequestOperation& request) {
  const auto entry = Find(request);
  return entry != deferred_.end() && !std::exchange(entry->awaited, true);
}

bool RequestQueue::HasWork() const {
  return !abandoned_.empty() ||
         std::ranges::any_of(deferred_, [&](const Deferred& deferred) { return order_.MayBegin(deferred.ticket); });
}

bool RequestQueue::Waits(const RequestOperation& request) const {
  return std::ranges::any_of(deferred_, [&](const Deferred& deferred) {
    return deferred.request.get() == &request && order_.MayBegin(deferred.ticket);
  });
}

void RequestQueue::Abandon(Pending* pending, const client::Submission& submission) {
  Abandoned& abandoned =
      abandoned_.emplace_back(pending, submission, std::vector(submission.items.begin(), submission.items.end()));
  abandoned.submission.items = abandoned.items;
}

void RequestQueue::SettleAbandoned() {
  if (session_.channel().ended()) abandoned_.clear();
  for (auto entry = abandoned_.begin(); entry != abandoned_.end();) {
    if (!entry->pending->done()) {
      ++entry;
      continue;
    }
    Settle(*entry);
    entry = abandoned_.erase(entry);
  }
}

void RequestQueue::Settle(const Abandoned& abandoned) {
  const Op op = abandoned.submission.op;
  const bool grants = (op == Op::kCreate || op == Op::kAcquire) && abandoned.pending->code() == Code::kOk;
  std::vector<client::Lease*> leases(grants ? abandoned.items.size() : 0);
  const bool granted = grants && session_.Grant(*abandoned.pending, abandoned.submission, leases).has_value();
  session_.channel().Finish(abandoned.pending);
  if (!granted) return;
  const bool writes = op == Op::kCreate || (abandoned.submission.flags & proto::kFlagWrite) != 0;
  // What was created goes with that. A free by name would not do: another tensor may have the name by now.
  (void)session_.Release(leases, writes ? proto::kFlagUntouched : 0);  // Fails only when the session has ended.
}

Status RequestQueue::CheckInvariants() const {
  TensorOrder::Ticket last = 0;
  for (const Deferred& deferred : deferred_) {
    if (!deferred.request->unsent()) return Fail(Code::kInvalid, "a request is deferred that was sent or refused");
    if (deferred.ticket <= last) return Fail(Code::kInvalid, "deferred requests are out of their order");
    if (!order_.Contains(deferred.ticket)) return Fail(Code::kInvalid, "a deferred request has no ticket");
    last = deferred.ticket;
  }
  return {};
}

}  // namespace tier::swap
