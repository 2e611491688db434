// Settings: the options of the running daemon, as those above this layer see and change them. Plain data; how options
// are read, checked and made to hold is the composition's (daemon/live_config).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "proto/result.h"

namespace tier::session {

inline constexpr size_t kOptionNameSizeMax = 128;
inline constexpr size_t kOptionValueSizeMax = 4096;

// Values are written as in the configuration file.
struct OptionState {
  std::string name;  // "engine.deadline"
  std::string running;
  std::string by_default;
  std::optional<std::string> in_file;  // The file as it is now, under the command line; none: it was not read.
  bool changes_at_run_time = false;    // Else a change waits for a restart.
  bool set_at_run_time = false;        // By SetOption, since the last reload.
  std::string help;
  std::string warning;  // What its value leads to, beside those of other options. Empty: nothing to warn of.
};

struct SettingsReport {
  std::string file;  // Empty: the daemon was started without one.
  // Why it could not be read, or a reload would refuse it; empty: neither, or it was not asked for.
  std::string file_error;
  std::vector<OptionState> options;
};

// The last reload was refused, and changed nothing.
struct ReloadFailure {
  int64_t unix_time_ms = 0;
  std::string why;         // For administrators: the file may name users, paths and what is promised to whom.
  std::string for_others;  // What all others are told.
};

struct SettingChange {
  uint32_t uid = 0;  // Who asks.
  std::string name;
  std::string value;
};

// Any thread but the main one and the engine's. Empty functions: this daemon has no such thing.
struct SettingsAccess {
  // `with_file`: what the file says too, which is read for that.
  std::function<SettingsReport(bool with_file)> list;
  // Holds when it returns; or why nothing has changed. Waits for the main thread and the engine.
  std::function<Status(const SettingChange& change)> set;
};

}  // namespace tier::session
