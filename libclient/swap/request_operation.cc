#include "libclient/swap/request_operation.h"

#include <algorithm>

namespace tier::swap {

RequestOperation::RequestOperation(std::shared_ptr<CopyCrew> crew, client::Pending* pending,
                                   const client::Submission& submission, std::span<client::Lease*> leases)
    : crew_(std::move(crew)),
      pending_(pending),
      submission_(submission),
      items_(submission.items.begin(), submission.items.end()),
      leases_(leases) {
  submission_.items = items_;
}

RequestOperation::~RequestOperation() {
  auto& session = crew_->session();
  if (pending_ == nullptr || session.forked() || session.channel().ended()) return;
  crew_->Adopt(pending_, submission_);
}

bool RequestOperation::done() {
  crew_->session().channel().Poll();
  return cancelled_.load() || pending_ == nullptr || pending_->done() || crew_->session().channel().ended();
}

bool RequestOperation::Wait(std::chrono::steady_clock::time_point deadline) {
  if (cancelled_.load() || pending_ == nullptr) return true;
  const auto waited = crew_->session().channel().Wait(pending_, deadline);
  return waited || pending_->done() || crew_->session().channel().ended();
}

Result<Outcome> RequestOperation::Take() {
  std::ranges::fill(leases_, nullptr);
  auto& session = crew_->session();
  if (cancelled_.load() && !pending_->done()) return Fail(Code::kTimeout, "the call was cancelled");
  if (!pending_->done()) return std::unexpected(session.channel().end_reason());
  const Status status = leases_.empty() ? pending_->ToStatus() : session.Grant(*pending_, submission_, leases_);
  session.channel().Finish(std::exchange(pending_, nullptr));
  if (!status) {
    std::ranges::fill(leases_, nullptr);
    return std::unexpected(status.error());
  }
  return Outcome{};
}

}  // namespace tier::swap
