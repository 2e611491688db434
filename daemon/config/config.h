// Reads and prints the configuration: TOML text and command-line overrides become a Config, by the table in options.h.
// Thread-safety: functions of their arguments.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/config/config_values.h"
#include "proto/result.h"

namespace tier::config {

// All options at their defaults.
Config DefaultConfig();
// Defaults, overlaid with what `text` (TOML) says. `source` names it in errors: "tierd.toml:7: unknown option …".
// INVALID for syntax, unknown options (with the nearest that exists), kinds, units, ranges, contradictions.
Result<Config> ParseConfig(std::string_view text, const std::string& source);
// Fails as ReadConfigFile or ParseConfig do.
Result<Config> LoadConfig(const std::string& path);
// One option from the command line, "arena.maximum=64GiB".
Status ApplyOverride(const std::string& assignment, Config* config);
// What options must not contradict in each other. Done by ParseConfig; again after overrides.
Status CheckConfig(const Config& config);
// Names of the options whose values differ, in the order of the table. Quotas, which have no options, are compared
// apart.
std::vector<std::string_view> ChangedOptions(const Config& before, const Config& after);
// The defaults as a commented TOML file that parses to DefaultConfig().
std::string PrintDefaultConfig();

}  // namespace tier::config
