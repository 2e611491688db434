// RequestHandle: a started request as its caller sees it. The caller waits for the answer later, in slices if need be.
//
// A handle that is destroyed before its answer was taken leaves the request to the scheduler, which releases what it is
// still granted. Threads: any.
#pragma once

#include <memory>

#include "libclient/swap/copy_scheduler.h"
#include "libclient/swap/operation.h"
#include "libclient/swap/request_operation.h"

namespace tier::swap {

class RequestHandle final : public Operation {
 public:
  // `scheduler` has counted the request (CountStarted).
  RequestHandle(std::shared_ptr<CopyScheduler> scheduler, std::shared_ptr<RequestOperation> request)
      : scheduler_(std::move(scheduler)), request_(std::move(request)) {}
  ~RequestHandle() override;
  RequestHandle(const RequestHandle&) = delete;
  RequestHandle& operator=(const RequestHandle&) = delete;

  bool done() override;
  bool Wait(std::chrono::steady_clock::time_point deadline) override;
  Result<Outcome> Take() override;
  void Cancel() override { scheduler_->Cancel(*request_); }

 private:
  Result<Outcome> TakeAnswer(client::Pending* pending);

  std::shared_ptr<CopyScheduler> scheduler_;
  std::shared_ptr<RequestOperation> request_;
};

// Starts a request; a create or acquire fills `leases` when its outcome is taken. Never waits: the request is sent when
// unfinished swaps of its tensors have ended and there is room on the ring. NO_MEMORY beyond kStartedMax.
Result<std::shared_ptr<Operation>> StartRequest(const std::shared_ptr<CopyScheduler>& scheduler,
                                                const client::Submission& submission, std::span<client::Lease*> leases);

}  // namespace tier::swap
