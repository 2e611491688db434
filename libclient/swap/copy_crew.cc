#include "libclient/swap/copy_crew.h"

#include <algorithm>
#include <unordered_set>

#include "libclient/client/start_thread.h"
#include "libclient/swap/request_operation.h"

namespace tier::swap {
namespace {

using client::Clock;
using client::Lease;
using client::Pending;
using proto::Op;

// Enough for a device to be busy all the time: what is granted waits for its copy, what is asked for waits for the
// device. A quarter of the largest arena there can be where that is less, so that several clients fit; at least a
// block.
uint64_t BudgetFor(const client::WindowMap& windows) {
  const uint64_t arena_max = windows.windows_max() * windows.window_size();
  return std::clamp(AlignUp(arena_max / 4, kBlockSize), kBlockSize, kBudgetBytesMax);
}

}  // namespace

Error BehindSwap() {
  return {Code::kTimeout, "a swap of this client's own is not finished on a tensor that the request names"};
}

Status MayWait(uint32_t flags) {
  if ((flags & proto::kFlagNoWait) != 0) return std::unexpected(BehindSwap());
  if ((flags & proto::kFlagNoWaitOwn) == 0) return {};
  return Fail(Code::kWouldDeadlock, BehindSwap().message + ": end it with tier_wait first");
}

CopyCrew::CopyCrew(client::Session& session, int threads) : session_(session), threads_wanted_(threads) {
  session_.Hold();
  budget_bytes_ = BudgetFor(session.windows());
  range_bytes_ = std::clamp(budget_bytes_ / 8 / kBlockSize * kBlockSize, kBlockSize, kRangeBytesMax);
}

CopyCrew::~CopyCrew() { session_.Drop(); }

Result<std::shared_ptr<Operation>> CopyCrew::StartCopy(const CopyRequest& request) {
  if (auto fits = CheckRequest(request); !fits) return std::unexpected(fits.error());
  auto device = DevicePort::Open(request);
  if (!device) return std::unexpected(device.error());
  const bool small = *device == nullptr && request.size < kInlineBytesMax;
  auto operation = std::make_shared<CopyOperation>(shared_from_this(), request, std::move(*device));
  const bool run_inline = small && unfinished_.load() == 0;
  if (!run_inline) {
    // Before it is queued: what the crew has, it will touch.
    if (auto threads = EnsureThreads(); !threads) return std::unexpected(threads.error());
  }
  if (auto queued = Enqueue(operation); !queued) return std::unexpected(queued.error());
  if (run_inline && RunInline(operation, Clock::now() + kInlineWaitMax)) return operation;
  if (auto threads = EnsureThreads(); !threads) {
    operation->Cancel();
    while (!RunInline(operation, Clock::now() + kInlineWaitMax)) continue;
    return std::unexpected(threads.error());
  }
  WakeThreads();
  return operation;
}

Result<std::shared_ptr<Operation>> CopyCrew::StartRequest(const client::Submission& submission,
                                                          std::span<Lease*> leases) {
  auto operation = std::make_shared<RequestOperation>(shared_from_this(), submission, leases);
  if (started_.load() > kStartedMax) {
    return Fail(Code::kNoMemory, std::to_string(kStartedMax) +
                                     " started calls of this client are not taken: end some of them with tier_wait "
                                     "before more are started");
  }
  if (unfinished_.load() != 0 || submission.op == Op::kFree) {
    std::unique_lock lock(mutex_);
    if (auto before = SwapsBefore(submission); !before.empty() || HeldBack(*operation)) {
      DeferLocked(operation, std::move(before));
      lock.unlock();
      // Without one, who ends the swap sends it, if there is room then, or the next swap's thread.
      (void)EnsureThreads();
      WakeThreads();
      return operation;
    }
  }
  const auto sent = operation->Send();
  if (!sent) return std::unexpected(sent.error());
  if (*sent) return operation;
  // The daemon has yet to read what lies before it.
  if (auto threads = EnsureThreads(); !threads) return std::unexpected(threads.error());
  {
    std::lock_guard lock(mutex_);
    DeferLocked(operation, SwapsBefore(submission));
  }
  WakeThreads();
  return operation;
}

void CopyCrew::DeferLocked(const std::shared_ptr<RequestOperation>& request, std::vector<const CopyOperation*> behind) {
  if (!request->Defer(std::move(behind))) return;
  deferred_.push_back(request);
  unfinished_.fetch_add(1);
}

Status CopyCrew::Enqueue(const std::shared_ptr<CopyOperation>& operation) {
  std::lock_guard lock(mutex_);
  const auto& request = operation->request();
  auto& of_tensor = by_tensor_[KeyOf(request.tensor, request.flags)];
  of_tensor.push_back(operation.get());
  if (!Admissible(*operation)) {
    if (auto may_wait = MayWait(request.flags); !may_wait) {
      of_tensor.pop_back();
      return may_wait;
    }
  }
  queued_.push_back(operation);
  unfinished_.fetch_add(1);
  return {};
}

bool CopyCrew::RunInline(const std::shared_ptr<CopyOperation>& operation, Clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  while (!operation->ended()) {
    const uint64_t seen = group_.events.load();
    if (TakeTurn(lock) == Turn::kWorked) continue;
    if (operation->ended() || Clock::now() >= deadline) break;
    AwaitAnswer(lock, seen, deadline);
  }
  return operation->ended();
}

void CopyCrew::AwaitAnswer(std::unique_lock<std::mutex>& lock, uint64_t seen, Clock::time_point deadline) {
  if (starved_) deadline = std::min(deadline, Clock::now() + kRoomWaitMax);
  waiting_in_group_++;
  lock.unlock();
  session_.channel().WaitGroup(group_, seen, deadline);
  lock.lock();
  waiting_in_group_--;
}

Status CopyCrew::EnsureThreads() {
  std::lock_guard lock(mutex_);
  if (!threads_.empty() || stopping_) return {};
  for (int i = 0; i < threads_wanted_; ++i) {
    auto thread = client::StartThread("tier-copy", [this] { Run(); });
    if (thread) {
      threads_.push_back(std::move(*thread));
    } else if (threads_.empty()) {
      return std::unexpected(thread.error());  // Fewer than wanted are slower, not wrong.
    }
  }
  return {};
}

void CopyCrew::WakeThreads() {
  bool kick = false;
  {
    std::lock_guard lock(mutex_);
    kick = waiting_in_group_ > 0;
  }
  work_.notify_all();
  if (kick) session_.channel().Kick(group_);
}

void CopyCrew::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const uint64_t seen = group_.events.load();
    const Turn turn = TakeTurn(lock);
    if (turn == Turn::kWorked || stopping_) continue;
    if (turn == Turn::kIdle) {
      work_.wait(lock, [this] { return stopping_ || !Idle(); });
    } else if (session_.channel().ended()) {
      work_.wait_for(lock, std::chrono::milliseconds(1));  // Only a copy in another thread is left to end.
    } else {
      AwaitAnswer(lock, seen, Clock::time_point::max());
    }
  }
}

CopyCrew::Turn CopyCrew::TakeTurn(std::unique_lock<std::mutex>& lock) {
  starved_ = false;
  SettleOrphans();
  SendReady();
  Admit();
  bool ended = false;
  for (auto operation = active_.begin(); operation != active_.end();) {
    if (!(*operation)->Advance()) {
      ++operation;
      continue;
    }
    Forget(**operation);
    operation = active_.erase(operation);
    ended = true;
  }
  if (ended || CopyOne(lock)) return Turn::kWorked;
  return Idle() ? Turn::kIdle : Turn::kWaiting;
}

bool CopyCrew::Idle() const { return active_.empty() && queued_.empty() && orphans_.empty() && !AnyReady(); }

bool CopyCrew::CopyOne(std::unique_lock<std::mutex>& lock) {
  // By value: it may leave active_ while the lock is not held. NOLINTNEXTLINE(performance-unnecessary-value-param)
  const auto run = [&](std::shared_ptr<CopyOperation> operation, CopyOperation::Piece* piece) {
    const bool was_on_device = static_cast<bool>(piece->event);
    lock.unlock();
    const Status status = operation->Copy(*piece);
    lock.lock();
    operation->Copied(*piece, status, !was_on_device && static_cast<bool>(piece->event));
    return true;
  };
  for (const auto& operation : active_) {
    if (auto* piece = operation->Claim()) return run(operation, piece);
  }
  for (const auto& operation : active_) {
    if (auto* piece = operation->ClaimOnDevice()) return run(operation, piece);
  }
  return false;
}

void CopyCrew::Admit() {
  for (auto entry = queued_.begin(); entry != queued_.end() && active_.size() < kActiveOperationsMax;) {
    const auto& request = (*entry)->request();
    const proto::RequestItem item{.tensor = request.tensor};
    // Nor does a swap overtake a request that it was asked for behind.
    if (!Admissible(**entry) || BehindUnsent({.flags = request.flags, .items = {&item, 1}})) {
      ++entry;
      continue;
    }
    active_.push_back(*entry);
    entry = queued_.erase(entry);
  }
}

bool CopyCrew::Admissible(const CopyOperation& operation) const {
  const auto shares = [](const CopyRequest& request) {
    return request.direction == Direction::kIn && (request.flags & proto::kFlagFreeAfter) == 0;
  };
  const auto& request = operation.request();
  for (const CopyOperation* before : by_tensor_.at(KeyOf(request.tensor, request.flags))) {
    if (before == &operation) return true;
    if (!shares(before->request()) || !shares(request)) return false;
  }
  return true;
}

void CopyCrew::Forget(const CopyOperation& operation) {
  const auto entry = by_tensor_.find(KeyOf(operation.request().tensor, operation.request().flags));
  std::erase(entry->second, &operation);
  if (entry->second.empty()) by_tensor_.erase(entry);
  unfinished_.fetch_sub(1);
  for (const auto& request : deferred_) request->NoLongerBehind(operation);
  SendReady();  // Else in a later turn.
  finished_.notify_all();
}

// A swap that waits for others of its tensor has begun nothing: it can end at once.
void CopyCrew::EndIfQueued(CopyOperation& operation) {
  const auto entry = std::ranges::find(queued_, &operation, [](const auto& queued) { return queued.get(); });
  if (entry == queued_.end()) return;
  const auto ended = std::move(*entry);
  queued_.erase(entry);
  if (ended->Advance()) Forget(*ended);
}

std::vector<const CopyOperation*> CopyCrew::SwapsBefore(const client::Submission& submission) const {
  std::vector<const CopyOperation*> before;
  const auto add = [&before](const auto& operations) {
    before.insert(before.end(), operations.begin(), operations.end());
  };
  for (const auto& item : submission.items) {
    const auto entry = by_tensor_.find(KeyOf(item.tensor, submission.flags));
    if (entry != by_tensor_.end()) add(entry->second);
  }
  if (submission.items.empty()) std::ranges::for_each(by_tensor_, [&](const auto& entry) { add(entry.second); });
  return before;
}

Result<Pending*> CopyCrew::TrySubmit(const client::Submission& submission, uint32_t kept) {
  auto pending = session_.channel().TrySubmit(submission, &group_, closing_ ? client::kKeptAtTheEnd : kept);
  if (pending && *pending == nullptr) starved_.store(true);
  return pending;
}

void CopyCrew::SendReady() {
  bool frees_wait = false;
  for (const auto& request : deferred_) {
    if (!request->ready()) continue;
    if (request->frees() && !request->awaited() && orphans_.size() >= kGivenUpMax && !closing_) {
      frees_wait = true;
      continue;
    }
    if (frees_wait && BehindUnsent(request->submission(), request.get())) continue;
    if (!request->TrySend()) break;
  }
  const auto sent = std::erase_if(deferred_, [](const auto& request) { return !request->deferred(); });
  unfinished_.fetch_sub(sent);
  if (sent > 0) finished_.notify_all();
}

bool CopyCrew::HeldBack(const RequestOperation& request) const {
  if (request.frees() && orphans_.size() >= kGivenUpMax) return true;
  const auto waits = [&](const auto& before) { return before->ready() && (request.frees() || !before->frees()); };
  return std::ranges::any_of(deferred_, waits) || BehindUnsent(request.submission());
}

bool CopyCrew::BehindUnsent(const client::Submission& submission, const RequestOperation* until) const {
  if (deferred_.empty()) return false;
  std::unordered_set<uint64_t> tensors;
  for (const auto& item : submission.items) tensors.insert(item.tensor);
  for (const auto& request : deferred_) {
    if (request.get() == until) return false;
    if (request->ready() && request->NamesOneOf(tensors, submission.flags)) return true;
  }
  return false;
}

bool CopyCrew::AnyReady() const {
  return std::ranges::any_of(deferred_, [](const auto& request) { return request->ready(); });
}

void CopyCrew::RemoveDeferred(const RequestOperation& request) {
  unfinished_.fetch_sub(std::erase_if(deferred_, [&](const auto& deferred) { return deferred.get() == &request; }));
  finished_.notify_all();
}

bool CopyCrew::Busy(uint64_t tensor, uint32_t flags) {
  if (unfinished_.load() == 0) return false;
  std::lock_guard lock(mutex_);
  return by_tensor_.contains(KeyOf(tensor, flags));
}

Status CopyCrew::WaitForSwaps(client::Submission* submission) {
  if (unfinished_.load() == 0) return {};
  std::unique_lock lock(mutex_);
  const auto behind_swaps = [&] { return !SwapsBefore(*submission).empty(); };
  const auto free = [&] { return !behind_swaps() && !BehindUnsent(*submission); };
  if (free()) return {};
  if (behind_swaps()) {
    if (auto may_wait = MayWait(submission->flags); !may_wait) return may_wait;
  }
  const auto deadline = client::DeadlineOf(submission->timeout_ms);
  if (!finished_.wait_until(lock, deadline, free))
    return std::unexpected(behind_swaps() ? BehindSwap() : client::NoRoom());
  submission->timeout_ms = client::LeftUntil(deadline);
  return {};
}

void CopyCrew::Close() {
  {
    std::lock_guard lock(mutex_);
    closing_ = Clock::now() + kCloseWaitMax;
  }
  WakeThreads();
  {
    std::unique_lock lock(mutex_);
    while (unfinished_.load() != 0) {
      if (!threads_.empty()) {
        finished_.wait(lock);
        continue;
      }
      const uint64_t seen = group_.events.load();
      if (TakeTurn(lock) != Turn::kWorked && unfinished_.load() != 0)
        AwaitAnswer(lock, seen, Clock::now() + kRoomWaitMax);
    }
    stopping_ = true;
  }
  WakeThreads();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void CopyCrew::Adopt(Pending* pending, const client::Submission& submission) {
  {
    std::lock_guard lock(mutex_);
    AdoptLocked(pending, submission);
  }
  // Without a thread it is settled by the next swap's, or goes with the session.
  (void)EnsureThreads();
  WakeThreads();
}

void CopyCrew::AdoptLocked(Pending* pending, const client::Submission& submission) {
  Orphan& orphan =
      orphans_.emplace_back(Orphan{pending, submission, {submission.items.begin(), submission.items.end()}});
  orphan.submission.items = orphan.items;
}

void CopyCrew::SettleOrphans() {
  if (session_.channel().ended()) orphans_.clear();
  for (auto orphan = orphans_.begin(); orphan != orphans_.end();) {
    if (!orphan->pending->done()) {
      ++orphan;
      continue;
    }
    Settle(*orphan);
    orphan = orphans_.erase(orphan);
  }
}

void CopyCrew::Settle(Orphan& orphan) {
  const Op op = orphan.submission.op;
  const bool grants = (op == Op::kCreate || op == Op::kAcquire) && orphan.pending->code() == Code::kOk;
  std::vector<Lease*> leases(grants ? orphan.items.size() : 0);
  const bool granted = grants && session_.Grant(*orphan.pending, orphan.submission, leases).has_value();
  session_.channel().Finish(orphan.pending);
  if (!granted) return;
  const bool writes = op == Op::kCreate || (orphan.submission.flags & proto::kFlagWrite) != 0;
  // What was created goes with that. A free by name would not do: another tensor may bear the name by now.
  (void)session_.Release(leases, writes ? proto::kFlagUntouched : 0);  // Fails only when the session has ended.
}

}  // namespace tier::swap
