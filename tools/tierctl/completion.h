// Shell completion scripts, made from the command line's own description so that they cannot lag behind it.
#pragma once

#include <string>
#include <vector>

namespace tier::tierctl {

struct CommandWords {
  std::string command;             // "job", or "" for the top level.
  std::vector<std::string> words;  // Subcommands and options that may follow it.
};

// `shell` is bash or zsh; empty for any other.
std::string CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands);

}  // namespace tier::tierctl
