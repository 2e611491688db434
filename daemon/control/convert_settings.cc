// See convert_settings.h.
#include "daemon/control/convert_settings.h"

namespace tier::control {

void ToMessage(const session::OptionState& option, v1::DaemonOption* message) {
  message->set_name(option.name);
  message->set_value(option.running);
  message->set_default_value(option.by_default);
  if (option.in_file) message->set_file_value(*option.in_file);
  message->set_changes_at_run_time(option.changes_at_run_time);
  message->set_set_at_run_time(option.set_at_run_time);
  message->set_warning(option.warning);
  message->set_help(option.help);
}

void ToMessage(const session::SettingsReport& report, v1::ListOptionsResponse* message) {
  message->set_file(report.file);
  message->set_file_error(report.file_error);
  for (const session::OptionState& option : report.options) ToMessage(option, message->add_options());
}

}  // namespace tier::control
