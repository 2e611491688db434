#include "tools/tierctl/words.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "daemon/base/edit_distance.h"
#include "tools/tierctl/printable.h"

namespace tier::tierctl {

namespace {

// How far the words of a command line lead down the tree of nouns and verbs.
struct Path {
  const CLI::App* at;
  const std::string* unknown = nullptr;  // The first verb or option that is none.
  bool ended = false;  // At a verb, whose own arguments follow; or help was asked for, or the version.
};

std::vector<const CLI::App*> VerbsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

Path Follow(const CLI::App& app, const std::vector<std::string>& arguments) {
  Path path{.at = &app};
  for (size_t i = 0; i < arguments.size() && !path.ended; ++i) {
    const std::string& word = arguments[i];
    const bool is_option = word.starts_with('-');
    const auto verbs = VerbsOf(*path.at);
    const auto verb = std::ranges::find(verbs, word, [](const CLI::App* known) { return known->get_name(); });
    const CLI::Option* option = is_option ? app.get_option_no_throw(word.substr(0, word.find('='))) : nullptr;
    if (is_option ? option == nullptr : verb == verbs.end()) {
      path.unknown = &word;
      return path;
    }
    if (is_option) {
      path.ended = option == app.get_help_ptr() || option == app.get_version_ptr();
      if (option->get_items_expected_max() > 0 && word.find('=') == std::string::npos) ++i;
    } else {
      path.at = *verb;
      path.ended = VerbsOf(*path.at).empty();
    }
  }
  return path;
}

// Of these the one that was probably meant: a letter in three may be wrong. Empty: none is that near.
std::string_view MeantBy(const std::string& typed, const std::vector<std::string>& known) {
  constexpr size_t kLettersMax = 32;  // Longer than any verb.
  std::string_view nearest;
  size_t least = std::max<size_t>(typed.size() / 3, 1) + 1;
  if (typed.size() > kLettersMax) return nearest;
  for (const std::string& word : known) {
    const size_t distance = base::EditDistance(typed, word);
    if (distance >= least) continue;
    least = distance;
    nearest = word;
  }
  return nearest;
}

// The name of an option among the words of a command line: without what stands behind '='. Empty: it is no option.
std::string OptionNameOf(const std::string& word) {
  const bool is_option = word.size() > 1 && word[0] == '-' && std::isdigit(static_cast<unsigned char>(word[1])) == 0;
  return is_option ? word.substr(0, word.find('=')) : "";
}

// "--json" and the like, without those of help and version.
std::vector<std::string> OptionsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option == app.get_help_ptr() || option == app.get_version_ptr() || option->get_lnames().empty()) continue;
    names.push_back("--" + option->get_lnames().front());
  }
  return names;
}

std::string QuestionOf(std::string_view meant) {
  return meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant);
}

}  // namespace

std::optional<std::string> UnknownWord(const CLI::App& app, const std::vector<std::string>& arguments) {
  const Path path = Follow(app, arguments);
  if (path.unknown == nullptr) return std::nullopt;
  if (path.unknown->starts_with('-')) {
    return fmt::format("unknown option '{}' before the verb{}", Printable(*path.unknown),
                       QuestionOf(MeantBy(OptionNameOf(*path.unknown), OptionsOf(app))));
  }
  std::vector<std::string> known;
  for (const CLI::App* verb : VerbsOf(*path.at)) known.push_back(verb->get_name());
  const std::string of = path.at == &app ? "" : " of " + path.at->get_name();
  const std::string_view meant = MeantBy(*path.unknown, known);
  return fmt::format("unknown verb '{}'{}{}{} {}", Printable(*path.unknown), of, QuestionOf(meant),
                     meant.empty() ? "; one of" : " The verbs are", fmt::join(known, ", "));
}

std::optional<std::string> UnknownOption(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App* const verb = Follow(app, arguments).at;
  if (verb == &app) return std::nullopt;
  for (const std::string& word : arguments) {
    if (word == "--") return std::nullopt;  // Behind it are arguments alone.
    const std::string name = OptionNameOf(word);
    if (name.empty() || verb->get_option_no_throw(name) != nullptr || app.get_option_no_throw(name) != nullptr)
      continue;
    std::vector<std::string> known = OptionsOf(*verb);
    std::ranges::copy(OptionsOf(app), std::back_inserter(known));
    const std::string_view meant = MeantBy(name, known);
    const std::string noun = verb->get_parent() == &app ? "" : verb->get_parent()->get_name() + " ";
    return fmt::format("unknown option '{}' of {}{}{}{} {}", Printable(name), noun, verb->get_name(), QuestionOf(meant),
                       meant.empty() ? "; one of" : " The options are", fmt::join(known, ", "));
  }
  return std::nullopt;
}

std::optional<std::string> MissingVerb(const CLI::App& app, const std::vector<std::string>& arguments) {
  const Path path = Follow(app, arguments);
  if (path.ended || path.unknown != nullptr) return std::nullopt;
  return path.at->help(path.at == &app ? "" : app.get_name());
}

std::vector<std::string> WithVerbOfNoun(const CLI::App& app, std::vector<std::string> arguments,
                                        const std::string& noun, const std::string& verb) {
  const Path path = Follow(app, arguments);
  if (path.unknown == nullptr && !path.ended && path.at->get_name() == noun) arguments.push_back(verb);
  return arguments;
}

std::vector<std::string> WithHelpAsOption(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments.front() != "help") return arguments;
  arguments.erase(arguments.begin());
  arguments.emplace_back("--help");
  return arguments;
}

std::string InOurWords(const std::string& sentence) {
  constexpr std::string_view kRequired = " is required";
  if (!sentence.ends_with(kRequired)) return sentence;
  const std::string name = sentence.substr(0, sentence.size() - kRequired.size());
  return fmt::format("{} is missing: {}", name.starts_with('-') ? "an option" : "an argument", name);
}

}  // namespace tier::tierctl
