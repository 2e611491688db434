// What may follow each noun and verb, read from the command line's own description: for the completion scripts.
#pragma once

#include <vector>

#include <CLI/CLI.hpp>

#include "tools/tierctl/completion.h"

namespace tier::tierctl {

// The app and all below it; the options of the app are options of each.
std::vector<CommandWords> CommandsOf(const CLI::App& app);

}  // namespace tier::tierctl
