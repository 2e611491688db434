#include "daemon/host_check.h"

#include <filesystem>
#include <string>

#include <fmt/format.h>

#include "daemon/storage/file_system.h"

namespace tier {
namespace {

// It is a directory, or can be made as one: what is there of its path is a directory.
Status CheckDirectory(const char* option, const std::string& directory) {
  std::filesystem::path there = directory;
  std::error_code error;
  while (there.has_relative_path() &&
         std::filesystem::status(there, error).type() == std::filesystem::file_type::not_found)
    there = there.parent_path();
  if (std::filesystem::is_directory(there, error)) return {};
  const std::string why = error ? error.message() : "not a directory";
  return Fail(Code::kInvalid,
              fmt::format("{} is {}, and {} is in the way: {}", option, directory, there.string(), why));
}

}  // namespace

Status CheckHostPaths(const config::Config& config, const DaemonPaths& paths) {
  if (auto ok = CheckDirectory("daemon.socket_directory", paths.socket_directory); !ok) return ok;
  if (auto ok = CheckDirectory("daemon.data_directory", paths.data_directory); !ok) return ok;
  for (const std::string& device : config.ssd.devices) {
    if (device == "none") continue;
    if (auto ok = storage::CheckDevicePath(device, config.ssd.any_file_system); !ok)
      return Fail(ok.error().code, "ssd.devices: " + ok.error().message);
  }
  return {};
}

}  // namespace tier
