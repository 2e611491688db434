// OrderlyStop: from the wish to stop to the moment when the sockets' loop may end: the engine drains, every client is
// told, what was said leaves. Each part has its own deadline on this thread's timers, so that neither a full mailbox
// nor an engine that does not answer can hold it up.
//
//   Start ── drained? ──▶ the engine tells the clients ──▶ final packets sent? ──▶ done
//              └─ drain ─▶                     └─ answer ─────────┴─ final packets ─▶
//
// Socket thread, except for the steps that say otherwise. Start once; `done` is called once, from the loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/base/mailbox.h"

namespace tier::session {

inline constexpr auto kStopCheck = std::chrono::milliseconds(5);  // How often a step is looked at, or tried again.

struct StopTimes {  // At most.
  std::chrono::nanoseconds drain{};
  std::chrono::nanoseconds answer = std::chrono::seconds(5);                 // Until the engine has told the clients.
  std::chrono::nanoseconds final_packets = std::chrono::milliseconds(1500);  // Connections give up after a second.
};

struct StopOutcome {
  bool drained = false;          // Within the drain timeout.
  bool engine_answered = false;  // It told the clients; else its thread is stuck, and joining it would hang.
};

struct StopSteps {
  std::function<void()> start_drain;   // Engine thread.
  std::function<bool()> is_drained;    // Engine thread.
  std::function<void()> end_sessions;  // Engine thread.
  std::function<bool()> final_packets_sent;
  std::function<void(const StopOutcome&)> done;
};

class OrderlyStop {
 public:
  OrderlyStop(boost::asio::io_context& io, base::Mailbox& mailbox, StopSteps steps);
  void Start(const StopTimes& times);
  bool started() const { return phase_ != Phase::kBefore; }

 private:
  enum class Phase : uint8_t { kBefore, kDraining, kTelling, kDone };
  void Post(Phase phase, std::function<void()> on_engine);
  void Later(std::function<void()> step);
  void SetDeadline(std::chrono::nanoseconds time, void (OrderlyStop::*then)());
  void GiveUpDraining() { TellClients(/*drained=*/false); }
  void AskWhetherDrained();
  void TellClients(bool drained);
  void AwaitFinalPackets();
  void Finish();

  boost::asio::io_context& io_;
  base::Mailbox& mailbox_;
  const StopSteps steps_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer check_;
  StopTimes times_;
  Phase phase_ = Phase::kBefore;
  StopOutcome outcome_;
};

}  // namespace tier::session
