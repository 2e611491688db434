#include "libclient/swap/copy_scheduler.h"

#include <algorithm>
#include <string>
#include <utility>

#include "libclient/client/invariant.h"
#include "proto/start_thread.h"

namespace tier::swap {
namespace {

using client::Clock;
using client::Pending;

// A range keeps its part of the budget from its request until all of it is read, checked and copied: the larger it is,
// the more of the budget waits for its last piece instead of being on the device.
constexpr uint64_t kRangesAtATime = 16;

// Enough for a device to be busy all the time: what is granted waits for its copy, what is asked for waits for the
// device. Where that is less, a quarter of the largest arena there can be, so that several clients fit, and beside it
// an eighth of that for the range that is being copied; at least a block.
uint64_t BudgetFor(const client::WindowMap& windows) {
  const uint64_t arena_max = windows.address_space_size() / 2;
  const uint64_t quarter = AlignUp(arena_max / 4, kBlockSize);
  return std::clamp(quarter + quarter / 8 / kBlockSize * kBlockSize, kBlockSize, kBudgetBytesMax);
}

TensorOrder::Kind KindOf(const CopyRequest& request) {
  const bool reads = request.direction == Direction::kIn && (request.flags & proto::kFlagFreeAfter) == 0;
  return reads ? TensorOrder::Kind::kReadingSwap : TensorOrder::Kind::kWritingSwap;
}

}  // namespace

CopyScheduler::CopyScheduler(client::Session& session, const CopySchedulerOptions& options)
    : session_(session),
      options_(options),
      budget_bytes_(BudgetFor(session.windows())),
      range_bytes_(std::clamp(budget_bytes_ / kRangesAtATime / kBlockSize * kBlockSize, kBlockSize, kRangeBytesMax)),
      order_(unfinished_),
      queue_(session, answers_, order_) {
  session_.Hold();
}

CopyScheduler::~CopyScheduler() { session_.Drop(); }

// ---- Swaps ----

Result<std::shared_ptr<CopyOperation>> CopyScheduler::Start(const CopyRequest& request,
                                                            std::unique_ptr<DevicePort> device) {
  const bool run_inline = device == nullptr && request.size < kInlineBytesMax && unfinished_.load() == 0;
  auto swap = std::make_shared<CopyOperation>(static_cast<CopyHost&>(*this), request, std::move(device));
  if (!run_inline) {
    // Before it is queued: what is queued will touch the caller's memory.
    if (auto threads = EnsureThreads(); !threads) return std::unexpected(threads.error());
  }
  if (auto queued = Enqueue(swap); !queued) return std::unexpected(queued.error());
  if (run_inline && RunInline(*swap, Clock::now() + options_.inline_wait_max)) return swap;
  if (auto threads = EnsureThreads(); !threads) {
    Cancel(swap);
    while (!RunInline(*swap, Clock::now() + options_.inline_wait_max)) continue;
    return std::unexpected(threads.error());
  }
  WakeThreads();
  return swap;
}

Status CopyScheduler::Enqueue(const std::shared_ptr<CopyOperation>& swap) {
  const MutexLock lock(mutex_);
  const auto& request = swap->request();
  const proto::RequestItem item{.tensor = request.tensor};
  const auto ticket = order_.Add(KindOf(request), request.flags, {&item, 1});
  if (!order_.MayBegin(ticket) && order_.FollowsSwap(ticket)) {
    if (auto may_wait = MayWait(request.flags); !may_wait) {
      Leave(ticket);
      return may_wait;
    }
  }
  queued_.push_back({swap, ticket});
  return {};
}

bool CopyScheduler::RunInline(const CopyOperation& swap, Clock::time_point deadline) {
  const MutexLock lock(mutex_);
  while (!swap.ended()) {
    const uint64_t seen = answers_.events.load();
    if (TakeTurn() == Turn::kWorked) continue;
    if (swap.ended() || Clock::now() >= deadline) break;
    AwaitAnswer(seen, deadline);
  }
  return swap.ended();
}

bool CopyScheduler::HasEnded(const CopyOperation& swap) const {
  const MutexLock lock(mutex_);
  return swap.ended();
}

bool CopyScheduler::AwaitEnd(const CopyOperation& swap, Clock::time_point deadline) {
  const MutexLock lock(mutex_);
  while (!swap.ended() && finished_.WaitUntil(mutex_, deadline)) continue;
  return swap.ended();
}

Result<Outcome> CopyScheduler::OutcomeOf(const CopyOperation& swap) const {
  const MutexLock lock(mutex_);
  return swap.outcome();
}

void CopyScheduler::Cancel(const std::shared_ptr<CopyOperation>& swap) {
  {
    const MutexLock lock(mutex_);
    swap->Cancel();
    // One that waits for its turn has begun nothing: it can end at once.
    const auto entry = std::ranges::find(queued_, swap, &Swap::operation);
    if (entry != queued_.end() && swap->Advance()) {
      const auto ticket = entry->ticket;
      queued_.erase(entry);
      Leave(ticket);
    }
  }
  WakeThreads();
}

// ---- Started requests ----

bool CopyScheduler::CountStarted() {
  if (started_.fetch_add(1) < kStartedMax) return true;
  started_.fetch_sub(1);
  return false;
}

Status CopyScheduler::Start(const std::shared_ptr<RequestOperation>& request) {
  // Where nothing is in front of it no lock is needed. A free always asks the queue, which may hold back abandoned
  // ones.
  if (unfinished_.load() == 0 && !request->frees()) {
    // In the group from the start: should it be abandoned, a copy thread waits for it.
    auto pending = session_.channel().TrySubmit(request->submission(), client::Credit::kStarted, &answers_);
    if (!pending) return std::unexpected(pending.error());
    if (*pending != nullptr) {
      request->MarkSent(*pending);
      return {};
    }
  }
  {
    const MutexLock lock(mutex_);
    queue_.Defer(request);
    SendReady();
    if (!request->unsent()) return {};
  }
  // Without a copy thread, the thread that ends the swap in front of it sends it; without a swap none would.
  if (auto threads = EnsureThreads(); !threads) {
    const MutexLock lock(mutex_);
    if (queue_.Waits(*request) && queue_.Withdraw(*request, threads.error())) {
      finished_.NotifyAll();
      return std::unexpected(threads.error());
    }
  }
  WakeThreads();
  return {};
}

bool CopyScheduler::AwaitSent(const RequestOperation& request, Clock::time_point deadline) {
  if (request.cancelled().load()) return true;
  bool first = false;
  {
    const MutexLock lock(mutex_);
    first = queue_.MarkAwaited(request);
  }
  if (first) WakeThreads();
  bool left = false;
  {
    const MutexLock lock(mutex_);
    const auto until = std::min(deadline, request.expires());
    while (request.unsent() && !request.cancelled().load() && finished_.WaitUntil(mutex_, until)) continue;
    if (!request.unsent() || request.cancelled().load()) return true;
    if (Clock::now() < request.expires()) return false;
    left = queue_.Expire(request);
    if (left) SendReady();
  }
  finished_.NotifyAll();
  WakeThreads();
  return true;
}

void CopyScheduler::Cancel(RequestOperation& request) {
  {
    const MutexLock lock(mutex_);
    request.Cancel();
    if (!request.unsent()) {
      // Its answer is the daemon's to give.
    } else if (!request.frees()) {
      if (queue_.Withdraw(request, {Code::kTimeout, "the call was cancelled"})) SendReady();
    } else if (request.TakeCount()) {
      UncountStarted();  // No caller has to end it any more.
    }
  }
  finished_.NotifyAll();
  WakeThreads();
  session_.channel().WakeAll();
}

void CopyScheduler::TakeOver(Pending* pending, const client::Submission& submission) {
  {
    const MutexLock lock(mutex_);
    queue_.Abandon(pending, submission);
  }
  // Without a thread it is settled by the next swap's, or goes with the session.
  (void)EnsureThreads();
  WakeThreads();
}

// ---- Other calls ----

Status CopyScheduler::WaitForTurn(client::Submission* submission) {
  if (unfinished_.load() == 0) return {};
  const MutexLock lock(mutex_);
  const auto ticket = order_.Add(TensorOrder::Kind::kRequest, submission->flags, submission->items);
  ++calls_waiting_;
  Status waited = AwaitTurn(ticket, submission);
  --calls_waiting_;
  Leave(ticket);
  return waited;
}

Status CopyScheduler::AwaitTurn(TensorOrder::Ticket ticket, client::Submission* submission) {
  if (order_.MayBegin(ticket)) return {};
  if (order_.FollowsSwap(ticket)) {
    if (auto may_wait = MayWait(submission->flags); !may_wait) return may_wait;
  }
  const auto deadline = session_.channel().DeadlineOf(submission->timeout_ms, Clock::now());
  while (!order_.MayBegin(ticket)) {
    if (finished_.WaitUntil(mutex_, deadline) || order_.MayBegin(ticket)) continue;
    return std::unexpected(order_.FollowsSwap(ticket) ? BehindSwap() : client::NoRoom());
  }
  submission->timeout_ms = client::LeftUntil(deadline, Clock::now());
  return {};
}

bool CopyScheduler::HasSwap(uint64_t tensor, uint32_t flags) const {
  if (unfinished_.load() == 0) return false;
  const MutexLock lock(mutex_);
  return order_.HasSwap(tensor, flags);
}

void CopyScheduler::Close() {
  {
    const MutexLock lock(mutex_);
    queue_.Close(Clock::now() + kCloseWaitMax);
  }
  WakeThreads();
  std::vector<std::thread> ending;
  {
    const MutexLock lock(mutex_);
    while (HasUnfinished()) {
      if (!threads_.empty()) {
        finished_.Wait(mutex_);
        continue;
      }
      const uint64_t seen = answers_.events.load();
      if (TakeTurn() != Turn::kWorked && HasUnfinished()) AwaitAnswer(seen, Clock::now() + client::kRoomWaitMax);
    }
    stopping_ = true;
    ending.swap(threads_);
  }
  WakeThreads();
  for (std::thread& thread : ending) thread.join();
}

bool CopyScheduler::HasUnfinished() const { return !queued_.empty() || !active_.empty() || queue_.deferred() > 0; }

// ---- Threads ----

Status CopyScheduler::EnsureThreads() {
  const MutexLock lock(mutex_);
  if (!threads_.empty() || stopping_) return {};
  for (int i = 0; i < options_.threads; ++i) {
    auto thread =
        proto::StartThread("tier-copy", proto::BlockedSignals::kAll, [this] { Run(); }, proto::Urgency::kBulk);
    if (thread) {
      threads_.push_back(std::move(*thread));
    } else if (threads_.empty()) {
      return std::unexpected(thread.error());  // Fewer than wanted are slower, not wrong.
    }
  }
  return {};
}

void CopyScheduler::WakeThreads() {
  bool wake_sleepers = false;
  {
    const MutexLock lock(mutex_);
    wake_sleepers = awaiting_answers_ > 0;
  }
  work_.NotifyAll();
  if (wake_sleepers) session_.channel().WakeGroup(answers_);
}

void CopyScheduler::Run() {
  const MutexLock lock(mutex_);
  while (!stopping_) {
    const uint64_t seen = answers_.events.load();
    const Turn turn = TakeTurn();
    if (turn == Turn::kWorked || stopping_) continue;
    if (turn == Turn::kIdle) {
      while (!stopping_ && IsIdle()) work_.Wait(mutex_);
    } else if (session_.channel().ended()) {
      // Only a copy in another thread is left to end.
      (void)work_.WaitUntil(mutex_, Clock::now() + client::kRoomWaitMax);
    } else {
      AwaitAnswer(seen, Clock::time_point::max());
    }
  }
}

void CopyScheduler::AwaitAnswer(uint64_t seen, Clock::time_point deadline) {
  if (starved_ || queue_.starved()) deadline = std::min(deadline, Clock::now() + client::kRoomWaitMax);
  ++awaiting_answers_;
  {
    const MutexUnlock unlocked(mutex_);
    session_.channel().WaitGroup(answers_, seen, deadline);
  }
  --awaiting_answers_;
}

// ---- Turns ----

CopyScheduler::Turn CopyScheduler::TakeTurn() {
  starved_ = false;
  queue_.SettleAbandoned();
  SendReady();
  Admit();
  bool ended = false;
  for (auto swap = active_.begin(); swap != active_.end();) {
    if (!swap->operation->Advance()) {
      ++swap;
      continue;
    }
    const auto ticket = swap->ticket;
    swap = active_.erase(swap);
    Leave(ticket);
    ended = true;
  }
  session_.channel().RingForSubmitted();
  CheckInDebug();
  if (ended || CopyOne()) return Turn::kWorked;
  return IsIdle() ? Turn::kIdle : Turn::kWaiting;
}

bool CopyScheduler::IsIdle() const { return active_.empty() && queued_.empty() && !queue_.HasWork(); }

void CopyScheduler::Admit() {
  for (auto swap = queued_.begin(); swap != queued_.end() && active_.size() < kActiveSwapsMax;) {
    if (!order_.MayBegin(swap->ticket)) {
      ++swap;
      continue;
    }
    active_.push_back(std::move(*swap));
    swap = queued_.erase(swap);
  }
}

bool CopyScheduler::CopyOne() {
  for (const Swap& swap : active_) {
    CopyOperation::Chunk* const chunk = swap.operation->Claim();
    if (chunk == nullptr) continue;
    CopyChunk(swap.operation, *chunk);
    return true;
  }
  for (const Swap& swap : active_) {
    CopyOperation::Chunk* const chunk = swap.operation->ClaimOnDevice();
    if (chunk == nullptr) continue;
    CopyChunk(swap.operation, *chunk);
    return true;
  }
  return false;
}

// By value: it may leave active_ while the lock is not held. NOLINTNEXTLINE(performance-unnecessary-value-param)
void CopyScheduler::CopyChunk(std::shared_ptr<CopyOperation> swap, CopyOperation::Chunk& chunk) {
  const bool was_on_device = static_cast<bool>(chunk.event);
  Status status;
  {
    const MutexUnlock unlocked(mutex_);
    status = swap->Copy(chunk);
  }
  swap->Copied(chunk, status, !was_on_device && static_cast<bool>(chunk.event));
}

void CopyScheduler::Leave(TensorOrder::Ticket ticket) {
  const bool there = order_.Remove(ticket);
  (void)TIER_INVARIANT(session_.channel(), there, "ticket " + std::to_string(ticket) + " is not in the order");
  SendReady();
  finished_.NotifyAll();
  if (queued_.empty() && !queue_.starved()) return;
  // A queued swap may begin now, or a request that found no room must be sent in a later turn. The copy threads sleep
  // until there is work, or until an answer comes, and no answer is on its way for that: this may be any thread.
  work_.NotifyAll();
  if (awaiting_answers_ > 0) session_.channel().WakeGroup(answers_);
}

void CopyScheduler::SendReady() {
  if (queue_.SendReady()) finished_.NotifyAll();
}

Result<Pending*> CopyScheduler::TrySubmit(const client::Submission& submission) {
  auto pending = session_.channel().TrySubmitQuietly(submission, client::Credit::kCall, &answers_);
  if (pending && *pending == nullptr) starved_ = true;
  return pending;
}

bool CopyScheduler::FitsBudget(uint64_t bytes) const {
  return reserved_bytes_ == 0 || reserved_bytes_ + bytes <= budget_bytes_;
}

void CopyScheduler::Unreserve(uint64_t bytes) {
  if (!TIER_INVARIANT(session_.channel(), bytes <= reserved_bytes_,
                      std::to_string(bytes) + " bytes of " + std::to_string(reserved_bytes_))) {
    return;
  }
  reserved_bytes_ -= bytes;
}

// ---- Invariants ----

Status CopyScheduler::CheckInvariants() const {
  const MutexLock lock(mutex_);
  return CheckLocked();
}

Status CopyScheduler::CheckLocked() const {
  if (auto order = order_.CheckInvariants(); !order) return order;
  if (auto queue = queue_.CheckInvariants(); !queue) return queue;
  uint64_t reserved = 0;
  for (const Swap& swap : active_) reserved += swap.operation->reserved_bytes();
  if (reserved != reserved_bytes_ || active_.size() > kActiveSwapsMax) {
    return Fail(Code::kInvalid, std::to_string(reserved_bytes_) + " bytes reserved, the " +
                                    std::to_string(active_.size()) + " active swaps have " + std::to_string(reserved));
  }
  const uint64_t tickets = queued_.size() + active_.size() + queue_.deferred() + calls_waiting_;
  if (tickets == order_.size()) return {};
  return Fail(Code::kInvalid,
              std::to_string(order_.size()) + " tickets in the order, " + std::to_string(tickets) + " operations");
}

// After each turn, where a broken invariant aborts anyway. Too slow for release builds: it looks at every ticket.
void CopyScheduler::CheckInDebug() const {
#if !defined(NDEBUG)
  const Status intact = CheckLocked();
  (void)TIER_INVARIANT(session_.channel(), intact.has_value(), intact.error().message);
#endif
}

}  // namespace tier::swap
