// See control_settings.h.
#include "daemon/session/control_settings.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/session/not_admin.h"

namespace tier::session {

Result<SettingsReport> ListOptions(const SettingsAccess& settings, const Caller& caller) {
  if (!settings.list) return Fail(Code::kDenied, "this daemon tells no options");
  // The file may be closed to others, and each reading of it costs the daemon something.
  SettingsReport report = settings.list(caller.admin);
  for (const OptionState& option : report.options)
    TIER_CHECK(caller.admin || !option.in_file, "uid {} is shown the file's {}", caller.uid, option.name);
  return report;
}

Result<OptionState> SetOption(const SettingsAccess& settings, const Caller& caller, const std::string& name,
                              const std::string& value) {
  if (!caller.admin) return std::unexpected(NotAdmin("set an option").error());
  if (!settings.set || !settings.list) return Fail(Code::kDenied, "this daemon changes no options");
  if (name.empty() || name.size() > kOptionNameSizeMax || value.size() > kOptionValueSizeMax) {
    return Fail(Code::kInvalid, fmt::format("the name has {} characters and the value {}: allowed are 1 to {} and {}",
                                            name.size(), value.size(), kOptionNameSizeMax, kOptionValueSizeMax));
  }
  if (Status set = settings.set({.uid = caller.uid, .name = name, .value = value}); !set)
    return std::unexpected(std::move(set.error()));
  for (OptionState& option : settings.list(false).options) {
    if (option.name == name) return std::move(option);
  }
  return Fail(Code::kNotFound, fmt::format("there is no option '{}'", name));
}

}  // namespace tier::session
