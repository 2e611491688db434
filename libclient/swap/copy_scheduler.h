// CopyScheduler: the copy threads of one client, the byte budget of its swaps, and the lock under which swaps and
// started requests keep their order.
//
// The idea: every swap is a state machine; a thread advances all of them in turns, copies one granted chunk, and sleeps
// only when there is none. A small swap in an idle client is done by the caller's own thread. The TensorOrder decides
// which operation follows which, the RequestQueue keeps the requests that are not sent yet. Under the lock, threads
// wait only for its condition variables: a request that finds no room on the ring is sent in a later turn. Threads:
// any. Lock order: mutex_, then the channel's.
//
// Invariants (CheckInvariants): reserved_bytes_ == Σ reserved_bytes() of the active swaps; a range is asked for beyond
//   the budget only while no byte is reserved, or as the first of a creation; at most kActiveSwapsMax swaps are active;
//   tickets in the order == swaps queued + swaps active + requests deferred + calls that wait for their turn.
#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "libclient/client/session.h"
#include "libclient/swap/copy_operation.h"
#include "libclient/swap/request_queue.h"
#include "libclient/swap/tensor_order.h"
#include "proto/mutex.h"

namespace tier::swap {

inline constexpr int kCopyThreadsMax = 64;
inline constexpr uint32_t kActiveSwapsMax = 64;  // Swaps that may request ranges at the same time.
// The most started requests whose outcome the caller has not collected: as many as there are credits, so that sending a
// request never depends on collecting the outcome of another. Abandoned requests do not count: the daemon's answers
// give their credits back.
inline constexpr uint32_t kStartedMax = client::QuotaOf(client::Credit::kStarted);
inline constexpr uint64_t kBudgetBytesMax = 128 * kMiB;
// Calls have credits for all requests that swaps may have at once, and more: a stat and a range of each active swap,
// and a full budget of blocks.
static_assert(2 * kActiveSwapsMax + kBudgetBytesMax / kBlockSize < client::QuotaOf(client::Credit::kCall));
inline constexpr uint64_t kInlineBytesMax = kMiB;                // Below it the caller's thread may copy.
inline constexpr std::chrono::milliseconds kCloseWaitMax{2000};  // For room, to send what is deferred.

struct CopySchedulerOptions {
  int threads = 1;
  std::chrono::microseconds inline_wait_max{
      200};  // How long the caller's thread copies itself, until threads take over.
};

class CopyScheduler final : private CopyHost {
 public:
  CopyScheduler(client::Session& session, const CopySchedulerOptions& options);
  ~CopyScheduler();
  CopyScheduler(const CopyScheduler&) = delete;
  CopyScheduler& operator=(const CopyScheduler&) = delete;

  // ---- Swaps ----
  // Starts a swap that CheckRequest has passed. TIMEOUT or WOULD_DEADLOCK if it would have to wait behind another and
  // must not, NO_MEMORY if there is no thread for it: then it has not begun, or has ended.
  Result<std::shared_ptr<CopyOperation>> Start(const CopyRequest& request, std::unique_ptr<DevicePort> device);
  bool HasEnded(const CopyOperation& swap) const;
  // False when the deadline came first.
  bool AwaitEnd(const CopyOperation& swap, client::Clock::time_point deadline);
  Result<Outcome> OutcomeOf(const CopyOperation& swap) const;  // REQUIRES: it has ended.
  void Cancel(const std::shared_ptr<CopyOperation>& swap);

  // ---- Started requests ----
  // Sends a request, or keeps it until it may be sent; it never waits. Fails when the session has ended, or when there
  // is neither room nor a thread to wait for it.
  Status Start(const std::shared_ptr<RequestOperation>& request);
  // False when the deadline came first. True when it was sent, refused or cancelled.
  bool AwaitSent(const RequestOperation& request, client::Clock::time_point deadline);
  // A free that is cancelled while it is deferred is sent all the same.
  void Cancel(RequestOperation& request);
  // Takes over a sent request that no caller waits for any more. Leases that it is granted are released untouched.
  void TakeOver(client::Pending* pending, const client::Submission& submission);
  // Started requests whose outcome is not collected. CountStarted adds one; false when there are kStartedMax already.
  bool CountStarted();
  void UncountStarted() { started_.fetch_sub(1); }

  // ---- Other calls ----
  // Returns when the named tensors (none: all) have no unfinished swap and no unsent request in front of this one;
  // waits as its flags and its deadline allow, and leaves the remaining time in submission->timeout_ms. TIMEOUT,
  // WOULD_DEADLOCK.
  Status WaitForTurn(client::Submission* submission);
  bool HasSwap(uint64_t tensor, uint32_t flags) const;
  // Waits for all swaps, then ends the threads. Requests that are still deferred are sent if there is room for them by
  // then, or soon; their answers are not used. Needs neither a caller that collects outcomes nor a thread.
  void Close();

  client::Session& session() override { return session_; }
  // INVALID with the figures of the first equation that does not hold, here or in the parts.
  Status CheckInvariants() const;

 private:
  struct Swap {
    std::shared_ptr<CopyOperation> operation;
    TensorOrder::Ticket ticket = 0;
  };
  enum class Turn { kWorked, kWaiting, kIdle };

  // CopyHost, for the swaps, under the lock.
  uint64_t range_bytes() const override { return range_bytes_; }
  Result<client::Pending*> TrySubmit(const client::Submission& submission) override TIER_REQUIRES(mutex_);
  bool FitsBudget(uint64_t bytes) const override TIER_REQUIRES(mutex_);
  void Reserve(uint64_t bytes) override TIER_REQUIRES(mutex_) { reserved_bytes_ += bytes; }
  void Unreserve(uint64_t bytes) override TIER_REQUIRES(mutex_);
  void Abandon(client::Pending* pending, const client::Submission& submission) override TIER_REQUIRES(mutex_) {
    queue_.Abandon(pending, submission);
  }

  Status Enqueue(const std::shared_ptr<CopyOperation>& swap) TIER_EXCLUDES(mutex_);
  // Advances the swap on this thread. True when it has ended; false at the deadline.
  bool RunInline(const CopyOperation& swap, client::Clock::time_point deadline) TIER_EXCLUDES(mutex_);
  Status EnsureThreads() TIER_EXCLUDES(mutex_);  // At least one thread runs.
  void WakeThreads() TIER_EXCLUDES(mutex_);
  void Run() TIER_EXCLUDES(mutex_);
  // Releases the lock and sleeps until an answer to the scheduler comes, or until there may be room, at most until
  // `deadline`.
  void AwaitAnswer(uint64_t seen, client::Clock::time_point deadline) TIER_REQUIRES(mutex_);
  Turn TakeTurn() TIER_REQUIRES(mutex_);
  bool CopyOne() TIER_REQUIRES(mutex_);
  void CopyChunk(std::shared_ptr<CopyOperation> swap, CopyOperation::Chunk& chunk) TIER_REQUIRES(mutex_);
  void Admit() TIER_REQUIRES(mutex_);
  // A ticket's operation is over: operations that followed it may begin. Wakes the copy threads if any of these is left
  // to a turn.
  void Leave(TensorOrder::Ticket ticket) TIER_REQUIRES(mutex_);
  void SendReady() TIER_REQUIRES(mutex_);
  Status AwaitTurn(TensorOrder::Ticket ticket, client::Submission* submission) TIER_REQUIRES(mutex_);
  bool IsIdle() const TIER_REQUIRES(mutex_);
  bool HasUnfinished() const TIER_REQUIRES(mutex_);
  void CheckInDebug() const TIER_REQUIRES(mutex_);
  Status CheckLocked() const TIER_REQUIRES(mutex_);

  client::Session& session_;
  const CopySchedulerOptions options_;
  const uint64_t budget_bytes_;
  const uint64_t range_bytes_;
  client::Group answers_;                // Completions of the scheduler's requests.
  std::atomic<uint32_t> started_{0};     // RequestOperations that count.
  std::atomic<uint64_t> unfinished_{0};  // Tickets in the order.

  mutable Mutex mutex_;
  CondVar work_;      // There is work for a thread that sleeps while no request is on its way.
  CondVar finished_;  // A ticket was removed.
  TensorOrder order_ TIER_GUARDED_BY(mutex_);
  RequestQueue queue_ TIER_GUARDED_BY(mutex_);
  std::deque<Swap> queued_ TIER_GUARDED_BY(mutex_);
  std::list<Swap> active_ TIER_GUARDED_BY(mutex_);
  uint64_t reserved_bytes_ TIER_GUARDED_BY(mutex_) = 0;
  uint64_t calls_waiting_ TIER_GUARDED_BY(mutex_) = 0;
  uint32_t awaiting_answers_ TIER_GUARDED_BY(mutex_) = 0;  // Threads in AwaitAnswer.
  bool starved_ TIER_GUARDED_BY(mutex_) = false;           // A swap found no room in this turn.
  bool stopping_ TIER_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ TIER_GUARDED_BY(mutex_);
};

}  // namespace tier::swap
