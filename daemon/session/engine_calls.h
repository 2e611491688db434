// EngineCalls: carries a question to the engine thread and waits for its answer; or looks itself while that sleeps.
//
// Any thread but the engine's. A question that the engine thread does not get to ends with TIMEOUT after
// kAnswerTimeout, and one that finds no room in its mailbox at once; the first may be carried out yet.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/mailbox.h"
#include "daemon/session/engine_rest.h"
#include "proto/result.h"

namespace tier::session {

inline constexpr auto kAnswerTimeout = std::chrono::seconds(10);
// How often, and how long apart, it is tried to look: an engine thread sleeps between two pieces of work.
inline constexpr int kTriesToLook = 20;
inline constexpr auto kBetweenTries = std::chrono::microseconds(100);

class EngineCalls {
 public:
  explicit EngineCalls(base::Mailbox& mailbox, EngineRest* rest = nullptr) : mailbox_(mailbox), rest_(rest) {}

  // Runs `ask` on the engine thread and waits for its answer.
  template <typename T>
  Result<T> Ask(std::function<Result<T>()> ask) {
    return AskLater<T>([ask = std::move(ask)](const Answer<T>& answer) { answer(ask()); });
  }

  // As Ask, for a question that changes nothing that the engine works by: on this thread while the engine thread
  // sleeps. Where it does not sleep for some milliseconds, it is asked.
  template <typename T>
  Result<T> Look(std::function<Result<T>()> look) {
    std::optional<Result<T>> seen;
    for (int tries = 0; rest_ != nullptr && tries < kTriesToLook; ++tries) {
      if (rest_->TryLook([&] { seen = look(); })) return *std::move(seen);
      std::this_thread::sleep_for(kBetweenTries);
    }
    if (rest_ == nullptr) return Ask<T>(std::move(look));
    return Ask<T>([rest = rest_, look = std::move(look)]() -> Result<T> {
      std::optional<Result<T>> asked;
      rest->TakesTime([&] { asked = look(); });
      return *std::move(asked);
    });
  }

  // As Ask, for a call that may be answered in a later turn.
  template <typename T>
  using Answer = std::function<void(Result<T>)>;
  template <typename T>
  Result<T> AskLater(std::function<void(const Answer<T>&)> ask) {
    TIER_CHECK(ask != nullptr, "nothing to ask");
    // Shared: the answer may come when the caller no longer waits for it.
    auto answer = std::make_shared<std::promise<Result<T>>>();
    auto future = answer->get_future();
    const Answer<T> give = [answer](Result<T> result) { answer->set_value(std::move(result)); };
    if (!mailbox_.TryPost([ask = std::move(ask), give] { ask(give); })) {
      return Fail(Code::kTimeout,
                  fmt::format("the engine has {} calls waiting, its limit: try again", mailbox_.waiting()));
    }
    if (future.wait_for(kAnswerTimeout) != std::future_status::ready) {
      return Fail(Code::kTimeout, fmt::format("the engine did not answer within {} s", kAnswerTimeout.count()));
    }
    return future.get();
  }

 private:
  base::Mailbox& mailbox_;
  EngineRest* const rest_;  // Null: it is always asked.
};

}  // namespace tier::session
