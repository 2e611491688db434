#include "tools/tierctl/config_verbs.h"

#include <algorithm>
#include <cstdio>
#include <functional>

#include <fmt/format.h>

#include "daemon/config/options.h"
#include "tools/tierctl/ask.h"
#include "tools/tierctl/connection.h"
#include "tools/tierctl/message_json.h"
#include "tools/tierctl/printable.h"
#include "tools/tierctl/size_argument.h"

namespace tier::tierctl {
namespace {

using Stub = v1::ControlService::Stub;

bool IsOtherThanFile(const v1::DaemonOption& option) {
  return option.has_file_value() && option.file_value() != option.value();
}

// Why it is not as in the file.
std::string NoteOn(const v1::DaemonOption& option) {
  if (option.set_at_run_time()) return "set at run time";
  if (!IsOtherThanFile(option)) return "";
  return option.changes_at_run_time() ? "needs a reload" : "needs a restart";
}

std::string FileText(const v1::DaemonOption& option) { return option.has_file_value() ? option.file_value() : "-"; }

std::vector<std::string> NamesOf(const std::function<bool(const config::Option&)>& wanted) {
  std::vector<std::string> names;
  for (const config::Option& option : config::Options()) {
    if (wanted(option)) names.emplace_back(option.key);
  }
  return names;
}

bool IsSize(const std::string& name) {
  return std::ranges::any_of(config::Options(), [&name](const config::Option& option) {
    return option.key == name && (option.kind == config::Kind::kSize || option.kind == config::Kind::kSizeOrShare);
  });
}

}  // namespace

std::optional<std::string> MistakeIn(const std::string& name, const std::string& value) {
  return IsSize(name) ? MissingUnit(name, value) : std::nullopt;
}

std::string NoSuchOptionText(const std::string& name) {
  const config::Option* const nearest = config::NearestOption(name);
  const std::string meant = nearest == nullptr ? "" : fmt::format("did you mean '{}'? ", nearest->key);
  return fmt::format("no option '{}'; {}tierctl config get lists all", name, meant);
}

std::vector<std::string> OptionNames() {
  return NamesOf([](const config::Option&) { return true; });
}

std::vector<std::string> OptionNamesForSet() {
  return NamesOf([](const config::Option& option) { return option.change == config::Change::kAtRunTime; });
}

v1::ListOptionsResponse DifferencesIn(const v1::ListOptionsResponse& answer) {
  v1::ListOptionsResponse differences = answer;
  differences.clear_options();
  for (const v1::DaemonOption& option : answer.options()) {
    const bool differs = option.value() != option.default_value() || IsOtherThanFile(option);
    if (differs || option.set_at_run_time()) *differences.add_options() = option;
  }
  return differences;
}

std::string RenderOptions(const v1::ListOptionsResponse& answer, const OutputOptions& output) {
  const auto& options = answer.options();
  const auto when = [](const v1::DaemonOption& o) { return o.changes_at_run_time() ? "at run time" : "at a restart"; };
  return RenderTable({MakeColumn("OPTION", options, false, [](const v1::DaemonOption& o) { return o.name(); }),
                      MakeColumn("VALUE", options, false, [](const v1::DaemonOption& o) { return o.value(); }),
                      MakeColumn("CHANGES", options, false, when)},
                     output);
}

std::string RenderDifferences(const v1::ListOptionsResponse& differences, const OutputOptions& output) {
  std::string text;
  if (!differences.file_error().empty())
    text = fmt::format("a reload refuses the file: {}\n", Printable(differences.file_error()));
  const auto& options = differences.options();
  if (options.empty()) return text + "every option is at its default, and as the file says\n";
  return text + RenderTable(
                    {MakeColumn("OPTION", options, false, [](const v1::DaemonOption& o) { return o.name(); }),
                     MakeColumn("RUNNING", options, false, [](const v1::DaemonOption& o) { return o.value(); }),
                     MakeColumn("FILE OR --set", options, false, FileText),
                     MakeColumn("DEFAULT", options, false, [](const v1::DaemonOption& o) { return o.default_value(); }),
                     MakeColumn("NOTE", options, false, NoteOn)},
                    output);
}

int GetConfig(const DaemonOptions& options, const std::string& name) {
  return Ask<v1::ListOptionsResponse>(
      options, &Stub::ListOptions, v1::ListOptionsRequest(), [&](v1::ListOptionsResponse& answer) {
        if (name.empty()) {
          options.output.json ? PrintJson(ToJson(answer)) : fmt::print("{}", RenderOptions(answer, options.output));
          return kExitOk;
        }
        const auto found = std::find_if(answer.options().begin(), answer.options().end(),
                                        [&name](const v1::DaemonOption& option) { return option.name() == name; });
        if (found == answer.options().end()) return Explain({Code::kNotFound, NoSuchOptionText(name)});
        if (!options.output.json) {
          fmt::print("{}\n", Printable(found->value()));
          return kExitOk;
        }
        const v1::DaemonOption option = *found;
        answer.clear_options();
        *answer.add_options() = option;
        PrintJson(ToJson(answer));
        return kExitOk;
      });
}

int DiffConfig(const DaemonOptions& options) {
  return Ask<v1::ListOptionsResponse>(options, &Stub::ListOptions, v1::ListOptionsRequest(),
                                      [&](const v1::ListOptionsResponse& answer) {
                                        const v1::ListOptionsResponse differences = DifferencesIn(answer);
                                        if (options.output.json) {
                                          PrintJson(ToJson(differences));
                                        } else {
                                          fmt::print("{}", RenderDifferences(differences, options.output));
                                        }
                                        return answer.file_error().empty() ? kExitOk : kExitFailure;
                                      });
}

int SetConfig(const DaemonOptions& options, const std::string& name, const std::string& value) {
  if (const auto mistake = MistakeIn(name, value)) {
    fmt::print(stderr, "tierctl: {}\n", *mistake);
    return kExitUsage;
  }
  v1::SetOptionRequest request;
  request.set_name(name);
  request.set_value(value);
  return Ask<v1::SetOptionResponse>(options, &Stub::SetOption, request, [&](const v1::SetOptionResponse& answer) {
    if (options.output.json) {
      PrintJson(ToJson(answer));
      return kExitOk;
    }
    fmt::print("{} is {} until the next reload or restart; no configuration file was changed\n",
               Printable(answer.option().name()), Printable(answer.option().value()));
    if (!answer.option().warning().empty()) fmt::print(stderr, "tierctl: {}\n", Printable(answer.option().warning()));
    return kExitOk;
  });
}

}  // namespace tier::tierctl
