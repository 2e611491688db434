// RequestOperation: one request whose answer is waited for later, in slices if need be. Nobody asked for it any more
// when it is destroyed unanswered: the crew then gives back what it still grants.
//
// It is sent when it is asked for; behind unfinished swaps of its tensors or a full ring (*deferred*), by the thread
// that ends the last of them, or in a later turn when the ring had no room. A free that is cancelled while deferred is
// sent all the same, and no longer counts as started: who lets go of a tensor does not wait. Threads: any; what is
// marked so, under the crew's lock.
// Invariant: it is in the crew's list, which keeps it alive, exactly while `deferred_`.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <unordered_set>
#include <vector>

#include "libclient/swap/copy_crew.h"
#include "libclient/swap/operation.h"

namespace tier::swap {

class RequestOperation final : public Operation {
 public:
  // `leases` is filled by Take and must live until then.
  RequestOperation(std::shared_ptr<CopyCrew> crew, const client::Submission& submission,
                   std::span<client::Lease*> leases);
  ~RequestOperation() override;

  // Puts the request on the ring. False when there is no room. Fails when the session has ended.
  Result<bool> Send();
  // Instead: it is to be sent when these have ended, and there is room. False when it may not wait for them: it has
  // ended. Under the crew's lock.
  bool Defer(std::vector<const CopyOperation*> behind);
  void NoLongerBehind(const CopyOperation& ended) { std::erase(behind_, &ended); }  // Under the crew's lock.
  bool deferred() const { return deferred_; }                                       // Under the crew's lock.
  bool ready() const { return deferred_ && behind_.empty(); }                       // Under the crew's lock.
  const client::Submission& submission() const { return submission_; }
  bool frees() const { return submission_.op == proto::Op::kFree; }
  bool awaited() const { return awaited_; }  // Under the crew's lock. Somebody has waited for it to be sent.
  // Of those, none being all: of the session's own, or of the shared ones as these flags say.
  bool NamesOneOf(const std::unordered_set<uint64_t>& tensors, uint32_t flags) const;
  // True when it has been sent, or refused; false when there is no room. Under the crew's lock. REQUIRES: ready.
  bool TrySend();

  bool done() override;
  bool Wait(std::chrono::steady_clock::time_point deadline) override;
  Result<Outcome> Take() override;
  void Cancel() override;

 private:
  bool TrySendAtClose();
  bool WaitUntilSent(client::Clock::time_point deadline);
  Error Expired() const { return behind_swaps_ ? BehindSwap() : client::NoRoom(); }
  void Undefer();

  std::shared_ptr<CopyCrew> crew_;
  std::atomic<client::Pending*> pending_{nullptr};  // Null until it is sent.
  client::Submission submission_;
  std::vector<proto::RequestItem> items_;
  std::span<client::Lease*> leases_;
  std::atomic<bool> cancelled_{false};
  bool counted_ = true;                       // The crew's lock. In CopyCrew::started_.
  bool awaited_ = false;                      // The crew's lock.
  bool deferred_ = false;                     // The crew's lock.
  std::vector<const CopyOperation*> behind_;  // The crew's lock.
  std::optional<Error> error_;                // The crew's lock. Refused before it was sent.
  client::Clock::time_point expires_;         // While deferred.
  bool behind_swaps_ = false;                 // What it was deferred for; else for room.
};

}  // namespace tier::swap
