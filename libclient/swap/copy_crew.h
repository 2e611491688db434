// CopyCrew: the copy threads of one client, and the order among its swaps.
//
// The idea: every operation is a state machine; a thread takes turns over all of them, copying whichever range is
// granted and sleeping only when none is. Operations on one tensor keep their order (reads may run side by side), so a
// swap-in behind its own swap-out is served from RAM. A small swap in an idle client is done by the caller's own
// thread. Threads: any. Lock order: the crew's lock, then the channel's.
//
// Invariants: inflight_bytes_ == Σ lengths of ranges asked for and not finished; it exceeds budget_bytes_ only when a
//   single range does; unfinished_ == operations queued or active + requests deferred; nothing is waited for under the
//   crew's lock: what finds no room on the ring is sent in a later turn; started requests, whether somebody waits for
//   them or not, leave kKeptFromStarted places to swaps and calls that wait, and hold up none of other tensors.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "libclient/client/session.h"
#include "libclient/swap/copy_operation.h"
#include "libclient/swap/operation.h"

namespace tier::swap {

inline constexpr int kCopyThreadsMax = 64;
inline constexpr uint32_t kActiveOperationsMax = 64;  // Those that may ask for ranges at the same time.
// Requests started and not taken: all of them fit into what is not kept from them, so that none depends on another's
// being taken. Those given up do not count: the daemon answers them, and who lets go of a tensor is not refused.
inline constexpr uint32_t kStartedMax = proto::kRequestsOutstandingMax - client::kKeptFromStarted;
// With as many given up and not answered, frees that nobody waits for are sent after the next answers: the daemon may
// take as long as others hold leases, and other started calls need room too. Half of what makes releases ring
// (Channel).
inline constexpr uint32_t kGivenUpMax = proto::kRequestsOutstandingMax / 4;
inline constexpr uint64_t kBudgetBytesMax = 128 * kMiB;
inline constexpr uint64_t kInlineBytesMax = kMiB;  // Below it the caller's thread may copy.
inline constexpr std::chrono::microseconds kInlineWaitMax{200};
inline constexpr std::chrono::milliseconds kRoomWaitMax{1};      // Nothing tells of room in the ring.
inline constexpr std::chrono::milliseconds kCloseWaitMax{2000};  // For room, to send what Close finds unsent.

class RequestOperation;

// How requests wait for swaps of their own client: by the flags and the deadline that they carry.
Error BehindSwap();              // TIMEOUT
Status MayWait(uint32_t flags);  // TIMEOUT or WOULD_DEADLOCK for flags that forbid it.

class CopyCrew : public std::enable_shared_from_this<CopyCrew> {
 public:
  CopyCrew(client::Session& session, int threads);
  ~CopyCrew();
  CopyCrew(const CopyCrew&) = delete;
  CopyCrew& operator=(const CopyCrew&) = delete;

  // Starts a swap. INVALID for what can never be right, TIMEOUT for what must not wait behind another, NO_MEMORY
  // without a thread to do it: then nothing has begun, or it has ended.
  Result<std::shared_ptr<Operation>> StartCopy(const CopyRequest& request);
  // Starts a request that is waited for later; a create or acquire fills `leases` when its outcome is taken. Never
  // waits: behind unfinished swaps of its tensors it is sent when they have ended, and on a full ring when there is
  // room. NO_MEMORY beyond kStartedMax.
  Result<std::shared_ptr<Operation>> StartRequest(const client::Submission& submission,
                                                  std::span<client::Lease*> leases);
  // Returns when no swap of the tensors named (none: of any) is unfinished, and no started request of them unsent, by
  // the request's own flags and deadline; what is left of that stays in submission->timeout_ms. TIMEOUT,
  // WOULD_DEADLOCK.
  Status WaitForSwaps(client::Submission* submission);
  bool Busy(uint64_t tensor, uint32_t flags);
  // Waits for all swaps, then ends the threads. What waited behind them is sent if there is room for it by then, or
  // soon, and nobody gets its answer. Needs nobody to take answers, and no thread.
  void Close();

  // A request nobody waits for any more. What it grants is given back untouched.
  void Adopt(client::Pending* pending, const client::Submission& submission);

  client::Session& session() { return session_; }

 private:
  friend class CopyOperation;
  friend class RequestOperation;
  using Key = std::pair<uint64_t, uint32_t>;  // Tensor, kFlagShared or 0.
  enum class Turn { kWorked, kWaiting, kIdle };
  struct Orphan {
    client::Pending* pending;
    client::Submission submission;
    std::vector<proto::RequestItem> items;
  };

  static Key KeyOf(uint64_t tensor, uint32_t flags) { return {tensor, flags & proto::kFlagShared}; }
  // TIMEOUT behind another swap of the tensor, where it must not wait.
  Status Enqueue(const std::shared_ptr<CopyOperation>& operation);
  // Takes turns on this thread. True when it has ended; false at the deadline.
  bool RunInline(const std::shared_ptr<CopyOperation>& operation, client::Clock::time_point deadline);
  // At least one thread runs.
  Status EnsureThreads();
  void WakeThreads();
  void Run();
  // Sleeps until an answer to the crew, or until there may be room, at most until `deadline`.
  void AwaitAnswer(std::unique_lock<std::mutex>& lock, uint64_t seen, client::Clock::time_point deadline);
  Turn TakeTurn(std::unique_lock<std::mutex>& lock);
  bool CopyOne(std::unique_lock<std::mutex>& lock);
  void Admit();
  bool Admissible(const CopyOperation& operation) const;
  void EndIfQueued(CopyOperation& operation);
  std::vector<const CopyOperation*> SwapsBefore(const client::Submission& submission) const;
  // Null when there is no room now: to be asked again in a later turn.
  Result<client::Pending*> TrySubmit(const client::Submission& submission, uint32_t kept = client::kKeptForDetached);
  // Sends the deferred that wait for no swap any more, in the order asked until one finds no room. Only frees that
  // wait for answers are passed, by what names none of their tensors.
  void SendReady();
  bool AnyReady() const;
  // Whether it is to be sent after what was asked before it and waits for room, or as a free after answers.
  bool HeldBack(const RequestOperation& request) const;
  // Whether what was asked before (`until`: that one) names one of its tensors and waits, for no swap.
  bool BehindUnsent(const client::Submission& submission, const RequestOperation* until = nullptr) const;
  // To be sent later, unless it may not wait and has ended. Under the crew's lock.
  void DeferLocked(const std::shared_ptr<RequestOperation>& request, std::vector<const CopyOperation*> behind);
  void RemoveDeferred(const RequestOperation& request);
  bool Idle() const;
  void AdoptLocked(client::Pending* pending, const client::Submission& submission);
  void SettleOrphans();
  void Settle(Orphan& orphan);
  void Forget(const CopyOperation& operation);

  client::Session& session_;
  const int threads_wanted_;
  uint64_t range_bytes_;
  uint64_t budget_bytes_;

  std::mutex mutex_;
  std::condition_variable work_;      // Something to do for a thread that sleeps without requests on their way.
  std::condition_variable finished_;  // An operation ended, or a deferred request was sent.
  client::Group group_;               // Answers to the crew's requests.
  std::deque<std::shared_ptr<CopyOperation>> queued_;
  std::list<std::shared_ptr<CopyOperation>> active_;
  std::map<Key, std::deque<CopyOperation*>> by_tensor_;  // Unfinished ones, in the order asked.
  std::list<Orphan> orphans_;
  std::vector<std::shared_ptr<RequestOperation>> deferred_;  // Behind swaps, or each other, in the order asked.
  std::atomic<uint32_t> started_{0};                         // RequestOperations but deferred frees given up.
  std::atomic<uint64_t> unfinished_{0};
  uint64_t inflight_bytes_ = 0;
  uint32_t waiting_in_group_ = 0;
  std::atomic<bool> starved_{false};  // Something found no room in this turn.
  bool stopping_ = false;
  std::optional<client::Clock::time_point> closing_;  // Since Close: until when there is to be room.
  std::vector<std::thread> threads_;
};

}  // namespace tier::swap
