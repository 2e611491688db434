#include "tools/tierctl/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tier::tierctl {

std::optional<std::string> UnknownVerb(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* at = &app;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word.starts_with('-')) {
      const CLI::Option* option = app.get_option_no_throw(word);  // Not found where the value follows a '='.
      if (option != nullptr && option->get_items_expected_max() > 0) ++i;
      continue;
    }
    const CLI::App* next = nullptr;
    std::vector<std::string> known;
    for (const CLI::App* verb : at->get_subcommands([](const CLI::App*) { return true; })) {
      known.push_back(verb->get_name());
      if (verb->get_name() == word) next = verb;
    }
    if (known.empty()) return std::nullopt;  // What follows a verb are its own arguments.
    if (next == nullptr) {
      const std::string of = at == &app ? "" : " of " + at->get_name();
      return fmt::format("unknown verb '{}'{}; one of {}", word, of, fmt::join(known, ", "));
    }
    at = next;
  }
  return std::nullopt;
}

std::vector<std::string> WithHelpAsOption(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments.front() != "help") return arguments;
  arguments.erase(arguments.begin());
  arguments.emplace_back("--help");
  return arguments;
}

}  // namespace tier::tierctl
