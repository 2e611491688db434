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
}

RequestOperation::~RequestOperation() {
  auto& session = crew_->session();
  if (session.forked()) return;
  {
    std::lock_guard lock(crew_->mutex_);
    Undefer();
  }
  Pending* const pending = pending_.load();
  if (pending != nullptr && !session.channel().ended()) crew_->Adopt(pending, submission_);
}

Status RequestOperation::Send() {
  // In the group from the start: should it be given up, a thread of the crew waits for it.
  auto pending = crew_->session().channel().Submit(submission_, &crew_->group_);
  if (!pending) return std::unexpected(pending.error());
  pending_.store(*pending);
  return {};
}

void RequestOperation::Defer(std::vector<const CopyOperation*> behind) {
  if (auto may_wait = MayWait(submission_.flags); !may_wait) {
    error_ = may_wait.error();
    return;
  }
  behind_ = std::move(behind);
  expires_ = DeadlineOf(submission_.timeout_ms);
  crew_->deferred_.push_back(this);
}

bool RequestOperation::SendAfter(const CopyOperation& ended) {
  std::erase(behind_, &ended);
  if (!behind_.empty()) return false;
  submission_.timeout_ms = LeftUntil(expires_);
  if (Clock::now() >= expires_) {
    error_ = BehindSwap();
  } else if (auto sent = Send(); !sent) {
    error_ = sent.error();
  }
  return true;
}

void RequestOperation::Undefer() {
  behind_.clear();
  std::erase(crew_->deferred_, this);
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
  crew_->finished_.wait_until(lock, std::min(deadline, expires_),
                              [this] { return behind_.empty() || cancelled_.load(); });
  if (behind_.empty()) return true;
  if (Clock::now() < expires_) return false;
  Undefer();
  error_ = BehindSwap();
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
  {
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
  return Outcome{};
}

void RequestOperation::Cancel() {
  {
    std::lock_guard lock(crew_->mutex_);
    cancelled_.store(true);
    Undefer();
  }
  crew_->finished_.notify_all();
  crew_->session().channel().WakeAll();
}

}  // namespace tier::swap
