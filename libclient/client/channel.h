// Channel: requests out, completions back, and how threads wait for them.
//
// The idea: any waiting thread drains the completion ring for all. One of those that must sleep is the leader, asleep
// on the ring's futex word; the others sleep on a condition variable until the leader finishes their request or leaves.
// Threads: any. `request_mutex_` guards the request ring, the table and the pool; `consumer_mutex_` the completion
// ring.
//
// Invariants: pool + table + (done, not finished) == kRequestsOutstandingMax;
//   whoever sets `done` afterwards looks for a sleeping leader and for followers (Dekker, sequentially consistent);
//   after End() every wait returns, and what had been published before is still delivered.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "libclient/client/pending.h"
#include "proto/mapping.h"
#include "proto/ring.h"

namespace tier::client {

using Clock = std::chrono::steady_clock;

// A daemon answers within the deadline of a request, or at once where it never waits. One that is late by as much
// hangs, or was stopped: it holds nobody for ever.
inline constexpr std::chrono::milliseconds kAnswerLatenessMax{30'000};
// The commit of a manifest, which a persist waits for even beyond its deadline, flushes devices.
inline constexpr std::chrono::milliseconds kCommitTimeMax{300'000};
inline constexpr std::chrono::milliseconds kLookPeriod{5'000};  // How often somebody looks whether one is late.

enum class SpinMode { kAuto, kAlways, kNever };  // kAuto: not at all with fewer than 4 allowed processors.
inline constexpr std::chrono::microseconds kSpinMax{20};
// Of the requests on their way. Releases may be sent under locks of their caller's: room for one never depends on when
// somebody takes another answer, since the drainer takes theirs.
inline constexpr uint32_t kKeptForDetached = 64;
// A started request keeps its place until its caller takes the answer, who may make other calls first: room for those.
inline constexpr uint32_t kKeptForCalls = 64;
inline constexpr uint32_t kKeptFromStarted = kKeptForDetached + kKeptForCalls;
// At the end nobody takes answers any more: what is still to be finished then may use part of that room.
inline constexpr uint32_t kKeptAtTheEnd = kKeptForDetached / 2;

inline constexpr std::chrono::milliseconds kRequestTimeoutDefault{60'000};  // As the daemon's.
Clock::time_point DeadlineOf(uint32_t timeout_ms);
uint32_t LeftUntil(Clock::time_point deadline);  // Milliseconds, 1 at least.
Error NoRoom();                                  // TIMEOUT

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
  std::chrono::milliseconds request_timeout = kRequestTimeoutDefault;  // The daemon's, of requests that name none.
  std::chrono::milliseconds lateness_max = kAnswerLatenessMax;
};

struct WaitFigures {
  std::atomic<uint64_t> waits{0};    // Acquires whose answer took longer than kSpinMax.
  std::atomic<uint64_t> wait_ns{0};  // Time in those.
};

class Channel {
 public:
  // `region` and `engine` are mapped for as long as the channel lives; `doorbell` stays the caller's.
  Channel(std::byte* region, const proto::EnginePage* engine, int doorbell, const ChannelOptions& options);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Puts a request on the ring, waiting for room when it is full until the request's own deadline: TIMEOUT. Fails
  // otherwise only when the session has ended. The result is the caller's until Finish.
  Result<Pending*> Submit(const Submission& submission);
  // The same without waiting: null when there is no room now. `group`: counts its completion.
  Result<Pending*> TrySubmit(const Submission& submission, Group* group, uint32_t kept = kKeptForDetached);
  // As Submit, without a deadline, and nobody waits: a refusal is remembered for TakeDeferred.
  Status SubmitDetached(const Submission& submission);
  // The same without waiting: false when there is no room now.
  Result<bool> TrySubmitDetached(const Submission& submission);
  // Blocks until done. TIMEOUT when `deadline` comes first, or `given_up` (then WakeAll): the request stays on its way.
  // The reason when the session ends without an answer.
  Status Wait(const Pending* pending, Clock::time_point deadline = Clock::time_point::max(),
              const std::atomic<bool>* given_up = nullptr);
  // Blocks until group.events differs from `seen`, or the deadline. False at the deadline or the session's end.
  bool WaitGroup(const Group& group, uint64_t seen, Clock::time_point deadline = Clock::time_point::max());
  // Takes in what has been answered, without waiting.
  void Poll() { Drain(false); }
  // Wakes whoever waits for the group.
  void Kick(Group& group);
  // Wakes every waiting thread, to look again at what it waits for.
  void WakeAll() { WakeSleepers(false); }
  // Gives an answered request back to the pool. One that was never answered (the session ended) is kept out of use.
  void Finish(Pending* pending);

  // Lets time pass for requests on their way: `elapsed` since the last call, as somebody saw it who was awake; what the
  // process was stopped for does not count. DISCONNECTED when one is unanswered though the daemon's time for it is
  // over.
  Status LookForLate(std::chrono::milliseconds elapsed);
  // Ends the session, once: every waiting and every later call gets this error.
  void End(Code code, std::string message);
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  Error end_reason() const;
  // The first failure of a detached request since the last call, and in its sentence how many came after it.
  std::optional<Error> TakeDeferred();

  const WaitFigures& figures() const { return figures_; }

 private:
  struct Target {  // What a thread waits for: a request, or any event of a group.
    const Pending* pending = nullptr;
    const Group* group = nullptr;
    uint64_t seen = 0;
    const std::atomic<bool>* given_up = nullptr;
    bool Reached() const {
      if (given_up != nullptr && given_up->load()) return true;
      return pending != nullptr ? pending->done() : group->events.load() != seen;
    }
  };

  struct Placing {
    Group* group = nullptr;
    bool detached = false;
    uint32_t kept = kKeptForDetached;  // Of the pool, for others.
  };
  static constexpr Placing kDetached{.group = nullptr, .detached = true, .kept = 0};
  Result<Pending*> TryPlaceNow(const Submission& submission, const Placing& placing);
  Pending* PlaceNow(const Submission& submission, const Placing& placing);
  bool TryPlace(const Submission& submission, uint32_t kept, Pending** placed);
  void Stage(const Submission& submission, uint32_t slots);
  std::chrono::milliseconds TimeFor(const Submission& submission) const;
  void RingDoorbell(bool can_wait);
  bool HalfUsed() const;
  bool WaitTarget(const Target& target, Clock::time_point deadline);
  bool Spin(const Target& target, Clock::time_point deadline);
  void SleepUntil(const Target& target, Clock::time_point deadline);
  void Lead(const Target& target, Clock::time_point deadline);
  void PauseForRoom();

  // True if at least one completion was taken. `leader`: the caller needs no waking itself.
  bool Drain(bool leader);
  bool TakeOne(uint32_t ready, uint32_t* taken);
  bool CheckShape(const proto::CompletionHeader& header, uint32_t ready) const;
  void Deliver(Pending* pending);
  void WakeSleepers(bool leader);
  void WakeRing();
  void EndMalformed(const char* what);

  std::byte* region_;
  const proto::EnginePage* engine_;
  int doorbell_;
  bool spins_;
  std::chrono::milliseconds request_timeout_;
  std::chrono::milliseconds lateness_max_;
  proto::RingView completion_view_;

  std::mutex request_mutex_;
  proto::RingProducer requests_;       // request_mutex_
  uint64_t next_sequence_ = 1;         // request_mutex_
  std::chrono::milliseconds watch_{};  // request_mutex_; the time that LookForLate has let pass
  PendingTable table_;                 // request_mutex_
  std::deque<Pending> storage_;        // request_mutex_; addresses are stable
  std::vector<Pending*> pool_;         // request_mutex_

  std::mutex consumer_mutex_;
  proto::RingConsumer completions_;  // consumer_mutex_

  std::mutex sleep_mutex_;
  std::condition_variable followers_wake_;
  bool leader_present_ = false;  // sleep_mutex_
  std::atomic<uint32_t> followers_{0};
  std::atomic<bool> leader_asleep_{false};

  std::atomic<bool> ended_{false};
  mutable std::mutex error_mutex_;
  Error end_reason_;               // error_mutex_
  std::optional<Error> deferred_;  // error_mutex_
  uint64_t deferred_more_ = 0;     // error_mutex_; failures after it
  std::atomic<bool> has_deferred_{false};
  WaitFigures figures_;
};

}  // namespace tier::client
