// DetachedCalls: calls that may hang in the kernel for minutes, as an open of a disk that fails does. Each runs on a
// thread of its own, which is never joined. A call that has not answered is left behind; what it answers later is
// destroyed on its thread, at once.
//
// A call owns all that it uses, for it may outlive the thread that started it. One thread starts, waits and takes.
// Invariant: until the end, in_flight == entries of `answers` without a value.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "daemon/base/check.h"
#include "daemon/base/time.h"
#include "proto/mutex.h"
#include "proto/result.h"
#include "proto/start_thread.h"

namespace tier::base {

template <typename Answer>
class DetachedCalls {
 public:
  DetachedCalls() = default;
  ~DetachedCalls() {
    std::map<size_t, std::optional<Answer>> untaken;  // Destroyed without the lock.
    Kept& state = *state_;
    const MutexLock lock(state.mutex);
    state.is_left = true;
    untaken.swap(state.answers);
  }
  DetachedCalls(const DetachedCalls&) = delete;
  DetachedCalls& operator=(const DetachedCalls&) = delete;

  // NO_MEMORY: the system gives no thread. REQUIRES: the answer to the last call of this key was taken.
  Status Start(size_t key, const std::string& thread_name, std::function<Answer()> call) {
    {
      Kept& state = *state_;
      const MutexLock lock(state.mutex);
      const bool is_new = state.answers.try_emplace(key).second;
      TIER_CHECK(is_new, "call {} is in flight, or its answer was not taken", key);
      ++state.in_flight;
    }
    auto thread = proto::StartThread(thread_name, proto::BlockedSignals::kAll,
                                     [state = state_, key, call = std::move(call)] { Run(*state, key, call); });
    if (thread) {
      thread->detach();
      return {};
    }
    Kept& state = *state_;
    const MutexLock lock(state.mutex);
    --state.in_flight;
    state.answers.erase(key);
    return std::unexpected(std::move(thread.error()));
  }

  // None: it was not started, has not answered, or was taken.
  std::optional<Answer> Take(size_t key) {
    Kept& state = *state_;
    const MutexLock lock(state.mutex);
    const auto found = state.answers.find(key);
    if (found == state.answers.end() || !found->second) return std::nullopt;
    std::optional<Answer> answer(std::move(*found->second));
    state.answers.erase(found);
    return answer;
  }

  // Until all have answered; no longer than this.
  void WaitAtMost(Duration time) {
    const auto until = std::chrono::steady_clock::now() + time;
    Kept& state = *state_;
    const MutexLock lock(state.mutex);
    while (state.in_flight != 0 && state.answered.WaitUntil(state.mutex, until)) {
    }
  }

 private:
  struct Kept {
    Mutex mutex;
    CondVar answered;
    size_t in_flight TIER_GUARDED_BY(mutex) = 0;
    bool is_left TIER_GUARDED_BY(mutex) = false;  // No answer is taken any more.
    // Of the calls that were started and not taken. None: in flight.
    std::map<size_t, std::optional<Answer>> answers TIER_GUARDED_BY(mutex);
  };

  static void Run(Kept& state, size_t key, const std::function<Answer()>& call) {
    Answer answer = call();
    const MutexLock lock(state.mutex);
    --state.in_flight;
    if (!state.is_left) state.answers.at(key).emplace(std::move(answer));
    state.answered.NotifyAll();
  }

  const std::shared_ptr<Kept> state_ = std::make_shared<Kept>();
};

}  // namespace tier::base
