#include "tools/tierctl/command_words.h"

#include <iterator>
#include <string>
#include <utility>

#include "tools/tierctl/config_verbs.h"

namespace tier::tierctl {
namespace {

constexpr const char* kQuotaLevels[] = {"default", "user", "group"};

// By its name; the path is that of its verb.
ArgumentWords ArgumentOf(const std::string& name, const std::string& path) {
  using Asked = ArgumentWords::Asked;
  if (name == "job" && path != "job open") return {.values = {}, .asked = Asked::kJobs};
  if (name == "device") return {.values = {}, .asked = Asked::kDevices};
  if (name == "uuid") return {.values = {}, .asked = Asked::kMissingDevices};
  if (name == "shell") return {.values = {std::begin(kShells), std::end(kShells)}};
  if (name == "for") return {.values = {std::begin(kQuotaLevels), std::end(kQuotaLevels)}};
  if (name == "option") return {.values = path == "config set" ? OptionNamesForSet() : OptionNames()};
  return {};
}

void Describe(const CLI::App& root, const CLI::App& app, const std::string& path, std::vector<CommandWords>* commands) {
  CommandWords command{.path = path};
  const auto children = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* child : children) command.verbs.push_back({child->get_name(), child->get_description()});
  for (const CLI::App* of : {&app, &root}) {
    for (const CLI::Option* option : of->get_options()) {
      if (option->get_lnames().empty() || (of == &root && &app != &root && option == root.get_help_ptr())) continue;
      command.options.push_back({.word = "--" + option->get_lnames().front(),
                                 .help = option->get_description(),
                                 .takes_value = option->get_items_expected_max() > 0});
    }
    if (&app == &root) break;
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional()) command.arguments.push_back(ArgumentOf(option->get_single_name(), path));
  }
  commands->push_back(std::move(command));
  for (const CLI::App* child : children) {
    Describe(root, *child, path.empty() ? child->get_name() : path + " " + child->get_name(), commands);
  }
}

}  // namespace

std::vector<CommandWords> CommandsOf(const CLI::App& app) {
  std::vector<CommandWords> commands;
  Describe(app, app, "", &commands);
  return commands;
}

}  // namespace tier::tierctl
