// LiveConfig: the configuration that the daemon runs with: the one that it was started with, and what has changed since
// of those options that change at run time: by a reload (SIGHUP), or one by one (tierctl config set) until the next
// reload.
//
// The idea: an option changes at run time only where no part of the daemon may refuse it, or `check` says so before any
// of them is asked; the one that takes something of the host, an address, is asked last. So a file is taken over as a
// whole, or, where it is wrong, not at all.
//
// Changes are made on the main thread; Set and List may be called from any other thread. Invariant: running() differs
// from the configuration at the start only in options of Change::kAtRunTime, and in quotas.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/config/config.h"
#include "daemon/session/settings.h"
#include "proto/mutex.h"

namespace tier {

// Where the configuration came from, to read it again.
struct ConfigSource {
  std::string file;                              // Empty: none was named.
  std::function<Result<config::Config>()> read;  // The file as it is now, under the same command line. Any thread.
};

struct ConfigHooks {
  // Why this process cannot do what it says, though it is well-formed: it lacks a right, or the memory. Any thread.
  std::function<Status(const config::Config& next)> check;
  // Why a restart with this file would be refused, so far as that is told without waiting for a disk. Any thread.
  std::function<Status(const config::Config& read)> check_restart;
  // Takes the address of metrics.listen, and is the last that may refuse. Main thread.
  std::function<Status(const config::Config& next)> move_metrics;
  // What a restart with this file would do that its reader may not expect: sentences. It waits for no disk. Main
  // thread.
  std::function<std::vector<std::string>(const config::Config& read)> at_restart;
  // Main thread. `done` is called once all parts of the daemon have it, on any thread.
  std::function<void(const config::Config& next, std::function<void()> done)> apply;
  // An event of the daemon. The file is the administrators': `message` is for them, `for_others` for all others.
  std::function<void(const char* kind, const std::string& message, const std::string& for_others)> tell;
  std::function<void(std::function<void()>)> post;  // Runs it on the main thread. Any thread.
};

inline constexpr char kConfigReloaded[] = "config_reloaded";
inline constexpr char kConfigReloadFailed[] = "config_reload_failed";
inline constexpr char kConfigChanged[] = "config_changed";

class LiveConfig {
 public:
  LiveConfig(const config::Config& started_with, ConfigSource source, ConfigHooks hooks)
      : source_(std::move(source)), hooks_(std::move(hooks)), running_(started_with) {}

  // Reads the file again, and takes over what may change; the log and an event say what waits for a restart. Without a
  // file that is what the command line says: it puts back what was set at run time. A file
  // that cannot be read, or is wrong, changes nothing: log and event say why. Main thread.
  void Reload();
  // No change is made from now on. Main thread.
  void Stop() { stopping_ = true; }

  config::Config running() const TIER_EXCLUDES(mutex_);
  // Why the last reload changed nothing; none: it succeeded, or there was none. Any thread.
  std::optional<session::ReloadFailure> reload_failure() const TIER_EXCLUDES(mutex_);
  session::SettingsReport List(bool with_file) const TIER_EXCLUDES(mutex_);
  // INVALID: no such option, one that waits for a restart, or no value that can be. DENIED: the daemon lacks a right.
  // DISCONNECTED: it stops. TIMEOUT: the main thread or the engine did not answer.
  Status Set(const session::SettingChange& change) TIER_EXCLUDES(mutex_);

 private:
  using Done = std::function<void(const Status&)>;
  struct Reading {  // A file that may be taken over.
    config::Config file;
    config::Config next;                    // What holds then.
    std::vector<std::string_view> waiting;  // Options that differ, and wait for a restart.
  };
  struct Refusal {
    config::Config file;
    std::string why;
  };
  Result<Reading> Check(const config::Config& before, Result<config::Config> read) const;
  std::string WhyRefused(const Result<config::Config>& file) const TIER_EXCLUDES(mutex_);
  void Refuse(const Error& error) TIER_EXCLUDES(mutex_);
  void TellReloaded(const config::Config& before, const Reading& reading);
  void Change(const session::SettingChange& change, const Done& done);
  void Commit(const config::Config& next) TIER_EXCLUDES(mutex_);

  const ConfigSource source_;
  const ConfigHooks hooks_;
  bool stopping_ = false;  // The main thread's.
  mutable Mutex mutex_;
  config::Config running_ TIER_GUARDED_BY(mutex_);
  // What the last reload was refused for, though the file is well-formed: the address of metrics could not be had.
  std::optional<Refusal> refusal_ TIER_GUARDED_BY(mutex_);
  std::optional<session::ReloadFailure> reload_failure_ TIER_GUARDED_BY(mutex_);
  std::set<std::string_view> set_at_run_time_ TIER_GUARDED_BY(mutex_);  // Keys of the table of options.
};

}  // namespace tier
