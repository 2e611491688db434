// tierd: the daemon's command line. Everything that can be wrong at start is one sentence on standard error and a
// status of exit_status.h.
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <CLI/CLI.hpp>

#include "daemon/composition.h"
#include "daemon/config/config.h"
#include "daemon/config/options.h"
#include "daemon/daemon_paths.h"
#include "daemon/exit_status.h"
#include "daemon/host_check.h"
#include "daemon/host_limits.h"
#include "daemon/log_setup.h"
#include "daemon/metrics/metrics_page.h"
#include "daemon/session/service_manager.h"
#include "daemon/uncaught_exception.h"
#include "daemon/version.h"

namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> overrides;
  bool is_private = false;
  bool check_config = false;
  bool print_default_config = false;
  bool print_metrics = false;
};

// 0, or what CLI11 wants the process to end with.
int ParseArguments(int argc, char** argv, Arguments* arguments) {
  CLI::App app("tierd owns a training node's pinned memory and SSD space and lends them to training processes.",
               "tierd");
  app.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("{}tierd: {}; tierd --help lists the options\n", tier::RefusalPrefix(), error.what());
  });
  app.footer(
      "SIGTERM and SIGINT stop it in order. SIGHUP reads the configuration again: what may change at run time takes\n"
      "effect at once, and the log names what waits for the next start. Manual: tierd(8).");
  app.set_version_flag("--version", fmt::format("tierd {}", tier::kVersion), "Print the version and end");
  app.add_option("--config", arguments->config, "TOML configuration; without one every option has its default")
      ->type_name("FILE");
  app.add_option("--set", arguments->overrides, "One option, over the configuration; may be repeated")
      ->type_name("OPTION=VALUE");
  app.add_flag("--private", arguments->is_private, "The same as --set daemon.private=true");
  app.add_flag("--check-config", arguments->check_config,
               "Check names and values of the configuration, what it asks of this host and its paths there, and end");
  app.add_flag("--print-default-config", arguments->print_default_config,
               "Print every option with its default and end");
  app.add_flag("--print-metrics", arguments->print_metrics, "Print every metric with its meaning (Markdown) and end");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error);
    return status == 0 ? -1 : tier::kExitUsage;
  }
  return 0;
}

tier::Result<tier::config::Config> ReadConfig(const Arguments& arguments) {
  auto config = arguments.config.empty() ? tier::Result<tier::config::Config>(tier::config::DefaultConfig())
                                         : tier::config::LoadConfig(arguments.config);
  if (!config) return config;
  for (const std::string& assignment : arguments.overrides) {
    if (auto set = tier::config::ApplyOverride(assignment, &*config); !set)
      return std::unexpected(std::move(set.error()));
  }
  if (arguments.is_private) config->daemon.is_private = true;
  if (auto ok = tier::config::CheckConfig(*config); !ok) return std::unexpected(std::move(ok.error()));
  return config;
}

void PrintRefusal(const std::string& sentence, bool journal) {
  fmt::print(stderr, "{}tierd: {}\n", tier::RefusalPrefix(journal), sentence);
}

int RefuseConfig(const tier::Error& error) {
  PrintRefusal(error.message, tier::StandardErrorIsJournal());
  return tier::kExitConfig;
}

// What the machine refuses names the options to change; this adds where they stand.
int RefuseStart(const tier::Error& error, const tier::config::Config& config, const std::string& file) {
  const bool in_file = !file.empty() && tier::config::NamesAnOption(error.message);
  PrintRefusal(in_file ? fmt::format("{} (the configuration is {})", error.message, file) : error.message,
               tier::LogsForJournal(config.log));
  return tier::ExitStatusOfRefusal(error.code);
}

int CheckOnly(const std::string& file, const tier::config::Config& config, const tier::DaemonPaths& paths) {
  if (auto ok = tier::CheckHostLimits(config); !ok) return RefuseStart(ok.error(), config, file);
  const auto notes = tier::CheckHostPaths(config, paths);
  if (!notes) return RefuseStart(notes.error(), config, file);
  for (const std::string& note : *notes) fmt::print("{}\n", note);
  for (const std::string& sizes : tier::DescribeSizes(config, paths)) fmt::print("{}\n", sizes);
  tier::session::SystemUserDirectory users;
  for (const std::string& each : tier::CheckQuotaNames(config, paths, users)) fmt::print("warning: {}\n", each);
  const std::string admins = tier::CheckAdminGroup(config.daemon, users);
  if (!admins.empty()) fmt::print("warning: {}\n", admins);
  for (const std::string& each : tier::CheckTogether(config)) fmt::print("warning: {}\n", each);
  const std::string listen = tier::CheckMetricsReload(config);
  if (!listen.empty()) fmt::print("warning: {}\n", listen);
  fmt::print("{}: no mistake found\n{}\n", file.empty() ? "the options" : file, tier::kNotChecked);
  return 0;
}

// Other processes of this user may not read tensors out of this one; and a window takes a descriptor.
void PrepareProcess() {
  // The reader of the log may go away (a closed ssh, a pipe): jobs outlive that.
  (void)std::signal(SIGPIPE, SIG_IGN);
  (void)::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &files);  // Best effort: with fewer there are fewer sessions.
  }
}

int Run(int argc, char** argv) {
  // Else the free of one large block joins all small blocks that were freed before it: after a crowd of requests that
  // is some ten milliseconds of the engine thread.
  (void)::mallopt(M_MXFAST, 0);
  // Chunks of the tables, which are larger, are mappings of their own: a chunk that is freed goes back to the system at
  // once. Without this the first one that is freed raises the limit, and the others stay in the heap.
  (void)::mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  Arguments arguments;
  if (const int status = ParseArguments(argc, argv, &arguments); status != 0) return status < 0 ? 0 : status;
  if (arguments.print_default_config) {
    fmt::print("{}", tier::config::PrintDefaultConfig());
    return 0;
  }
  if (arguments.print_metrics) {
    fmt::print("{}", tier::metrics::MetricsPage());
    return 0;
  }
  const auto config = ReadConfig(arguments);
  if (!config) return RefuseConfig(config.error());
  // The file of a private daemon is its starter's, who writes it again at each start: no place to change an option.
  const std::string named_file = config->daemon.starter_pid > 0 ? "" : arguments.config;
  const auto paths = tier::ChoosePaths(config->daemon, tier::DaemonEnvironment::OfProcess());
  if (!paths) return RefuseStart(paths.error(), *config, named_file);
  if (arguments.check_config) return CheckOnly(arguments.config, *config, *paths);
  PrepareProcess();
  tier::SetUpLog(config->log);
  auto daemon = tier::Daemon::Start(*config, *paths, tier::session::ServiceManager::FromEnvironment(),
                                    {.file = arguments.config, .read = [&] { return ReadConfig(arguments); }});
  if (!daemon) return RefuseStart(daemon.error(), *config, named_file);
  (*daemon)->Run();
  daemon->reset();
  spdlog::info("stopped");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  tier::EndOnUncaughtShortage();
  try {
    return Run(argc, argv);
  } catch (const std::exception& failure) {
    return tier::RefuseException(failure);
  }
}
