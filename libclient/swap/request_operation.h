// RequestOperation: one request whose answer is waited for later, in slices if need be. Nobody asked for it any more
// when it is destroyed unanswered: the crew then gives back what it still grants.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "libclient/swap/copy_crew.h"
#include "libclient/swap/operation.h"

namespace tier::swap {

class RequestOperation final : public Operation {
 public:
  // `leases` is filled by Take and must live until then.
  RequestOperation(std::shared_ptr<CopyCrew> crew, client::Pending* pending, const client::Submission& submission,
                   std::span<client::Lease*> leases);
  ~RequestOperation() override;

  bool done() override;
  bool Wait(std::chrono::steady_clock::time_point deadline) override;
  Result<Outcome> Take() override;
  void Cancel() override { cancelled_.store(true); }

 private:
  std::shared_ptr<CopyCrew> crew_;
  client::Pending* pending_;
  client::Submission submission_;
  std::vector<proto::RequestItem> items_;
  std::span<client::Lease*> leases_;
  std::atomic<bool> cancelled_{false};
};

}  // namespace tier::swap
