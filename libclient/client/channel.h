// Channel: sends requests, takes completions, and lets threads wait for them.
//
// The idea: any waiting thread drains the completion ring for all. One of the threads that must sleep is the leader,
// which sleeps on the ring's futex word; the others sleep on a condition variable until the leader finishes their
// request or leaves. Every request takes a credit of its class (Credit in pending.h): kCall with Submit, kRelease with
// SubmitDetached, and whichever TrySubmit names. A class without a free credit, or a full ring, is "no room".
// Threads: any. Lock order: consumer_mutex_, request_mutex_, then error_mutex_ or sleep_mutex_.
//
// Invariants (CheckInvariants): those of the RequestTable; ring entries free <= kRequestEntries;
//   a thread that sets `done` looks for a sleeping leader and for followers after it (Dekker, sequentially consistent);
//   after End() every wait returns, and what had been published before is still delivered.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <span>
#include <string_view>

#include "libclient/client/invariant.h"
#include "libclient/client/pending.h"
#include "libclient/client/request_table.h"
#include "libclient/client/waiter.h"
#include "proto/mutex.h"
#include "proto/ring.h"

namespace tier::client {

// A daemon answers within the deadline of a request, or at once where it never waits. A daemon that is this late hangs,
// or was stopped.
inline constexpr std::chrono::milliseconds kAnswerLatenessMax{30'000};
// The commit of a manifest, which a persist waits for even beyond its deadline, flushes devices.
inline constexpr std::chrono::milliseconds kCommitTimeMax{300'000};
inline constexpr std::chrono::milliseconds kLateCheckPeriod{5'000};  // How often the service thread looks for that.

enum class SpinMode { kAuto, kAlways, kNever };  // kAuto: not at all with fewer than 4 allowed processors.
inline constexpr std::chrono::microseconds kSpinMax{20};
inline constexpr std::chrono::milliseconds kRoomWaitMax{1};  // The daemon sends no signal when the ring has room again.

inline constexpr std::chrono::milliseconds kRequestTimeoutDefault{60'000};  // The daemon's default.
uint32_t LeftUntil(Clock::time_point deadline, Clock::time_point now);      // Milliseconds, 1 at least.
Error NoRoom();                                                             // TIMEOUT

struct Submission {
  proto::Op op = proto::Op::kNone;
  uint32_t flags = 0;
  uint32_t timeout_ms = 0;
  uint64_t argument = 0;
  std::span<const proto::RequestItem> items;  // At most kItemsPerRequestMax.
  std::string_view text;                      // kIntern, instead of items.
  bool can_wait = false;                      // Only releases of the session's own read leases (proto/ring.h).
};

struct ChannelOptions {
  SpinMode spin = SpinMode::kAuto;
  std::chrono::milliseconds request_timeout = kRequestTimeoutDefault;  // The daemon's, for requests that name none.
  std::chrono::milliseconds lateness_max = kAnswerLatenessMax;
  Waiter* waiter = &Waiter::OfProcess();  // Outlives the channel.
};

struct WaitFigures {
  std::atomic<uint64_t> waits{0};    // Acquires whose answer took longer than kSpinMax.
  std::atomic<uint64_t> wait_ns{0};  // The sum of their waiting times.
};

class Channel {
 public:
  // `region` and `engine` must stay mapped while the channel lives; `doorbell` stays the caller's.
  Channel(std::byte* region, const proto::EnginePage* engine, int doorbell, const ChannelOptions& options);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // What a request waits that names no time.
  std::chrono::milliseconds request_timeout() const { return request_timeout_; }
  // Of a request that is made `now`.
  Clock::time_point DeadlineOf(uint32_t timeout_ms, Clock::time_point now) const { return now + WaitOf(timeout_ms); }

  // Puts a request on the ring, waiting for room until the request's own deadline: TIMEOUT. Fails otherwise only when
  // the session has ended. The result is the caller's until Finish.
  Result<Pending*> Submit(const Submission& submission);
  // As Submit, without waiting: null when there is no room now. `group` counts the completion.
  Result<Pending*> TrySubmit(const Submission& submission, Credit credit, Group* group);
  // As TrySubmit, for several requests with one doorbell. REQUIRES: RingForSubmitted before the caller waits for it.
  Result<Pending*> TrySubmitQuietly(const Submission& submission, Credit credit, Group* group);
  void RingForSubmitted();
  // As Submit, without a deadline, for a request whose answer no thread waits for: TakeReleaseFailure returns a
  // refusal.
  Status SubmitDetached(const Submission& submission);
  // As SubmitDetached, without waiting: false when there is no room now.
  Result<bool> TrySubmitDetached(const Submission& submission);
  // Blocks until the request is done. TIMEOUT when `deadline` comes first, or `cancelled` is set (then call WakeAll):
  // the request stays on its way. If the session ends without an answer, returns the reason.
  Status Wait(const Pending* pending, Clock::time_point deadline = Clock::time_point::max(),
              const std::atomic<bool>* cancelled = nullptr);
  // Blocks until group.events differs from `seen`, or the deadline. False at the deadline or the session's end.
  bool WaitGroup(const Group& group, uint64_t seen, Clock::time_point deadline = Clock::time_point::max());
  // Takes the completions that have come, without waiting.
  void Poll() { Drain(false); }
  // Counts an event of the group, and wakes the thread that waits for it.
  void WakeGroup(Group& group);
  // Wakes every waiting thread, to check again what it waits for.
  void WakeAll() { WakeSleepers(false); }
  // Gives an answered request back to the pool. One that was never answered (the session ended) is not used again.
  void Finish(Pending* pending);

  // Adds `elapsed`, the time since the last call as seen by a thread that was awake, to the channel's own clock, so
  // that no time passes while the process is stopped. DISCONNECTED when a request is unanswered though the daemon's
  // time for it is over.
  Status CheckForLate(std::chrono::milliseconds elapsed);
  // Ends the session, once: every waiting and every later call gets this error.
  void End(Code code, std::string message);
  void EndBroken(const std::string& sentence);  // After a broken invariant of ours (invariant.h).
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  Error end_reason() const;
  // The first failure of a detached request since the last call; its sentence says how many followed.
  std::optional<Error> TakeReleaseFailure();

  const WaitFigures& figures() const { return figures_; }
  // INVALID with the figures of the first equation above that does not hold. Takes the locks.
  Status CheckInvariants() const;

 private:
  struct Target {  // What a thread waits for: a request, or any event of a group.
    const Pending* pending = nullptr;
    const Group* group = nullptr;
    uint64_t seen = 0;
    const std::atomic<bool>* cancelled = nullptr;
    bool Reached() const {
      if (cancelled != nullptr && cancelled->load()) return true;
      return pending != nullptr ? pending->done() : group->events.load() != seen;
    }
  };
  struct SubmitOptions {
    Credit credit = Credit::kCall;
    Group* group = nullptr;
    bool detached = false;
    bool quiet = false;
  };

  Result<Pending*> TryPut(const Submission& submission, const SubmitOptions& options);
  Pending* PutIfRoom(const Submission& submission, const SubmitOptions& options) TIER_EXCLUDES(request_mutex_);
  bool HasRoom(const Submission& submission, Credit credit) TIER_REQUIRES(request_mutex_);
  void Stage(const Submission& submission, uint64_t sequence) TIER_REQUIRES(request_mutex_);
  bool ReleasesMayWait() const TIER_REQUIRES(request_mutex_);
  std::chrono::milliseconds WaitOf(uint32_t timeout_ms) const;
  std::chrono::milliseconds TimeFor(const Submission& submission) const;
  void RingDoorbell(bool can_wait) TIER_REQUIRES(request_mutex_);
  bool WaitTarget(const Target& target, Clock::time_point deadline);
  bool Spin(const Target& target, Clock::time_point deadline);
  void SleepUntil(const Target& target, Clock::time_point deadline) TIER_EXCLUDES(sleep_mutex_);
  void Lead(const Target& target, Clock::time_point deadline) TIER_EXCLUDES(sleep_mutex_);
  void WaitForRoom();

  // True if at least one completion was taken. `leader`: the caller needs no waking itself.
  bool Drain(bool leader) TIER_EXCLUDES(consumer_mutex_);
  bool DrainLocked() TIER_REQUIRES(consumer_mutex_);
  bool TakeOne(uint32_t ready, uint32_t* taken) TIER_REQUIRES(consumer_mutex_);
  void Deliver(Pending* pending);
  void RememberFailure(Error error) TIER_EXCLUDES(error_mutex_);
  void WakeSleepers(bool leader) TIER_EXCLUDES(sleep_mutex_);
  void WakeLeader();
  void EndMalformed(const char* what);

  const proto::EnginePage* const engine_;
  const int doorbell_;
  const bool spins_;
  const std::chrono::milliseconds request_timeout_;
  const std::chrono::milliseconds lateness_max_;
  Waiter& waiter_;
  proto::RingControl& completion_control_;

  mutable Mutex request_mutex_;
  proto::RingProducer requests_ TIER_GUARDED_BY(request_mutex_);
  bool bell_is_due_ TIER_GUARDED_BY(request_mutex_) = false;  // Requests were submitted quietly.
  RequestTable table_ TIER_GUARDED_BY(request_mutex_);
  std::chrono::milliseconds time_passed_ TIER_GUARDED_BY(request_mutex_){};  // The sum that CheckForLate was given.

  Mutex consumer_mutex_;
  proto::RingConsumer completions_ TIER_GUARDED_BY(consumer_mutex_);

  Mutex sleep_mutex_;
  CondVar followers_wake_;
  bool leader_present_ TIER_GUARDED_BY(sleep_mutex_) = false;
  std::atomic<uint32_t> followers_{0};
  std::atomic<bool> leader_asleep_{false};

  std::atomic<bool> ended_{false};
  mutable Mutex error_mutex_;
  Error end_reason_ TIER_GUARDED_BY(error_mutex_);
  std::optional<Error> release_failure_ TIER_GUARDED_BY(error_mutex_);
  uint64_t release_failures_more_ TIER_GUARDED_BY(error_mutex_) = 0;  // After the first.
  std::atomic<bool> has_release_failure_{false};
  WaitFigures figures_;
};

}  // namespace tier::client
