#include "tools/tierctl/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tier::tierctl {
namespace {

constexpr char kJobNames[] = "tierctl job names 2>/dev/null";

// Patterns of a shell's `case` for what a word adds to the path before it: " job", "job set".
std::vector<std::string> Steps(const std::vector<CommandWords>& commands) {
  std::vector<std::string> steps;
  for (const CommandWords& command : commands) {
    for (const CompletionWord& verb : command.verbs) steps.push_back(fmt::format("\"{} {}\"", command.path, verb.word));
  }
  return steps;
}

std::string WordsOf(const CommandWords& command) {
  std::vector<std::string> words = command.values;
  for (const CompletionWord& verb : command.verbs) words.push_back(verb.word);
  for (const CompletionWord& option : command.options) words.push_back(option.word);
  return fmt::format("{}", fmt::join(words, " "));
}

// What follows the path, for bash and zsh alike.
std::string Cases(const std::vector<CommandWords>& commands) {
  std::string cases;
  for (const CommandWords& command : commands) {
    const std::string jobs = command.takes_job ? fmt::format(" $({})", kJobNames) : "";
    cases += fmt::format("    \"{}\") offered=\"{}{}\" ;;\n", command.path, WordsOf(command), jobs);
  }
  return cases;
}

std::string Bash(const std::vector<CommandWords>& commands) {
  return fmt::format(
      "# bash completion of tierctl\n"
      "_tierctl() {{\n"
      "  local path=\"\" offered=\"\" i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"$path ${{COMP_WORDS[i]}}\" in\n"
      "    {}) path=\"${{path:+$path }}${{COMP_WORDS[i]}}\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$path\" in\n"
      "{}"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$offered\" -- \"${{COMP_WORDS[COMP_CWORD]}}\"))\n"
      "}}\n"
      "complete -o bashdefault -o default -F _tierctl tierctl\n",
      fmt::join(Steps(commands), " | "), Cases(commands));
}

// In a folder of $fpath the file itself is the function, and is called as it.
std::string Zsh(const std::vector<CommandWords>& commands) {
  return fmt::format(
      "#compdef tierctl\n"
      "_tierctl() {{\n"
      "  local path_so_far=\"\" offered=\"\" i\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    case \"$path_so_far ${{words[i]}}\" in\n"
      "    {}) path_so_far=\"${{path_so_far:+$path_so_far }}${{words[i]}}\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$path_so_far\" in\n"
      "{}"
      "  esac\n"
      "  compadd -- ${{=offered}}\n"
      "  _files\n"
      "}}\n"
      "if [ \"$funcstack[1]\" = \"_tierctl\" ]; then\n"
      "  _tierctl \"$@\"\n"
      "else\n"
      "  compdef _tierctl tierctl\n"
      "fi\n",
      fmt::join(Steps(commands), " | "), Cases(commands));
}

std::string FishQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

std::string Fish(const std::vector<CommandWords>& commands) {
  std::string script = fmt::format(
      "# fish completion of tierctl\n"
      "function __tierctl_path\n"
      "    set -l path ''\n"
      "    for word in (commandline -opc)[2..-1]\n"
      "        switch \"$path $word\"\n"
      "            case {}\n"
      "                set path (string trim -- \"$path $word\")\n"
      "        end\n"
      "    end\n"
      "    echo $path\n"
      "end\n",
      fmt::join(Steps(commands), " "));
  for (const CommandWords& command : commands) {
    const std::string begin = fmt::format("complete -c tierctl -n 'test \"$(__tierctl_path)\" = \"{}\"'", command.path);
    for (const CompletionWord& verb : command.verbs) {
      script += fmt::format("{} -f -a {} -d {}\n", begin, verb.word, FishQuoted(verb.help));
    }
    for (const CompletionWord& option : command.options) {
      script += fmt::format("{} -l {} -d {}\n", begin, option.word.substr(2), FishQuoted(option.help));
    }
    for (const std::string& value : command.values) script += fmt::format("{} -f -a {}\n", begin, value);
    if (command.takes_job) script += fmt::format("{} -f -a '({})'\n", begin, kJobNames);
  }
  return script;
}

}  // namespace

std::string CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands) {
  if (shell == "bash") return Bash(commands);
  if (shell == "zsh") return Zsh(commands);
  if (shell == "fish") return Fish(commands);
  return {};
}

}  // namespace tier::tierctl
