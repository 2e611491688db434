#include "daemon/reload.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include "daemon/log_setup.h"

namespace tier {

void ReloadConfig(const config::Config& started_with, const ConfigSource& source,
                  const std::function<bool(const session::QuotaTable&)>& set_quotas) {
  if (source.file.empty()) {
    spdlog::info("reload: tierd was started without a configuration file; nothing to read again");
    return;
  }
  const auto config = source.read();
  if (!config) {
    spdlog::error("reload: {}; all settings stay as they are", config.error().message);
    return;
  }
  std::vector<std::string_view> waiting = config::ChangedOptions(started_with, *config);
  std::erase(waiting, "log.level");
  const bool other_quotas = set_quotas(config->quota);
  ChangeLogLevel(config->log.level, [&] {
    spdlog::info("reload: {} was read again; log.level is \"{}\"", source.file, config->log.level);
    if (other_quotas) spdlog::info("reload: the quotas of {} hold from now on", source.file);
    if (waiting.empty()) return;
    spdlog::warn("reload: these options changed and take effect only after a restart: {}", fmt::join(waiting, ", "));
  });
}

}  // namespace tier
