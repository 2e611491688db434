// Shell completion scripts, made from the command line's own description so that they cannot lag behind it.
#pragma once

#include <string>
#include <vector>

namespace tier::tierctl {

struct CompletionWord {
  std::string word;  // "set", "--limit"
  std::string help;
  bool takes_value = false;  // An option whose next word is its own.
};

// What may stand in one place behind a verb.
struct ArgumentWords {
  enum class Asked { kNothing, kJobs, kDevices, kMissingDevices };

  std::vector<std::string> values;  // Where there are only these.
  Asked asked = Asked::kNothing;    // The script asks tierctl for those that there are.
};

// What may follow a noun or verb.
struct CommandWords {
  std::string path;                   // "job", "job set"; "" for the top level.
  std::vector<CompletionWord> verbs;  // Each is the end of another path.
  std::vector<CompletionWord> options;
  std::vector<ArgumentWords> arguments;  // In their order.
};

inline constexpr const char* kShells[] = {"bash", "zsh", "fish"};
// What is wrong with such a word for the name of a shell; empty: there is a script for it.
std::string ShellMistake(const std::string& shell);

// `shell` is bash, zsh or fish; empty for any other. The script serves by being read (bash, zsh) and as a file in the
// shell's folder of completions.
std::string CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands);

}  // namespace tier::tierctl
