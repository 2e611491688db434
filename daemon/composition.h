// Daemon: the whole of tierd put together, from the configuration to the last packet. The main thread runs
// sockets, signals and timers (Asio); EngineSide has the engine's; gRPC and metrics bring their own.
//
// Start refuses with one sentence. Run returns when the daemon has ended in order: SIGTERM or SIGINT, or, for a private
// daemon, when no process needs it any more. SIGHUP reads the configuration again; SIGUSR1 and SIGUSR2 are logged and
// ignored.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "daemon/activity_report.h"
#include "daemon/config/config.h"
#include "daemon/config_changes.h"
#include "daemon/control/grpc_server.h"
#include "daemon/daemon_paths.h"
#include "daemon/engine_side.h"
#include "daemon/live_config.h"
#include "daemon/metrics_server.h"
#include "daemon/owner_socket_calls.h"
#include "daemon/reservations.h"
#include "daemon/service_status.h"
#include "daemon/session/control_server.h"
#include "daemon/session/event_log_limiter.h"
#include "daemon/session/instance_lock.h"
#include "daemon/session/listener.h"
#include "daemon/session/orderly_stop.h"
#include "daemon/session/owner_sockets.h"
#include "daemon/session/private_lifetime.h"
#include "daemon/session/service_manager.h"
#include "daemon/smart_watch.h"
#include "daemon/user_quotas.h"

namespace tier {

class Daemon {
 public:
  static Result<std::unique_ptr<Daemon>> Start(const config::Config& config, const DaemonPaths& paths,
                                               session::ServiceManager manager, ConfigSource source);
  ~Daemon();
  void Run();

 private:
  Daemon(const config::Config& config, const DaemonPaths& paths, session::ServiceManager manager, ConfigSource source);
  Status Compose();
  Status OpenDataSocket();
  Status OpenControl();
  session::ControlServerParts ControlParts();
  void ReopenOwnerSockets();
  session::DaemonFacts Facts();
  std::string MemoryMode() const;
  std::string StatusText() const;
  void WatchSignals();
  void AwaitSignal();
  void OnSignal(int signal);
  void Reload();
  void TellStatus();
  ConfigHooks MakeConfigHooks();
  void WatchStarter();
  Status WatchEvents();
  void OnEvent(const session::Event& event);
  void TellDegraded(const std::string& text);
  void AnnounceReady();
  void Tick();
  void ReportActivity();
  void SampleHost();
  void FeedWatchdog();
  void OnSessionCount(size_t sessions);
  void ScheduleEnd();
  void MakeStop();
  void BeginStop(const std::string& reason);
  void EndRun(const session::StopOutcome& outcome);
  void TearDown();

  const config::Config config_;  // As at the start; what may have changed since is live_config_'s.
  const DaemonPaths paths_;
  session::ServiceManager manager_;
  const ConfigSource source_;
  const uint64_t epoch_;
  std::optional<session::InstanceLock> lock_;
  std::unique_ptr<EngineSide> engine_;
  boost::asio::io_context io_{1};
  std::unique_ptr<UserQuotas> quotas_;
  std::unique_ptr<session::Listener> listener_;
  std::unique_ptr<ConfigChanges> changes_;
  std::optional<LiveConfig> live_config_;
  std::unique_ptr<session::OwnerSockets> owner_sockets_;  // Its calls go to listener_ and grpc_. Null: private.
  std::unique_ptr<Reservations> reservations_;
  std::unique_ptr<session::ControlServer> control_;
  std::unique_ptr<control::GrpcServer> grpc_;
  std::unique_ptr<MetricsServer> metrics_;
  session::EventLogLimiter event_log_limiter_;  // The subscription's thread.
  SmartWatch smart_;
  ActivityReport activity_;  // The engine's thread.
  std::shared_ptr<void> log_subscription_;

  boost::asio::signal_set signals_{io_};
  boost::asio::steady_timer tick_timer_{io_};
  boost::asio::steady_timer host_timer_{io_};
  boost::asio::steady_timer watchdog_timer_{io_};
  boost::asio::steady_timer end_timer_{io_};
  boost::asio::posix::stream_descriptor starter_{io_};
  session::PrivateLifetime lifetime_;
  std::optional<session::OrderlyStop> stop_;
  ServiceStatus status_;
  std::string stop_reason_;   // Before the stop starts; then the engine thread's to read.
  bool made_socket_ = false;  // This process made it, not systemd or another process.
};

}  // namespace tier
