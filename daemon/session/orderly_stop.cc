#include "daemon/session/orderly_stop.h"

#include <utility>

#include <boost/asio/post.hpp>

#include "daemon/base/check.h"

namespace tier::session {

namespace asio = boost::asio;
using boost::system::error_code;

OrderlyStop::OrderlyStop(asio::io_context& io, base::Mailbox& mailbox, StopSteps steps)
    : io_(io), mailbox_(mailbox), steps_(std::move(steps)), deadline_(io), check_(io) {}

void OrderlyStop::Start(const StopTimes& times) {
  TIER_CHECK(phase_ == Phase::kBefore, "phase {}", static_cast<int>(phase_));
  phase_ = Phase::kDraining;
  times_ = times;
  SetDeadline(times_.drain, &OrderlyStop::GiveUpDraining);
  Post(Phase::kDraining, [this] {
    steps_.start_drain();
    asio::post(io_, [this] { AskWhetherDrained(); });
  });
}

// A mailbox without room is tried again for as long as `phase` lasts.
void OrderlyStop::Post(Phase phase, std::function<void()> on_engine) {
  if (phase_ != phase || mailbox_.TryPost(on_engine)) return;
  Later([this, phase, on_engine = std::move(on_engine)] { Post(phase, on_engine); });
}

void OrderlyStop::SetDeadline(std::chrono::nanoseconds time, void (OrderlyStop::*then)()) {
  deadline_.expires_after(time);
  deadline_.async_wait([this, then](error_code error) {
    if (!error) (this->*then)();
  });
}

void OrderlyStop::Later(std::function<void()> step) {
  check_.expires_after(kStopCheck);
  check_.async_wait([step = std::move(step)](error_code error) {
    if (!error) step();
  });
}

void OrderlyStop::AskWhetherDrained() {
  Post(Phase::kDraining, [this] {
    asio::post(io_, [this, drained = steps_.is_drained()] {
      if (phase_ != Phase::kDraining) return;
      if (drained) return TellClients(true);
      Later([this] { AskWhetherDrained(); });
    });
  });
}

void OrderlyStop::TellClients(bool drained) {
  if (phase_ != Phase::kDraining) return;
  phase_ = Phase::kTelling;
  outcome_.drained = drained;
  check_.cancel();
  SetDeadline(times_.answer, &OrderlyStop::Finish);
  Post(Phase::kTelling, [this] {
    steps_.end_sessions();
    asio::post(io_, [this] {
      if (phase_ != Phase::kTelling) return;
      outcome_.engine_answered = true;
      SetDeadline(times_.final_packets, &OrderlyStop::Finish);
      AwaitFinalPackets();
    });
  });
}

void OrderlyStop::AwaitFinalPackets() {
  if (phase_ != Phase::kTelling) return;
  if (steps_.final_packets_sent()) return Finish();
  Later([this] { AwaitFinalPackets(); });
}

void OrderlyStop::Finish() {
  if (std::exchange(phase_, Phase::kDone) == Phase::kDone) return;
  deadline_.cancel();
  check_.cancel();
  steps_.done(outcome_);
}

}  // namespace tier::session
