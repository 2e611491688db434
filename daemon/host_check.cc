#include "daemon/host_check.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "daemon/session/owner_table.h"
#include "daemon/session/quota_book.h"
#include "daemon/storage/file_system.h"
#include "daemon/storage/known_devices.h"
#include "daemon/storage/sizing.h"
#include "daemon/storage/ssd_tier.h"
#include "daemon/user_quotas.h"

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

// What the next start makes of ssd.file_size where the files are there.
void AddSizeNotes(const config::Config& config, const DaemonPaths& paths, std::vector<std::string>* notes) {
  std::vector<std::string> files = config.ssd.devices;
  if (files.empty() && paths.persistent) files.push_back(paths.data_directory + "/tier.ssd");
  for (const std::string& file : files) {
    std::error_code error;
    if (file == "none" || !std::filesystem::is_regular_file(file, error)) continue;
    const auto device = storage::DescribeDevice(file);
    if (!device) continue;  // A blank one is made; what else is wrong with it is for the start to tell.
    auto space = storage::SpaceOf(file);
    const uint64_t length = std::filesystem::file_size(file, error);
    // A growth that was interrupted has left it longer.
    if (space && !error && length > device->size) space->available += length - device->size;
    std::string note =
        storage::NextSizeNote(file, device->size, config.ssd.file_size, space ? std::optional(*space) : std::nullopt,
                              storage::RoomForIndex(paths.persistent ? paths.data_directory : std::string(), file));
    if (!note.empty()) notes->push_back("ssd.file_size: " + std::move(note));
  }
}

}  // namespace

Result<std::vector<std::string>> CheckHostPaths(const config::Config& config, const DaemonPaths& paths) {
  if (auto ok = CheckDirectory("daemon.socket_directory", paths.socket_directory); !ok)
    return std::unexpected(std::move(ok.error()));
  if (auto ok = CheckDirectory("daemon.data_directory", paths.data_directory); !ok)
    return std::unexpected(std::move(ok.error()));
  storage::KnownDevices known(paths.persistent ? storage::IndexPath(paths.data_directory) : std::string(),
                              storage::IndexUse::kLook);
  std::vector<std::string> notes;
  for (const std::string& device : config.ssd.devices) {
    if (device == "none") continue;
    const auto ok = storage::CheckDevicePath(device, config.ssd.any_file_system);
    if (ok) continue;
    if (known.IsLost(device, ok.error())) {
      notes.push_back(
          fmt::format("ssd.devices: {}: {}; tierd had a device there, starts without it, and lists it as missing: "
                      "what jobs persisted on it is lost until it is back (tierctl device list)",
                      device, ok.error().message));
      continue;
    }
    const std::string unknown =
        known.failure() ? fmt::format("; whether tierd had a device there, and so starts without it, is not known: {}",
                                      known.failure()->message)
                        : std::string();
    return Fail(ok.error().code, "ssd.devices: " + ok.error().message + unknown);
  }
  AddSizeNotes(config, paths, &notes);
  return notes;
}

std::vector<std::string> CheckQuotaNames(const config::Config& config, const DaemonPaths& paths,
                                         session::UserDirectory& system) {
  auto stored = paths.persistent ? session::LoadOwners(session::OwnersPath(paths.data_directory))
                                 : Result<session::OwnerRecords>();
  // One that cannot be read is for the start to refuse.
  const session::OwnerTable owners({}, stored ? std::move(*stored) : session::OwnerRecords());
  session::OwnerDirectory users(owners, system);
  const base::SteadyClock clock;
  session::QuotaBook book({.table = config.quota, .ssd = {}, .jobs = {}, .file = {}}, {}, users, clock);
  std::vector<std::string> notes;
  for (const std::string& name : book.ListUnknown()) notes.push_back(UnknownQuotaText(name));
  return notes;
}

}  // namespace tier
