#include "libclient/swap/request_operation.h"

#include <algorithm>

namespace tier::swap {

using client::Clock;
using client::Pending;

RequestOperation::RequestOperation(std::shared_ptr<CopyCrew> crew, const client::Submission& submission,
                                   std::span<client::Lease*> leases)
    : crew_(std::move(crew)),
      submission_(submission),
      items_(submission.items.begin(), submission.items.end()),
      leases_(leases) {
  submission_.items = items_;
  crew_->started_.fetch_add(1);
}

RequestOperation::~RequestOperation() {
  auto& session = crew_->session();
  if (session.forked()) return;
  Pending* const pending = pending_.load();
  if (pending != nullptr && !session.channel().ended()) crew_->Adopt(pending, submission_);
  if (counted_) crew_->started_.fetch_sub(1);
}

Result<bool> RequestOperation::Send() {
  // In the group from the start: should it be given up, a thread of the crew waits for it.
  auto pending = crew_->session().channel().TrySubmit(submission_, &crew_->group_, client::kKeptFromStarted);
  if (!pending) return std::unexpected(pending.error());
  pending_.store(*pending);
  return *pending != nullptr;
}

bool RequestOperation::Defer(std::vector<const CopyOperation*> behind) {
  behind_swaps_ = !behind.empty();
  if (auto may_wait = MayWait(submission_.flags); behind_swaps_ && !may_wait) {
    error_ = may_wait.error();
    return false;
  }
  deferred_ = true;
  behind_ = std::move(behind);
  expires_ = client::DeadlineOf(submission_.timeout_ms);
  return true;
}

bool RequestOperation::NamesOneOf(const std::unordered_set<uint64_t>& tensors, uint32_t flags) const {
  if (items_.empty() || tensors.empty()) return true;
  if (((submission_.flags ^ flags) & proto::kFlagShared) != 0) return false;
  return std::ranges::any_of(items_, [&](const auto& item) { return tensors.contains(item.tensor); });
}

bool RequestOperation::TrySend() {
  if (crew_->closing_) return TrySendAtClose();
  const bool unowned = cancelled_.load();  // Nobody waits for it: it has no deadline either.
  if (!unowned && Clock::now() >= expires_) {
    deferred_ = false;
    error_ = Expired();
    return true;
  }
  if (!unowned) submission_.timeout_ms = client::LeftUntil(expires_);
  auto pending = crew_->TrySubmit(submission_, client::kKeptFromStarted);
  if (pending && *pending == nullptr) return false;
  deferred_ = false;
  if (!pending) {
    error_ = pending.error();
  } else if (unowned) {
    crew_->AdoptLocked(*pending, submission_);
  } else {
    pending_.store(*pending);  // Last: from here on it may be waited for without the lock.
  }
  return true;
}

// Nobody takes its answer any more, and it grants nothing that could be used. Best effort: a daemon that makes no room
// is not worth waiting for.
bool RequestOperation::TrySendAtClose() {
  const bool grants = submission_.op == proto::Op::kCreate || submission_.op == proto::Op::kAcquire;
  auto& channel = crew_->session().channel();
  const auto sent = grants ? Result<bool>(true) : channel.TrySubmitDetached(submission_);
  if (sent && !*sent && Clock::now() < *crew_->closing_) {
    crew_->starved_.store(true);
    return false;
  }
  deferred_ = false;
  error_ = sent ? Error{Code::kStale, "this client was closed"} : sent.error();
  return true;
}

void RequestOperation::Undefer() {
  if (!std::exchange(deferred_, false)) return;
  behind_.clear();
  crew_->RemoveDeferred(*this);
}

bool RequestOperation::done() {
  auto& channel = crew_->session().channel();
  channel.Poll();
  if (cancelled_.load() || channel.ended()) return true;
  if (const Pending* pending = pending_.load()) return pending->done();
  std::lock_guard lock(crew_->mutex_);
  return error_.has_value() || Clock::now() >= expires_;
}

bool RequestOperation::WaitUntilSent(Clock::time_point deadline) {
  std::unique_lock lock(crew_->mutex_);
  if (deferred_ && !cancelled_.load() && !std::exchange(awaited_, true)) {
    lock.unlock();
    crew_->WakeThreads();
    lock.lock();
  }
  crew_->finished_.wait_until(lock, std::min(deadline, expires_), [this] { return !deferred_ || cancelled_.load(); });
  if (!deferred_ || cancelled_.load()) return true;
  if (Clock::now() < expires_) return false;
  Undefer();
  error_ = Expired();
  return true;
}

bool RequestOperation::Wait(Clock::time_point deadline) {
  if (pending_.load() == nullptr && !WaitUntilSent(deadline)) return false;
  const Pending* const pending = pending_.load();
  if (pending == nullptr) return true;
  auto& channel = crew_->session().channel();
  const auto waited = channel.Wait(pending, deadline, &cancelled_);
  return waited || pending->done() || cancelled_.load() || channel.ended();
}

Result<Outcome> RequestOperation::Take() {
  std::ranges::fill(leases_, nullptr);
  auto& session = crew_->session();
  Pending* const pending = pending_.load();
  if (pending == nullptr) {  // Else no lock: what is taken makes the room that the crew may wait for.
    std::lock_guard lock(crew_->mutex_);
    if (error_) return std::unexpected(*error_);
  }
  const bool answered = pending != nullptr && pending->done();
  if (cancelled_.load() && !answered) return Fail(Code::kTimeout, "the call was cancelled");
  if (!answered) return std::unexpected(session.channel().end_reason());
  const Status status = leases_.empty() ? pending->ToStatus() : session.Grant(*pending, submission_, leases_);
  pending_.store(nullptr);
  session.channel().Finish(pending);
  if (!status) {
    std::ranges::fill(leases_, nullptr);
    return std::unexpected(status.error());
  }
  session.counters().acquires.fetch_add(leases_.size(), std::memory_order_relaxed);
  return Outcome{};
}

void RequestOperation::Cancel() {
  {
    std::lock_guard lock(crew_->mutex_);
    cancelled_.store(true);
    if (!frees()) Undefer();
    if (deferred_ && std::exchange(counted_, false)) crew_->started_.fetch_sub(1);  // Nobody's to end any more.
  }
  crew_->finished_.notify_all();
  crew_->session().channel().WakeAll();
}

}  // namespace tier::swap
