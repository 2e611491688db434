// SwapHandle: a swap as its caller sees it.
#pragma once

#include <memory>

#include "libclient/swap/copy_scheduler.h"
#include "libclient/swap/operation.h"

namespace tier::swap {

class SwapHandle final : public Operation {
 public:
  SwapHandle(std::shared_ptr<CopyScheduler> scheduler, std::shared_ptr<CopyOperation> swap)
      : scheduler_(std::move(scheduler)), swap_(std::move(swap)) {}

  bool done() override { return scheduler_->HasEnded(*swap_); }
  bool Wait(std::chrono::steady_clock::time_point deadline) override { return scheduler_->AwaitEnd(*swap_, deadline); }
  Result<Outcome> Take() override { return scheduler_->OutcomeOf(*swap_); }
  void Cancel() override { scheduler_->Cancel(swap_); }

 private:
  std::shared_ptr<CopyScheduler> scheduler_;
  std::shared_ptr<CopyOperation> swap_;
};

// Starts a swap. INVALID for a request that CheckRequest refuses; else as CopyScheduler::Start.
Result<std::shared_ptr<Operation>> StartSwap(const std::shared_ptr<CopyScheduler>& scheduler,
                                             const CopyRequest& request);

}  // namespace tier::swap
