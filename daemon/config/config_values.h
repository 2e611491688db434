// Config: every option of the daemon, as values. Filled from the table in options.cc, which is the only place that
// knows an option's name, kind, limits, default and help; nothing else may set a default.
//
// Paths may be empty: "where this user has it" is decided at start (composition). Thread-safety: plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/session/quota_table.h"

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
  SizeOrShare minimum;       // Of the machine's memory.
  uint64_t window_size = 0;  // Bytes; 0: derived.
  bool prefault = false;
  SizeOrShare host_reserve;  // Of the machine's memory.
  std::string huge_pages;    // auto, always, never
  std::string collapse;      // auto, never
  int64_t numa_node = 0;     // -1: each client's.
  friend bool operator==(const ArenaConfig&, const ArenaConfig&) = default;
};

struct SsdConfig {
  std::vector<std::string> devices;  // Empty: a file in data_directory.
  uint64_t file_size = 0;            // Bytes; 0: derived.
  std::string engine;                // auto, io_uring, threads
  uint64_t queue_depth = 0;
  bool discard = false;
  double drive_writes_per_day = 0;  // 0: no budget.
  std::string smart_file;           // Empty: none.
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
  uint64_t max_attaches_per_second = 0;
  uint64_t max_tensors = 0;
  uint64_t max_leases = 0;
  uint64_t max_metadata = 0;     // Bytes.
  uint64_t max_ssd_per_uid = 0;  // Bytes; 0: no quota.
  base::Duration reclaim_deadline{};
  std::string on_unreturned;    // charge, kill
  base::Duration idle_after{};  // 0: never.
  base::Duration stall_threshold{};
  bool kills_keepers() const { return on_unreturned == "kill"; }
  friend bool operator==(const JobsConfig&, const JobsConfig&) = default;
};

struct MetricsConfig {
  std::string listen;  // "ADDRESS:PORT", "auto"; empty: off.
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
  session::QuotaTable quota;
  MetricsConfig metrics;
  LogConfig log;
  friend bool operator==(const Config&, const Config&) = default;
};

}  // namespace tier::config
