// EngineCalls: carries a question to the engine thread and waits for its answer.
//
// Any thread but the engine's. A question that the engine thread does not get to ends with TIMEOUT after
// kAnswerTimeout, and one that finds no room in its mailbox at once; the first may be carried out yet.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/mailbox.h"
#include "proto/result.h"

namespace tier::session {

inline constexpr auto kAnswerTimeout = std::chrono::seconds(10);

class EngineCalls {
 public:
  explicit EngineCalls(base::Mailbox& mailbox) : mailbox_(mailbox) {}

  // Runs `ask` on the engine thread and waits for its answer.
  template <typename T>
  Result<T> Ask(std::function<Result<T>()> ask) {
    return AskLater<T>([ask = std::move(ask)](const Answer<T>& answer) { answer(ask()); });
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
};

}  // namespace tier::session
