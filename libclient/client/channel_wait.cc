// How threads of the channel wait, and who drains the completion ring.
#include <algorithm>

#include "libclient/client/channel.h"
#include "libclient/client/futex.h"

namespace tier::client {
namespace {

void PauseProcessor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

std::optional<std::chrono::nanoseconds> TimeLeft(Clock::time_point deadline) {
  if (deadline == Clock::time_point::max()) return std::nullopt;
  return std::max(deadline - Clock::now(), Clock::duration::zero());
}

}  // namespace

Status Channel::Wait(const Pending* pending, Clock::time_point deadline, const std::atomic<bool>* given_up) {
  if (WaitTarget({.pending = pending, .given_up = given_up}, deadline) && pending->done()) return {};
  if (ended()) return std::unexpected(end_reason());
  return Fail(Code::kTimeout, "the wait timed out; the request is still on its way");
}

bool Channel::WaitGroup(const Group& group, uint64_t seen, Clock::time_point deadline) {
  return WaitTarget({.group = &group, .seen = seen}, deadline);
}

bool Channel::WaitTarget(const Target& target, Clock::time_point deadline) {
  if (target.Reached()) return true;
  Drain(false);
  if (target.Reached()) return true;
  const auto started = Clock::now();
  if (spins_ && Spin(target, std::min(deadline, started + kSpinMax))) return true;
  SleepUntil(target, deadline);
  if (target.pending != nullptr && target.pending->op_ == proto::Op::kAcquire) {
    figures_.waits.fetch_add(1, std::memory_order_relaxed);
    const auto waited = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - started);
    figures_.wait_ns.fetch_add(static_cast<uint64_t>(waited.count()), std::memory_order_relaxed);
  }
  return target.Reached();
}

bool Channel::Spin(const Target& target, Clock::time_point deadline) {
  constexpr int kPausesBetweenLooks = 8;
  do {
    for (int i = 0; i < kPausesBetweenLooks; ++i) PauseProcessor();
    Drain(false);
    if (target.Reached()) return true;
  } while (!ended() && Clock::now() < deadline);
  return false;
}

void Channel::SleepUntil(const Target& target, Clock::time_point deadline) {
  std::unique_lock lock(sleep_mutex_);
  followers_.fetch_add(1);
  while (!target.Reached() && !ended() && Clock::now() < deadline) {
    if (leader_present_) {
      // wait_until overflows on time_point::max in some clocks; an hour is as good.
      followers_wake_.wait_until(lock, std::min(deadline, Clock::now() + std::chrono::hours(1)));
      continue;
    }
    leader_present_ = true;
    lock.unlock();
    Lead(target, deadline);
    lock.lock();
    leader_present_ = false;
    followers_wake_.notify_all();
  }
  followers_.fetch_sub(1);
  lock.unlock();
  if (ended() && !target.Reached()) Drain(false);  // What was published before the end still counts.
}

void Channel::Lead(const Target& target, Clock::time_point deadline) {
  std::atomic<uint32_t>& word = completion_view_.control->wake_sequence;
  while (!target.Reached() && !ended()) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    completion_view_.control->consumer_waiting.store(1, std::memory_order_relaxed);
    leader_asleep_.store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!Drain(true) && !target.Reached() && !ended()) {
      FutexWait(word, seen, TimeLeft(deadline));
      Drain(true);
    }
    if (deadline != Clock::time_point::max() && Clock::now() >= deadline) break;
  }
  leader_asleep_.store(false, std::memory_order_relaxed);
  completion_view_.control->consumer_waiting.store(0, std::memory_order_relaxed);
}

// No doorbell tells of room in the request ring, so this waits for any answer, a millisecond at most.
void Channel::PauseForRoom() {
  std::atomic<uint32_t>& word = completion_view_.control->wake_sequence;
  const uint32_t seen = word.load(std::memory_order_acquire);
  completion_view_.control->consumer_waiting.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!Drain(false)) FutexWait(word, seen, std::chrono::milliseconds(1));
}

void Channel::Kick(Group& group) {
  group.events.fetch_add(1);
  WakeSleepers(false);
}

bool Channel::Drain(bool leader) {
  bool any = false;
  {
    std::unique_lock lock(consumer_mutex_, std::try_to_lock);
    // Whoever holds it delivers what we would have; the leader must not sleep on a half-drained ring, so it waits.
    if (!lock.owns_lock()) {
      if (!leader) return false;
      lock.lock();
    }
    uint32_t ready = 0;
    if (!completions_.Ready(&ready)) {
      lock.unlock();
      EndMalformed("the completion ring's tail is impossible");
      return false;
    }
    uint32_t taken = 0;
    while (ready > 0 && TakeOne(ready, &taken)) {
      ready -= taken;
      any = true;
    }
  }
  if (any) WakeSleepers(leader);
  return any;
}

bool Channel::TakeOne(uint32_t ready, uint32_t* taken) {
  proto::CompletionSlot first;
  completions_.Peek(&first, 1);
  if (!CheckShape(first.header, ready)) {
    EndMalformed("a completion is malformed");
    return false;
  }
  Pending* pending = nullptr;
  {
    std::lock_guard lock(request_mutex_);
    pending = table_.Take(first.header.sequence);
  }
  if (pending == nullptr) {
    EndMalformed("a completion answers no request");
    return false;
  }
  const uint32_t slots = first.header.slots;
  if (pending->slots_.size() < slots) pending->slots_.resize(slots);
  completions_.Peek(pending->slots_.data(), slots);
  pending->slots_.front().header = first.header;  // The copy that was checked, whatever the daemon wrote meanwhile.
  completions_.Consume(slots);
  *taken = slots;
  Deliver(pending);
  return true;
}

bool Channel::CheckShape(const proto::CompletionHeader& header, uint32_t ready) const {
  if (header.slots == 0 || header.slots > ready || header.slots > proto::kCompletionSlotsPerMessageMax) return false;
  if (header.code >= kCodeCount || header.flags != 0) return false;
  if (header.code == 0) {
    return header.detail_length == 0 && header.record_count <= proto::kSpansPerCompletionMax &&
           proto::SlotsForRecords(header.record_count) <= header.slots;
  }
  return header.record_count <= 1 && header.detail_length <= proto::kDetailLengthMax &&
         proto::SlotsForText(header.detail_length) <= header.slots;
}

void Channel::Deliver(Pending* pending) {
  if (!pending->detached_) {
    Group* const group = pending->group_;
    pending->done_.store(true, std::memory_order_seq_cst);
    if (group != nullptr) group->events.fetch_add(1);
    return;
  }
  if (auto status = pending->ToStatus(); !status) {
    std::lock_guard lock(error_mutex_);
    if (deferred_) {
      ++deferred_more_;
    } else {
      deferred_ = std::move(status.error());
    }
    has_deferred_.store(true, std::memory_order_relaxed);
  }
  pending->done_.store(true, std::memory_order_relaxed);
  Finish(pending);
}

void Channel::WakeSleepers(bool leader) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!leader && leader_asleep_.load(std::memory_order_relaxed)) WakeRing();
  if (followers_.load(std::memory_order_relaxed) == 0) return;
  {
    std::lock_guard lock(sleep_mutex_);
  }
  followers_wake_.notify_all();
}

// Both sides may raise the word: it only has to change.
void Channel::WakeRing() {
  completion_view_.control->wake_sequence.fetch_add(1);
  FutexWakeAll(completion_view_.control->wake_sequence);
}

void Channel::EndMalformed(const char* what) {
  End(Code::kDisconnected, std::string("the daemon broke the protocol (") + what +
                               "): the session was ended; please report this with the daemon's log");
}

}  // namespace tier::client
