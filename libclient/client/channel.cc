#include "libclient/client/channel.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "libclient/client/completion_check.h"

namespace tier::client {
namespace {

bool ShouldSpin(SpinMode mode) {
  if (mode != SpinMode::kAuto) return mode == SpinMode::kAlways;
  cpu_set_t allowed;
  return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) >= 4;
}

const char* OpName(proto::Op op) {
  static constexpr std::array<const char*, proto::kOpCount> kNames = {
      "none",    "create", "acquire", "release", "free", "prefetch", "step",
      "persist", "flush",  "accept",  "intern",  "stat", "drop",     "tear"};
  return kNames[static_cast<size_t>(op)];
}

void PauseProcessor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

uint32_t EntriesOf(const Submission& submission) {
  return submission.op == proto::Op::kIntern ? proto::EntriesForText(static_cast<uint32_t>(submission.text.size()))
                                             : proto::EntriesForRecords(static_cast<uint32_t>(submission.items.size()));
}

}  // namespace

uint32_t LeftUntil(Clock::time_point deadline, Clock::time_point now) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now);
  return static_cast<uint32_t>(std::max<int64_t>(left.count(), 1));
}

Error NoRoom() {
  return {Code::kTimeout, "no request could be sent: those before it, of all threads, are not answered yet"};
}

Channel::Channel(std::byte* region, const proto::EnginePage* engine, int doorbell, const ChannelOptions& options)
    : engine_(engine),
      doorbell_(doorbell),
      spins_(ShouldSpin(options.spin)),
      request_timeout_(options.request_timeout),
      lateness_max_(options.lateness_max),
      waiter_(*options.waiter),
      completion_control_(*proto::CompletionRing(region).control),
      requests_(proto::RequestRing(region)),
      completions_(proto::CompletionRing(region)) {}

// ---- Requests ----

Result<Pending*> Channel::Submit(const Submission& submission) {
  auto put = TryPut(submission, {});
  if (!put || *put != nullptr) return put;
  const auto deadline = DeadlineOf(submission.timeout_ms, waiter_.Now());
  Submission late = submission;
  while (waiter_.Now() < deadline) {
    WaitForRoom();
    late.timeout_ms = LeftUntil(deadline, waiter_.Now());
    put = TryPut(late, {});
    if (!put || *put != nullptr) return put;
  }
  return std::unexpected(NoRoom());
}

Result<Pending*> Channel::TrySubmit(const Submission& submission, Credit credit, Group* group) {
  return TryPut(submission, {.credit = credit, .group = group});
}

Result<Pending*> Channel::TrySubmitQuietly(const Submission& submission, Credit credit, Group* group) {
  return TryPut(submission, {.credit = credit, .group = group, .quiet = true});
}

void Channel::RingForSubmitted() {
  const MutexLock lock(request_mutex_);
  if (bell_is_due_) RingDoorbell(/*can_wait=*/false);
}

Result<bool> Channel::TrySubmitDetached(const Submission& submission) {
  const auto put = TryPut(submission, {.credit = Credit::kRelease, .detached = true});
  if (!put) return std::unexpected(put.error());
  return *put != nullptr;
}

Status Channel::SubmitDetached(const Submission& submission) {
  while (true) {
    const auto sent = TrySubmitDetached(submission);
    if (!sent) return std::unexpected(sent.error());
    if (*sent) return {};
    WaitForRoom();
  }
}

Result<Pending*> Channel::TryPut(const Submission& submission, const SubmitOptions& options) {
  Pending* put = PutIfRoom(submission, options);
  // Answers make room: detached requests finish as they are taken in.
  if (put == nullptr && !ended() && Drain(false)) put = PutIfRoom(submission, options);
  if (put == nullptr && ended()) return std::unexpected(end_reason());
  return put;
}

Pending* Channel::PutIfRoom(const Submission& submission, const SubmitOptions& options) {
  if (ended()) return nullptr;
  const MutexLock lock(request_mutex_);
  if (!HasRoom(submission, options.credit)) {
    if (bell_is_due_) RingDoorbell(/*can_wait=*/false);
    return nullptr;
  }
  Pending* const pending = table_.Add({.op = submission.op,
                                       .credit = options.credit,
                                       .detached = options.detached,
                                       .group = options.group,
                                       .answer_by = time_passed_ + TimeFor(submission)});
  Stage(submission, pending->order().sequence);
  requests_.Publish();
  bell_is_due_ |= options.quiet;
  if (!options.quiet) RingDoorbell(submission.can_wait && ReleasesMayWait());
  return pending;
}

bool Channel::HasRoom(const Submission& submission, Credit credit) {
  uint32_t room = 0;
  if (!requests_.Free(&room)) {
    EndMalformed("the request ring's head is beyond its tail");
    return false;
  }
  return room >= EntriesOf(submission) && table_.free(credit) > 0;
}

void Channel::Stage(const Submission& submission, uint64_t sequence) {
  proto::RequestEntry first{};
  const auto& items = submission.items;
  const bool is_text = submission.op == proto::Op::kIntern;
  first.header = {sequence,
                  static_cast<uint16_t>(submission.op),
                  static_cast<uint16_t>(EntriesOf(submission)),
                  submission.flags,
                  static_cast<uint32_t>(is_text ? submission.text.size() : items.size()),
                  submission.timeout_ms,
                  submission.argument};
  if (!items.empty()) first.first = items.front();
  requests_.Stage(&first, 1);
  const auto* rest = is_text ? submission.text.data() : reinterpret_cast<const char*>(items.data() + 1);
  size_t bytes = is_text ? submission.text.size() : (items.empty() ? 0 : (items.size() - 1) * sizeof items[0]);
  const auto whole = static_cast<uint32_t>(bytes / proto::kEntrySize);
  if (whole > 0) requests_.Stage(rest, whole);
  bytes -= size_t{whole} * proto::kEntrySize;
  if (bytes == 0) return;
  std::array<char, proto::kEntrySize> last{};
  std::memcpy(last.data(), rest + size_t{whole} * proto::kEntrySize, bytes);
  requests_.Stage(last.data(), 1);
}

// While less than half of the ring and of the releases' credits is in use: a caller never finds either full of releases
// that the daemon was not told of.
bool Channel::ReleasesMayWait() const {
  uint32_t room = 0;
  return requests_.Free(&room) && room >= proto::kRequestEntries / 2 &&
         table_.free(Credit::kRelease) >= QuotaOf(Credit::kRelease) / 2;
}

void Channel::RingDoorbell(bool can_wait) {
  can_wait &= !std::exchange(bell_is_due_, false);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint32_t sleeping = engine_->sleeping.load(std::memory_order_relaxed);
  if (!proto::NeedsBell(sleeping, requests_.consumer_waiting(), can_wait)) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(doorbell_, &one, sizeof one);  // Full means it is ringing already.
}

std::chrono::milliseconds Channel::WaitOf(uint32_t timeout_ms) const {
  return timeout_ms != proto::kTimeoutDefault ? std::chrono::milliseconds(timeout_ms) : request_timeout_;
}

std::chrono::milliseconds Channel::TimeFor(const Submission& submission) const {
  using proto::Op;
  const Op op = submission.op;
  if (op == Op::kRelease || op == Op::kPrefetch || op == Op::kStep || op == Op::kIntern) return lateness_max_;
  return WaitOf(submission.timeout_ms) + lateness_max_ +
         (op == Op::kPersist ? kCommitTimeMax : std::chrono::milliseconds(0));
}

Status Channel::CheckForLate(std::chrono::milliseconds elapsed) {
  Drain(false);  // An answer that has arrived is not late, even if no thread has taken it.
  const MutexLock lock(request_mutex_);
  time_passed_ += elapsed;
  const Pending* const late = table_.FindLate(time_passed_);
  if (late == nullptr) return {};
  const auto beyond = std::chrono::floor<std::chrono::seconds>(lateness_max_ + time_passed_ - late->order().answer_by);
  return Fail(Code::kDisconnected,
              std::string("the daemon hangs, or was stopped: it has owed the answer to a request (") +
                  OpName(late->order().op) + ") for " + std::to_string(beyond.count()) + " s");
}

void Channel::Finish(Pending* pending) {
  if (!pending->done()) return;
  bool held_credit = false;
  {
    const MutexLock lock(request_mutex_);
    held_credit = table_.Finish(pending);
  }
  (void)TIER_INVARIANT(*this, held_credit, "a request was finished twice");
}

// ---- The end, and failures of detached requests ----

void Channel::End(Code code, std::string message) {
  {
    const MutexLock lock(error_mutex_);
    if (ended()) return;
    end_reason_ = {code, std::move(message)};
    ended_.store(true, std::memory_order_seq_cst);
  }
  WakeLeader();
  {
    const MutexLock lock(sleep_mutex_);
  }  // A thread that was between its check and its sleep is asleep now, or has seen the end.
  followers_wake_.NotifyAll();
}

void Channel::EndBroken(const std::string& sentence) {
  End(Code::kDisconnected, sentence + ": this client was ended; please report it, and connect again");
}

void Channel::EndMalformed(const char* what) {
  End(Code::kDisconnected, std::string("the daemon broke the protocol (") + what +
                               "): the session was ended; please report this with the daemon's log");
}

Error Channel::end_reason() const {
  const MutexLock lock(error_mutex_);
  return end_reason_;
}

void Channel::RememberFailure(Error error) {
  const MutexLock lock(error_mutex_);
  if (release_failure_) {
    ++release_failures_more_;
  } else {
    release_failure_ = std::move(error);
  }
  has_release_failure_.store(true, std::memory_order_relaxed);
}

std::optional<Error> Channel::TakeReleaseFailure() {
  if (!has_release_failure_.load(std::memory_order_relaxed)) return std::nullopt;
  const MutexLock lock(error_mutex_);
  has_release_failure_.store(false, std::memory_order_relaxed);
  auto first = std::exchange(release_failure_, std::nullopt);
  const uint64_t more = std::exchange(release_failures_more_, 0);
  if (first && more != 0) first->message += " (and " + std::to_string(more) + " more failed after it)";
  return first;
}

Status Channel::CheckInvariants() const {
  const MutexLock lock(request_mutex_);
  if (auto table = table_.CheckInvariants(); !table) return table;
  uint32_t room = 0;
  if (requests_.Free(&room) && room <= proto::kRequestEntries) return {};
  return Fail(Code::kInvalid, std::to_string(room) + " ring entries free of " + std::to_string(proto::kRequestEntries));
}

// ---- Waiting ----

Status Channel::Wait(const Pending* pending, Clock::time_point deadline, const std::atomic<bool>* cancelled) {
  if (WaitTarget({.pending = pending, .cancelled = cancelled}, deadline) && pending->done()) return {};
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
  const auto started = waiter_.Now();
  if (spins_ && Spin(target, std::min(deadline, started + kSpinMax))) return true;
  SleepUntil(target, deadline);
  if (target.pending != nullptr && target.pending->order().op == proto::Op::kAcquire) {
    figures_.waits.fetch_add(1, std::memory_order_relaxed);
    const auto waited = std::chrono::duration_cast<std::chrono::nanoseconds>(waiter_.Now() - started);
    figures_.wait_ns.fetch_add(static_cast<uint64_t>(waited.count()), std::memory_order_relaxed);
  }
  return target.Reached();
}

bool Channel::Spin(const Target& target, Clock::time_point deadline) {
  constexpr int kPausesBetweenChecks = 8;
  do {
    for (int i = 0; i < kPausesBetweenChecks; ++i) PauseProcessor();
    Drain(false);
    if (target.Reached()) return true;
  } while (!ended() && waiter_.Now() < deadline);
  return false;
}

void Channel::SleepUntil(const Target& target, Clock::time_point deadline) {
  {
    const MutexLock lock(sleep_mutex_);
    followers_.fetch_add(1);
    while (!target.Reached() && !ended() && waiter_.Now() < deadline) {
      if (leader_present_) {
        followers_wake_.WaitUntil(sleep_mutex_, deadline);
        continue;
      }
      leader_present_ = true;
      {
        const MutexUnlock unlocked(sleep_mutex_);
        Lead(target, deadline);
      }
      leader_present_ = false;
      followers_wake_.NotifyAll();
    }
    followers_.fetch_sub(1);
  }
  if (ended() && !target.Reached()) Drain(false);  // What was published before the end still counts.
}

void Channel::Lead(const Target& target, Clock::time_point deadline) {
  std::atomic<uint32_t>& word = completion_control_.wake_sequence;
  while (!target.Reached() && !ended()) {
    const uint32_t seen = word.load(std::memory_order_acquire);
    completion_control_.consumer_waiting.store(1, std::memory_order_relaxed);
    leader_asleep_.store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!Drain(true) && !target.Reached() && !ended()) {
      waiter_.Sleep(word, seen, deadline);
      Drain(true);
    }
    if (deadline != Clock::time_point::max() && waiter_.Now() >= deadline) break;
  }
  leader_asleep_.store(false, std::memory_order_relaxed);
  completion_control_.consumer_waiting.store(0, std::memory_order_relaxed);
}

// No doorbell tells of room in the request ring, so this waits for any answer, a millisecond at most.
void Channel::WaitForRoom() {
  std::atomic<uint32_t>& word = completion_control_.wake_sequence;
  const uint32_t seen = word.load(std::memory_order_acquire);
  completion_control_.consumer_waiting.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!Drain(false)) waiter_.Sleep(word, seen, waiter_.Now() + kRoomWaitMax);
}

void Channel::WakeGroup(Group& group) {
  group.events.fetch_add(1);
  WakeSleepers(false);
}

void Channel::WakeSleepers(bool leader) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!leader && leader_asleep_.load(std::memory_order_relaxed)) WakeLeader();
  if (followers_.load(std::memory_order_relaxed) == 0) return;
  {
    const MutexLock lock(sleep_mutex_);
  }
  followers_wake_.NotifyAll();
}

// Both sides may raise the word: it only has to change.
void Channel::WakeLeader() {
  completion_control_.wake_sequence.fetch_add(1);
  waiter_.WakeAll(completion_control_.wake_sequence);
}

// ---- Completions ----

bool Channel::Drain(bool leader) {
  if (!consumer_mutex_.TryLock()) {
    // The thread that holds it delivers the answers. The leader must not sleep on a half-drained ring, so it waits.
    if (!leader) return false;
    consumer_mutex_.Lock();
  }
  bool any = false;
  {
    const MutexLock lock(consumer_mutex_, std::adopt_lock);
    any = DrainLocked();
  }
  if (any) WakeSleepers(leader);
  return any;
}

bool Channel::DrainLocked() {
  uint32_t ready = 0;
  if (!completions_.Ready(&ready)) {
    EndMalformed("the completion ring's tail is impossible");
    return false;
  }
  bool any = false;
  uint32_t taken = 0;
  while (ready > 0 && TakeOne(ready, &taken)) {
    ready -= taken;
    any = true;
  }
  return any;
}

bool Channel::TakeOne(uint32_t ready, uint32_t* taken) {
  proto::CompletionEntry first;
  completions_.Peek(&first, 1);
  const char* wrong = WrongInHeader(first.header, ready);
  Pending* pending = nullptr;
  if (wrong == nullptr) {
    const MutexLock lock(request_mutex_);
    pending = table_.TakeAnswered(first.header.sequence);
  }
  if (wrong == nullptr && pending == nullptr) wrong = "a completion answers no request";
  if (wrong == nullptr) wrong = WrongForOp(first.header, pending->order().op);
  if (wrong != nullptr) {
    EndMalformed(wrong);
    return false;
  }
  const auto answer = pending->AnswerBuffer(first.header.entries);
  completions_.Peek(answer.data(), first.header.entries);
  answer.front().header = first.header;  // The copy that was checked, whatever the daemon wrote meanwhile.
  completions_.Consume(first.header.entries);
  *taken = first.header.entries;
  Deliver(pending);
  return true;
}

void Channel::Deliver(Pending* pending) {
  if (!pending->order().detached) {
    Group* const group = pending->order().group;
    pending->End(std::memory_order_seq_cst);
    if (group != nullptr) group->events.fetch_add(1);
    return;
  }
  if (auto status = pending->ToStatus(); !status) RememberFailure(std::move(status.error()));
  pending->End(std::memory_order_relaxed);
  Finish(pending);
}

}  // namespace tier::client
