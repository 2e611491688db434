// Config: every option of the daemon, as values. Filled from the table in options.cc, which is the only place that
// knows an option's name, kind, limits, default and help; nothing else may set a default.
//
// Paths may be empty: "where this user has it" is decided at start (composition). Thread-safety: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/base/time.h"
#include "proto/result.h"

namespace tier::config {

// "64GiB" or "25%" of something; both 0: derived at start.
struct SizeOrShare {
  uint64_t bytes = 0;
  double share = 0;  // 0 … 1.
  bool derived() const { return bytes == 0 && share == 0; }
  uint64_t Of(uint64_t whole) const {
    return share == 0 ? bytes : static_cast<uint64_t>(share * static_cast<double>(whole));
  }
  friend bool operator==(const SizeOrShare&, const SizeOrShare&) = default;
};

struct DaemonConfig {
  std::string socket_directory;
  std::string data_directory;
  std::string admin_group;
  bool is_private = false;
  int64_t starter_pid = 0;  // 0: none.
  friend bool operator==(const DaemonConfig&, const DaemonConfig&) = default;
};

struct ArenaConfig {
  SizeOrShare maximum;       // Of the machine's memory.
  uint64_t window_size = 0;  // Bytes; 0: derived.
  bool prefault = false;
  SizeOrShare host_reserve;  // Of the machine's memory.
  std::string huge_pages;    // auto, always, never
  std::string collapse;      // auto, never
  int64_t numa_node = 0;     // -1: any.
  friend bool operator==(const ArenaConfig&, const ArenaConfig&) = default;
};

struct SsdConfig {
  std::vector<std::string> devices;  // Empty: a file in data_directory.
  uint64_t file_size = 0;            // Bytes; 0: derived.
  std::string engine;                // auto, io_uring, threads
  uint64_t queue_depth = 0;
  bool discard = false;
  bool any_file_system = false;
  friend bool operator==(const SsdConfig&, const SsdConfig&) = default;
};

struct EngineConfig {
  std::string spin;  // auto, always, never
  base::Duration deadline{};
  double write_behind = 0;
  double evict = 0;
  uint64_t prefetch_maximum = 0;  // Bytes; 0: derived.
  uint64_t workers = 0;           // 0: derived.
  base::Duration drain_timeout{};
  friend bool operator==(const EngineConfig&, const EngineConfig&) = default;
};

struct JobsConfig {
  uint64_t max_sessions = 0;
  uint64_t max_jobs_per_uid = 0;
  uint64_t max_tensors = 0;
  uint64_t max_leases = 0;
  friend bool operator==(const JobsConfig&, const JobsConfig&) = default;
};

struct MetricsConfig {
  std::string listen;  // "ADDRESS:PORT"; empty: off.
  friend bool operator==(const MetricsConfig&, const MetricsConfig&) = default;
};

struct LogConfig {
  std::string level;   // debug, info, warning, error
  std::string format;  // auto, text, journal
  friend bool operator==(const LogConfig&, const LogConfig&) = default;
};

struct Config {
  DaemonConfig daemon;
  ArenaConfig arena;
  SsdConfig ssd;
  EngineConfig engine;
  JobsConfig jobs;
  MetricsConfig metrics;
  LogConfig log;
  friend bool operator==(const Config&, const Config&) = default;
};

// All options at their defaults.
Config DefaultConfig();
// Defaults, overlaid with what `text` (TOML) says. `source` names it in errors: "tierd.toml:7: unknown option …".
// INVALID for syntax, unknown options (with the nearest that exists), kinds, units, ranges, contradictions.
Result<Config> ParseConfig(std::string_view text, const std::string& source);
// NOT_FOUND or DENIED naming the path, else as ParseConfig.
Result<Config> LoadConfig(const std::string& path);
// One option from the command line, "arena.maximum=64GiB".
Status ApplyOverride(const std::string& assignment, Config* config);
// What options must not contradict in each other. Done by ParseConfig; again after overrides.
Status CheckConfig(const Config& config);
// Names of the options whose values differ, in the order of the table.
std::vector<std::string_view> ChangedOptions(const Config& before, const Config& after);
// The defaults as a commented TOML file that parses to DefaultConfig().
std::string PrintDefaultConfig();

}  // namespace tier::config
