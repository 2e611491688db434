// ConfigChanges: has every part of the running daemon do what a changed configuration says. Main thread.
#pragma once

#include <deque>
#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/config/config.h"
#include "daemon/daemon_paths.h"
#include "daemon/engine_side.h"
#include "daemon/metrics_server.h"
#include "daemon/session/listener.h"
#include "daemon/user_quotas.h"

namespace tier {

struct ConfigChangesParts {
  boost::asio::io_context& io;
  EngineSide& engine;
  session::Listener& listener;
  UserQuotas& quotas;
  MetricsServer& metrics;
  const DaemonPaths& paths;
};

class ConfigChanges {
 public:
  explicit ConfigChanges(const ConfigChangesParts& parts) : parts_(parts), timer_(parts.io) {}

  // Takes what may not be had, an address for metrics. Fails: nothing has changed.
  Status Prepare(const config::Config& next);
  // REQUIRES: Prepare(next) was the last that was prepared, and did not fail. `done`: the engine has it too; called on
  // its thread.
  void Apply(const config::Config& next, std::function<void()> done);

 private:
  // In this order, however full the engine's mailbox is.
  void PostToEngine(std::function<void()> closure);
  void PostLate();

  const ConfigChangesParts parts_;
  boost::asio::steady_timer timer_;
  std::deque<std::function<void()>> late_;  // For the engine, when its mailbox was full: one for each change.
};

}  // namespace tier
