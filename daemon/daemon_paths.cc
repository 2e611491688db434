#include "daemon/daemon_paths.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace tier {
namespace {

std::string SocketDirectory(const DaemonEnvironment& environment) {
  if (const auto runtime = environment.variable("XDG_RUNTIME_DIR")) return *runtime + "/tierd";
  return "/run/tierd";
}

Result<std::string> DataDirectory(bool is_private, const DaemonEnvironment& environment) {
  // systemd's StateDirectory=: made and owned for this unit. Several are separated by colons; the first counts.
  if (const auto state = environment.variable("STATE_DIRECTORY")) return state->substr(0, state->find(':'));
  if (environment.uid == 0 && !is_private) return std::string("/var/lib/tierd");
  if (const auto state = environment.variable("XDG_STATE_HOME")) return *state + "/tierd";
  if (environment.uid == 0) return std::string("/var/lib/tierd");
  if (const auto home = environment.variable("HOME")) return *home + "/.local/state/tierd";
  // The file of a private daemon has no name and ends with it: any disk serves.
  if (is_private) return std::string("/var/tmp");
  return Fail(Code::kInvalid,
              "there is no place for the SSD tier and the index: neither XDG_STATE_HOME nor HOME is set; set "
              "daemon.data_directory to a directory on a local disk");
}

}  // namespace

DaemonEnvironment DaemonEnvironment::OfProcess() {
  return {.uid = ::geteuid(), .variable = [](const char* name) -> std::optional<std::string> {
            const char* value = std::getenv(name);
            if (value == nullptr || *value == 0) return std::nullopt;
            return value;
          }};
}

Result<DaemonPaths> ChoosePaths(const config::DaemonConfig& config, const DaemonEnvironment& environment) {
  DaemonPaths paths;
  paths.socket_directory = config.socket_directory.empty() ? SocketDirectory(environment) : config.socket_directory;
  paths.persistent = !config.is_private || !config.data_directory.empty();
  paths.data_directory = config.data_directory;
  if (paths.data_directory.empty()) {
    auto directory = DataDirectory(config.is_private, environment);
    if (!directory) return std::unexpected(std::move(directory.error()));
    paths.data_directory = std::move(*directory);
  }
  for (const std::string* path : {&paths.socket_directory, &paths.data_directory}) {
    if (!std::filesystem::path(*path).is_absolute()) {
      const char* option = path == &paths.socket_directory ? "daemon.socket_directory" : "daemon.data_directory";
      return Fail(Code::kInvalid, "the directory '" + *path + "' is not an absolute path: set " + option + " to one");
    }
  }
  return paths;
}

}  // namespace tier
