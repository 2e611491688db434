#include "libclient/swap/request_handle.h"

#include <algorithm>
#include <string>

namespace tier::swap {

using client::Clock;
using client::Pending;

RequestHandle::~RequestHandle() {
  auto& session = scheduler_->session();
  if (session.forked()) return;
  Pending* const pending = request_->TakePending();
  if (pending != nullptr && !session.channel().ended()) scheduler_->TakeOver(pending, request_->submission());
  if (request_->TakeCount()) scheduler_->UncountStarted();
}

bool RequestHandle::done() {
  auto& channel = scheduler_->session().channel();
  channel.Poll();
  if (request_->cancelled().load() || channel.ended()) return true;
  if (const Pending* pending = request_->pending()) return pending->done();
  return request_->refused() || Clock::now() >= request_->expires();
}

bool RequestHandle::Wait(Clock::time_point deadline) {
  if (request_->unsent() && !scheduler_->AwaitSent(*request_, deadline)) return false;
  const Pending* const pending = request_->pending();
  if (pending == nullptr) return true;
  auto& channel = scheduler_->session().channel();
  const auto waited = channel.Wait(pending, deadline, &request_->cancelled());
  return waited || pending->done() || request_->cancelled().load() || channel.ended();
}

Result<Outcome> RequestHandle::Take() {
  std::ranges::fill(request_->leases(), nullptr);
  if (request_->refused()) return std::unexpected(request_->refusal());
  const Pending* const pending = request_->pending();
  if (pending != nullptr && pending->done()) return TakeAnswer(request_->TakePending());
  if (request_->cancelled().load()) return Fail(Code::kTimeout, "the call was cancelled");
  return std::unexpected(scheduler_->session().channel().end_reason());
}

Result<Outcome> RequestHandle::TakeAnswer(Pending* pending) {
  auto& session = scheduler_->session();
  const auto leases = request_->leases();
  const Status status = leases.empty() ? pending->ToStatus() : session.Grant(*pending, request_->submission(), leases);
  session.channel().Finish(pending);
  if (!status) {
    std::ranges::fill(leases, nullptr);
    return std::unexpected(status.error());
  }
  session.counters().acquires.fetch_add(leases.size(), std::memory_order_relaxed);
  return Outcome{};
}

Result<std::shared_ptr<Operation>> StartRequest(const std::shared_ptr<CopyScheduler>& scheduler,
                                                const client::Submission& submission,
                                                std::span<client::Lease*> leases) {
  if (!scheduler->CountStarted()) {
    return Fail(Code::kNoMemory, std::to_string(kStartedMax) +
                                     " started calls of this client have not been ended: end some of them with "
                                     "tier_wait before more are started");
  }
  const auto expires = scheduler->session().channel().DeadlineOf(submission.timeout_ms, Clock::now());
  auto request = std::make_shared<RequestOperation>(submission, leases, expires);
  auto handle = std::make_shared<RequestHandle>(scheduler, request);
  if (auto started = scheduler->Start(request); !started) return std::unexpected(started.error());
  return handle;
}

}  // namespace tier::swap
