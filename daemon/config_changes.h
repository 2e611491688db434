// ConfigChanges: has every part of the running daemon do what a changed configuration says. Main thread.
#pragma once

#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "daemon/config/config.h"
#include "daemon/engine_side.h"
#include "daemon/session/engine_posts.h"
#include "daemon/session/listener.h"
#include "daemon/smart_watch.h"
#include "daemon/user_quotas.h"

namespace tier {

// Where what tierd-smart found is read; empty: nowhere, as by a private daemon.
std::string SmartFileOf(const config::Config& config);

struct ConfigChangesParts {
  boost::asio::io_context& io;
  EngineSide& engine;
  session::Listener& listener;
  UserQuotas& quotas;
  SmartWatch& smart;
};

class ConfigChanges {
 public:
  explicit ConfigChanges(const ConfigChangesParts& parts) : parts_(parts), posts_(parts.io, parts.engine.mailbox()) {}

  // `done`: all of them do, quotas of users too; called on the main thread or the engine's.
  void Apply(const config::Config& next, std::function<void()> done);

 private:
  const ConfigChangesParts parts_;
  session::EnginePosts posts_;
};

}  // namespace tier
