#include "tools/tierctl/completion.h"

#include <algorithm>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/tierctl/printable.h"

namespace tier::tierctl {
namespace {

using Asked = ArgumentWords::Asked;

// What lists them, one a line, in each of the three shells. Empty: nothing is asked.
std::string CommandFor(Asked asked) {
  switch (asked) {
    case Asked::kNothing: break;
    case Asked::kJobs: return "tierctl job names 2>/dev/null";
    case Asked::kDevices: return R"(tierctl device list 2>/dev/null | sed -n 's/^ *\([0-9][0-9]*\) .*/\1/p')";
    case Asked::kMissingDevices:
      return R"(tierctl device list 2>/dev/null | sed -n 's/^\([0-9a-f]\{8\}-[0-9a-f-]\{27\}\) .*/\1/p')";
  }
  return {};
}

// Patterns of a shell's `case` for what a word adds to the path before it: " job", "job set".
std::vector<std::string> Steps(const std::vector<CommandWords>& commands) {
  std::vector<std::string> steps;
  for (const CommandWords& command : commands) {
    for (const CompletionWord& verb : command.verbs) steps.push_back(fmt::format("\"{} {}\"", command.path, verb.word));
  }
  return steps;
}

// Options of all verbs whose next word is no argument. No flag of one verb is such an option of another.
std::set<std::string> OptionsWithValue(const std::vector<CommandWords>& commands) {
  std::set<std::string> options;
  for (const CommandWords& command : commands) {
    for (const CompletionWord& option : command.options) {
      if (option.takes_value) options.insert(option.word);
    }
  }
  return options;
}

std::string WordsOf(const CommandWords& command) {
  std::vector<std::string> words;
  for (const CompletionWord& verb : command.verbs) words.push_back(verb.word);
  for (const CompletionWord& option : command.options) words.push_back(option.word);
  return fmt::format("{}", fmt::join(words, " "));
}

// What follows the path, and what else stands behind so many arguments: for bash and zsh alike.
std::string Cases(const std::vector<CommandWords>& commands) {
  std::string of_path;
  std::string of_place;
  for (const CommandWords& command : commands) {
    of_path += fmt::format("    \"{}\") offered=\"{}\" ;;\n", command.path, WordsOf(command));
    for (size_t at = 0; at < command.arguments.size(); ++at) {
      const ArgumentWords& argument = command.arguments[at];
      std::string words = fmt::format("{}", fmt::join(argument.values, " "));
      if (argument.asked != Asked::kNothing) words += fmt::format("$({})", CommandFor(argument.asked));
      if (!words.empty()) of_place += fmt::format("    \"{} {}\") offered+=\" {}\" ;;\n", command.path, at, words);
    }
  }
  return fmt::format(
      "  case \"$so_far\" in\n"
      "{}"
      "  esac\n"
      "  case \"$so_far $at\" in\n"
      "{}"
      "  esac\n",
      of_path, of_place);
}

// The words before the current one: how far they follow the path, and how many arguments stand behind it.
std::string Loop(const std::vector<CommandWords>& commands, const char* skip_value) {
  return fmt::format(
      "    case \"$word\" in\n"
      "    {}) {} ;;\n"
      "    -*) continue ;;\n"
      "    esac\n"
      "    case \"$so_far $word\" in\n"
      "    {}) so_far=\"${{so_far:+$so_far }}$word\" ;;\n"
      "    *) at=$((at + 1)) ;;\n"
      "    esac\n"
      "  done\n",
      fmt::join(OptionsWithValue(commands), " | "), skip_value, fmt::join(Steps(commands), " | "));
}

// It splits "--limit=4GiB" into three words. Where the value of an option is typed, files are offered. Words come from
// the daemon: compgen -W would run a $(command) among them, and bash writes into the line just what is offered.
std::string Bash(const std::vector<CommandWords>& commands) {
  return fmt::format(
      "# bash completion of tierctl\n"
      "_tierctl() {{\n"
      "  local so_far=\"\" offered=\"\" at=0 word i typed newline=$'\\n'\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=\"${{COMP_WORDS[i]}}\"\n"
      "{}"
      "  [ \"$i\" -gt \"$COMP_CWORD\" ] && return\n"
      "{}"
      "  COMPREPLY=()\n"
      "  typed=\"${{COMP_WORDS[COMP_CWORD]#[\\\"\\']}}\"\n"
      "  while IFS= read -r word; do\n"
      "    [[ -n $word && $word == \"$typed\"* ]] || continue\n"
      "    printf -v word %q \"$word\"\n"
      "    COMPREPLY+=(\"$word\")\n"
      "  done <<<\"${{offered// /$newline}}\"\n"
      "}}\n"
      "complete -o bashdefault -o default -F _tierctl tierctl\n",
      Loop(commands, "i=$((i + 1)); [ \"${COMP_WORDS[i]}\" = \"=\" ] && i=$((i + 1)); continue"), Cases(commands));
}

// In a folder of $fpath the file itself is the function, and is called as it.
std::string Zsh(const std::vector<CommandWords>& commands) {
  return fmt::format(
      "#compdef tierctl\n"
      "_tierctl() {{\n"
      "  local so_far=\"\" offered=\"\" at=0 word i\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    word=\"${{words[i]}}\"\n"
      "{}"
      "  if [ \"$i\" -gt \"$CURRENT\" ]; then\n"
      "    _files\n"
      "    return\n"
      "  fi\n"
      "{}"
      "  compadd -- ${{=offered}}\n"
      "  _files\n"
      "}}\n"
      "if [ \"$funcstack[1]\" = \"_tierctl\" ]; then\n"
      "  _tierctl \"$@\"\n"
      "else\n"
      "  compdef _tierctl tierctl\n"
      "fi\n",
      Loop(commands, "i=$((i + 1)); continue"), Cases(commands));
}

std::string FishQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

std::string FishArguments(const CommandWords& command) {
  std::string script;
  for (size_t at = 0; at < command.arguments.size(); ++at) {
    const ArgumentWords& argument = command.arguments[at];
    const std::string begin =
        fmt::format("complete -c tierctl -n 'test \"$(__tierctl_place)\" = \"{} {}\"' -f -a ", command.path, at);
    for (const std::string& value : argument.values) script += fmt::format("{}{}\n", begin, value);
    if (argument.asked != Asked::kNothing)
      script += fmt::format("{}{}\n", begin, FishQuoted("(" + CommandFor(argument.asked) + ")"));
  }
  return script;
}

// __tierctl_place: the path, and how many arguments stand behind it; "value" where the value of an option is typed.
std::string Fish(const std::vector<CommandWords>& commands) {
  std::string script = fmt::format(
      "# fish completion of tierctl\n"
      "function __tierctl_place\n"
      "    set -l path ''\n"
      "    set -l at 0\n"
      "    set -l value no\n"
      "    for word in (commandline -opc)[2..-1]\n"
      "        if test $value = yes\n"
      "            set value no\n"
      "            continue\n"
      "        end\n"
      "        switch $word\n"
      "            case {}\n"
      "                set value yes\n"
      "                continue\n"
      "            case '-*'\n"
      "                continue\n"
      "        end\n"
      "        switch \"$path $word\"\n"
      "            case {}\n"
      "                set path (string trim -- \"$path $word\")\n"
      "            case '*'\n"
      "                set at (math $at + 1)\n"
      "        end\n"
      "    end\n"
      "    test $value = yes; and set path value\n"
      "    echo \"$path $at\"\n"
      "end\n"
      "function __tierctl_path\n"
      "    string replace -r ' [0-9]+$' '' -- (__tierctl_place)\n"
      "end\n",
      fmt::join(OptionsWithValue(commands), " "), fmt::join(Steps(commands), " "));
  for (const CommandWords& command : commands) {
    const std::string begin = fmt::format("complete -c tierctl -n 'test \"$(__tierctl_path)\" = \"{}\"'", command.path);
    for (const CompletionWord& verb : command.verbs) {
      script += fmt::format("{} -f -a {} -d {}\n", begin, verb.word, FishQuoted(verb.help));
    }
    for (const CompletionWord& option : command.options) {
      script += fmt::format("{} -l {} -d {}{}\n", begin, option.word.substr(2), FishQuoted(option.help),
                            option.takes_value ? " -r" : "");
    }
    script += FishArguments(command);
  }
  return script;
}

}  // namespace

std::string ShellMistake(const std::string& shell) {
  const bool is_known = std::ranges::find(kShells, shell) != std::end(kShells);
  return is_known ? "" : fmt::format("no script for \"{}\"; one of bash, zsh, fish", Printable(shell));
}

std::string CompletionScript(const std::string& shell, const std::vector<CommandWords>& commands) {
  if (shell == "bash") return Bash(commands);
  if (shell == "zsh") return Zsh(commands);
  if (shell == "fish") return Fish(commands);
  return {};
}

}  // namespace tier::tierctl
