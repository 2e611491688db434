// Shell completion scripts, made from the command line's own description so that they cannot lag behind it.
#pragma once

#include <string>
#include <vector>

namespace tier::tierctl {

struct CompletionWord {
  std::string word;  // "set", "--limit"
  std::string help;
};

// What may follow a noun or verb.
struct CommandWords {
  std::string path;                   // "job", "job set"; "" for the top level.
  std::vector<CompletionWord> verbs;  // Each is the end of another path.
  std::vector<CompletionWord> options;
  std::vector<std::string> values;  // Of its argument, where there are only these.
  bool takes_job = false;           // The name of a job: the script asks tierctl for those that there are.
};

// `shell` is bash, zsh or fish; empty for any other. The script serves by being read (bash, zsh) and as a file in the
// shell's folder of completions.
std::string CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands);

}  // namespace tier::tierctl
