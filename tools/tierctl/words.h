// Words of the command line that are no noun and no verb, told by name before CLI11 merely misses a subcommand.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace tier::tierctl {

// "unknown verb 'frob'; one of …", for the first such word; nothing if each is known. Without the program's name.
std::optional<std::string> UnknownVerb(const CLI::App& app, const std::vector<std::string>& arguments);

// "help job set" is "job set --help".
std::vector<std::string> WithHelpAsOption(std::vector<std::string> arguments);

}  // namespace tier::tierctl
