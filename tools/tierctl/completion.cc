#include "tools/tierctl/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tier::tierctl {
namespace {

std::string BashFunction(const std::vector<CommandWords>& commands) {
  std::string cases;
  std::string top;
  for (const CommandWords& entry : commands) {
    const std::string words = fmt::format("{}", fmt::join(entry.words, " "));
    if (entry.command.empty()) {
      top = words;
    } else {
      cases += fmt::format("    {}) words=\"{}\" ;;\n", entry.command, words);
    }
  }
  return fmt::format(
      "_tierctl() {{\n"
      "  local words=\"{}\" i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"${{COMP_WORDS[i]}}\" in\n"
      "{}"
      "    esac\n"
      "  done\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n"
      "}}\n"
      "complete -F _tierctl tierctl\n",
      top, cases);
}

}  // namespace

std::string CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands) {
  if (shell == "bash") return BashFunction(commands);
  // zsh runs bash completion functions.
  if (shell == "zsh") return "autoload -U +X bashcompinit && bashcompinit\n" + BashFunction(commands);
  return {};
}

}  // namespace tier::tierctl
