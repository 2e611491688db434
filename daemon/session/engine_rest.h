// EngineRest: lets another thread look at what the engine thread has, while that sleeps.
//
// The idea: a look at each job finds nothing in the caches of an engine thread that has slept, and waking it takes as
// long again. So the thread that asks looks itself, and the engine thread pays nothing. It is not woken, and does not
// wake in the middle of a look: should it be rung for just then, it waits for the end of that.
//
// What holds: of the engine thread while it is awake, and one thread that looks, never two run. What either has written
// the next one sees. A look changes nothing that the engine works by.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "daemon/base/check.h"
#include "daemon/base/clock.h"

namespace tier::session {

class EngineRest {
 public:
  // Engine thread, around each sleep. Before the first one it is awake.
  void Begin() { Change(State::kAwake, State::kAsleep); }
  void End() {
    State seen = State::kAsleep;
    while (!state_.compare_exchange_weak(seen, State::kAwake, std::memory_order_acquire, std::memory_order_relaxed)) {
      TIER_CHECK(seen != State::kAwake, "a sleep ended twice");
      if (seen == State::kWatched) TakesTime([this] { state_.wait(State::kWatched, std::memory_order_relaxed); });
      seen = State::kAsleep;
    }
  }

  // Engine thread: runs what looks take of it.
  void TakesTime(const std::function<void()>& run) {
    const base::TimePoint begin = base::SteadyClock().Now();
    run();
    const base::Duration spent = base::SteadyClock().Now() - begin;
    TIER_CHECK(spent.count() >= 0, "a time of {} ns", spent.count());
    spent_.fetch_add(spent.count(), std::memory_order_relaxed);
  }
  base::Duration spent() const { return base::Duration(spent_.load(std::memory_order_relaxed)); }  // Any thread.

  // Any other thread: runs `look`, if the engine thread sleeps and no other thread looks. Else it has not run.
  bool TryLook(const std::function<void()>& look) {
    TIER_CHECK(look != nullptr, "nothing to look at");
    State seen = State::kAsleep;
    if (!state_.compare_exchange_strong(seen, State::kWatched, std::memory_order_acquire, std::memory_order_relaxed)) {
      return false;
    }
    const Watch watch{*this};  // Also where it throws.
    look();
    return true;
  }

 private:
  enum class State : int { kAwake, kAsleep, kWatched };

  struct Watch {
    EngineRest& rest;
    ~Watch() {
      rest.Change(State::kWatched, State::kAsleep);
      rest.state_.notify_one();
    }
  };

  void Change(State from, State to) {
    const State before = state_.exchange(to, std::memory_order_release);
    TIER_CHECK(before == from, "state {} where {} was to be", static_cast<int>(before), static_cast<int>(from));
  }

  std::atomic<State> state_{State::kAwake};
  std::atomic<int64_t> spent_{0};  // Nanoseconds.
};

}  // namespace tier::session
