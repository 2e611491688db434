// The verbs of the running configuration. Each asks a daemon, prints its answer and returns an exit code.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_options.h"
#include "tools/tierctl/output.h"

namespace tier::tierctl {

// All options, or the value of one, as they hold now.
int GetConfig(const DaemonOptions& options, const std::string& name);
// Options that are not as in the file, or not at their defaults. kExitFailure: a reload refuses the file.
int DiffConfig(const DaemonOptions& options);
int SetConfig(const DaemonOptions& options, const std::string& name, const std::string& value);

// The names of the options that there are; those alone that SetConfig may change.
std::vector<std::string> OptionNames();
std::vector<std::string> OptionNamesForSet();

// There is no such option, and the one that was probably meant, if any.
std::string NoSuchOptionText(const std::string& name);
// What is wrong with a value before a daemon is asked: a size whose unit is missing. Nothing: the daemon decides.
std::optional<std::string> MistakeIn(const std::string& name, const std::string& value);

// Of these, the options that DiffConfig shows.
v1::ListOptionsResponse DifferencesIn(const v1::ListOptionsResponse& answer);
std::string RenderOptions(const v1::ListOptionsResponse& answer, const OutputOptions& output);
std::string RenderDifferences(const v1::ListOptionsResponse& differences, const OutputOptions& output);

}  // namespace tier::tierctl
