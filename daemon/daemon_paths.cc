#include "daemon/daemon_paths.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "daemon/session/packet_socket.h"
#include "proto/socket_places.h"

namespace tier {
namespace {

constexpr char kSystemsMetrics[] = "127.0.0.1:9464";
constexpr char kFreeMetrics[] = "127.0.0.1:0";

std::string SocketDirectory(const DaemonEnvironment& environment) {
  if (const auto runtime = environment.variable("XDG_RUNTIME_DIR")) return *runtime + "/tierd";
  // systemd, or who built the container, gives it to the user that the daemon runs as.
  if (environment.uid == 0 || environment.owns(proto::kSystemSocketDirectory)) return proto::kSystemSocketDirectory;
  return proto::UserSocketDirectory(environment.uid);
}

// Nothing: there is no place that is the daemon's own, and lasts.
std::optional<std::string> DataDirectory(bool is_private, const DaemonEnvironment& environment) {
  // systemd's StateDirectory=: made and owned for this unit. Several are separated by colons; the first counts.
  if (const auto state = environment.variable("STATE_DIRECTORY")) return state->substr(0, state->find(':'));
  if (environment.uid == 0 && !is_private) return std::string("/var/lib/tierd");
  if (const auto state = environment.variable("XDG_STATE_HOME")) return *state + "/tierd";
  if (environment.uid == 0) return std::string("/var/lib/tierd");
  const auto home = environment.variable("HOME");
  if (!home) return std::nullopt;
  std::string state = *home + "/.local/state/tierd";
  // The home of many a system user belongs to root. A private daemon keeps nothing there, so any place serves it.
  if (is_private && !environment.may_write(state)) return std::nullopt;
  return state;
}

// The nearest directory that is there decides.
bool MayWrite(const std::string& directory) {
  std::error_code error;
  std::filesystem::path place = directory;
  while (!std::filesystem::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  return std::filesystem::is_directory(place, error) &&
         ::faccessat(AT_FDCWD, place.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
}

}  // namespace

DaemonEnvironment DaemonEnvironment::OfProcess() {
  return {.uid = ::geteuid(),
          .variable = [](const char* name) -> std::optional<std::string> {
            const char* value = std::getenv(name);
            if (value == nullptr || *value == 0) return std::nullopt;
            return value;
          },
          .owns =
              [](const char* directory) {
                struct stat about{};
                return ::lstat(directory, &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == ::geteuid();
              },
          .may_write = MayWrite};
}

Result<DaemonPaths> ChoosePaths(const config::DaemonConfig& config, const DaemonEnvironment& environment) {
  DaemonPaths paths;
  paths.socket_directory = config.socket_directory.empty() ? SocketDirectory(environment) : config.socket_directory;
  paths.persistent = !config.is_private || !config.data_directory.empty();
  paths.data_directory = config.data_directory;
  if (paths.data_directory.empty()) {
    const auto directory = DataDirectory(config.is_private, environment);
    if (!directory) paths.persistent = false;
    paths.data_directory = directory.value_or("/var/tmp");  // A file without a name: any disk serves.
  }
  for (const std::string* path : {&paths.socket_directory, &paths.data_directory}) {
    if (!std::filesystem::path(*path).is_absolute()) {
      const char* option = path == &paths.socket_directory ? "daemon.socket_directory" : "daemon.data_directory";
      return Fail(Code::kInvalid, "the directory '" + *path + "' is not an absolute path: set " + option + " to one");
    }
  }
  // The longest of its sockets.
  if (auto fits = session::CheckSocketPath(paths.socket_directory + "/control.sock"); !fits)
    return std::unexpected(std::move(fits.error()));
  return paths;
}

bool IsSystemsDaemon(const config::DaemonConfig& config, const DaemonPaths& paths) {
  const auto place = std::filesystem::path(paths.socket_directory + "/").lexically_normal();
  return !config.is_private && place == std::filesystem::path(proto::kSystemSocketDirectory) / "";
}

std::string ChooseMetricsAddress(const config::Config& config, const DaemonPaths& paths) {
  if (config.daemon.is_private) return {};
  if (config.metrics.listen != "auto") return config.metrics.listen;
  return IsSystemsDaemon(config.daemon, paths) ? kSystemsMetrics : kFreeMetrics;
}

}  // namespace tier
