#include "daemon/composition.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <boost/asio/post.hpp>

#include "daemon/base/format_bytes.h"
#include "daemon/host_check.h"
#include "daemon/host_limits.h"
#include "daemon/process_limits.h"
#include "daemon/ssd_devices.h"
#include "daemon/ssd_words.h"
#include "daemon/version.h"

namespace tier {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr auto kTick = std::chrono::seconds(1);
constexpr auto kStopBehindDrain = std::chrono::seconds(10);  // What StopTimes has beside it, and the end of threads.
constexpr unsigned kSharedSocketMode = 0666;                 // Every user may connect; the kernel says which one it is.
constexpr unsigned kPrivateSocketMode = 0600;

uint64_t MakeEpoch() {
  session::KernelTokenSource source;
  uint64_t epoch = 0;
  while (epoch == 0) epoch = source.Random();
  return epoch;
}

}  // namespace

Daemon::Daemon(const config::Config& config, const DaemonPaths& paths, session::ServiceManager manager,
               ConfigSource source)
    : config_(config),
      paths_(paths),
      manager_(std::move(manager)),
      source_(std::move(source)),
      epoch_(MakeEpoch()),
      smart_(SmartFileOf(config)) {
  // From here on these are collected; they are looked at once the daemon serves.
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2}) signals_.add(signal);
}

Daemon::~Daemon() { TearDown(); }

Result<std::unique_ptr<Daemon>> Daemon::Start(const config::Config& config, const DaemonPaths& paths,
                                              session::ServiceManager manager, ConfigSource source) {
  std::unique_ptr<Daemon> daemon(new Daemon(config, paths, std::move(manager), std::move(source)));
  if (auto composed = daemon->Compose(); !composed) return std::unexpected(std::move(composed.error()));
  return daemon;
}

Status Daemon::Compose() {
  if (auto right = CheckRightToEnd(config_, session::MayEndOthers()); !right) return right;
  const bool only_owner = config_.daemon.is_private || ::geteuid() != 0;
  auto lock = session::InstanceLock::Take(paths_.socket_directory, only_owner);
  if (!lock) return std::unexpected(std::move(lock.error()));
  lock_.emplace(std::move(*lock));
  const std::string closed = only_owner ? std::string() : session::ClosedToOthers(paths_.socket_directory);
  if (!closed.empty()) spdlog::warn("{}", closed);
  const auto on_wait = [this](base::Duration wait) { manager_.Notify(ExtensionOfTime(wait)); };
  auto engine = EngineSide::Make(
      config_, paths_, {.epoch = epoch_, .predecessor_crashed = lock_->predecessor_crashed(), .on_wait = on_wait});
  if (!engine) return std::unexpected(std::move(engine.error()));
  engine_ = std::move(*engine);
  quotas_ = std::make_unique<UserQuotas>(io_, *engine_);
  reservations_ = std::make_unique<Reservations>(
      ReservationsParts{.io = io_,
                        .file = engine_->reservations(),
                        .version = [this] { return engine_->jobs().reservations_version(); },
                        .now = [this] { return engine_->jobs().Reservations(); },
                        .clock = engine_->clock(),
                        .warn = [](const std::string& text) { spdlog::warn("{}", text); }});
  if (auto opened = OpenDataSocket(); !opened) return opened;
  if (auto started = engine_->Start(*listener_); !started) return started;
  // A private daemon serves its own user alone, also where its data directory has owners.
  if (!config_.daemon.is_private) {
    owner_sockets_ = std::make_unique<session::OwnerSockets>(
        paths_.socket_directory + "/owners", engine_->owners(),
        MakeOwnerSocketCalls({.io = io_, .listener = listener_, .grpc = grpc_}));
  }
  if (auto opened = OpenControl(); !opened) return opened;
  ReopenOwnerSockets();
  if (auto watched = WatchEvents(); !watched) return watched;
  control_->TellRestoredDrain();
  MakeStop();
  WatchSignals();
  if (config_.daemon.is_private && config_.daemon.starter_pid > 0) WatchStarter();
  Tick();
  SampleHost();
  FeedWatchdog();
  if (auto started = engine_->StartPrefault(); !started) return started;
  AnnounceReady();
  return {};
}

Status Daemon::OpenDataSocket() {
  const unsigned mode = config_.daemon.is_private ? kPrivateSocketMode : kSharedSocketMode;
  proto::FileDescriptor socket = manager_.TakeSocket("data");
  if (socket) {
    if (auto ok = session::CheckListening(socket.get()); !ok) return ok;
    session::RefuseDescriptors(socket.get());
  } else {
    auto listening = session::ListenAt(paths_.socket_directory + "/tierd.sock", mode);
    if (!listening) return std::unexpected(std::move(listening.error()));
    socket = std::move(*listening);
    made_socket_ = true;
  }
  session::ListenerOptions options;
  options.epoch = epoch_;
  options.window_size = engine_->arena().window_sizes(WindowKind::kBlock).most;
  options.address_space_size = engine_->arena().address_space_bytes();
  options.windows_max = engine_->arena().windows_max();
  options.daemon_version = fmt::format("tierd {}", kVersion);
  // The kernel allows as many as descriptors may be open; and a socket is kept open for what is unread at its end.
  options.unread.in_flight_max = std::max<size_t>(OpenFileLimit() / 2, session::kPacketsUnreadMax);
  options.ends_processes = config_.jobs.kills_keepers();
  options.attaches_per_uid_per_second = static_cast<uint32_t>(config_.jobs.max_attaches_per_second);
  options.learn_user = [this](uint32_t uid, std::function<void()> then) {
    return quotas_->LearnUser(uid, std::move(then));
  };
  options.owners = &engine_->owners();
  options.on_session_count = [this](size_t sessions) { OnSessionCount(sessions); };
  options.on_warning = [](const std::string& text) { spdlog::warn("{}", text); };
  listener_ = std::make_unique<session::Listener>(options, session::ListenerParts{.io = io_,
                                                                                  .mailbox = engine_->mailbox(),
                                                                                  .sessions = engine_->sessions(),
                                                                                  .page = engine_->page(),
                                                                                  .clock = engine_->clock()});
  listener_->Start(std::move(socket));
  return {};
}

session::DaemonFacts Daemon::Facts() {
  storage::SsdTier& ssd = engine_->ssd();
  session::DaemonFacts facts;
  facts.version = kVersion;
  facts.epoch = epoch_;
  facts.io_mode = IoModeName(ssd);
  facts.ssd_mode = SsdModeName(ssd.ssd_mode());
  facts.ssd_mode_reason = ssd.ssd_mode_reason();
  facts.is_private = config_.daemon.is_private;
  facts.socket_directory = paths_.socket_directory;
  facts.data_directory = paths_.persistent ? paths_.data_directory : std::string();
  for (uint16_t i = 0; i < ssd.device_count(); ++i) facts.devices.push_back(Described(i, ssd.device(i)));
  facts.read_host = [] {
    const auto host = memory::ReadHost();
    if (!host) return session::HostFigures{};
    return session::HostFigures{.available_bytes = host->available(),
                                .psi_memory_some_ratio = host->stalls.some_avg10 / 100};
  };
  facts.huge_page_mode = [this] { return engine_->HugePageMode(); };
  facts.prefault = [this] { return engine_->Prefault(); };
  facts.shortage = [this] { return engine_->Shortage(); };
  facts.smart = [this](const std::string& path) { return smart_.Of(path, std::time(nullptr)); };
  facts.drive_writes_per_day = [this](uint16_t device) { return engine_->DriveWritesPerDay(device); };
  facts.spin_mode = [this] { return live_config_->running().engine.spin; };
  facts.reload_failure = [this] { return live_config_->reload_failure(); };
  facts.spin_pauses = [this] { return engine_->loop().spin_pauses(); };
  facts.memory_mode = [this] { return MemoryMode(); };
  facts.memory_mode_reason = [this] { return engine_->ssd().unpinned_reason(); };
  facts.metrics_address = [this] { return metrics_->address(); };
  return facts;
}

std::string Daemon::MemoryMode() const { return engine_->ssd().pinned() ? "pinned" : "unpinned"; }

ConfigHooks Daemon::MakeConfigHooks() {
  return {.check =
              [this](const config::Config& next) {
                Status may = CheckRightToEnd(next, session::MayEndOthers());
                if (may && SmartFileOf(next) != SmartFileOf(live_config_->running())) may = CheckSmartFile(next);
                return may ? engine_->Check(next) : may;
              },
          .check_restart =
              [this](const config::Config& read) {
                return read.ssd.devices == config_.ssd.devices ? Status() : CheckDistinctDevices(read);
              },
          .move_metrics =
              [this](const config::Config& next) {
                return metrics_->Move(ChooseMetricsAddress(next, paths_), next.metrics.listen != "auto");
              },
          .at_restart = [this](const config::Config& read) -> std::vector<std::string> {
            if (read.ssd.file_size == config_.ssd.file_size) return {};
            return NextSizeNotes(engine_->ssd(), read.ssd.file_size);
          },
          .apply =
              [this](const config::Config& next, std::function<void()> done) {
                TellStatus();  // It has the address of metrics, and how the engine spins.
                changes_->Apply(next, std::move(done));
              },
          .tell =
              [this](const char* kind, const std::string& message, const std::string& for_others) {
                engine_->events().EmitForAdministrators(kind, message, for_others);
              },
          .post = [this](std::function<void()> run) { asio::post(io_, std::move(run)); }};
}

session::ControlServerParts Daemon::ControlParts() {
  return {.mailbox = engine_->mailbox(),
          .jobs = engine_->jobs(),
          .sessions = engine_->sessions(),
          .events = engine_->events(),
          .clock = engine_->clock(),
          .quotas = &engine_->quotas(),
          .settings = {.list = [this](bool with_file) { return live_config_->List(with_file); },
                       .set = [this](const session::SettingChange& change) { return live_config_->Set(change); }},
          .apply_quotas_later =
              [this](const std::string& what) { asio::post(io_, [this, what] { quotas_->ApplyChange(what); }); },
          .rest = &engine_->rest(),
          .owners = &engine_->owners(),
          .sockets = owner_sockets_.get(),
          .users = &engine_->system_users(),
          .reservations = engine_->reservations(),
          .on_degraded = [this](const std::string& text) { asio::post(io_, [this, text] { TellDegraded(text); }); }};
}

Status Daemon::OpenControl() {
  metrics_ = std::make_unique<MetricsServer>(paths_.socket_directory);
  const std::string listen = ChooseMetricsAddress(config_, paths_);
  if (auto opened = metrics_->Open(listen, config_.metrics.listen != "auto"); !opened) return opened;
  changes_ = std::make_unique<ConfigChanges>(
      ConfigChangesParts{.io = io_, .engine = *engine_, .listener = *listener_, .quotas = *quotas_, .smart = smart_});
  live_config_.emplace(config_, source_, MakeConfigHooks());
  control_ = std::make_unique<session::ControlServer>(Facts(), ControlParts());
  control_->RestoreDrain();
  control::GrpcServerOptions options;
  options.control_socket = paths_.socket_directory + "/control.sock";
  options.admin_socket = paths_.socket_directory + "/admin.sock";
  options.admin_group = config_.daemon.admin_group;
  options.on_warning = [](const std::string& text) { spdlog::warn("{}", text); };
  if (config_.daemon.is_private) {
    options.control_socket_mode = kPrivateSocketMode;
    options.admin_socket_mode = kPrivateSocketMode;
  }
  auto grpc = control::GrpcServer::Start(options, *control_);
  if (!grpc) return std::unexpected(std::move(grpc.error()));
  grpc_ = std::move(*grpc);
  for (const std::string& warning : {CheckAdminGroup(config_.daemon, engine_->system_users()),
                                     CheckAdminSocket(config_.daemon, engine_->system_users(), options.admin_socket)})
    if (!warning.empty()) spdlog::warn("{}", warning);
  for (const std::string& warning : CheckTogether(config_)) spdlog::warn("{}", warning);
  return metrics_->Start(*control_);
}

void Daemon::ReopenOwnerSockets() {
  if (owner_sockets_ == nullptr) return;
  for (const std::string& failure : owner_sockets_->Reopen()) spdlog::warn("{}", failure);
}

Status Daemon::WatchEvents() {
  auto subscription =
      control_->Watch({.uid = ::geteuid(), .admin = true, .token = {}}, [this](const session::Event& event) {
        const auto line = event_log_limiter_.Pass(event, engine_->clock().Now());
        if (ServiceStatus::IsAbout(event.kind)) asio::post(io_, [this, event] { OnEvent(event); });
        if (line) spdlog::log(line->fault ? spdlog::level::warn : spdlog::level::info, "{}", line->text);
      });
  if (!subscription) return std::unexpected(std::move(subscription.error()));
  log_subscription_ = std::move(*subscription);
  return {};
}

void Daemon::OnEvent(const session::Event& event) {
  if (stop_->started()) return;
  if (event.kind == "draining" || event.kind == "undrained") grpc_->SetServing(!control_->draining());
  if (event.kind == "pinned" || event.kind == "unpinned") TellStatus();
  if (status_.OnEvent(event)) manager_.Notify(fmt::format("STATUS={}\n", status_.Line()));
}

void Daemon::TellDegraded(const std::string& text) {
  if (status_.SetDegraded(text) && !stop_->started()) manager_.Notify(fmt::format("STATUS={}\n", status_.Line()));
}

void Daemon::WatchSignals() {
  // Until here they end the process at once: nothing is served yet.
  signals_.add(SIGTERM);
  signals_.add(SIGINT);
  AwaitSignal();
}

void Daemon::AwaitSignal() {
  signals_.async_wait([this](error_code error, int signal) {
    if (error) return;
    OnSignal(signal);
    AwaitSignal();
  });
}

void Daemon::OnSignal(int signal) {
  switch (signal) {
    case SIGTERM: return BeginStop("tierd is being stopped");
    case SIGINT: return BeginStop("tierd was interrupted");
    case SIGHUP: return Reload();
    default: spdlog::info("SIG{} has no meaning for tierd and is ignored", ::sigabbrev_np(signal));
  }
}

void Daemon::Reload() {
  if (stop_->started()) return;
  manager_.Notify("RELOADING=1\n");
  live_config_->Reload();
  manager_.Notify("READY=1\n");
}

// The manager is told only what is new.
void Daemon::TellStatus() {
  if (status_.SetServing(StatusText())) manager_.Notify(fmt::format("STATUS={}\n", status_.Line()));
}

void Daemon::WatchStarter() {
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(config_.daemon.starter_pid), 0));
  const auto died = [this] {
    lifetime_.OnStarterDied(engine_->clock().Now());
    ScheduleEnd();
  };
  if (pidfd < 0) return died();  // It has ended already.
  starter_.assign(pidfd);
  starter_.async_wait(asio::posix::descriptor_base::wait_read, [died](error_code error) {
    if (!error) died();
  });
}

void Daemon::AnnounceReady() {
  LogSsdTier(engine_->ssd());
  if (!paths_.persistent && !config_.daemon.is_private) {
    spdlog::warn(
        "neither XDG_STATE_HOME nor HOME is set: nothing is kept, named jobs are refused; set "
        "daemon.data_directory to a directory on a local disk");
  }
  spdlog::info("started as uid {} with {}; may lock {} and open {} files", ::geteuid(),
               source_.file.empty() ? "no configuration file" : "configuration " + source_.file, LockableText(),
               OpenFileLimit());
  status_.SetServing(StatusText());
  status_.SetShortage(SsdShortage(engine_->ssd()));
  spdlog::info("tierd {} {}", kVersion, status_.Line());
  manager_.Notify(fmt::format("READY=1\nSTATUS={}\n", status_.Line()));
  quotas_->WarnOfUnknown();
}

// What it serves, in one line.
std::string Daemon::StatusText() const {
  const memory::WindowSizes sizes = engine_->arena().window_sizes(WindowKind::kBlock);
  const bool chose_no_ssd = engine_->ssd().ssd_mode() == storage::SsdMode::kNone && SsdShortage(engine_->ssd()).empty();
  const std::string metrics = metrics_->address();
  return fmt::format("serving at {}/tierd.sock; arena up to {} in windows of {} to {}; {}, memory {}, spin {}; {}{}",
                     paths_.socket_directory, base::FormatBytes(engine_->arena().arena_limit_bytes()),
                     base::FormatBytes(sizes.least), base::FormatBytes(sizes.most), IoModeName(engine_->ssd()),
                     MemoryMode(), live_config_->running().engine.spin,
                     metrics.empty() ? "no metrics" : "metrics at " + metrics,
                     chose_no_ssd ? "; no SSD tier, tensors stay in RAM" : "");
}

void Daemon::Tick() {
  tick_timer_.expires_after(kTick);
  tick_timer_.async_wait([this](error_code error) {
    if (error) return;
    // A mailbox without room means an engine with more urgent things to do.
    (void)engine_->mailbox().TryPost([this] {
      engine_->Refresh();
      reservations_->Note();
      control_->EmitChanges();
      ReportActivity();
    });
    metrics_->ReportScrapes(engine_->clock().Now());
    if (const auto unusable = smart_.Tick()) spdlog::warn("{}", *unusable);
    Tick();
  });
}

// Engine thread; the lines are written by the main thread, which may wait for the reader of the log.
void Daemon::ReportActivity() {
  if (!spdlog::should_log(spdlog::level::debug)) return activity_.Restart();
  auto lines = activity_.Note(*control_->Figures());
  if (lines.empty()) return;
  asio::post(io_, [lines = std::move(lines)] {
    for (const std::string& line : lines) spdlog::debug("{}", line);
  });
}

void Daemon::SampleHost() {
  host_timer_.expires_after(kHostSampleInterval);
  host_timer_.async_wait([this](error_code error) {
    if (error) return;
    (void)engine_->mailbox().TryPost([this] { engine_->SampleHost(); });
    SampleHost();
  });
}

// Fed by what the engine thread has done, never by this timer alone: a closure must have run there since the last time.
void Daemon::FeedWatchdog() {
  const auto interval = manager_.watchdog();
  if (!interval) return;
  (void)engine_->mailbox().TryPost([this] { asio::post(io_, [this] { manager_.Notify("WATCHDOG=1\n"); }); });
  watchdog_timer_.expires_after(*interval / 3);
  watchdog_timer_.async_wait([this](error_code error) {
    if (!error) FeedWatchdog();
  });
}

void Daemon::OnSessionCount(size_t sessions) {
  if (!config_.daemon.is_private) return;
  lifetime_.OnSessionCount(sessions, engine_->clock().Now());
  ScheduleEnd();
}

void Daemon::ScheduleEnd() {
  end_timer_.cancel();
  const auto end = lifetime_.end();
  if (!end) return;
  end_timer_.expires_after(std::max(*end - engine_->clock().Now(), base::Duration{0}));
  end_timer_.async_wait([this](error_code error) {
    if (!error) BeginStop("nobody needs this private tierd any more");
  });
}

void Daemon::MakeStop() {
  session::StopSteps steps;
  steps.start_drain = [this] { engine_->jobs().StartDrain(stop_reason_); };
  steps.is_drained = [this] { return engine_->engine().idle(); };
  steps.end_sessions = [this] { engine_->sessions().EndAll(Code::kDisconnected, "tierd has stopped"); };
  steps.final_packets_sent = [this] { return listener_->idle(); };
  steps.done = [this](const session::StopOutcome& outcome) { EndRun(outcome); };
  stop_.emplace(io_, engine_->mailbox(), std::move(steps));
}

void Daemon::BeginStop(const std::string& reason) {
  if (stop_->started()) return;
  stop_reason_ = reason;
  spdlog::info("stopping: {}", reason);
  const base::Duration drain = live_config_->running().engine.drain_timeout;
  manager_.Notify(fmt::format("STOPPING=1\nSTATUS={}\n{}", reason, ExtensionOfTime(drain + kStopBehindDrain)));
  listener_->StopAccepting(reason);
  control_->SetStopping();
  grpc_->SetServing(false);
  live_config_->Stop();
  stop_->Start({.drain = drain});
}

void Daemon::EndRun(const session::StopOutcome& outcome) {
  if (!outcome.drained) {
    const base::Duration drain_timeout = live_config_->running().engine.drain_timeout;
    spdlog::warn("transfers are still under way after {} ms (option engine.drain_timeout); stopping without them",
                 std::chrono::duration_cast<std::chrono::milliseconds>(drain_timeout).count());
  }
  if (!outcome.engine_answered) {
    spdlog::critical("the engine thread does not answer; leaving without it");
    spdlog::shutdown();
    std::_Exit(1);  // A join of that thread would not return.
  }
  io_.stop();
}

void Daemon::Run() { io_.run(); }

void Daemon::TearDown() {
  // Callers first: they wait for the engine thread.
  log_subscription_.reset();
  if (metrics_) metrics_->Close();
  if (grpc_) grpc_->Stop();  // Its calls may ask for the sockets of owners, which ask it.
  grpc_.reset();
  owner_sockets_.reset();
  live_config_.reset();
  changes_.reset();
  metrics_.reset();
  quotas_.reset();  // It waits for the user database, if that is being asked.
  if (engine_) engine_->Stop();
  if (reservations_ && stop_ && stop_->started()) reservations_->Finish();  // A start that fails changes no file.
  if (engine_ && !engine_->quiet()) {
    // What a device still writes must not find its memory gone: leave it to the kernel.
    spdlog::warn("leaving with transfers under way");
    std::_Exit(0);
  }
  reservations_.reset();
  if (listener_) listener_->CloseAll();
  if (made_socket_) {
    std::error_code ignored;
    std::filesystem::remove(paths_.socket_directory + "/tierd.sock", ignored);
  }
  listener_.reset();
  engine_.reset();
  if (lock_) lock_->MarkEnded();
}

}  // namespace tier
