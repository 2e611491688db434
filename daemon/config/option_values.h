// Values of options as the configuration writes them, and what a running daemon takes over of a changed configuration.
// Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/config_values.h"
#include "daemon/config/options.h"

namespace tier::config {

// As it would stand in the file: "64GiB" with its quotes, true, [ "/dev/nvme0n1" ]. Read again, it is the same value.
std::string ValueText(const Option& option, const Config& config);
// `running` with the quotas of `wanted`, and with those of its options that change at run time.
Config WithRunTimeOptions(const Config& running, const Config& wanted);
// Of the options that differ, those that wait for a restart.
std::vector<std::string_view> WaitingForRestart(const Config& running, const Config& wanted);

}  // namespace tier::config
